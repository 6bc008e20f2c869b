{{/* The name of most objects: the release, and the chart unless the release names it already. The name of a Service has no dot. */}}
{{- define "dra-extender.fullname" -}}
{{- $release := .Release.Name | replace "." "-" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains .Chart.Name $release -}}
{{- $release | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" $release .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "dra-extender.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "dra-extender.fullname" .) -}}
{{- end -}}

{{- define "dra-extender.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: extender
{{- end -}}

{{/* Labels of an object; takes (list $ component), and the labels that the values have for this object. */}}
{{- define "dra-extender.labels" -}}
{{- $ := index . 0 -}}
{{- with merge (dict) (rest (rest .) | first | default dict) $.Values.commonLabels -}}
{{ toYaml . }}
{{ end -}}
app.kubernetes.io/name: {{ $.Chart.Name | quote }}
app.kubernetes.io/instance: {{ $.Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
app.kubernetes.io/part-of: dra-extender
app.kubernetes.io/version: {{ $.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $.Chart.Name $.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Whether the cluster knows a kind of the Prometheus operator; takes (list $ kind). --api-versions names the version, or version and kind. */}}
{{- define "dra-extender.knowsMonitoring" -}}
{{- $known := (index . 0).Capabilities.APIVersions -}}
{{- if or ($known.Has "monitoring.coreos.com/v1") ($known.Has (printf "monitoring.coreos.com/v1/%s" (index . 1))) -}}yes{{- end -}}
{{- end -}}

{{/* An image reference; takes (list image defaultTag). */}}
{{- define "dra-extender.image" -}}
{{- $image := index . 0 -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository ($image.tag | default (index . 1)) -}}
{{- end -}}
{{- end -}}

{{/*
The tag of kube-scheduler's image. Empty: the cluster's patch release is not known. Away from a cluster, Helm takes v1.N.0 for
the version where none is given, N being that of its own libraries; a vendor's suffix, or an answer of the cluster, shows a real one.
*/}}
{{- define "dra-extender.schedulerTag" -}}
{{- $version := .Capabilities.KubeVersion.Version -}}
{{- if .Values.scheduler.image.tag -}}
{{- .Values.scheduler.image.tag -}}
{{- else if or (regexMatch "^v[0-9]+\\.[0-9]+\\.([1-9][0-9]*|0[-+].*)" $version) (lookup "v1" "Namespace" "" "kube-system") -}}
{{- regexFind "^v[0-9]+\\.[0-9]+\\.[0-9]+" $version -}}
{{- end -}}
{{- end -}}

{{/* A value as people write it: values are parsed as JSON, where 1000000 would come out as 1e+06. */}}
{{- define "dra-extender.plain" -}}
{{- if kindIs "slice" . -}}{{ toJson . }}
{{- else if and (kindIs "float64" .) (eq (floor .) .) -}}{{ int64 . }}
{{- else -}}{{ . }}
{{- end -}}
{{- end -}}

{{/* Whether the verbs are served over TLS; empty if they are not. */}}
{{- define "dra-extender.verbsOverTls" -}}
{{- if and (eq .Values.mode "extenderOnly") (ne .Values.certificates.source "none") -}}yes{{- end -}}
{{- end -}}

{{/* The Secret with the certificate of the service; empty where it needs none. */}}
{{- define "dra-extender.tlsSecret" -}}
{{- if or (include "dra-extender.verbsOverTls" .) (eq .Values.scraping.access "authorized") -}}
{{- if eq .Values.certificates.source "secret" -}}{{ .Values.certificates.secretName }}{{- else -}}{{ include "dra-extender.fullname" . }}-tls{{- end -}}
{{- end -}}
{{- end -}}

{{/* The names of the service in its certificate, as a JSON list. */}}
{{- define "dra-extender.tlsNames" -}}
{{- $name := include "dra-extender.fullname" . -}}
{{- $service := printf "%s.%s.svc" $name .Release.Namespace -}}
{{- $names := list $service (printf "%s.cluster.local" $service) -}}
{{- toJson (ternary $names (append $names .Values.service.clusterIP) (empty .Values.service.clusterIP)) -}}
{{- end -}}

{{/* The name of the port of probes and metrics: what is spoken there. */}}
{{- define "dra-extender.probesPort" -}}
{{- ternary "https" "http" (eq .Values.scraping.access "authorized") -}}
{{- end -}}

{{- define "dra-extender.subjects" -}}
- kind: ServiceAccount
  name: {{ include "dra-extender.serviceAccountName" . | quote }}
  namespace: {{ .Release.Namespace | quote }}
{{- end -}}
