"""Names of tritonserver's options: those that scripts/serve hands on as they are, and those that people take from old
articles and from NVIDIA's launch_triton_server.py, with what to use instead.
"""

from __future__ import annotations

# The rest of `tritonserver --help` of the pinned version.
OTHERS = (
    *("help", "id", "log-error", "model-namespacing", "model-config-name", "disable-auto-complete-config"),
    *("allow-http", "reuse-http-port", "http-header-forward-pattern", "http-restricted-api"),
    *("reuse-grpc-port", "grpc-header-forward-pattern", "grpc-restricted-protocol"),
    *("allow-sagemaker", "sagemaker-port", "sagemaker-safe-port-range", "sagemaker-thread-count"),
    *("allow-vertex-ai", "vertex-ai-port", "vertex-ai-thread-count", "vertex-ai-default-model"),
    *("backend-directory", "repoagent-directory", "cache-directory", "cuda-virtual-address-size"),
    *("http-address", "grpc-address", "metrics-address", "log-file", "model-store"),
)

_IN_CONFIG = "it is a field of the model's config.pbtxt, see docs/serving.md"
_ENGINE = "in the engine's config.pbtxt it is the parameter {}"
_TRACE = "use --trace-config={}"

# By name, with dashes for underscores.
RENAMED = {
    "rate-limiter": "use --rate-limit=execution_count",
    "rate-limiter-resource": "use --rate-limit-resource=NAME:COUNT",
    "rate-limiter-resources": "use --rate-limit-resource=NAME:COUNT, once for each resource",
    "model-control": "use --model-control-mode",
    "load-models": "use --load-model, once for each model",
    "allow-poll-model-repository": "use --model-control-mode=poll",
    "repository-poll-interval": "use --repository-poll-secs",
    "model-poll-interval": "use --repository-poll-secs",
    "poll-interval": "use --repository-poll-secs",
    "strict-model-config": "it is deprecated and not needed, since every config.pbtxt here is complete",
    "response-cache-byte-size": "use --cache-config=local,size=BYTES",
    "trace-file": _TRACE.format("triton,file=FILE"),
    "trace-level": _TRACE.format("level=TIMESTAMPS"),
    "trace-rate": _TRACE.format("rate=N"),
    "trace-count": _TRACE.format("count=N"),
    "trace-log-frequency": _TRACE.format("triton,log-frequency=N"),
    "pinned-memory-pool-size": "use --pinned-memory-pool-byte-size",
    "cuda-memory-pool-size": "use --cuda-memory-pool-byte-size=GPU:BYTES",
    "metrics-interval": "use --metrics-interval-ms",
    "max-batch-size": _IN_CONFIG,
    "dynamic-batching": _IN_CONFIG,
    "preferred-batch-size": _IN_CONFIG,
    "max-queue-delay-microseconds": _IN_CONFIG,
    "max-queue-size": _IN_CONFIG,
    "priority-levels": _IN_CONFIG,
    "instance-group": _IN_CONFIG,
    "instance-count": _IN_CONFIG,
    "cuda-graph": _ENGINE.format("cuda_graph_mode"),
    "cuda-graphs": _ENGINE.format("cuda_graph_mode"),
    "batching-strategy": _ENGINE.format("gpt_model_type"),
    "gpu-memory-utilization": _ENGINE.format("kv_cache_free_gpu_mem_fraction"),
    "gpu-memory-fraction": _ENGINE.format("kv_cache_free_gpu_mem_fraction"),
    "kv-cache-free-gpu-mem-fraction": _ENGINE.format("kv_cache_free_gpu_mem_fraction"),
    "gpus": "set CUDA_VISIBLE_DEVICES to choose the GPUs",
    "tensor-parallel-size": "use serve gpu --world-size",
    "tp-size": "use serve gpu --world-size",
    # NVIDIA's launcher.
    "model-repo": "use --model-repository",
    "tensorrt-llm-model-name": "engine models are found by their backend; choose with --load-model and --skip-model",
    "force": "it is not needed: a server is only refused if its port is taken",
    "no-mpi": "it is not needed: a single GPU is served without mpirun",
    "multimodal-gpu0-cuda-mem-pool-bytes": "use --cuda-memory-pool-byte-size=0:BYTES",
    "trtllm-llmapi-launch": "use serve gpu --engine llmapi --world-size N",
    "exit-timeout": "use --exit-timeout-secs",
}
