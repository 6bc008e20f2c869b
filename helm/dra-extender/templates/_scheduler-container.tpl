{{/* The second kube-scheduler's container. */}}
{{- define "dra-extender.schedulerContainer" -}}
- name: kube-scheduler
  image: {{ include "dra-extender.image" (list .Values.scheduler.image (include "dra-extender.schedulerTag" .)) | quote }}
  imagePullPolicy: {{ .Values.scheduler.image.pullPolicy }}
  command: [kube-scheduler]
  args:
    - --config=/etc/dra-extender/kube-scheduler.yaml
    {{- range .Values.scheduler.extraArgs }}
    - {{ . | quote }}
    {{- end }}
  ports:
    - name: https-scheduler
      containerPort: 10259
      protocol: TCP
  livenessProbe:
    httpGet:
      path: /livez
      port: https-scheduler
      scheme: HTTPS
    initialDelaySeconds: 10
    periodSeconds: 10
    timeoutSeconds: 15
    failureThreshold: 8
  readinessProbe:
    httpGet:
      path: /readyz
      port: https-scheduler
      scheme: HTTPS
    periodSeconds: 5
    timeoutSeconds: 5
    failureThreshold: 3
  securityContext:
    {{- toYaml .Values.scheduler.securityContext | nindent 4 }}
  resources:
    {{- toYaml .Values.scheduler.resources | nindent 4 }}
  volumeMounts:
    - name: scheduler-config
      mountPath: /etc/dra-extender
      readOnly: true
{{- end -}}
