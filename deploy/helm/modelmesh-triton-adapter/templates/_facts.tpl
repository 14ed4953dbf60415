{{/* What follows from the values, each in one place */}}

{{/* Triton's version as a number, `2506` for 25.06; empty where neither `triton.version` nor the tag tells it */}}
{{- define "mmta.tritonVersion" -}}
{{- $version := .Values.triton.version | default (regexFind "^[0-9]{2}\\.[0-9]{2}" (toString .Values.triton.image.tag)) -}}
{{- $version | replace "." "" -}}
{{- end -}}

{{/* Ports of the HTTP fronts that are on, by name */}}
{{- define "mmta.fronts" -}}
{{- range $name := list "sagemaker" "v2" "lmi" }}
{{- with get $.Values.fronts $name }}
{{- if .enabled }}
{{ $name }}: {{ int .port }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Folder that Triton and the adapter share */}}
{{- define "mmta.root" -}}
{{- if eq .Values.runtime.mode "adapterPull" }}{{ .Values.modelVolume.mountPath }}{{ else }}/models{{ end -}}
{{- end -}}

{{/* Resources of GPUs in Triton's limits, with commas between them */}}
{{- define "mmta.gpuNames" -}}
{{- $names := list -}}
{{- range $name, $_ := .Values.triton.resources.limits -}}
{{- if regexMatch "(/gpu(\\.shared)?$|^nvidia\\.com/mig-)" $name }}{{ $names = append $names $name }}{{ end -}}
{{- end -}}
{{- join ", " $names -}}
{{- end -}}

{{/* Memory that Triton's container requests, in bytes: Kubernetes takes the limit where there is no request */}}
{{- define "mmta.requestedMemory" -}}
{{- $resources := .Values.triton.resources -}}
{{- $memory := dig "requests" "memory" (dig "limits" "memory" "" $resources) $resources -}}
{{- with $memory }}{{ include "mmta.bytes" . }}{{ end -}}
{{- end -}}

{{/* Memory of one GPU in bytes: the value, or what the name of a MIG profile says */}}
{{- define "mmta.gpuMemory" -}}
{{- $profile := regexFind "[0-9]+gb" (include "mmta.gpuNames" .) -}}
{{- if .Values.capacity.gpuMemory -}}
{{- include "mmta.bytes" .Values.capacity.gpuMemory -}}
{{- else if $profile -}}
{{- include "mmta.bytes" (printf "%sG" (trimSuffix "gb" $profile)) -}}
{{- end -}}
{{- end -}}

{{/* What ModelMesh fills before the buffer is taken off, in bytes */}}
{{- define "mmta.capacity" -}}
{{- if eq .Values.capacity.source "memory" -}}
{{- include "mmta.requestedMemory" . -}}
{{- else if eq .Values.capacity.source "gpu" -}}
{{- include "mmta.gpuMemory" . -}}
{{- else -}}
{{- with .Values.capacity.bytes }}{{ include "mmta.bytes" . }}{{ end -}}
{{- end -}}
{{- end -}}

{{/*
Limit of the volume with the models, in bytes; empty: none.
The controller's volume has 1.5 times the memory limits of the runtime's own containers.
*/}}
{{- define "mmta.volumeLimit" -}}
{{- if eq .Values.runtime.mode "adapterPull" -}}
{{- include "mmta.bytes" .Values.modelVolume.size -}}
{{- else -}}
{{- $memory := 0 -}}
{{- $containers := list .Values.triton -}}
{{- if eq .Values.runtime.mode "storageHelper" }}{{ $containers = append $containers .Values.adapter }}{{ end -}}
{{- range $containers -}}
{{- with dig "limits" "memory" "" .resources }}{{ $memory = add $memory (include "mmta.bytes" . | int64) }}{{ end -}}
{{- end -}}
{{- if $memory }}{{ div (mul $memory 3) 2 }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* CACHE_MAX_BYTES: 90 % of the volume; 0 where ModelMesh's own puller pulls and nothing is kept; empty: the adapter's default */}}
{{- define "mmta.cacheMaxBytes" -}}
{{- if eq .Values.runtime.mode "storageHelper" -}}
0
{{- else -}}
{{- with include "mmta.volumeLimit" . }}{{ include "mmta.ninetyPercent" . }}{{ end -}}
{{- end -}}
{{- end -}}
