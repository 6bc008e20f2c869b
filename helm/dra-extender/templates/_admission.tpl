{{/* A list as an expression in CEL. */}}
{{- define "dra-extender.celList" -}}
[{{ range $index, $each := . }}{{ if $index }}, {{ end }}{{ printf "'%s'" $each }}{{ end }}]
{{- end }}

{{/* The user of the service's account. */}}
{{- define "dra-extender.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "dra-extender.serviceAccountName" . }}
{{- end }}

{{/* True if a list of requests, given as an expression, names a listed class, directly or as an alternative. */}}
{{- define "dra-extender.namesClass" -}}
{{- $requests := index . 0 }}
{{- $classes := include "dra-extender.celList" (index . 1) -}}
{{ $requests }}.exists(r,
r.?exactly.?deviceClassName.orValue('') in {{ $classes }} ||
r.?firstAvailable.orValue([]).exists(s, s.deviceClassName in {{ $classes }}))
{{- end }}

{{/* True if the pod asks for a listed extended resource, or for one that stands for a listed class. */}}
{{- define "dra-extender.asksForResource" -}}
{{- $all := .Values.admission.extendedResources -}}
{{- range .Values.admission.deviceClasses }}
{{- $all = append $all (printf "deviceclass.resource.kubernetes.io/%s" .) -}}
{{- end -}}
{{- $names := include "dra-extender.celList" $all -}}
(object.spec.containers + object.spec.?initContainers.orValue([])).exists(c,
c.?resources.?requests.orValue({}).exists(name, name in {{ $names }}) ||
c.?resources.?limits.orValue({}).exists(name, name in {{ $names }}))
{{- end }}

{{/*
What a pod is judged by, in CEL: a list of {name, kind, subject, asks, expression}.  `asks` is only about the pod, `expression` about
the pod and an object of the kind.  CEL cannot look up objects; the API server hands each object of the kind in the pod's namespace to
the policy, as its parameter.
*/}}
{{- define "dra-extender.podRules" -}}
{{- $classes := .Values.admission.deviceClasses -}}
{{- $rules := list -}}
{{- if $classes -}}
{{- $template := include "dra-extender.namesClass" (list "params.spec.spec.devices.?requests.orValue([])" $classes) -}}
{{- $claim := include "dra-extender.namesClass" (list "params.spec.devices.?requests.orValue([])" $classes) -}}
{{- $rules = append $rules (dict "name" "template" "kind" "ResourceClaimTemplate" "subject" "'ResourceClaimTemplate ' + params.metadata.name"
      "asks" "object.spec.?resourceClaims.orValue([]).exists(c, c.?resourceClaimTemplateName.hasValue())"
      "expression" (printf "object.spec.resourceClaims.exists(c, c.?resourceClaimTemplateName.orValue('') == params.metadata.name) && %s" $template)) -}}
{{- $rules = append $rules (dict "name" "claim" "kind" "ResourceClaim" "subject" "'ResourceClaim ' + params.metadata.name"
      "asks" "object.spec.?resourceClaims.orValue([]).exists(c, c.?resourceClaimName.hasValue())"
      "expression" (printf "object.spec.resourceClaims.exists(c, c.?resourceClaimName.orValue('') == params.metadata.name) && %s" $claim)) -}}
{{- end -}}
{{- $rules = append $rules (dict "name" "resource" "kind" "" "subject" "'an extended resource of the pod'"
      "asks" (include "dra-extender.asksForResource" .) "expression" "true") -}}
{{- toJson $rules -}}
{{- end }}
