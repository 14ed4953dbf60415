{{/* Checks of what the pod's containers are told; see _checks.tpl */}}

{{- define "mmta.checks.resources" -}}
{{- range $container := list "triton" "adapter" }}
{{- $resources := (get $.Values $container).resources }}
{{- range $name, $request := $resources.requests }}
{{- $limit := dig "limits" $name "" $resources }}
{{- $count := ternary "mmta.millicores" "mmta.bytes" (eq $name "cpu") }}
{{- if ne "" (toString $limit) }}
{{- if gt (include $count $request | int64) (include $count $limit | int64) }}
{{ $container }}.resources: requests.{{ $name }} {{ $request }} is more than limits.{{ $name }} {{ $limit }}, so no pod could start
{{- end }}
{{- end }}
{{- end }}
{{- $security := (get $.Values $container).securityContext | default dict }}
{{- if and $security.runAsNonRoot (hasKey $security "runAsUser") (eq (toString $security.runAsUser) "0") }}
{{ $container }}.securityContext: runAsUser is 0, which runAsNonRoot forbids: say runAsNonRoot: false
{{- end }}
{{- if and $security.privileged (hasKey $security "allowPrivilegeEscalation") (not $security.allowPrivilegeEscalation) }}
{{ $container }}.securityContext: privileged needs allowPrivilegeEscalation: true
{{- end }}
{{- $probe := (get $.Values $container).livenessProbe }}
{{- if gt (int64 $probe.timeoutSeconds) (int64 $probe.periodSeconds) }}
{{ $container }}.livenessProbe.timeoutSeconds is {{ int64 $probe.timeoutSeconds }}, more than periodSeconds {{ int64 $probe.periodSeconds }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "mmta.checks.capacity" -}}
{{- $capacity := .Values.capacity }}
{{- $gpus := include "mmta.gpuNames" . }}
{{- range $name, $_ := .Values.triton.resources.limits }}
{{- if and (regexMatch "^nvidia\\.com/.*(gpu|mig)" (lower $name)) (not (regexMatch "^nvidia\\.com/(gpu(\\.shared)?|mig-[1-7]g\\.[0-9]+gb([.-][a-z0-9]+)*)$" $name)) }}
triton.resources.limits: no device plugin offers {{ $name }}: a GPU is nvidia.com/gpu, a MIG profile as nvidia.com/mig-1g.10gb
{{- end }}
{{- end }}
{{- if and (ne $capacity.source "fixed") $capacity.bytes }}
capacity.bytes is set, but capacity.source is {{ $capacity.source }}: say fixed
{{- end }}
{{- if and (ne $capacity.source "gpu") $capacity.gpuMemory }}
capacity.gpuMemory is set, but capacity.source is {{ $capacity.source }}: say gpu
{{- end }}
{{- if eq $capacity.source "gpu" }}
{{- if not $gpus }}
capacity.source is gpu, but triton.resources.limits has no GPU such as nvidia.com/gpu: "1"
{{- else if contains "," $gpus }}
capacity.source is gpu, but triton.resources.limits has several kinds of GPUs ({{ $gpus }}): their memory differs
{{- else if not (include "mmta.gpuMemory" .) }}
capacity.gpuMemory is missing: the memory of one {{ $gpus }}, which its name does not tell
{{- end }}
{{- end }}
{{- if not (include "mmta.requestedMemory" .) }}
triton.resources.requests.memory is missing: ModelMesh fills it with models, and the scheduler must know it
{{- end }}
{{- if and (eq $capacity.source "fixed") (not $capacity.bytes) }}
capacity.bytes is missing, since capacity.source is fixed
{{- end }}
{{- $size := include "mmta.bytes" $capacity.defaultModelSize | int64 }}
{{- if le $size (int64 8192) }}
capacity.defaultModelSize is {{ $size }} bytes, but must be more than 8192: ModelMesh never retries a failed model of that size or less
{{- end }}
{{- with include "mmta.capacity" . }}
{{- $rest := sub (int64 .) (include "mmta.bytes" $capacity.buffer | int64) }}
{{- $least := max (mul 2 $size) (min 536870912 (mul 10 $size)) }}
{{- if lt $rest $least }}
capacity.buffer {{ $capacity.buffer }} leaves {{ max 0 $rest }} of {{ . }} bytes for models: ModelMesh needs {{ $least }} (10 × capacity.defaultModelSize up to 512 MiB, and 2 × in any case)
{{- end }}
{{- end }}
{{- end -}}

{{- define "mmta.checks.loading" -}}
{{- $loads := int64 .Values.loading.concurrency }}
{{- $threads := int64 .Values.triton.loadThreads }}
{{- if ge $loads $threads }}
triton.loadThreads is {{ $threads }}, but must be more than loading.concurrency {{ $loads }}: a load that never ends keeps a thread
{{- end }}
{{- end -}}

