{{/* Arithmetic with Kubernetes' quantities and Prometheus' durations */}}

{{/* Bytes of a quantity, as text; a broken one of bytes counts as a whole */}}
{{- define "mmta.bytes" -}}
{{- $units := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15
      "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 -}}
{{- $text := toString . -}}
{{- if not (regexMatch "^[0-9]+(\\.[0-9]+)?([kMGTP]|[KMGTP]i)?$" $text) -}}
{{- fail (printf "%q is not a size: write a number with one of k, M, G, T, P, Ki, Mi, Gi, Ti, Pi, or without" $text) -}}
{{- end -}}
{{- $number := regexFind "^[0-9.]+" $text -}}
{{- $unit := get $units (trimPrefix $number $text) -}}
{{- if gt (mulf (float64 $number) $unit) 9e18 -}}
{{- fail (printf "%q is more bytes than 64 bits can count" $text) -}}
{{- end -}}
{{- if contains "." $number -}}
{{- mulf (float64 $number) $unit | ceil | int64 -}}
{{- else -}}
{{- mul (int64 $number) (int64 $unit) -}}
{{- end -}}
{{- end -}}

{{/* Thousandths of a processor; argument: a number, or text as `500m` */}}
{{- define "mmta.millicores" -}}
{{- $text := toString . -}}
{{- if hasSuffix "m" $text }}{{ trimSuffix "m" $text }}{{ else }}{{ mulf (float64 $text) 1000 | ceil | int64 }}{{ end -}}
{{- end -}}

{{/* Resources of a container; an API server takes no number with a point: `cpu: 0.5` must be text */}}
{{- define "mmta.resources" -}}
{{- $made := dict -}}
{{- range $kind, $amounts := . -}}
{{- $texts := dict -}}
{{- range $name, $amount := $amounts -}}
{{- $broken := and (kindIs "float64" $amount) (ne (toString $amount) (int64 $amount | toString)) -}}
{{- $_ := set $texts $name (ternary (toString $amount) $amount $broken) -}}
{{- end -}}
{{- $_ := set $made $kind $texts -}}
{{- end -}}
{{- toYaml $made -}}
{{- end -}}

{{/* 90 % of bytes, as text */}}
{{- define "mmta.ninetyPercent" -}}
{{- div (mul (int64 .) 9) 10 -}}
{{- end -}}

{{/* Bytes as people read them */}}
{{- define "mmta.human" -}}
{{- $bytes := float64 . -}}
{{- $found := "" -}}
{{- range $unit := list (list "TiB" 1099511627776) (list "GiB" 1073741824) (list "MiB" 1048576) (list "KiB" 1024) -}}
{{- if and (not $found) (ge $bytes (float64 (last $unit))) -}}
{{- $found = printf "%s %s" (toString (round (divf $bytes (last $unit)) 2)) (first $unit) -}}
{{- end -}}
{{- end -}}
{{- $found | default (printf "%d bytes" (int64 .)) -}}
{{- end -}}

{{/* Milliseconds of a duration as `1m30s` */}}
{{- define "mmta.milliseconds" -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 -}}
{{- $sum := 0 -}}
{{- range regexFindAll "[0-9]+(ms|s|m|h)" (toString .) -1 -}}
{{- $number := regexFind "^[0-9]+" . -}}
{{- $sum = add $sum (mul (int64 $number) (int64 (get $units (trimPrefix $number .)))) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}
