# The images of docker-compose.yml, which mounts this repository's code over the copy made here. See docs/docker.md.
#     docker build --target cpu -t llm-router:cpu .
#     docker run --rm --shm-size=1g -p 127.0.0.1:8000:8000 llm-router:cpu

# CPUs: runs scripts/install once, as on any machine. Engines and packages are downloaded here, never when the container
# starts.
FROM python:3.11.13-slim-bookworm AS cpu
WORKDIR /opt/llm-router
COPY . .
# Root owns everything that is executed. The server's user writes engines, compiled word lists and logs, which are volumes.
RUN --mount=type=cache,target=/root/.cache/pip \
    scripts/install \
 && mkdir -p logs \
 && chown -R 1000:1000 engines/built logs \
 && chown 1000:1000 words words/compiled.bin
ENV HOME=/tmp
USER 1000:1000
EXPOSE 8000 8001 8002 8003
HEALTHCHECK --interval=10s --timeout=5s --start-period=3m CMD [".venv/bin/python", "-m", "scripts.server.readiness", "--ready-port=8003"]
ENTRYPOINT ["scripts/serve", "cpu", "--host=0.0.0.0", "--ready-port=8003", "--no-gateway"]

# The gateway in front of either: no server, no engine, only the packages that it imports.
FROM python:3.11.13-slim-bookworm AS gateway
WORKDIR /opt/llm-router
COPY requirements-gateway.txt ./
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install --no-deps --only-binary :all: -r requirements-gateway.txt \
 && install -d -o 1000 -g 1000 logs
COPY bls bls
COPY scripts scripts
COPY gateway gateway
ENV HOME=/tmp PYTHONPATH=/opt/llm-router PYTHONUNBUFFERED=1
USER 1000:1000
EXPOSE 9000
HEALTHCHECK --interval=10s --timeout=5s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:9000/health', timeout=4)"]
ENTRYPOINT ["python", "-m", "scripts.gateway", "--host=0.0.0.0"]

# The text classifier uses Triton's ONNX Runtime backend, which the image for TensorRT-LLM lacks.
FROM nvcr.io/nvidia/tritonserver:25.12-py3 AS onnxruntime_backend

# GPUs: NVIDIA's image has tritonserver, TensorRT-LLM and the Python packages. Nothing here has been run on a GPU.
FROM nvcr.io/nvidia/tritonserver:25.12-trtllm-python-py3 AS gpu
COPY --from=onnxruntime_backend /opt/tritonserver/backends/onnxruntime /opt/tritonserver/backends/onnxruntime
# Not /app, which holds NVIDIA's own scripts.
WORKDIR /opt/llm-router
COPY . .
RUN --mount=type=cache,target=/root/.cache/pip \
    python3 -m pip install --break-system-packages --no-deps --only-binary :all: -r requirements-gpu.txt \
 && python3 -m scripts.words compile \
 && install -d -o 1000 -g 1000 /engines engines/built logs downloads \
 && chown 1000:1000 words words/compiled.bin
ENV HOME=/tmp
USER 1000:1000
EXPOSE 8000 8001 8002 8003
HEALTHCHECK --interval=10s --timeout=5s --start-period=15m CMD ["python3", "-m", "scripts.server.readiness", "--ready-port=8003"]
# NVIDIA's entry point sets up the driver's libraries, then runs the remaining arguments.
ENTRYPOINT ["/opt/nvidia/nvidia_entrypoint.sh", "scripts/serve", "gpu", "--host=0.0.0.0", "--ready-port=8003", "--no-gateway"]
