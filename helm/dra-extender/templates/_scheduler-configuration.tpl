{{/*
What every kube-scheduler that works with the extender needs; takes (list $ url schedulerName).
The reason of each line is in docs/reference/kube-scheduler.md.
*/}}
{{- define "dra-extender.schedulerEssentials" -}}
{{- $ := index . 0 -}}
{{- $url := index . 1 -}}
percentageOfNodesToScore: 100
profiles:
  - schedulerName: {{ index . 2 | quote }}
    plugins:
      multiPoint:
        {{- with $.Values.scheduler.pluginWeights }}
        enabled:
          {{- range $plugin, $weight := . }}
          - name: {{ $plugin }}
            weight: {{ $weight | int }}
          {{- end }}
        {{- end }}
        disabled:
          - name: DynamicResources
extenders:
  - urlPrefix: {{ $url }}
    filterVerb: filter
    prioritizeVerb: prioritize
    preemptVerb: preempt
    weight: 2
    {{- include "dra-extender.schedulerTls" (list $ $url) | nindent 4 }}
    httpTimeout: 5s
    nodeCacheCapable: true
    ignorable: false
    managedResources: []
  - urlPrefix: {{ $url }}
    bindVerb: bind
    {{- include "dra-extender.schedulerTls" (list $ $url) | nindent 4 }}
    httpTimeout: {{ add $.Values.bindingTimeoutSeconds 60 }}s
    nodeCacheCapable: true
    ignorable: false
    managedResources: []
{{- end -}}

{{/* Whether kube-scheduler calls over TLS, and with which files; takes (list $ url). */}}
{{- define "dra-extender.schedulerTls" -}}
{{- $ := index . 0 -}}
{{- if hasPrefix "https://" (index . 1) -}}
enableHTTPS: true
tlsConfig:
  serverName: {{ include "dra-extender.fullname" $ }}.{{ $.Release.Namespace }}.svc
  caFile: /etc/kubernetes/dra-extender/ca.crt
  certFile: /etc/kubernetes/dra-extender/tls.crt
  keyFile: /etc/kubernetes/dra-extender/tls.key
{{- else -}}
enableHTTPS: false
{{- end -}}
{{- end -}}

{{/* The URL of the Service for a kube-scheduler outside; an address of IPv6 is in brackets. */}}
{{- define "dra-extender.serviceUrl" -}}
{{- $address := .Values.service.clusterIP | default "CLUSTER-IP" -}}
{{- $scheme := ternary "https" "http" (eq (include "dra-extender.verbsOverTls" .) "yes") -}}
{{- printf "%s://%s:8080" $scheme (ternary (printf "[%s]" $address) $address (contains ":" $address)) -}}
{{- end -}}

{{/* The whole document for the second kube-scheduler. */}}
{{- define "dra-extender.schedulerConfiguration" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  qps: {{ .Values.scheduler.clientConnection.qps | int }}
  burst: {{ .Values.scheduler.clientConnection.burst | int }}
leaderElection:
  leaderElect: true
  resourceName: {{ include "dra-extender.fullname" . }}-scheduler
  resourceNamespace: {{ .Release.Namespace | quote }}
{{ include "dra-extender.schedulerEssentials" (list . "http://127.0.0.1:8080" .Values.scheduler.name) }}
{{- end -}}
