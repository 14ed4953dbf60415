{{/* What follows from the values, each in one place */}}

{{/* Bytes of a quantity, as text; a broken one of bytes counts as a whole */}}
{{- define "mmta.bytes" -}}
{{- $units := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15
      "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 -}}
{{- $number := regexFind "^[0-9.]+" (toString .) -}}
{{- $unit := get $units (trimPrefix $number (toString .)) -}}
{{- if gt (mulf (float64 $number) $unit) 9e18 -}}
{{- fail (printf "%q is more bytes than 64 bits can count" (toString .)) -}}
{{- end -}}
{{- if contains "." $number -}}
{{- mulf (float64 $number) $unit | ceil | int64 -}}
{{- else -}}
{{- mul (int64 $number) (int64 $unit) -}}
{{- end -}}
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

{{/* Ports of the HTTP fronts that are on, by name */}}
{{- define "mmta.fronts" -}}
{{- range $name := list "sagemaker" "v2" "lmi" }}
{{- with (get $.Values.fronts $name).port }}
{{ $name }}: {{ int . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Folder that Triton and the adapter share */}}
{{- define "mmta.root" -}}
{{- if eq .Values.runtime.mode "adapterPull" }}/model-cache{{ else }}/models{{ end -}}
{{- end -}}

{{/* Memory that Triton's container requests: Kubernetes takes the limit where there is no request */}}
{{- define "mmta.requestedMemory" -}}
{{- dig "requests" "memory" (dig "limits" "memory" "" .Values.triton.resources) .Values.triton.resources -}}
{{- end -}}

{{/*
CACHE_MAX_BYTES: 90 % of the volume with the models; 0 where ModelMesh's own puller pulls and nothing is kept; empty: the
adapter's default. The controller's volume has 1.5 times the memory limits of the runtime's own containers.
*/}}
{{- define "mmta.cacheMaxBytes" -}}
{{- if eq .Values.runtime.mode "adapterPull" -}}
{{- div (mul (include "mmta.bytes" .Values.modelVolume.size | int64) 9) 10 -}}
{{- else if eq .Values.runtime.mode "storageHelper" -}}
0
{{- else -}}
{{- with dig "limits" "memory" "" .Values.triton.resources -}}
{{- div (mul (div (mul (include "mmta.bytes" . | int64) 3) 2) 9) 10 -}}
{{- end -}}
{{- end -}}
{{- end -}}
