{{/*
What the schema cannot say: rules between values, and the names and ports of ModelMesh Serving's controller.
Each check writes one line for each mistake; all mistakes are told at once. No line shows a value of a secret.
*/}}
{{- define "mmta.checks" -}}
{{- $names := list "names" "monitoring" "storage" "ports" "fronts" -}}
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

{{- define "mmta.checks.fronts" -}}
{{- if .Values.fronts.from }}
{{- if not (include "mmta.fronts" . | trim) }}
fronts.from is set, but no front is enabled
{{- else if not .Values.networkPolicy.enabled }}
fronts.from is set, but networkPolicy.enabled is false: nobody would be kept away
{{- end }}
{{- end }}
{{- end -}}
