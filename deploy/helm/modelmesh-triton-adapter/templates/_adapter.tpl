{{/* The adapter's container, or what the controller is told to put into it */}}

{{/* One variable; argument: list of name and value */}}
{{- define "mmta.variable" }}
- name: {{ first . }}
  value: {{ last . | quote }}
{{- end -}}

{{/* Our settings; in builtInAdapter mode they replace or complete those of the controller */}}
{{- define "mmta.adapterEnv" -}}
{{- $values := .Values -}}
{{- $mode := $values.runtime.mode -}}
{{- if ne $values.capacity.source "memory" }}
{{- include "mmta.variable" (list "CONTAINER_MEM_REQ_BYTES" (include "mmta.capacity" .)) }}
{{- else if ne $mode "builtInAdapter" }}
- name: CONTAINER_MEM_REQ_BYTES
  valueFrom: {resourceFieldRef: {containerName: triton, resource: requests.memory}}
{{- end }}
{{- if ne $mode "builtInAdapter" }}
{{- include "mmta.variable" (list "MEM_BUFFER_BYTES" (include "mmta.bytes" $values.capacity.buffer)) }}
{{- include "mmta.variable" (list "LOADTIME_TIMEOUT" (mul (int64 $values.loading.timeoutSeconds) 1000)) }}
{{- include "mmta.variable" (list "LOADING_CONCURRENCY" (int64 $values.loading.concurrency)) }}
{{- include "mmta.variable" (list "ADAPTER_PORT" (int $values.adapter.port)) }}
{{- include "mmta.variable" (list "RUNTIME_PORT" (int $values.triton.grpcPort)) }}
{{- include "mmta.variable" (list "USE_EMBEDDED_PULLER" (eq $mode "adapterPull")) }}
{{- end }}
{{- include "mmta.variable" (list "MODELSIZE_MULTIPLIER" $values.capacity.multiplier) }}
{{- include "mmta.variable" (list "DEFAULT_MODELSIZE" (include "mmta.bytes" $values.capacity.defaultModelSize)) }}
{{- include "mmta.variable" (list "LIMIT_PER_MODEL_CONCURRENCY" (int64 $values.capacity.perModelConcurrency)) }}
{{- include "mmta.variable" (list "TRITON_LOAD_THREADS" (int64 $values.triton.loadThreads)) }}
{{- include "mmta.variable" (list "ROOT_MODEL_DIR" (include "mmta.root" .)) }}
{{- with include "mmta.cacheMaxBytes" . }}
{{- include "mmta.variable" (list "CACHE_MAX_BYTES" .) }}
{{- end }}
{{- include "mmta.variable" (list "METRICS_PORT" (int $values.adapter.metricsPort)) }}
{{- include "mmta.variable" (list "LOG_LEVEL" $values.adapter.logLevel) }}
{{- include "mmta.variable" (list "LOG_FORMAT" $values.adapter.logFormat) }}
{{- include "mmta.variable" (list "GRACE_PERIOD_SECONDS" (int64 $values.adapter.gracePeriodSeconds)) }}
{{- $variables := dict "sagemaker" "SAGEMAKER_PORT" "v2" "V2_REST_PORT" "lmi" "LMI_PORT" }}
{{- range $name, $port := include "mmta.fronts" . | fromYaml }}
{{- include "mmta.variable" (list (get $variables $name) (int $port)) }}
{{- end }}
{{- if and $values.fronts.v2.enabled (eq $values.fronts.v2.through "modelMesh") }}
{{- include "mmta.variable" (list "V2_REST_ENDPOINT" "port:8033") }}
{{- end }}
{{- with $values.fronts.lmi }}
{{- if .enabled }}
{{- with .model }}
{{- include "mmta.variable" (list "LMI_MODEL" .) }}
{{- end }}
{{- include "mmta.variable" (list "OPTION_TGI_COMPAT" .tgiCompatible) }}
{{- include "mmta.variable" (list "OPTION_OUTPUT_FORMATTER" .outputFormatter) }}
{{- include "mmta.variable" (list "OPTION_ENABLE_STREAMING" .streaming) }}
{{- include "mmta.variable" (list "OPTION_ROLLING_BATCH" .rollingBatch) }}
{{- include "mmta.variable" (list "LMI_DETAILS" .details) }}
{{- end }}
{{- end }}
{{- if kindIs "string" $values.adapter.requestEndpointsDenied }}
{{- include "mmta.variable" (list "REQUEST_ENDPOINTS_DENIED" $values.adapter.requestEndpointsDenied) }}
{{- end }}
{{- if $values.triton.restrictedProtocols.enabled }}
{{- include "mmta.variable" (list "TRITON_RESTRICTED_KEY" "adapter") }}
- name: TRITON_RESTRICTED_VALUE
  valueFrom: {secretKeyRef: {name: {{ $values.triton.restrictedProtocols.existingSecret | quote }}, key: value}}
{{- end }}
{{- with $values.adapter.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "mmta.adapterContainer" -}}
{{- $adapter := .Values.adapter -}}
{{- $pulls := eq .Values.runtime.mode "adapterPull" -}}
- name: triton-adapter
  image: {{ include "mmta.adapterImage" . | quote }}
  imagePullPolicy: {{ $adapter.image.pullPolicy }}
  command: [modelmesh-triton-adapter, serve]
  env: {{- include "mmta.adapterEnv" . | trim | nindent 4 }}
  {{- with $adapter.extraEnvFrom }}
  envFrom: {{- toYaml . | nindent 4 }}
  {{- end }}
  ports:
    - {name: adapter-metrics, containerPort: {{ int $adapter.metricsPort }}}
    {{- range $name, $port := include "mmta.fronts" . | fromYaml }}
    - {name: {{ $name }}, containerPort: {{ int $port }}}
    {{- end }}
  resources: {{- include "mmta.resources" $adapter.resources | nindent 4 }}
  {{- if or $pulls $adapter.extraVolumeMounts }}
  volumeMounts:
    {{- if $pulls }}
    - {name: triton-adapter-models, mountPath: {{ .Values.modelVolume.mountPath }}}
    - {name: triton-adapter-secret, mountPath: /storage-config, readOnly: true}
    {{- end }}
    {{- with $adapter.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
  livenessProbe:
    exec: {command: [modelmesh-triton-adapter, probe]}
    {{- toYaml $adapter.livenessProbe | nindent 4 }}
  {{- with $adapter.securityContext }}
  securityContext: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
