{{/* The adapter's container, or what the controller is told to put into it */}}

{{/* One variable; argument: list of name and value */}}
{{- define "mmta.variable" }}
- name: {{ first . }}
  value: {{ last . | quote }}
{{- end -}}

{{/* Settings that follow from the values; in builtInAdapter mode they replace or complete those of the controller */}}
{{- define "mmta.ownSettings" -}}
{{- $values := .Values -}}
{{- $mode := $values.runtime.mode -}}
{{- if $values.capacity.memory }}
{{- include "mmta.variable" (list "CONTAINER_MEM_REQ_BYTES" (include "mmta.bytes" $values.capacity.memory)) }}
{{- else if ne $mode "builtInAdapter" }}
- name: CONTAINER_MEM_REQ_BYTES
  valueFrom: {resourceFieldRef: {containerName: triton, resource: requests.memory}}
{{- end }}
{{- if ne $mode "builtInAdapter" }}
{{- include "mmta.variable" (list "MEM_BUFFER_BYTES" (include "mmta.bytes" $values.capacity.buffer)) }}
{{- include "mmta.variable" (list "LOADTIME_TIMEOUT" (mul (int64 $values.loading.timeoutSeconds) 1000)) }}
{{- include "mmta.variable" (list "LOADING_CONCURRENCY" (int64 $values.loading.concurrency)) }}
{{- include "mmta.variable" (list "ADAPTER_PORT" 8085) }}
{{- include "mmta.variable" (list "RUNTIME_PORT" 8001) }}
{{- include "mmta.variable" (list "USE_EMBEDDED_PULLER" (eq $mode "adapterPull")) }}
{{- end }}
{{- include "mmta.variable" (list "MODELSIZE_MULTIPLIER" $values.capacity.multiplier) }}
{{- include "mmta.variable" (list "DEFAULT_MODELSIZE" 1000000) }}
{{- include "mmta.variable" (list "LIMIT_PER_MODEL_CONCURRENCY" 0) }}
{{- include "mmta.variable" (list "TRITON_LOAD_THREADS" (int64 $values.triton.loadThreads)) }}
{{- include "mmta.variable" (list "ROOT_MODEL_DIR" (include "mmta.root" .)) }}
{{- with include "mmta.cacheMaxBytes" . }}
{{- include "mmta.variable" (list "CACHE_MAX_BYTES" .) }}
{{- end }}
{{- include "mmta.variable" (list "METRICS_PORT" (int $values.adapter.metricsPort)) }}
{{- include "mmta.variable" (list "TRITON_METRICS_ENDPOINT" (printf "port:%d" (int $values.triton.metricsPort))) }}
{{- include "mmta.variable" (list "LOG_LEVEL" "info") }}
{{- include "mmta.variable" (list "LOG_FORMAT" "json") }}
{{- include "mmta.variable" (list "GRACE_PERIOD_SECONDS" 25) }}
{{- $variables := dict "sagemaker" "SAGEMAKER_PORT" "v2" "V2_REST_PORT" "lmi" "LMI_PORT" }}
{{- range $name, $port := include "mmta.fronts" . | fromYaml }}
{{- include "mmta.variable" (list (get $variables $name) (int $port)) }}
{{- end }}
{{- if $values.fronts.v2.port }}
{{- include "mmta.variable" (list "V2_REST_ENDPOINT" "port:8033") }}
{{- end }}
{{- with $values.triton.restrictedProtocols.existingSecret }}
{{- include "mmta.variable" (list "TRITON_RESTRICTED_KEY" "adapter") }}
- name: TRITON_RESTRICTED_VALUE
  valueFrom: {secretKeyRef: {name: {{ . | quote }}, key: value}}
{{- end }}
{{- end -}}

{{/* extraEnv replaces a variable of the same name; argument: list of our variables, as text, and extraEnv */}}
{{- define "mmta.env" -}}
{{- $names := list -}}
{{- range last . }}{{ $names = append $names .name }}{{ end -}}
{{- range first . | fromYamlArray }}
{{- if not (has .name $names) }}
{{ list . | toYaml }}
{{- end }}
{{- end }}
{{- with last . }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "mmta.adapterEnv" -}}
{{- include "mmta.env" (list (include "mmta.ownSettings" .) .Values.adapter.extraEnv) -}}
{{- end -}}

{{/* Times of both liveness probes: Triton's needs 9 s where the adapter gives no answer */}}
{{- define "mmta.probeTimes" -}}
failureThreshold: 3
initialDelaySeconds: 5
periodSeconds: 30
timeoutSeconds: 10
{{- end -}}

{{- define "mmta.adapterContainer" -}}
{{- $adapter := .Values.adapter -}}
{{- $pulls := eq .Values.runtime.mode "adapterPull" -}}
- name: triton-adapter
  image: {{ include "mmta.adapterImage" . | quote }}
  imagePullPolicy: IfNotPresent
  command: [modelmesh-triton-adapter, serve]
  env: {{- include "mmta.adapterEnv" . | trim | nindent 4 }}
  ports:
    - {name: adapter-metrics, containerPort: {{ int $adapter.metricsPort }}}
    {{- range $name, $port := include "mmta.fronts" . | fromYaml }}
    - {name: {{ $name }}, containerPort: {{ int $port }}}
    {{- end }}
  resources: {{- include "mmta.resources" $adapter.resources | nindent 4 }}
  {{- if or $pulls $adapter.extraVolumeMounts }}
  volumeMounts:
    {{- if $pulls }}
    - {name: triton-adapter-models, mountPath: {{ include "mmta.root" . }}}
    - {name: triton-adapter-secret, mountPath: /storage-config, readOnly: true}
    {{- end }}
    {{- with $adapter.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
  livenessProbe:
    exec: {command: [modelmesh-triton-adapter, probe]}
    {{- include "mmta.probeTimes" . | nindent 4 }}
  {{- with $adapter.securityContext }}
  securityContext: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
