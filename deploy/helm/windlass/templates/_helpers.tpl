{{- define "windlass.name" -}}
{{- if contains "windlass" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-windlass" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "windlass.selector" -}}
app.kubernetes.io/name: windlass
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "windlass.labels" -}}
{{ include "windlass.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "windlass.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (ternary (include "windlass.name" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{/* The variables of every process. */}}
{{- define "windlass.env" -}}
- name: WINDLASS_DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ required "database.existingSecret: name a secret with the URL of a PostgreSQL" .Values.database.existingSecret }}
      key: {{ .Values.database.key }}
- name: WINDLASS_MASTER_KEY
  valueFrom:
    secretKeyRef:
      name: {{ required "masterKey.existingSecret: name a secret with the output of: openssl rand -base64 32" .Values.masterKey.existingSecret }}
      key: {{ .Values.masterKey.key }}
- name: WINDLASS_PUBLIC_URL
  value: {{ required "publicUrl: the address at which clients reach the server" .Values.publicUrl | quote }}
- name: WINDLASS_HOME
  value: /var/lib/windlass/home        # the volume belongs to root
- name: TMPDIR
  value: /tmp
- name: WINDLASS_LOG_FORMAT
  value: json
{{- if .Values.migration.enabled }}
- name: WINDLASS_MIGRATE_AT_START    # servers wait for the job
  value: "false"
{{- end }}
{{- range $name, $value := .Values.settings }}
- name: {{ $name }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- end }}

{{- define "windlass.container" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext: {{- toYaml .Values.securityContext | nindent 2 }}
{{- with .Values.settingsFromSecrets }}
envFrom:
{{- range . }}
  - secretRef: {name: {{ . }}}
{{- end }}
{{- end }}
{{- end }}

{{- define "windlass.pod" -}}
serviceAccountName: {{ include "windlass.serviceAccount" . }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext: {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{- define "windlass.mounts" -}}
- {name: home, mountPath: /var/lib/windlass}
- {name: tmp, mountPath: /tmp}
{{- if .Values.database.caSecret }}
- {name: database-ca, mountPath: /etc/windlass/database, readOnly: true}
{{- end }}
{{- end }}

{{- define "windlass.volumes" -}}
- name: tmp
  emptyDir: {}
{{- if .Values.database.caSecret }}
- name: database-ca
  secret: {secretName: {{ .Values.database.caSecret }}}
{{- end }}
{{- end }}
