{{- /* By (list root role settings): what all pods have in common. */ -}}
{{- define "llm-router.podSettings" -}}
{{- $root := index . 0 -}}{{- $own := index . 2 -}}
serviceAccountName: {{ include "llm-router.name" $root }}
automountServiceAccountToken: false
enableServiceLinks: false
shareProcessNamespace: true  # The sandbox's first process reaps what a server that died leaves.
securityContext: {{- toYaml $root.Values.podSecurityContext | nindent 2 }}
terminationGracePeriodSeconds: {{ include "llm-router.graceSeconds" (list $root $own.preStopSeconds) }}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.topologySpread }}
topologySpreadConstraints:
{{- range . }}
  - {{- toYaml . | nindent 4 }}
    labelSelector:
      matchLabels: {{- include "llm-router.selector" (list $root (index $ 1)) | nindent 8 }}
{{- end }}
{{- end }}
{{- end }}

{{- /* By (list root role settings): tritonserver under scripts/serve, without name, restart policy and lifecycle. */ -}}
{{- define "llm-router.serverContainer" -}}
{{- $root := index . 0 -}}{{- $role := index . 1 -}}{{- $own := index . 2 -}}
image: {{ include "llm-router.image" (list $root (include "llm-router.targetOf" .)) }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
command: {{ include "llm-router.command" . }}
args: {{- include "llm-router.serveArgs" (list $root $role) | nindent 2 }}
{{- if eq $role "router" }}
env:
  - {name: LLM_ROUTER_POLICY, value: /etc/llm-router/policy/policy.py}
  - {name: LLM_ROUTER_WORDS, value: /var/lib/llm-router/words}
{{- end }}
ports:
  {{- if or (ne $role "router") $root.Values.triton.open }}
  - {name: triton-http, containerPort: 8000}
  - {name: triton-grpc, containerPort: 8001}
  {{- end }}
  - {name: metrics, containerPort: 8002}
  - {name: ready, containerPort: 8003}
# Every model is ready; engines may take long to load. /health: scripts/serve lives, which minds tritonserver.
startupProbe:
  httpGet: {path: /ready, port: ready}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: {{ div $own.startSeconds 5 }}
readinessProbe:
  httpGet: {path: /ready, port: ready}
  periodSeconds: 5
  timeoutSeconds: 5
livenessProbe:
  httpGet: {path: /health, port: ready}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
resources: {{- include "llm-router.resources" $own | nindent 2 }}
securityContext: {{- include "llm-router.containerSecurity" $root | nindent 2 }}
volumeMounts:
  - {name: shm, mountPath: /dev/shm}
  - {name: tmp, mountPath: /tmp}
  - {name: logs, mountPath: /opt/llm-router/logs}
  {{- if eq $role "router" }}
  - {name: policy, mountPath: /etc/llm-router/policy, readOnly: true}
  - {name: words, mountPath: /var/lib/llm-router/words, readOnly: true}
  {{- end }}
  {{- if $root.Values.engines.claim }}
  - {name: engines, mountPath: /opt/llm-router/engines/built, readOnly: true}
  - {name: engines, mountPath: /engines, readOnly: true}
  {{- end }}
{{- end }}

{{- define "llm-router.resources" -}}
{{- $resources := deepCopy .resources -}}
{{- if .gpus -}}
{{- $_ := set $resources "limits" (merge (dict "nvidia.com/gpu" .gpus) ($resources.limits | default dict)) -}}
{{- end -}}
{{ toYaml $resources }}
{{- end }}

{{- /* The volumes of the server's container. Nothing else of its root can be written. */ -}}
{{- define "llm-router.serverVolumes" -}}
{{- $root := index . 0 -}}{{- $role := index . 1 -}}{{- $own := index . 2 -}}
- name: shm  # A container has 64 MB otherwise, in which the Python models' processes die.
  emptyDir:
    medium: Memory
    sizeLimit: {{ add (include "llm-router.sharedMemoryMi" (list $root $role $own.args) | int) $own.sharedMemoryExtraMi }}Mi
- name: tmp
  emptyDir: {sizeLimit: 1Gi}
- name: logs  # tritonserver's two files of at most 256 MB, its copy of the last good policy
  emptyDir: {sizeLimit: 1Gi}
{{- if eq $role "router" }}
- name: policy
  configMap: {name: {{ include "llm-router.name" $root }}-policy}
- name: words
  emptyDir: {sizeLimit: 64Mi}
- name: word-lists
  configMap:
    name: {{ include "llm-router.name" $root }}-words
    items:
    {{- range $path := keys (include "llm-router.wordFiles" $root | fromJson) | sortAlpha }}
      - {key: {{ replace "/" "." $path }}, path: {{ $path }}}
    {{- end }}
{{- end }}
{{- with $root.Values.engines.claim }}
- name: engines
  persistentVolumeClaim: {claimName: {{ . }}, readOnly: true}
{{- end }}
{{- end }}

{{- /* The word lists by path, as JSON: those of the repository, then those of the values. */ -}}
{{- define "llm-router.wordFiles" -}}
{{- $files := dict -}}
{{- if .Values.words.shipped -}}
{{- range $path, $content := .Files.Glob "files/words/**.t*" -}}
{{- $_ := set $files (trimPrefix "files/words/" $path) ($content | toString) -}}
{{- end -}}
{{- end -}}
{{ toJson (merge (deepCopy .Values.words.files) $files) }}
{{- end }}

{{- /* By (list root settings): preStop. Endpoints leave Services and balancers while the container answers on. */ -}}
{{- define "llm-router.lifecycle" -}}
preStop:
  sleep: {seconds: {{ (index . 1).preStopSeconds }}}
{{- end }}
