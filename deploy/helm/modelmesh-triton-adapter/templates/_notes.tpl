{{/* Parts of NOTES.txt. What is looked up in the cluster is empty under `helm template` and with `notes.lookup: false` */}}

{{/* A line of a table, wrapped below its second column; argument: list of name and text */}}
{{- define "mmta.notes.row" -}}
{{- $lines := last . | wrap 86 | splitList "\n" -}}
{{- printf "  %-11s%s" (first .) (first $lines) }}
{{- range rest $lines }}
{{ printf "%13s%s" "" . }}
{{- end }}
{{ end -}}

{{/* A point that somebody must look at; argument: the text */}}
{{- define "mmta.notes.point" -}}
{{- $lines := wrap 95 . | splitList "\n" -}}
{{- printf "* %s" (first $lines) }}
{{- range rest $lines }}
{{ printf "  %s" . }}
{{- end }}
{{ end -}}

{{- define "mmta.notes.command" }}    {{ . }}
{{ end -}}

{{/* Formats as `onnx:1`; argument: list of the values' formats and whether those with autoSelect are meant */}}
{{- define "mmta.notes.formats" -}}
{{- $automatic := last . -}}
{{- $found := list -}}
{{- range $name, $format := first . -}}
{{- if and $format.enabled (eq $format.autoSelect $automatic) -}}
{{- range $format.versions }}{{ $found = append $found (printf "%s:%s" $name .) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- join ", " $found -}}
{{- end -}}

{{- define "mmta.notes.capacity" -}}
{{- $capacity := .Values.capacity -}}
{{- $sources := dict "memory" "requests.memory of Triton" "gpu" (printf "one %s" (include "mmta.gpuNames" .)) "fixed" "capacity.bytes" -}}
{{- $all := include "mmta.capacity" . | int64 -}}
{{- $buffer := include "mmta.bytes" $capacity.buffer | int64 -}}
{{- printf "%s (%s) less a buffer of %s = %s in each pod, of which ModelMesh keeps 1 to 10 %% for unloads. A model counts as the bytes of its files × %v"
      (include "mmta.human" $all) (get $sources $capacity.source) (include "mmta.human" $buffer)
      (include "mmta.human" (sub $all $buffer)) $capacity.multiplier -}}
{{- end -}}

{{- define "mmta.notes.volume" -}}
{{- $limit := include "mmta.volumeLimit" . -}}
{{- $ours := "" -}}
{{- if and $limit (ne .Values.runtime.mode "storageHelper") -}}
{{- $ours = printf ", of which the adapter uses 90 %%: %s (CACHE_MAX_BYTES)" (include "mmta.human" (include "mmta.ninetyPercent" $limit)) -}}
{{- end -}}
{{- if eq .Values.runtime.mode "adapterPull" -}}
{{- printf "%s at %s (%s)%s" (include "mmta.human" $limit) .Values.modelVolume.mountPath .Values.modelVolume.type $ours -}}
{{- else if $limit -}}
{{- $who := ternary "triton and triton-adapter" "triton" (eq .Values.runtime.mode "storageHelper") -}}
{{- printf "%s at /models, the controller's volume: 1.5 × limits.memory of %s%s" (include "mmta.human" $limit) $who $ours -}}
{{- else -}}
no limit at /models, the controller's volume: no container has limits.memory
{{- end -}}
{{- printf "; /tmp of Triton %s, /dev/shm %s" (include "mmta.human" (include "mmta.bytes" .Values.triton.tmp.sizeLimit)) (include "mmta.human" (include "mmta.bytes" .Values.triton.shm.sizeLimit)) -}}
{{- end -}}

{{- define "mmta.notes.storage" -}}
{{- $storage := .Values.storage -}}
{{- if $storage.create -}}
{{- printf "Secret %s, made by this release, with the keys %s" $storage.secretName (keys $storage.entries | sortAlpha | join ", ") -}}
{{- else -}}
{{- printf "Secret %s, not made by this release" $storage.secretName -}}
{{- end -}}
{{- if eq .Values.runtime.mode "adapterPull" -}}
; it is read at each load, and pods start without it
{{- else -}}
; the controller mounts the secret that storageSecretName of model-serving-config names (storage-config if nothing else is said), and pods wait until it is there
{{- end -}}
{{- end -}}

{{/*
Objects of the cluster, as JSON; argument: dict "root", "api", "kind", "namespace", and "name" for one of them. Helm's message about a missing right
names this template: its name is the remedy.
*/}}
{{- define "notes.lookup=false without this right" -}}
{{- $items := list -}}
{{- if and .root.Values.notes.lookup (.root.Capabilities.APIVersions.Has (printf "%s/%s" .api .kind)) -}}
{{- $found := lookup .api .kind .namespace (.name | default "") -}}
{{- $items = ternary (list $found | compact) ($found.items | default list) (hasKey . "name") -}}
{{- end -}}
{{- dict "items" $items | toJson -}}
{{- end -}}

