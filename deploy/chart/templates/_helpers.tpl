{{- define "hookwatch.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{- /* The configuration file. What the chart sets comes first and cannot be overridden. */}}
{{- define "hookwatch.configuration" -}}
{{- merge
      (dict
        "namespace" .Release.Namespace
        "canaries" (dict "kubeSystem" .Values.canaries.kubeSystem "nodeLease" .Values.canaries.nodeLease))
      .Values.config
      (dict "autoBreak" (ternary "on" "plan" .Values.breaker.enabled))
    | toYaml }}
{{- end }}

{{- /* The fence binds every service account of the namespace, and a shield spares every object in it. */}}
{{- define "hookwatch.ownNamespace" -}}
{{- if has .Release.Namespace (list "default" "kube-system" "kube-public" "kube-node-lease") }}
{{- fail "hookwatch needs a namespace that holds nothing else, and this release is for one that Kubernetes shares. Set another one, such as: --namespace hookwatch --create-namespace" }}
{{- end }}
{{- end }}

{{- /* Pod security allows the host's network to nobody else. */}}
{{- define "hookwatch.podSecurity" -}}
{{ ternary "privileged" "restricted" .Values.controlPlane.enabled }}
{{- end }}
