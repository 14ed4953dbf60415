{{/* Names and labels */}}

{{- define "mmta.name" -}}
{{- .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* A Service's name too, which may have no dot, as a release's may */}}
{{- define "mmta.fullname" -}}
{{- $name := include "mmta.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | replace "." "-" | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | replace "." "-" | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The Service of the HTTP fronts */}}
{{- define "mmta.frontsName" -}}
{{- printf "%s-fronts" (include "mmta.fullname" . | trunc 56 | trimSuffix "-") -}}
{{- end -}}

{{/* Labels of every object; a name of the chart goes before the same name in commonLabels */}}
{{- define "mmta.labels" -}}
{{- $own := dict
      "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
      "app.kubernetes.io/name" (include "mmta.name" .)
      "app.kubernetes.io/instance" .Release.Name
      "app.kubernetes.io/version" .Chart.AppVersion
      "app.kubernetes.io/managed-by" .Release.Service -}}
{{- merge $own (.Values.commonLabels | default dict) | toYaml -}}
{{- end -}}

{{/* Name and labels that the controller gives to the pods of the runtime (deployment.yaml.tmpl of ModelMesh Serving) */}}
{{- define "mmta.podName" -}}
{{- printf "%s-%s" .Values.controller.inferenceServiceName .Values.runtime.name -}}
{{- end -}}

{{- define "mmta.podSelector" -}}
modelmesh-service: {{ .Values.controller.inferenceServiceName | quote }}
name: {{ include "mmta.podName" . | quote }}
{{- end -}}

{{/* The Pod of `helm test` and its rights */}}
{{- define "mmta.testName" -}}
{{- printf "%s-readyz" (include "mmta.fullname" . | trunc 56 | trimSuffix "-") -}}
{{- end -}}

{{/* Labels of the Pod of `helm test`, by which the NetworkPolicy admits it */}}
{{- define "mmta.testSelector" -}}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: test
{{- end -}}

{{/* Image of an `image` value; argument: dict "image" and "tag", the tag where the value names none */}}
{{- define "mmta.image" -}}
{{- with .image.registry }}{{ . | trimSuffix "/" }}/{{ end -}}
{{- .image.repository }}:{{ .image.tag | default .tag -}}
{{- end -}}

{{- define "mmta.adapterImage" -}}
{{- include "mmta.image" (dict "image" .Values.adapter.image "tag" .Chart.AppVersion) -}}
{{- end -}}

{{- define "mmta.tritonImage" -}}
{{- include "mmta.image" (dict "image" .Values.triton.image "tag" "") -}}
{{- end -}}
