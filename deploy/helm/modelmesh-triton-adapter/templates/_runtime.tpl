{{/* The runtime around the containers */}}

{{- define "mmta.runtimeAnnotations" -}}
{{- $annotations := .Values.runtime.annotations | default dict -}}
{{- if eq .Values.runtime.mode "builtInAdapter" -}}
{{- $annotations = merge (dict "maxLoadingConcurrency" (int64 .Values.loading.concurrency | toString)) $annotations -}}
{{- end -}}
{{- with $annotations }}{{ toYaml . }}{{ end -}}
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
  {{- toYaml ($volume.spec | default (dict "emptyDir" (dict "sizeLimit" $volume.size))) | nindent 2 }}
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
