{{/* The release's objects are called this. */}}
{{- define "trimtab.name" -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "trimtab.selector" -}}
app.kubernetes.io/name: trimtab
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "trimtab.labels" -}}
{{ include "trimtab.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{- define "trimtab.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "trimtab.name" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{/* "true" where the agents ask the API server. */}}
{{- define "trimtab.cluster" -}}
{{- if (.Values.config.cluster | default dict).enabled -}}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) -}}
{{- fail "config.cluster.enabled gives rights to the service account of the agents: name one of their own in serviceAccount.name, or set config.cluster.enabled=false" -}}
{{- end -}}
true
{{- end -}}
{{- end -}}

{{/* The user that the agents are to the API server. */}}
{{- define "trimtab.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "trimtab.serviceAccount" . }}
{{- end -}}

{{- define "trimtab.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* What of needs.yaml this configuration wants, as a list of the names of its "when". */}}
{{- define "trimtab.wanted" -}}
{{- $hooks := .Values.config.hooks | default dict -}}
{{- $kubelet := (.Values.config.podspec | default dict).kubelet | default dict -}}
{{- if eq .Values.attach "none" }}
- unit
{{- else -}}
{{- $on := dict "always" true -}}
{{- $_ := set $on "nri" (has .Values.attach (list "nri" "auto")) -}}
{{- $_ := set $on "cri" (has .Values.attach (list "bypass" "auto")) -}}
{{- range $hook := list "coreSched" "partition" "rdt" "rdma" "deviceNodes" "ociHooks" -}}
{{- $_ := set $on $hook (index $hooks $hook | default dict).enabled -}}
{{- end -}}
{{- range $hook := list "ulimits" "scheduler" "ioPriority" -}}
{{- if (index $hooks $hook | default dict).enabled }}{{ $_ := set $on (ternary "limits" "scheduling" (eq $hook "ulimits")) true }}{{ end -}}
{{- end -}}
{{- $placement := .Values.config.placement | default dict -}}
{{- $balloons := $placement.balloons | default dict -}}
{{- if or $balloons.schedulingClasses ($placement.topologyAware | default dict).schedulingClasses }}{{ $_ := set $on "scheduling" true }}{{ end -}}
{{- $_ := set $on "cpuClasses" (not (empty $balloons.cpuClasses)) -}}
{{- $ruled := dict "rlimit" "limits" "scheduler" "scheduling" "io.priority" "scheduling" "device" "devices" -}}
{{- range $rule := .Values.config.rules }}{{ range $set := $rule.set }}{{ with index $ruled ($set.field | default "") }}{{ $_ := set $on . true }}{{ end }}{{ end }}{{ end -}}
{{- $_ := set $on "processes" (or $on.cri $on.coreSched $on.rdt $on.limits $on.scheduling) -}}
{{- $_ := set $on "devices" (or $on.devices $on.rdma $on.deviceNodes (eq ((index $hooks "gpu" | default dict).devices | default "env") "nodes")) -}}
{{- $_ := set $on "podSpecs" (ne (dig "podsSocket" "default" $kubelet) "") -}}
{{- $_ := set $on "podResources" (ne (dig "podResourcesSocket" "default" $kubelet) "") -}}
{{- $plugins := .Values.config.resourcePlugins | default dict -}}
{{- $_ := set $on "resourcePlugins" (not (empty $plugins.directory)) -}}
{{- $_ := set $on "pluginSockets" (not (empty $plugins.watch)) -}}
{{- $_ := set $on "devices" (or $on.devices $on.resourcePlugins $on.pluginSockets) -}}
{{- $_ := set $on "dra" (eq (.Values.config.authority | default "") "dra") -}}
{{- $_ := set $on "cdi" (or $on.dra (not (empty (index $hooks "cdiDevices" | default dict).classes))) -}}
{{- $_ := unset $on "deviceNodes" -}}
{{- range $name, $is := $on }}{{ if $is }}
- {{ $name }}
{{- end }}{{ end }}
{{- end }}
{{- end -}}

{{/* "true" where an agent runs in the pods; empty with attach: none. */}}
{{- define "trimtab.agent" -}}
{{- if ne .Values.attach "none" }}true{{ end -}}
{{- end -}}

{{/* The configuration file that commands in a pod read: the chart's, or that of the unit. */}}
{{- define "trimtab.file" -}}
{{- if include "trimtab.agent" . -}}
/config/config.yaml
{{- else -}}
{{ dir ((.Values.config.paths | default dict).key | default "/etc/trimtab/record.key") }}/config.yaml
{{- end -}}
{{- end -}}

{{/* What is mounted of the node: a list of name, path, at, write, type, each place once. */}}
{{- define "trimtab.paths" -}}
{{- $wanted := include "trimtab.wanted" . | fromYamlArray -}}
{{- $seen := dict -}}
{{- range $need := (.Files.Get "needs.yaml" | fromYaml).paths -}}
{{- if has $need.for $wanted -}}
{{- $value := $.Values.config -}}
{{- range $key := splitList "." $need.key -}}
{{- $value = index ($value | default dict) $key -}}
{{- end -}}
{{- $list := list ($value | default $need.default) -}}
{{- if $need.defaults }}{{ $list = $value | default $need.defaults }}{{ end -}}
{{- range $i, $each := $list -}}
{{- $path := trimPrefix "unix://" $each -}}
{{- if $need.above }}{{ $path = dir $path }}{{ end -}}
{{- $at := $need.at | default $path -}}
{{- if not (hasKey $seen $at) -}}
{{- $_ := set $seen $at true }}
- {name: {{ $need.name }}{{ if $i }}-{{ $i }}{{ end }}, path: {{ $path | quote }}, at: {{ $at | quote }}, write: {{ $need.write | default false }}, type: {{ $need.type }}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The agent's configuration file. */}}
{{- define "trimtab.config" -}}
{{- if eq .Values.attach "cri" -}}
{{- fail "attach: cri is not for a pod, since pods need the proxy to start: install the Debian package on the node (docs/install.md)" -}}
{{- end -}}
{{- $head := dict "apiVersion" "trimtab.io/v1alpha1" "kind" "Config" "attach" .Values.attach -}}
{{- $config := merge $head (deepCopy .Values.config) -}}
{{- $wanted := include "trimtab.wanted" . | fromYamlArray -}}
{{- range $need := (.Files.Get "needs.yaml" | fromYaml).paths -}}
{{- if and $need.at (has $need.for $wanted) -}}
{{- $keys := splitList "." $need.key -}}
{{- $section := deepCopy (index $config (first $keys) | default dict) -}}
{{- $_ := set $section (last $keys) $need.at -}}
{{- $_ := set $config (first $keys) $section -}}
{{- end -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* The values of the keys that only a start reads. */}}
{{- define "trimtab.start" -}}
{{- .Values.attach }}
{{- range $path := (.Files.Get "needs.yaml" | fromYaml).startKeys -}}
{{- $value := $.Values.config -}}
{{- range $key := splitList "." $path -}}
{{- $value = index ($value | default dict) $key -}}
{{- end }}
{{ $path }}={{ toJson $value }}
{{- end -}}
{{- end -}}

{{/* The head of an admission policy: the chart's values, and the policy's name. */}}
{{- define "trimtab.policyOf" -}}
{{- $root := index . 0 -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ include "trimtab.name" $root }}-{{ index . 1 }}
  labels: {{- include "trimtab.labels" $root | nindent 4 }}
spec:
  failurePolicy: Fail
  matchConditions:
  - {name: agents, expression: "request.userInfo.username == '{{ include "trimtab.user" $root }}'"}
  matchConstraints:
    resourceRules:
{{- end -}}

{{/* The variables of each policy: the node that the token is bound to, by its pod or by itself. */}}
{{- define "trimtab.tokenNode" }}
  variables:
  - name: node
    expression: >-
      has(request.userInfo.extra) && 'authentication.kubernetes.io/node-name' in request.userInfo.extra &&
      request.userInfo.extra['authentication.kubernetes.io/node-name'].size() == 1 ?
      request.userInfo.extra['authentication.kubernetes.io/node-name'][0] : ''
{{- end -}}

{{/* What puts a policy in force, and the end of the document before it. */}}
{{- define "trimtab.binding" -}}
{{- $root := index . 0 -}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ include "trimtab.name" $root }}-{{ index . 1 }}
  labels: {{- include "trimtab.labels" $root | nindent 4 }}
spec:
  policyName: {{ include "trimtab.name" $root }}-{{ index . 1 }}
  validationActions: [Deny]
---
{{- end -}}

{{/* The port that Prometheus reads. The agent's address must be one that it reaches. */}}
{{- define "trimtab.metricsPort" -}}
{{- if not (include "trimtab.agent" .) -}}
{{- fail "monitoring: with attach: none the pods have no agent; have Prometheus read the units' port of the nodes" -}}
{{- end -}}
{{- $address := (.Values.config.http | default dict).address | default "" -}}
{{- $port := splitList ":" $address | last -}}
{{- $host := trimSuffix (printf ":%s" $port) $address | trimAll "[]" -}}
{{- if or (not $port) (eq $host "localhost") (eq $host "::1") (hasPrefix "127." $host) -}}
{{- fail (printf "monitoring: Prometheus cannot reach config.http.address=%q; set it to \":9464\", for instance, and let a firewall or network policy say who may read it" $address) -}}
{{- end -}}
{{- $port -}}
{{- end -}}
