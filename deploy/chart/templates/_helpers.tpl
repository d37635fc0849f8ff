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

{{- /* Pod security allows the host's network to nobody else. */}}
{{- define "hookwatch.podSecurity" -}}
{{ ternary "privileged" "restricted" .Values.controlPlane.enabled }}
{{- end }}
