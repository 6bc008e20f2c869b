{{/* Annotations of what exists while Helm installs or upgrades; takes its place in the order. */}}
{{- define "dra-extender.hook" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{/* The specification of a Job that makes or renews certificates; takes (list $ account). */}}
{{- define "dra-extender.certificatesJob" -}}
{{- $ := index . 0 -}}
backoffLimit: 6
activeDeadlineSeconds: 600
ttlSecondsAfterFinished: 86400
template:
  metadata:
    labels:
      {{- include "dra-extender.labels" (list $ "certificates") | nindent 6 }}
  spec:
    restartPolicy: OnFailure
    serviceAccountName: {{ index . 1 }}
    automountServiceAccountToken: true
    enableServiceLinks: false
    {{- with $.Values.imagePullSecrets }}
    imagePullSecrets:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      {{- toYaml $.Values.podSecurityContext | nindent 6 }}
    containers:
      - name: certificates
        image: {{ include "dra-extender.image" (list $.Values.image (printf "v%s" $.Chart.AppVersion)) | quote }}
        imagePullPolicy: {{ $.Values.image.pullPolicy }}
        args:
          - certificates
          - {{ printf "--namespace=%s" $.Release.Namespace | quote }}
          - --prefix={{ include "dra-extender.fullname" $ }}
          {{- range include "dra-extender.tlsNames" $ | fromJsonArray }}
          - {{ printf "--name=%s" . | quote }}
          {{- end }}
          - {{ printf "--client-name=%s" (first $.Values.certificates.allowedNames | default "system:kube-scheduler") | quote }}
        securityContext:
          {{- toYaml $.Values.extender.securityContext | nindent 10 }}
        resources:
          requests:
            cpu: 50m
            memory: 64Mi
          limits:
            memory: 256Mi
    {{- with $.Values.nodeSelector }}
    nodeSelector:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with $.Values.tolerations }}
    tolerations:
      {{- toYaml . | nindent 6 }}
    {{- end }}
{{- end -}}
