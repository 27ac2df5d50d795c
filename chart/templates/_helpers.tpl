{{/* What `farm-operator manifests` prints, as a list, in the namespace of the release. Where the certificate comes from
elsewhere, the Secret of the one that the server makes is left out, with the Role for it. */}}
{{- define "farm-operator.manifests" -}}
{{- $namespace := .Release.Namespace }}
{{- $objects := list }}
{{- range $text := rest (splitList "\n---\n" (.Files.Get "files/manifests.yaml")) }}
{{- $object := fromYaml $text }}
{{- if eq $object.kind "Namespace" }}
{{- $_ := set $object.metadata "name" $namespace }}
{{- end }}
{{- if eq (get $object.metadata "namespace") "farm-operator" }}
{{- $_ := set $object.metadata "namespace" $namespace }}
{{- end }}
{{- range $subject := (get $object "subjects" | default list) }}
{{- $_ := set $subject "namespace" $namespace }}
{{- end }}
{{- if eq $object.kind "APIService" }}
{{- $_ := set $object.spec.service "namespace" $namespace }}
{{- end }}
{{- if and (eq $object.kind "ClusterRole") (eq $object.metadata.name "farm-operator") }}
{{- range $resource := $.Values.ownerResources }}
{{- $parts := splitn "." 2 $resource }}
{{- $rule := dict "apiGroups" (list ($parts._1 | default "")) "resources" (list $parts._0) "verbs" (list "list" "watch") }}
{{- $_ := set $object "rules" (append $object.rules $rule) }}
{{- end }}
{{- end }}
{{- $isNamed := has $object.metadata.name (list "farm-operator" "farm-operator-serving-certificate") }}
{{- $isOfSecret := and $isNamed (has $object.kind (list "Role" "RoleBinding" "Secret")) }}
{{- if not (and $isOfSecret (include "farm-operator.certificate" $)) }}
{{- $objects = append $objects $object }}
{{- end }}
{{- end }}
{{- dict "objects" $objects | toYaml }}
{{- end }}

{{/* The image. */}}
{{- define "farm-operator.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}
{{- else if .tag }}{{ .repository }}:{{ .tag }}
{{- else }}{{ .repository }}
{{- end }}
{{- end }}
{{- end }}

{{/* The Secret that the serving certificate is read from, if the server does not make it. */}}
{{- define "farm-operator.certificate" -}}
{{- if .Values.certManager.create }}farm-operator-tls{{ else }}{{ .Values.certificate.secretName }}{{ end }}
{{- end }}

{{/* Whether etcd is spoken to over TLS. */}}
{{- define "farm-operator.etcd-tls" -}}
{{- range .Values.store.etcd.servers }}{{ if hasPrefix "https:" . }}yes{{ end }}{{ end }}
{{- end }}
