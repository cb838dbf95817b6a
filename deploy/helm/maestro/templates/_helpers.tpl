{{- define "maestro.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{- define "maestro.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "maestro.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "maestro.labels" -}}
{{ include "maestro.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "maestro.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "maestro.name" .) }}{{ else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{/* maestro.json as the processes read it. */}}
{{- define "maestro.configuration" -}}
{{ .Values.config | toPrettyJson }}
{{- end }}

{{/* The files of `secrets`, one line each: the file's name, a space, and the reference as JSON. */}}
{{- define "maestro.secretFiles" -}}
{{- range $key, $reference := omit .Values.secrets "files" }}
{{- if $reference }}
{{ kebabcase $key }} {{ $reference | toJson }}
{{- end }}
{{- end }}
{{- range $file, $reference := .Values.secrets.files }}
{{ $file }} {{ $reference | toJson }}
{{- end }}
{{- end }}

{{/* Settings that differ from `config`, as variables; a secret is a reference to its file. */}}
{{- define "maestro.environment" -}}
- {name: MAESTRO_CONFIG, value: /etc/maestro/maestro.json}
- {name: MAESTRO_DATA_DIR, value: /data}
- {name: MAESTRO_LOGS_FORMAT, value: json}
- {name: MAESTRO_TEMPORAL_ADDRESS, value: {{ .Values.temporal.address | quote }}}
- {name: MAESTRO_TEMPORAL_NAMESPACE, value: {{ .Values.temporal.namespace | quote }}}
- {name: MAESTRO_TEMPORAL_TLS, value: {{ .Values.temporal.tls | quote }}}
- {name: MAESTRO_WEBUI_HOST, value: 0.0.0.0}
- {name: MAESTRO_WEBUI_PORT, value: "8080"}
- {name: MAESTRO_WEB_HOST, value: 0.0.0.0}
- {name: MAESTRO_WEB_PORT, value: "5070"}
- {name: MAESTRO_HEALTH_HOST, value: 0.0.0.0}
- {name: MAESTRO_HEALTH_WORKER_PORT, value: "9091"}
- {name: MAESTRO_HEALTH_CONNECT_PORT, value: "9092"}
{{- with .Values.api.publicUrl }}
- {name: MAESTRO_WEBUI_PUBLIC_URL, value: {{ . | quote }}}
{{- if not (dig "web" "allowedOrigins" list $.Values.config) }}
{{- /* The chat page comes from this origin, and its socket goes to the web connector. */}}
- {name: MAESTRO_WEB_ALLOWED_ORIGINS, value: {{ printf "%s://%s" (urlParse .).scheme (urlParse .).host | quote }}}
{{- end }}
{{- end }}
- {name: MAESTRO_WEBUI_ALLOWED_HOSTS, value: {{ include "maestro.allowedHosts" . | quote }}}
{{- with .Values.api.trustedProxies }}
- {name: MAESTRO_WEBUI_TRUSTED_PROXIES, value: {{ join "," . | quote }}}
{{- end }}
{{- range $key, $value := .Values.media }}
{{- if $value }}
- {name: MAESTRO_MEDIA_{{ upper $key }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}
{{- $variables := dict "storeUrl" "STORE_URL" "signingKey" "KEYS_SIGNING" "secretsKey" "KEYS_SECRETS" "webuiPassword" "WEBUI_PASSWORD" "webApiKey" "WEB_API_KEY" "temporalApiKey" "TEMPORAL_API_KEY" "temporalTlsCa" "TEMPORAL_TLS_CA" "temporalTlsCert" "TEMPORAL_TLS_CERT" "temporalTlsKey" "TEMPORAL_TLS_KEY" "mediaAccessKeyId" "MEDIA_ACCESS_KEY_ID" "mediaSecretAccessKey" "MEDIA_SECRET_ACCESS_KEY" }}
{{- range $key, $variable := $variables }}
{{- if index $.Values.secrets $key }}
- {name: MAESTRO_{{ $variable }}, value: file:/run/secrets/maestro/{{ kebabcase $key }}}
{{- end }}
{{- end }}
{{- range $name, $value := .Values.env }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}

{{/* The names by which services and the ingress reach a process; others are refused, against DNS rebinding. */}}
{{- define "maestro.allowedHosts" -}}
{{- $names := list }}
{{- range $service := list "api" "web" }}
{{- $name := printf "%s-%s" (include "maestro.name" $) $service }}
{{- $names = concat $names (list $name (printf "%s.%s" $name $.Release.Namespace) (printf "%s.%s.svc" $name $.Release.Namespace)) }}
{{- end }}
{{- with .Values.api.ingress.host }}{{ $names = append $names . }}{{ end }}
{{- with .Values.api.publicUrl }}{{ $names = append $names (regexReplaceAll ":.*$" (urlParse .).host "") }}{{ end }}
{{- join "," (uniq $names) }}
{{- end }}

{{/* What holds for every pod: no rights, no token of the cluster, and hosts spread. Needs root and component. */}}
{{- define "maestro.pod" -}}
serviceAccountName: {{ include "maestro.serviceAccount" .root }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
topologySpreadConstraints:
{{- if .root.Values.topologySpreadConstraints }}
{{- toYaml .root.Values.topologySpreadConstraints | nindent 2 }}
{{- else }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "maestro.selector" . | nindent 8 }}
{{- end }}
{{- end }}

{{/* What holds for every container: the image, a read-only root, and the files of configuration and secrets. */}}
{{- define "maestro.container" -}}
image: {{ include "maestro.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "maestro.mounts" -}}
- {name: data, mountPath: /data}
- {name: tmp, mountPath: /tmp}
- {name: configuration, mountPath: /etc/maestro, readOnly: true}
- {name: secrets, mountPath: /run/secrets/maestro, readOnly: true}
{{- end }}

{{/* Needs root and configuration, the name of the ConfigMap. */}}
{{- define "maestro.volumes" -}}
- name: tmp
  emptyDir: {sizeLimit: 1Gi}
- name: configuration
  configMap: {name: {{ .configuration }}}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
{{- range $line := include "maestro.secretFiles" .root | trim | splitList "\n" }}
{{- $file := first (splitList " " $line) }}
{{- $reference := trimPrefix (printf "%s " $file) $line | fromJson }}
      - secret: {name: {{ $reference.name }}, items: [{key: {{ $reference.key }}, path: {{ $file }}}]}
{{- end }}
{{- end }}

{{/* Pods begin anew when the configuration changes; a changed secret needs a restart. */}}
{{- define "maestro.podMetadata" -}}
labels: {{- include "maestro.labels" . | nindent 2 }}
{{- with .root.Values.podLabels }}{{ toYaml . | nindent 2 }}{{ end }}
annotations:
  checksum/configuration: {{ include "maestro.configuration" .root | sha256sum }}
{{- with .root.Values.podAnnotations }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end }}

{{/* The probes of a health port. A start may wait for a migration, and for the library that calls models. */}}
{{- define "maestro.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 2
  failureThreshold: 150
livenessProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 15
  timeoutSeconds: 5
  failureThreshold: 4
{{- end }}
