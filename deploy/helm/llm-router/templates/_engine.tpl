{{- /* By (list root role settings worker): the pod template of a tier; `worker` for the pods of a group beyond the leader. */ -}}
{{- define "llm-router.enginePod" -}}
{{- $root := index . 0 -}}{{- $role := index . 1 -}}{{- $own := index . 2 -}}{{- $worker := index . 3 -}}
{{- $args := list $root $role $own -}}
metadata:
  labels: {{- include "llm-router.labels" (list $root $role) | nindent 4 }}
    llm-router/serves: {{ $worker | ternary "no" "yes" | quote }}
  {{- with $own.podLabels }}
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $own.podAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- include "llm-router.podSettings" $args | nindent 2 }}
  {{- $isLeader := and (eq $own.kind "LeaderWorkerSet") (not $worker) }}
  {{- if $isLeader }}
  initContainers:
    - name: hosts  # of the group, for mpirun: LeaderWorkerSet tells the leader's name, from which the others' follow
      image: {{ include "llm-router.image" (list $root $root.Values.target) }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      command: [sh, -ec]
      args:
        - |
          pod=${LWS_LEADER_ADDRESS%%.*} domain=${LWS_LEADER_ADDRESS#*.}
          echo "localhost slots={{ $own.gpus }}" >/etc/llm-router/group/hosts
          for number in $(seq 1 $((LWS_GROUP_SIZE - 1))); do
            echo "$pod-$number.$domain slots={{ $own.gpus }}" >>/etc/llm-router/group/hosts
          done
      resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 64Mi}}
      securityContext: {{- include "llm-router.containerSecurity" $root | nindent 8 }}
      volumeMounts:
        - {name: group, mountPath: /etc/llm-router/group}
  {{- end }}
  containers:
    - name: {{ $worker | ternary "worker" "triton" }}
      {{- if $worker }}
      # Waits for the leader's mpirun, which starts its ranks here by `agent` of the tier's LeaderWorkerSet.
      image: {{ include "llm-router.image" (list $root $root.Values.target) }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      command: {{- toYaml $own.group.workerCommand | nindent 8 }}
      resources: {{- include "llm-router.resources" $own | nindent 8 }}
      securityContext: {{- include "llm-router.containerSecurity" $root | nindent 8 }}
      volumeMounts:
        - {name: shm, mountPath: /dev/shm}
        - {name: tmp, mountPath: /tmp}
        - {name: logs, mountPath: /opt/llm-router/logs}
        {{- if $root.Values.engines.claim }}
        - {name: engines, mountPath: /opt/llm-router/engines/built, readOnly: true}
        - {name: engines, mountPath: /engines, readOnly: true}
        {{- end }}
      {{- else }}
      {{- include "llm-router.serverContainer" $args | nindent 6 }}
        {{- if $isLeader }}
        - {name: group, mountPath: /etc/llm-router/group, readOnly: true}
        {{- end }}
      {{- if $isLeader }}
      env: {{- toYaml $own.group.leaderEnv | nindent 8 }}
      {{- end }}
      lifecycle: {{- include "llm-router.lifecycle" (list $root $own) | nindent 8 }}
      {{- end }}
  volumes: {{- include "llm-router.serverVolumes" $args | nindent 4 }}
    {{- if $isLeader }}
    - name: group
      emptyDir: {sizeLimit: 1Mi}
    {{- end }}
{{- end }}
