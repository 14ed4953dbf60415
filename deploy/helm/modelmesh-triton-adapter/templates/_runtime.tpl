{{/* The runtime around the containers */}}

{{- define "mmta.runtimeAnnotations" -}}
{{- $annotations := dict -}}
{{- with .Values.autoscaling -}}
{{- if .enabled -}}
{{- $_ := set $annotations "serving.kserve.io/autoscalerClass" "hpa" -}}
{{- $_ := set $annotations "serving.kserve.io/metrics" .metric -}}
{{- $_ := set $annotations "serving.kserve.io/targetUtilizationPercentage" (int64 .targetUtilizationPercentage | toString) -}}
{{- $_ := set $annotations "serving.kserve.io/min-scale" (int64 .minReplicas | toString) -}}
{{- $_ := set $annotations "serving.kserve.io/max-scale" (int64 .maxReplicas | toString) -}}
{{- end -}}
{{- end -}}
{{- if eq .Values.runtime.mode "builtInAdapter" -}}
{{- $_ := set $annotations "maxLoadingConcurrency" (int64 .Values.loading.concurrency | toString) -}}
{{- end -}}
{{- with merge $annotations (.Values.runtime.annotations | default dict) }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{- define "mmta.formats" -}}
{{- range $name, $format := .Values.formats }}
{{- if $format.enabled }}
{{- range $format.versions }}
- {name: {{ $name | quote }}, version: {{ . | quote }}, autoSelect: {{ $format.autoSelect }}}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Names that no claim is likely to have: the controller names a claim's volume after the claim */}}
{{- define "mmta.volumes" -}}
{{- $volume := .Values.modelVolume -}}
{{- if eq .Values.runtime.mode "adapterPull" }}
- name: triton-adapter-models
  {{- if eq $volume.type "emptyDir" }}
  emptyDir: {sizeLimit: {{ $volume.size | quote }}}
  {{- else if eq $volume.type "ephemeral" }}
  ephemeral:
    volumeClaimTemplate:
      spec:
        accessModes: [ReadWriteOnce]
        {{- with $volume.storageClassName }}
        storageClassName: {{ . | quote }}
        {{- end }}
        resources: {requests: {storage: {{ $volume.size | quote }}}}
  {{- else }}
  hostPath: {path: {{ $volume.hostPath | quote }}, type: Directory}
  {{- end }}
- name: triton-adapter-secret
  secret: {secretName: {{ .Values.storage.secretName | quote }}, optional: true}
{{- end }}
- name: triton-adapter-shm
  emptyDir: {medium: Memory, sizeLimit: {{ .Values.triton.shm.sizeLimit | quote }}}
- name: triton-adapter-tmp
  emptyDir: {sizeLimit: {{ .Values.triton.tmp.sizeLimit | quote }}}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
