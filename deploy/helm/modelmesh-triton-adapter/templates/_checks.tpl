{{- define "mmta.checks" -}}
{{- end -}}
