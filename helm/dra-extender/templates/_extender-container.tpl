{{/* The extender's container; takes (list $ restartPolicy), the latter only for a sidecar. */}}
{{- define "dra-extender.extenderContainer" -}}
{{- $ := index . 0 -}}
- name: extender
  {{- with index . 1 }}
  restartPolicy: {{ . }}
  {{- end }}
  image: {{ include "dra-extender.image" (list $.Values.image (printf "v%s" $.Chart.AppVersion)) | quote }}
  imagePullPolicy: {{ $.Values.image.pullPolicy }}
  args: [serve]
  env:
    {{- if eq $.Values.mode "extenderOnly" }}
    - name: DRA_EXTENDER_SERVER__HOST
      value: "*"
    {{- if eq $.Values.certificates.source "none" }}
    - name: DRA_EXTENDER_SERVER__PLAIN_HTTP
      value: "true"
    {{- end }}
    {{- end }}
    - name: DRA_EXTENDER_SERVER__PORT
      value: "8080"
    - name: DRA_EXTENDER_PROBES__PORT
      value: "8081"
    {{- if ne $.Values.scraping.access "open" }}
    - name: DRA_EXTENDER_PROBES__METRICS
      value: {{ $.Values.scraping.access | quote }}
    {{- end }}
    {{- if include "dra-extender.tlsSecret" $ }}
    - name: DRA_EXTENDER_TLS__CERT_FILE
      value: /etc/dra-extender-tls/tls.crt
    - name: DRA_EXTENDER_TLS__PRIVATE_KEY_FILE
      value: /etc/dra-extender-tls/tls.key
    {{- if include "dra-extender.verbsOverTls" $ }}
    - name: DRA_EXTENDER_TLS__CLIENT_CA_FILE
      value: /etc/dra-extender-tls/ca.crt
    - name: DRA_EXTENDER_TLS__ALLOWED_NAMES
      value: {{ $.Values.certificates.allowedNames | toJson | quote }}
    {{- end }}
    {{- end }}
    - name: DRA_EXTENDER_SCHEDULING__BINDING_TIMEOUT_SECONDS
      value: {{ $.Values.bindingTimeoutSeconds | int | quote }}
    - name: DRA_EXTENDER_SCHEDULING__POLICY_FILE
      value: /etc/dra-extender-policy/policy.yaml
    {{- if eq $.Values.mode "secondScheduler" }}
    # Refuses to start beside a kube-scheduler whose configuration contradicts the settings.
    - name: DRA_EXTENDER_SCHEDULING__SCHEDULER_CONFIG
      value: /etc/dra-extender/kube-scheduler.yaml
    {{- end }}
    - name: DRA_EXTENDER_CLUSTER__EXPECTED_ACCOUNT
      value: {{ printf "system:serviceaccount:%s:%s" $.Release.Namespace (include "dra-extender.serviceAccountName" $) }}
    - name: DRA_EXTENDER_LEADER_ELECTION__ENABLED
      value: "true"
    - name: DRA_EXTENDER_LEADER_ELECTION__LEASE_NAME
      value: {{ include "dra-extender.fullname" $ }}
    {{- if eq $.Values.mode "secondScheduler" }}
    # kube-scheduler calls the extender in its own pod, so the extender leads where kube-scheduler does.
    - name: DRA_EXTENDER_LEADER_ELECTION__FOLLOW_LEASE
      value: {{ include "dra-extender.fullname" $ }}-scheduler
    {{- else }}
    # kube-scheduler calls the Service, which the leader points at itself.
    - name: DRA_EXTENDER_LEADER_ELECTION__SERVICE
      value: {{ include "dra-extender.fullname" $ }}
    - name: DRA_EXTENDER_LEADER_ELECTION__ADDRESS
      valueFrom:
        fieldRef:
          fieldPath: status.podIP
    {{- end }}
    {{- if $.Values.groupClaims.enabled }}
    - name: DRA_EXTENDER_SCHEDULING__GROUP_CLAIMS_ENABLED
      value: "true"
    {{- end }}
    {{- range $group, $settings := $.Values.extender.settings }}
    {{- range $name, $value := $settings }}
    - name: {{ printf "DRA_EXTENDER_%s__%s" (upper $group) (upper $name) }}
      value: {{ include "dra-extender.plain" $value | quote }}
    {{- end }}
    {{- end }}
    {{- with $.Values.extender.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    {{- if eq $.Values.mode "extenderOnly" }}
    - name: verbs
      containerPort: 8080
      protocol: TCP
    {{- end }}
    - name: {{ include "dra-extender.probesPort" $ }}
      containerPort: 8081
      protocol: TCP
  # A replica that stands by is a healthy pod: its caches are warm.
  startupProbe:
    httpGet:
      path: /readyz?exclude=leader
      port: {{ include "dra-extender.probesPort" $ }}
      {{- if eq (include "dra-extender.probesPort" $) "https" }}
      scheme: HTTPS
      {{- end }}
    periodSeconds: 2
    timeoutSeconds: 2
    failureThreshold: 150
  livenessProbe:
    httpGet:
      path: /livez
      port: {{ include "dra-extender.probesPort" $ }}
      {{- if eq (include "dra-extender.probesPort" $) "https" }}
      scheme: HTTPS
      {{- end }}
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 6
  readinessProbe:
    httpGet:
      path: /readyz?exclude=leader
      port: {{ include "dra-extender.probesPort" $ }}
      {{- if eq (include "dra-extender.probesPort" $) "https" }}
      scheme: HTTPS
      {{- end }}
    periodSeconds: 5
    timeoutSeconds: 2
    failureThreshold: 3
  securityContext:
    {{- toYaml $.Values.extender.securityContext | nindent 4 }}
  resources:
    {{- toYaml $.Values.extender.resources | nindent 4 }}
  volumeMounts:
    # The whole folder: a single file of a ConfigMap would not follow its changes.
    - name: policy
      mountPath: /etc/dra-extender-policy
      readOnly: true
    {{- if eq $.Values.mode "secondScheduler" }}
    - name: scheduler-config
      mountPath: /etc/dra-extender
      readOnly: true
    {{- end }}
    {{- if include "dra-extender.tlsSecret" $ }}
    # The whole folder, so that renewed certificates arrive.
    - name: tls
      mountPath: /etc/dra-extender-tls
      readOnly: true
    {{- end }}
    {{- with $.Values.extender.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