{{/* Runtimes of the cluster that auto-select a format of ours, one a line; a runtime of the same name is the one that is replaced */}}
{{- define "mmta.notes.clashes" -}}
{{- range $kind := list "ServingRuntime" "ClusterServingRuntime" -}}
{{- $namespace := ternary $.Release.Namespace "" (eq $kind "ServingRuntime") -}}
{{- $asked := dict "root" $ "api" "serving.kserve.io/v1alpha1" "kind" $kind "namespace" $namespace -}}
{{- range $runtime := (include "notes.lookup=false without this right" $asked | fromJson).items -}}
{{- if and .spec.multiModel (not .spec.disabled) (ne .metadata.name $.Values.runtime.name) -}}
{{- $shared := list -}}
{{- range .spec.supportedModelFormats -}}
{{- $ours := get $.Values.formats .name | default dict -}}
{{- if and .autoSelect $ours.enabled $ours.autoSelect -}}{{- $shared = append $shared .name -}}{{- end -}}
{{- end -}}
{{- with uniq $shared }}{{ printf "%s %s: %s" $kind $runtime.metadata.name (join ", " .) }}
{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Formats that triton-2.x of ModelMesh Serving has, and this runtime of the same name has not */}}
{{- define "mmta.notes.lostFormats" -}}
{{- $lost := list -}}
{{- if eq .Values.runtime.name "triton-2.x" -}}
{{- range $name := list "keras" "onnx" "pytorch" "tensorflow" "tensorrt" -}}
{{- $format := get $.Values.formats $name | default dict -}}
{{- if not (and $format.enabled $format.autoSelect) }}{{ $lost = append $lost $name }}{{ end -}}
{{- end -}}
{{- end -}}
{{- join ", " $lost -}}
{{- end -}}

{{/* Models of these formats that came to triton-2.x, as `namespace/name (format)`; argument: dict "root" and "formats" */}}
{{- define "mmta.notes.lostModels" -}}
{{- $root := .root -}}
{{- $formats := splitList ", " .formats -}}
{{- $namespace := ternary $root.Release.Namespace "" (eq $root.Values.runtime.kind "ServingRuntime") -}}
{{- $models := list -}}
{{- $asked := dict "root" $root "api" "serving.kserve.io/v1beta1" "kind" "InferenceService" "namespace" $namespace -}}
{{- range (include "notes.lookup=false without this right" $asked | fromJson).items -}}
{{- $mode := get (.metadata.annotations | default dict) "serving.kserve.io/deploymentMode" | toString -}}
{{- $model := dig "predictor" "model" dict .spec -}}
{{- if eq $mode "ModelMesh" -}}
{{- $models = append $models (list .metadata (dig "modelFormat" "name" "" $model) (dig "runtime" "" $model)) -}}
{{- end -}}
{{- end -}}
{{- $asked := dict "root" $root "api" "serving.kserve.io/v1alpha1" "kind" "Predictor" "namespace" $namespace -}}
{{- range (include "notes.lookup=false without this right" $asked | fromJson).items -}}
{{- $models = append $models (list .metadata (dig "modelType" "name" "" .spec) (dig "runtime" "name" "" .spec)) -}}
{{- end -}}
{{- $found := list -}}
{{- range $models -}}
{{- $metadata := first . -}}
{{- if and (has (index . 1) $formats) (has (index . 2) (list "" $root.Values.runtime.name)) -}}
{{- $found = append $found (printf "%s/%s (%s)" $metadata.namespace $metadata.name (index . 1)) -}}
{{- end -}}
{{- end -}}
{{- $shown := $found | sortAlpha -}}
{{- if gt (len $shown) 20 -}}
{{- $shown = append (slice $shown 0 20) (printf "and %d more" (sub (len $shown) 20)) -}}
{{- end -}}
{{- join ", " $shown -}}
{{- end -}}

{{/* `yes`, `no`, or empty where it cannot be told */}}
{{- define "mmta.notes.namespaceEnabled" -}}
{{- $asked := dict "root" . "api" "v1" "kind" "Namespace" "namespace" "" "name" .Release.Namespace -}}
{{- range (include "notes.lookup=false without this right" $asked | fromJson).items -}}
{{- ternary "yes" "no" (eq (get (.metadata.labels | default dict) "modelmesh-enabled" | toString) "true") -}}
{{- end -}}
{{- end -}}

{{- define "mmta.notes.ports" -}}
{{- $ports := list -}}
{{- range .Values.networkPolicy.modelMeshPorts }}{{ $ports = append $ports (int . | toString) }}{{ end -}}
{{- join ", " $ports -}}
{{- end -}}
