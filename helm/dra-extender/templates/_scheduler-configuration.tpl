{{/*
What every kube-scheduler that works with the extender needs; takes (list $ url schedulerName).
The reason of each line is in docs/configuration-scheduler.md.
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
    enableHTTPS: false
    httpTimeout: 5s
    nodeCacheCapable: true
    ignorable: false
    managedResources: []
  - urlPrefix: {{ $url }}
    bindVerb: bind
    enableHTTPS: false
    httpTimeout: {{ add $.Values.bindingTimeoutSeconds 60 }}s
    nodeCacheCapable: true
    ignorable: false
    managedResources: []
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
