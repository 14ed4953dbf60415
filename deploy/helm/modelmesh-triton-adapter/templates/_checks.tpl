{{/*
What the schema cannot say: rules between values, ports, and the storage secret. The adapter checks its own settings when it
starts. Each check writes one line for each mistake; all mistakes are told at once. No line shows a value of a secret.
*/}}
{{- define "mmta.checks" -}}
{{- $names := list "storage" "ports" -}}
{{- if .Values.runtime.create -}}
{{- $names = concat $names (list "runtime" "formats" "variables" "volumes") -}}
{{- end -}}
{{- $found := list -}}
{{- range $names -}}
{{- $found = concat $found (include (printf "mmta.checks.%s" .) $ | splitList "\n") -}}
{{- end -}}
{{- with without $found "" -}}
{{- fail (join "\n" .) -}}
{{- end -}}
{{- end -}}

{{/* An entry that breaks this rule stops every runtime of the namespace: the controller reads all entries as texts */}}
{{- define "mmta.checks.storage" -}}
{{- range $key, $entry := .Values.storage.entries }}
{{- if not (kindIs "map" $entry) }}
storage.entries.{{ $key }} is not a map of fields
{{- else }}
{{- range $field, $value := $entry }}
{{- if not (kindIs "string" $value) }}
storage.entries.{{ $key }}.{{ $field }} is not text: put it in quotes, else the controller stops all runtimes of the namespace
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Some are declared by the controller's containers, some are only listened on: all containers share one network */}}
{{- define "mmta.checks.ports" -}}
{{- $taken := dict "8080" "LiteLinks" "8089" "ModelMesh's probes" "8090" "the preStop hook" "8033" "ModelMesh's gRPC"
      "8008" "the REST proxy" "8086" "ModelMesh's puller" "2112" "ModelMesh's metrics" "8085" "the adapter's runtime interface"
      "8000" "Triton's HTTP" "8001" "Triton's gRPC" }}
{{- range $number := untilStep 11881 11900 1 }}{{ $_ := set $taken (toString $number) "ModelMesh" }}{{ end }}
{{- $ports := dict "adapter.metricsPort" .Values.adapter.metricsPort "triton.metricsPort" .Values.triton.metricsPort }}
{{- range $name, $port := include "mmta.fronts" . | fromYaml }}{{ $_ := set $ports (printf "fronts.%s.port" $name) $port }}{{ end }}
{{- range $place, $port := $ports }}
{{- with get $taken (int $port | toString) }}
{{ $place }} is {{ int $port }}, which belongs to {{ . }}
{{- end }}
{{- $_ := set $taken (int $port | toString) $place }}
{{- end }}
{{- if and .Values.fronts.from (not .Values.networkPolicy.enabled) }}
fronts.from is set, but networkPolicy.enabled is false: nothing would restrict the clients
{{- end }}
{{- end -}}

{{- define "mmta.checks.runtime" -}}
{{- $longest := int (sub 62 (len .Values.controller.inferenceServiceName)) }}
{{- if gt (len .Values.runtime.name) $longest }}
runtime.name has {{ len .Values.runtime.name }} characters, at most {{ $longest }} are possible: the pods' label {{ include "mmta.podName" . }} may have 63
{{- end }}
{{- if not (include "mmta.requestedMemory" .) }}
triton.resources.requests.memory is missing: ModelMesh fills it with models, and the scheduler must know it
{{- end }}
{{- if ge (int64 .Values.loading.concurrency) (int64 .Values.triton.loadThreads) }}
triton.loadThreads is {{ int64 .Values.triton.loadThreads }}, but must be more than loading.concurrency {{ int64 .Values.loading.concurrency }}: a load that never ends keeps a thread
{{- end }}
{{- end -}}

{{- define "mmta.checks.formats" -}}
{{- $version := regexFind "^[0-9]{2}\\.[0-9]{2}" .Values.triton.image.tag | replace "." "" | default "0" | atoi }}
{{- if and $version (lt $version 2306) }}
triton.image.tag is {{ .Values.triton.image.tag }}, but Triton older than 23.06 does not know the argument --metrics-address
{{- end }}
{{- if not (include "mmta.formats" . | trim) }}
formats: none is enabled, so the runtime would serve nothing
{{- end }}
{{- range $name := list "tensorflow" "keras" }}
{{- if and (dig $name "enabled" false $.Values.formats) (gt $version 2502) }}
formats.{{ $name }}.enabled: Triton {{ $.Values.triton.image.tag }} has no TensorFlow backend, the last one that has it is 25.02
{{- end }}
{{- end }}
{{- end -}}

{{- define "mmta.checks.variables" -}}
{{- $own := dict "TRITON_CONTROL" "triton.restrictedProtocols" "TRITON_RESTRICTED_KEY" "triton.restrictedProtocols"
      "TRITON_RESTRICTED_VALUE" "triton.restrictedProtocols" "CONTAINER_MEM_REQ_BYTES" "capacity.memory" "MEM_BUFFER_BYTES" "capacity.buffer"
      "MODELSIZE_MULTIPLIER" "capacity.multiplier" "LOADTIME_TIMEOUT" "loading.timeoutSeconds" "LOADING_CONCURRENCY" "loading.concurrency"
      "TRITON_LOAD_THREADS" "triton.loadThreads" "USE_EMBEDDED_PULLER" "runtime.mode" "ROOT_MODEL_DIR" "runtime.mode"
      "CACHE_MAX_BYTES" "modelVolume.size" "METRICS_PORT" "adapter.metricsPort" "SAGEMAKER_PORT" "fronts.sagemaker.port"
      "V2_REST_PORT" "fronts.v2.port" "LMI_PORT" "fronts.lmi.port" "ADAPTER_PORT" "grpcEndpoint of the runtime" "ADAPTER_ENDPOINT" "grpcEndpoint of the runtime"
      "RUNTIME_PORT" "Triton's arguments" "RUNTIME_ENDPOINT" "Triton's arguments" "STORAGE_CONFIG_DIR" "storage.secretName" }}
{{- range $container := list "triton" "adapter" }}
{{- range (get $.Values $container).extraEnv }}
{{- if hasKey $own .name }}
{{ $container }}.extraEnv: {{ .name }} follows from {{ get $own .name }}
{{- end }}
{{- end }}
{{- end }}
{{- $fixed := "^--(id|allow-(grpc|http)|(grpc|http|metrics)-(address|port)|grpc-use-ssl(-mutual)?|load-model|model-(control-mode|load-thread-count|repository|store)|strict-readiness)(=|$)" }}
{{- range .Values.triton.extraArgs }}
{{- if regexMatch $fixed . }}
triton.extraArgs: the chart sets {{ regexFind "^--[a-z-]+" . }}, on which adapter, probe and ModelMesh rely
{{- end }}
{{- end }}
{{- end -}}

{{- define "mmta.checks.volumes" -}}
{{- $mode := .Values.runtime.mode }}
{{- range .Values.extraVolumes }}
{{- if regexMatch "^(storage-config|etcd-config|tc-config|domain-socket|models-dir|(mm|triton-adapter)-.*)$" .name }}
extraVolumes: the name {{ .name }} is reserved
{{- end }}
{{- end }}
{{- if and .Values.modelVolume.spec (ne $mode "adapterPull") }}
modelVolume.spec: in mode {{ $mode }} models are on the controller's volume, an emptyDir
{{- end }}
{{- if and .Values.adapter.extraVolumeMounts (eq $mode "builtInAdapter") }}
adapter.extraVolumeMounts: in mode builtInAdapter the controller makes the adapter's container, which cannot have it
{{- end }}
{{- end -}}
