{{/* Triton's container */}}

{{/*
chmod: an adapter of another uid must enter, too; it fails harmlessly when the adapter came first.
A claim's or a node's directory may belong to root alone: a Triton that is root opens it for the adapter.
$0 is the reporter: it tells the adapter what Triton takes of memory.
*/}}
{{- define "mmta.tritonScript" -}}
{{- $triton := .Values.triton -}}
{{- $repository := printf "%s/_triton_models" (include "mmta.root" .) -}}
mkdir -p {{ $repository }} || exit 1;
chmod 777 {{ $repository }}{{ if .Values.modelVolume.spec }} {{ include "mmta.root" . }}{{ end }} 2>/dev/null;
/bin/sh -c "$0" triton-memory {{ include "mmta.root" . }}/_adapter/triton-memory {{ $repository }} &
exec tritonserver
--id="triton-$(cat /proc/sys/kernel/random/uuid)"
--model-repository={{ $repository }}
--model-control-mode=explicit
--strict-readiness=false
--model-load-thread-count={{ int64 $triton.loadThreads }}
--exit-timeout-secs=30
--backend-config=dali,release_after_unload=true
--backend-config=triton-backend-memory-tracker=true
--allow-sagemaker=false
--grpc-address=127.0.0.1
--grpc-port=8001
--http-address=127.0.0.1
--http-port=8000
--metrics-address=0.0.0.0
--metrics-port={{ int $triton.metricsPort }}
{{- if $triton.restrictedProtocols.existingSecret }}
--grpc-restricted-protocol=model-repository,shared-memory,trace,logging:adapter="$TRITON_CONTROL"
--http-restricted-api=model-repository,shared-memory,trace,logging:adapter="$TRITON_CONTROL"
{{- end }}
"$@"
{{- end -}}

{{/* The adapter knows when only a restart helps: 503. Where it gives no answer, Triton speaks for itself */}}
{{- define "mmta.tritonProbe" -}}
answer=$(curl --noproxy '*' --silent --max-time 3 --write-out '%{http_code}' http://127.0.0.1:{{ int .Values.adapter.metricsPort }}/healthz/triton)
case "$answer" in
  *200) exit 0 ;;
  *503) echo "$answer"; exit 1 ;;
esac
exec curl --noproxy '*' --fail --silent --show-error --max-time 5 http://127.0.0.1:8000/v2/health/live
{{- end -}}

{{/* Backends keep caches below HOME, and ask for a user's name that a uid of OpenShift does not have */}}
{{- define "mmta.tritonEnv" -}}
{{- $own := printf "%s%s" (include "mmta.variable" (list "HOME" "/tmp")) (include "mmta.variable" (list "USER" "triton")) -}}
{{- include "mmta.env" (list $own .Values.triton.extraEnv) -}}
{{- with .Values.triton.restrictedProtocols.existingSecret }}
- name: TRITON_CONTROL
  valueFrom: {secretKeyRef: {name: {{ . | quote }}, key: value}}
{{- end }}
{{- end -}}

{{- define "mmta.tritonContainer" -}}
{{- $triton := .Values.triton -}}
- name: triton
  image: {{ include "mmta.tritonImage" . | quote }}
  imagePullPolicy: IfNotPresent
  command: [/bin/sh, -c]
  args:
    - >-
      {{- include "mmta.tritonScript" . | nindent 6 }}
    - |
      {{- .Files.Get "files/memory.sh" | trim | nindent 6 }}
    {{- range $triton.extraArgs }}
    - {{ . | quote }}
    {{- end }}
  env: {{- include "mmta.tritonEnv" . | trim | nindent 4 }}
  ports:
    - {name: triton-metrics, containerPort: {{ int $triton.metricsPort }}}
  resources: {{- include "mmta.resources" $triton.resources | nindent 4 }}
  volumeMounts:
    {{- if eq .Values.runtime.mode "adapterPull" }}
    - {name: triton-adapter-models, mountPath: {{ include "mmta.root" . }}}
    {{- end }}
    - {name: triton-adapter-shm, mountPath: /dev/shm}
    - {name: triton-adapter-tmp, mountPath: /tmp}
    {{- with $triton.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  livenessProbe:
    exec:
      command:
        - /bin/sh
        - -c
        - |
          {{- include "mmta.tritonProbe" . | nindent 10 }}
    {{- include "mmta.probeTimes" . | nindent 4 }}
  {{- with $triton.securityContext }}
  securityContext: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
