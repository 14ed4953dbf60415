{{/*
What the schema cannot say: rules between values, and the names and ports of ModelMesh Serving's controller.
Each check writes one line for each mistake; all mistakes are told at once. No line shows a value of a secret.
*/}}
{{- define "mmta.checks" -}}
{{- $names := list "names" "monitoring" "storage" "ports" -}}
{{- if .Values.runtime.create -}}
{{- $names = concat $names (list "runtime" "formats" "resources" "capacity" "loading" "env" "args" "volumes" "mounts") -}}
{{- end -}}
{{- $found := list -}}
{{- range $names -}}
{{- $found = concat $found (include (printf "mmta.checks.%s" .) $ | splitList "\n") -}}
{{- end -}}
{{- with without $found "" -}}
{{- fail (join "\n" .) -}}
{{- end -}}
{{- end -}}

{{- define "mmta.checks.names" -}}
{{- $own := list "helm.sh/chart" }}
{{- range $word := list "name" "instance" "version" "managed-by" "component" }}
{{- $own = append $own (printf "app.kubernetes.io/%s" $word) }}
{{- end }}
{{- $labels := dict "commonLabels" .Values.commonLabels "podMonitor.labels" .Values.podMonitor.labels
      "prometheusRule.labels" .Values.prometheusRule.labels "dashboard.labels" .Values.dashboard.labels }}
{{- range $place, $given := $labels }}
{{- range $name, $_ := $given }}
{{- if has $name $own }}
{{ $place }}: the chart itself sets {{ $name }}
{{- end }}
{{- end }}
{{- end }}
{{- if regexMatch "^[0-9]" (include "mmta.fullname" .) }}
fullnameOverride: the Service {{ include "mmta.fullname" . }} must begin with a letter
{{- end }}
{{- if eq (include "mmta.fullname" .) .Values.controller.inferenceServiceName }}
fullnameOverride: {{ include "mmta.fullname" . }} is the name of ModelMesh's own Service
{{- end }}
{{- $pods := list "name" "modelmesh-service" "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/managed-by" }}
{{- range $name, $_ := .Values.runtime.podLabels }}
{{- if has $name $pods }}
runtime.podLabels: ModelMesh's controller finds its pods by {{ $name }}: the runtime would never start
{{- end }}
{{- end }}
{{- end -}}

{{- define "mmta.checks.runtime" -}}
{{- $runtime := .Values.runtime }}
{{- $longest := int (sub 62 (len .Values.controller.inferenceServiceName)) }}
{{- if gt (len $runtime.name) $longest }}
runtime.name has {{ len $runtime.name }} characters, at most {{ $longest }} are possible: the pods' label {{ include "mmta.podName" . }} may have 63
{{- end }}
{{- $instead := dict
      "maxLoadingConcurrency" "loading.concurrency"
      "perModelConcurrencyLimit" "capacity.perModelConcurrency"
      "serving.kserve.io/autoscalerClass" "autoscaling.enabled"
      "serving.kserve.io/metrics" "autoscaling.metric"
      "serving.kserve.io/targetUtilizationPercentage" "autoscaling.targetUtilizationPercentage"
      "serving.kserve.io/min-scale" "autoscaling.minReplicas"
      "serving.kserve.io/max-scale" "autoscaling.maxReplicas" }}
{{- range $name, $_ := $runtime.annotations }}
{{- with get $instead $name }}
runtime.annotations: set {{ . }} instead of {{ $name }}
{{- end }}
{{- end }}
{{- if dig "nodeAffinity" "requiredDuringSchedulingIgnoredDuringExecution" "" ($runtime.affinity | default dict) }}
runtime.affinity: take runtime.nodeSelector for what a node must have: the controller adds the processor to required terms, of which one is enough
{{- end }}
{{- $scaling := .Values.autoscaling }}
{{- if $scaling.enabled }}
{{- if not (kindIs "invalid" $runtime.replicas) }}
runtime.replicas and autoscaling.enabled exclude one another: ModelMesh's webhook refuses both together
{{- end }}
{{- if lt (int64 $scaling.maxReplicas) (int64 $scaling.minReplicas) }}
autoscaling.maxReplicas is {{ int64 $scaling.maxReplicas }}, less than autoscaling.minReplicas {{ int64 $scaling.minReplicas }}
{{- end }}
{{- range $container := list "triton" "adapter" }}
{{- $resources := (get $.Values $container).resources }}
{{- if not (or (hasKey ($resources.requests | default dict) $scaling.metric) (hasKey ($resources.limits | default dict) $scaling.metric)) }}
autoscaling.metric is {{ $scaling.metric }}, but {{ $container }}.resources.requests has no {{ $scaling.metric }}: its use could not be computed
{{- end }}
{{- end }}
{{- end }}
{{- if eq $runtime.mode "builtInAdapter" }}
{{- range $name := list "extraEnvFrom" "extraVolumeMounts" }}
{{- if get $.Values.adapter $name }}
adapter.{{ $name }}: in mode builtInAdapter the controller makes the adapter's container, which cannot have it
{{- end }}
{{- end }}
{{- end }}
{{- if and .Values.triton.restrictedProtocols.enabled (not .Values.triton.restrictedProtocols.existingSecret) }}
triton.restrictedProtocols.existingSecret is missing: the Secret with the key that Triton and the adapter share
{{- end }}
{{- end -}}