{{/* Some are declared by the controller's containers, some are only listened on: all containers share one network */}}
{{- define "mmta.checks.ports" -}}
{{- $taken := dict "8080" "LiteLinks" "8089" "ModelMesh's probes" "8090" "the preStop hook" "8033" "ModelMesh's gRPC"
      "8008" "the REST proxy" "8086" "ModelMesh's puller" "2112" "ModelMesh's metrics" }}
{{- $ports := list }}
{{- range $place := list "adapter.port" "adapter.metricsPort" "triton.grpcPort" "triton.httpPort" "triton.metricsPort" }}
{{- $ports = append $ports (list $place (get (get $.Values (first (splitList "." $place))) (last (splitList "." $place)))) }}
{{- end }}
{{- range $name, $port := include "mmta.fronts" . | fromYaml }}
{{- $ports = append $ports (list (printf "fronts.%s.port" $name) $port) }}
{{- end }}
{{- $ours := dict }}
{{- range $ports }}
{{- $place := first . }}
{{- $port := int (last .) }}
{{- $key := toString $port }}
{{- with get $taken $key }}
{{ $place }} is {{ $port }}, which belongs to {{ . }}
{{- end }}
{{- if and (ge $port 11881) (le $port 11899) }}
{{ $place }} is {{ $port }}, which ModelMesh reserves (11881 to 11899)
{{- end }}
{{- if and (eq $port 8085) (ne $place "adapter.port") }}
{{ $place }} is 8085, which the controller reserves for the adapter's runtime interface
{{- end }}
{{- with get $ours $key }}
{{ $place }} is {{ $port }}, as {{ . }} is
{{- end }}
{{- $_ := set $ours $key $place }}
{{- end }}
{{- end -}}

