{{- /* Names, labels, and the pod of every role: router (with both tiers inside for topology: whole), small, large. */ -}}

{{- /* At most 40 characters, since names that begin with it have 63 at most. */ -}}
{{- define "llm-router.name" -}}
{{- eq .Release.Name .Chart.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- /* By (list root role): what pods of a role are selected by. */ -}}
{{- define "llm-router.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ $root.Chart.Name }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "llm-router.labels" -}}
{{- $root := index . 0 -}}
{{ include "llm-router.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- end }}

{{- define "llm-router.image" -}}
{{- $root := index . 0 -}}
{{ $root.Values.image.repository }}:{{ index . 1 }}-{{ $root.Values.image.tag | default $root.Chart.AppVersion }}
{{- end }}

{{- /* How many processes the python backend starts in a pod of a role. A test counts them in model_repository/. */ -}}
{{- define "llm-router.instances" -}}
{{- $root := index . 0 -}}{{- $role := index . 1 -}}
{{- $isCpu := eq (include "llm-router.targetOf" .) "cpu" -}}
{{- $engines := or $isCpu (has "--engine=llmapi" (index . 2)) | ternary 1 0 -}}
{{- if ne $role "router" -}}
{{ add 2 $engines }}
{{- else if eq $root.Values.topology "tiers" -}}
{{ add $root.Values.router.instances 16 }}
{{- else if $isCpu -}}
{{ add $root.Values.router.instances 18 }}
{{- else -}}
{{ add $root.Values.router.instances 12 (mul 2 $engines) }}
{{- end -}}
{{- end }}

{{- /* Of /dev/shm in MiB: as scripts/serve asks for where there is too little (scripts/host/preflight.py). */ -}}
{{- define "llm-router.sharedMemoryMi" -}}
{{- $needed := add (mul 2 (include "llm-router.instances" . | int)) 16 -}}
{{ mul 64 (div (add (mul 2 $needed) 63) 64) }}
{{- end }}

{{- /* A pod's life after it is told to end: preStop, its last answers, the unloading, and some to spare. */ -}}
{{- define "llm-router.graceSeconds" -}}
{{- $root := index . 0 -}}
{{ add (index . 1) $root.Values.longestAnswerSeconds 15 15 }}
{{- end }}

{{- /* By (list root role): cpu or gpu. Routers whose tiers are elsewhere have no engine of their own. */ -}}
{{- define "llm-router.targetOf" -}}
{{- $root := index . 0 -}}
{{ and (eq $root.Values.topology "tiers") (eq (index . 1) "router") | ternary "cpu" $root.Values.target }}
{{- end }}

{{- define "llm-router.command" -}}
{{- if eq (include "llm-router.targetOf" .) "gpu" -}}
[/opt/nvidia/nvidia_entrypoint.sh, scripts/serve, gpu]
{{- else -}}
[scripts/serve, cpu]
{{- end -}}
{{- end }}

{{- define "llm-router.python" -}}
{{ ternary "python3" ".venv/bin/python" (eq (include "llm-router.targetOf" .) "gpu") }}
{{- end }}

{{- define "llm-router.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* By (list root role): the flags of scripts/serve. */ -}}
{{- define "llm-router.serveArgs" -}}
{{- $root := index . 0 -}}{{- $role := index . 1 -}}
{{- $own := eq $role "router" | ternary $root.Values.router (index $root.Values.tiers $role) -}}
- --host={{ or (ne $role "router") $root.Values.triton.open | ternary "0.0.0.0" "127.0.0.1" }}
- --pages-host=0.0.0.0
- --ready-port=8003
- --no-gateway
- --drain-seconds={{ $root.Values.longestAnswerSeconds }}
{{- if ne $role "router" }}
- --tier={{ $role }}
{{- else if eq $root.Values.topology "tiers" }}
{{- range $tier, $_ := $root.Values.tiers }}
- --remote={{ $tier }}={{ include "llm-router.name" $root }}-{{ $tier }}.{{ $root.Release.Namespace }}.svc:8001
{{- end }}
{{- else if eq $root.Values.target "gpu" }}
- --skip-model=llama_7b_tensorrt_llm
{{- end }}
{{- range $own.args }}
- {{ . | quote }}
{{- end }}
{{- end }}