{{- define "mmta.checks.formats" -}}
{{- $version := include "mmta.tritonVersion" . }}
{{- if and $version (lt (atoi $version) 2306) }}
triton.image.tag is {{ .Values.triton.image.tag }}, but Triton older than 23.06 does not know the argument --metrics-address
{{- end }}
{{- $enabled := list }}
{{- range $name, $format := .Values.formats }}
{{- if $format.enabled }}
{{- $enabled = append $enabled $name }}
{{- end }}
{{- end }}
{{- if not $enabled }}
formats: none is enabled, so the runtime would serve nothing
{{- end }}
{{- range $name := list "tensorflow" "keras" }}
{{- if has $name $enabled }}
{{- if not $version }}
triton.version is missing: formats.{{ $name }} needs Triton 25.02 or older, and the tag {{ $.Values.triton.image.tag }} tells no version
{{- else if gt (atoi $version) 2502 }}
formats.{{ $name }}.enabled: Triton {{ substr 0 2 $version }}.{{ substr 2 4 $version }} has no TensorFlow backend, the last one that has it is 25.02
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

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
{{- $ours := dict }}
{{- range $place := list "adapter.port" "adapter.metricsPort" "triton.grpcPort" "triton.httpPort" "triton.metricsPort" }}
{{- $port := int (get (get $.Values (first (splitList "." $place))) (last (splitList "." $place))) }}
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
      "STORAGE_CONFIG_DIR" "storage.secretName"
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

{{/* Who breaks this rule stops every runtime of the namespace: the controller reads all entries as texts */}}
{{- define "mmta.checks.storage" -}}
{{- $storage := .Values.storage }}
{{- if and $storage.entries (not $storage.create) }}
storage.entries is set, but storage.create is false: nothing would come of them
{{- end }}
{{- if and $storage.create (not $storage.entries) }}
storage.create is true, but storage.entries is empty
{{- end }}
{{- range $key, $entry := $storage.entries }}
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

{{- define "mmta.checks.monitoring" -}}
{{- range $name, $kind := dict "podMonitor" "PodMonitor" "prometheusRule" "PrometheusRule" }}
{{- $api := "monitoring.coreos.com/v1" }}
{{- $has := or ($.Capabilities.APIVersions.Has $api) ($.Capabilities.APIVersions.Has (printf "%s/%s" $api $kind)) }}
{{- if and (get $.Values $name).enabled (not $has) }}
{{ $name }}.enabled: the cluster has no API monitoring.coreos.com/v1 (the Prometheus operator's; `helm template` is told by --api-versions)
{{- end }}
{{- end }}
{{- $monitor := .Values.podMonitor }}
{{- if gt (include "mmta.milliseconds" $monitor.scrapeTimeout | int64) (include "mmta.milliseconds" $monitor.interval | int64) }}
podMonitor.scrapeTimeout {{ $monitor.scrapeTimeout }} is longer than podMonitor.interval {{ $monitor.interval }}
{{- end }}
{{- $alerts := list }}
{{- range (.Files.Get "files/alerts.yaml" | fromYaml).groups }}
{{- range .rules }}
{{- $alerts = append $alerts .alert }}
{{- end }}
{{- end }}
{{- range .Values.prometheusRule.disabled }}
{{- if not (has . $alerts) }}
prometheusRule.disabled: no alert has the name {{ . }}
{{- end }}
{{- end }}
{{- if .Values.prometheusRule.enabled }}
{{- range .Values.prometheusRule.disabled }}
{{- $alerts = without $alerts . }}
{{- end }}
{{- if not $alerts }}
prometheusRule.disabled leaves no alert: say prometheusRule.enabled: false
{{- end }}
{{- end }}
{{- end -}}