{{- define "mmta.checks.env" -}}
{{- $adapter := dict
      "CONTAINER_MEM_REQ_BYTES" "capacity.source" "MEM_BUFFER_BYTES" "capacity.buffer" "MODELSIZE_MULTIPLIER" "capacity.multiplier"
      "DEFAULT_MODELSIZE" "capacity.defaultModelSize" "LIMIT_PER_MODEL_CONCURRENCY" "capacity.perModelConcurrency"
      "LOADTIME_TIMEOUT" "loading.timeoutSeconds" "LOADING_CONCURRENCY" "loading.concurrency" "TRITON_LOAD_THREADS" "triton.loadThreads"
      "ADAPTER_PORT" "adapter.port" "ADAPTER_ENDPOINT" "adapter.port" "RUNTIME_PORT" "triton.grpcPort" "RUNTIME_ENDPOINT" "triton.grpcPort"
      "USE_EMBEDDED_PULLER" "runtime.mode" "ROOT_MODEL_DIR" "modelVolume.mountPath" "CACHE_MAX_BYTES" "modelVolume.size"
      "METRICS_PORT" "adapter.metricsPort" "LOG_LEVEL" "adapter.logLevel" "LOG_FORMAT" "adapter.logFormat"
      "GRACE_PERIOD_SECONDS" "adapter.gracePeriodSeconds" "REQUEST_ENDPOINTS_DENIED" "adapter.requestEndpointsDenied"
      "STORAGE_CONFIG_DIR" "storage.secretName" "TRITON_COMMAND" "triton.image"
      "SAGEMAKER_PORT" "fronts.sagemaker.port" "SAGEMAKER_BIND_TO_PORT" "fronts.sagemaker.port"
      "SAGEMAKER_MULTI_MODEL" "fronts.sagemaker.enabled" "V2_REST_PORT" "fronts.v2.port" "REST_PROXY_LISTEN_PORT" "fronts.v2.port"
      "V2_REST_ENDPOINT" "fronts.v2.through" "LMI_PORT" "fronts.lmi.port" "LMI_MODEL" "fronts.lmi.model" "LMI_DETAILS" "fronts.lmi.details"
      "OPTION_TGI_COMPAT" "fronts.lmi.tgiCompatible" "OPTION_OUTPUT_FORMATTER" "fronts.lmi.outputFormatter"
      "OPTION_ENABLE_STREAMING" "fronts.lmi.streaming" "OPTION_ROLLING_BATCH" "fronts.lmi.rollingBatch"
      "TRITON_RESTRICTED_KEY" "triton.restrictedProtocols" "TRITON_RESTRICTED_VALUE" "triton.restrictedProtocols"
      "TRITON_RESTRICTED_VALUE_FILE" "triton.restrictedProtocols" }}
{{- $instead := dict "adapter" $adapter "triton" (dict "TRITON_CONTROL" "triton.restrictedProtocols") }}
{{- range $container, $names := $instead }}
{{- $seen := list }}
{{- range (get $.Values $container).extraEnv }}
{{- $name := .name }}
{{- with get $names $name }}
{{ $container }}.extraEnv: set {{ . }} instead of {{ $name }}
{{- end }}
{{- if has $name $seen }}
{{ $container }}.extraEnv has {{ $name }} twice
{{- end }}
{{- $seen = append $seen $name }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "mmta.checks.args" -}}
{{- $repository := "modelVolume.mountPath" }}
{{- $instead := dict
      "model-repository" $repository "model-store" $repository "model-load-thread-count" "triton.loadThreads"
      "exit-timeout-secs" "triton.exitTimeoutSeconds" "grpc-port" "triton.grpcPort" "http-port" "triton.httpPort"
      "metrics-port" "triton.metricsPort" }}
{{- $fixed := dict
      "model-control-mode" "it is explicit, since ModelMesh decides what is loaded" "load-model" "ModelMesh decides what is loaded"
      "grpc-address" "Triton listens on the loopback interface, where the adapter and ModelMesh are"
      "http-address" "Triton listens on the loopback interface, where the probe is"
      "allow-grpc" "the adapter and ModelMesh need it" "allow-http" "the probe needs it"
      "metrics-address" "Triton's metrics are on all interfaces, for Prometheus"
      "grpc-use-ssl" "ModelMesh and the adapter speak without TLS on the loopback interface"
      "grpc-use-ssl-mutual" "ModelMesh and the adapter speak without TLS on the loopback interface"
      "id" "each start has its own" "strict-readiness" "it is false, since ModelMesh asks the adapter" }}
{{- if .Values.triton.restrictedProtocols.enabled }}
{{- $_ := set $instead "grpc-restricted-protocol" "triton.restrictedProtocols" }}
{{- $_ := set $instead "http-restricted-api" "triton.restrictedProtocols" }}
{{- end }}
{{- range .Values.triton.extraArgs }}
{{- $option := regexFind "^--[a-z-]+" . }}
{{- with get $instead (trimPrefix "--" $option) }}
triton.extraArgs: set {{ . }} instead of {{ $option }}
{{- end }}
{{- with get $fixed (trimPrefix "--" $option) }}
triton.extraArgs: {{ $option }} cannot be changed: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "mmta.checks.volumes" -}}
{{- $volume := .Values.modelVolume }}
{{- if and $volume.storageClassName (ne $volume.type "ephemeral") }}
modelVolume.storageClassName is set, but modelVolume.type is {{ $volume.type }}: say ephemeral
{{- end }}
{{- if and $volume.hostPath (ne $volume.type "hostPath") }}
modelVolume.hostPath is set, but modelVolume.type is {{ $volume.type }}: say hostPath
{{- end }}
{{- if and (not $volume.hostPath) (eq $volume.type "hostPath") }}
modelVolume.hostPath is missing: the directory of the nodes that holds the models
{{- end }}
{{- if and (ne $volume.type "emptyDir") (ne .Values.runtime.mode "adapterPull") }}
modelVolume.type is {{ $volume.type }}, but in mode {{ .Values.runtime.mode }} models are on the controller's volume, an emptyDir
{{- end }}
{{- range $name := list "mountPath" "hostPath" }}
{{- if regexMatch "/\\.\\.?(/|$)" (get $volume $name | default "") }}
modelVolume.{{ $name }} is {{ get $volume $name }}: write the path without . and ..
{{- end }}
{{- end }}
{{- $claims := list }}
{{- range .Values.storage.entries }}
{{- if and (kindIs "map" .) (eq (get . "type" | toString) "pvc") }}
{{- $claims = append $claims (get . "name" | toString) }}
{{- end }}
{{- end }}
{{- $seen := list }}
{{- range .Values.extraVolumes }}
{{- if or (has .name (list "storage-config" "etcd-config" "tc-config" "domain-socket" "models-dir")) (hasPrefix "mm-" .name) }}
extraVolumes: the name {{ .name }} is reserved by ModelMesh's controller
{{- else if hasPrefix "triton-adapter-" .name }}
extraVolumes: the name {{ .name }} is reserved for the chart's own volumes
{{- else if has .name $claims }}
extraVolumes: the name {{ .name }} is that of a volume claim in storage.entries, whose volume the controller adds by that name
{{- end }}
{{- if has .name $seen }}
extraVolumes has {{ .name }} twice
{{- end }}
{{- $seen = append $seen .name }}
{{- end }}
{{- end -}}

{{- define "mmta.checks.mounts" -}}
{{- $volumes := list }}
{{- range .Values.extraVolumes }}
{{- $volumes = append $volumes .name }}
{{- end }}
{{- $path := .Values.modelVolume.mountPath }}
{{- if and (eq .Values.runtime.mode "adapterPull") (regexMatch "^/(models|storage-config|pvc_mounts|tmp|dev|proc|sys|etc|usr|bin|sbin|lib|lib64|opt)(/|$)" $path) }}
modelVolume.mountPath is {{ $path }}, which hides a directory of ModelMesh or of the images: take one of its own, as /model-cache
{{- end }}
{{- range $container := list "triton" "adapter" }}
{{- $seen := list "/models" "/storage-config" "/pvc_mounts" (include "mmta.root" $) }}
{{- if eq $container "triton" }}
{{- $seen = concat $seen (list "/dev/shm" "/tmp") }}
{{- end }}
{{- range (get $.Values $container).extraVolumeMounts }}
{{- if not (has .name $volumes) }}
{{ $container }}.extraVolumeMounts: no volume {{ .name }} in extraVolumes
{{- end }}
{{- $place := trimSuffix "/" .mountPath }}
{{- if has $place $seen }}
{{ $container }}.extraVolumeMounts: something else is mounted at {{ .mountPath }}
{{- end }}
{{- $seen = append $seen $place }}
{{- end }}
{{- end }}
{{- end -}}
