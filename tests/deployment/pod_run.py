"""Runs the containers of the chart's pod as kubelet would, as far as Linux goes; test_pod.py starts it.

    unshare --net --mount --pid --fork --mount-proc python -m tests.deployment.pod_run FOLDER

Each container has a mount namespace of its own: this checkout at /opt/llm-router, a root that can't be written, and the
pod's volumes where it mounts them. It runs as user 1000, without rights to gain, in the pod's network. What the image
sets (PATH, HOME) is set here, and .venv stands in for the packages of both images. FOLDER holds the volumes. Raises
whatever isn't as it should be.
"""

from __future__ import annotations

import http.client
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bls.paths import ROOT
from gateway.keys import new_key
from tests.deployment.chart import Object, Pod, bytes_of, of_kind, pods, template, values_of
from tests.deployment.release import port_number
from tests.kubelet import ConfigMapVolume

HOME = Path("/opt/llm-router")
VOLUMES = Path("/opt/volumes")
START_S = 240.0
SWAP_S = 20.0
ELSEWHERE = "127.0.0.2"  # stands for the pod's address
ENVIRONMENT = {"HOME": "/tmp", "PYTHONPATH": str(HOME), "PATH": f"{HOME}/.venv/bin:/usr/local/bin:/usr/bin:/bin"}
LISTS = {"categories.toml": '[categories.mine]\naction = "terminate"\n', "deny/mine.txt": "zorpblig\n"}


class RunningPod:
    """A pod whose containers are started one by one."""

    def __init__(self, pod: Pod, objects: list[Object], folder: Path, secrets: dict[str, str]) -> None:
        self.pod, self.folder = pod, folder
        self.config_maps: dict[str, ConfigMapVolume] = {}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        data = {each["metadata"]["name"]: each["data"] for each in of_kind(objects, "ConfigMap")}
        for name, volume in pod.volumes.items():
            place = folder / name
            if source := volume.get("configMap"):
                files = data[source["name"]]
                items = {each["path"]: files[each["key"]] for each in source.get("items", [])}
                self.config_maps[name] = ConfigMapVolume(place, items or files)
            elif "secret" in volume:
                ConfigMapVolume(place, secrets)
            else:
                place.mkdir()
                place.chmod(0o777)  # as emptyDir is

    def start(self, name: str) -> None:
        """Returns once the container's startup probe has said yes."""
        (container,) = [each for each in self.pod.containers if each["name"] == name]
        with (self.folder / f"{name}.log").open("wb") as log:
            command = self._command(container, [*container["command"], *container["args"]])
            self.running[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        probe = container["startupProbe"]
        self.wait(name, lambda: self._says_yes(container, probe), START_S)

    def writes(self, name: str, folder: str) -> bool:
        """Whether a file can be made in a folder, as the container's user."""
        (container,) = [each for each in self.pod.containers if each["name"] == name]
        command = self._command(container, ["touch", f"{folder}/tried"])
        return subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0

    def _command(self, container: Object, words: list[str]) -> list[str]:
        """What runs `words` as the container would."""
        environment = {**ENVIRONMENT, **{each["name"]: each["value"] for each in container.get("env", [])}}
        clean = [f"{key}={value}" for key, value in environment.items()]
        user = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "--no-new-privs"]
        inside = shlex.join(["exec", *user, "env", "-i", *clean, *words])
        script = "\n".join(["set -e", *self._mounts(container), f"cd {HOME}", inside])
        return ["unshare", "--mount", "--propagation=private", "sh", "-c", script]

    def _mounts(self, container: Object) -> list[str]:
        """Commands that make the container's view."""
        lines = ["mount -t tmpfs tmpfs /opt", f"mkdir {HOME}", f"mount --bind {ROOT} {HOME}"]
        lines += [f"mkdir {VOLUMES} && mount --bind {self.folder} {VOLUMES}"]  # which lies in the /tmp that goes
        lines += _open_python()
        targets = [each["mountPath"] for each in container["volumeMounts"]]
        outside = sorted({path for path in targets if not path.startswith(("/opt/", "/dev/", "/tmp"))})
        for parent in sorted({str(Path(path).parent) for path in outside}):  # mount points that the image needn't have
            lines += [f"mkdir -p {parent}", f"mount -t tmpfs tmpfs {parent}"]
        for mount in container["volumeMounts"]:
            volume, target = self.pod.volumes[mount["name"]], mount["mountPath"]
            lines.append(f"mkdir -p {target}")
            if volume.get("emptyDir", {}).get("medium") == "Memory":
                lines.append(f"mount -t tmpfs -o size={bytes_of(volume['emptyDir']['sizeLimit'])} tmpfs {target}")
                continue
            lines.append(f"mount --bind {VOLUMES / mount['name']} {target}")
            if mount.get("readOnly"):
                lines.append(f"mount -o remount,bind,ro {target}")
        return [*lines, f"mount -o remount,bind,ro {HOME}", "mount -o remount,ro /opt", "mount -o remount,bind,ro /"]

    def _says_yes(self, container: Object, probe: Object) -> bool:
        if "exec" in probe:
            path = probe["exec"]["command"][-1]
            mount = next(each for each in container["volumeMounts"] if path.startswith(each["mountPath"]))
            return (self.folder / mount["name"] / Path(path).name).exists()
        asked = probe["httpGet"]
        return status(port_number(container, asked["port"]), asked["path"]) == 200

    def wait(self, name: str, holds: Callable[[], bool], seconds: float) -> None:
        """Until something holds; RuntimeError with the container's output where it doesn't in time."""
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end or self.running[name].poll() is not None:
                raise RuntimeError(f"{name}: {(self.folder / f'{name}.log').read_text(errors='replace')[-4000:]}")
            time.sleep(0.2)

    def end(self, name: str) -> int:
        """The exit status after SIGTERM."""
        self.running[name].send_signal(signal.SIGTERM)
        return self.running[name].wait(120)


def _open_python() -> list[str]:
    """Commands that let user 1000 pass to Python where it lies in somebody's home."""
    python = Path(sys.base_prefix)
    hidden = next((each for each in reversed(python.parents) if not each.stat().st_mode & 1), None)
    if hidden is None:
        return []
    bound = [f"mkdir /opt/python && mount --bind {python} /opt/python", f"mount -t tmpfs -o mode=755 tmpfs {hidden}"]
    return [*bound, f"mkdir -p {python} && mount --bind /opt/python {python}"]


def status(port: int, path: str, host: str = ELSEWHERE) -> int:
    """0 where nobody listens."""
    connection = http.client.HTTPConnection(host, port, timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


class Asked:
    """A chat at the gateway, whose answer is read later."""

    def __init__(self, key: str, text: str, **fields: object) -> None:
        self._connection = http.client.HTTPConnection(ELSEWHERE, 9000, timeout=120)
        body = {"model": "auto", "messages": [{"role": "user", "content": text}], "max_tokens": 8, **fields}
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        self._connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        self.answer = self._connection.getresponse()

    def text(self) -> str:
        found = self.answer.read().decode()
        self._connection.close()
        return found


def main(folder: Path) -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    key, digest = new_key()
    objects = template(*values_of("cpu"))
    (pod,) = [each for each in pods(objects) if each.component == "router"]
    running = RunningPod(pod, objects, folder, {"keys.txt": f"me {digest}\n"})
    for name in ("words", "triton", "gateway"):
        running.start(name)
    check_rights(running)
    check_doors(key)
    check_reloads(running, key)
    check_end(running, key)


def check_rights(running: RunningPod) -> None:
    """What each container can write, and what it can't."""
    can = {"words": {"/tmp", "/var/lib/llm-router/words"}, "triton": {"/tmp", f"{HOME}/logs", "/dev/shm"}}
    can["gateway"] = {"/tmp", f"{HOME}/logs"}
    asked = {"/tmp", "/dev/shm", "/", "/etc", f"{HOME}", f"{HOME}/bls", f"{HOME}/logs", f"{HOME}/words"}
    asked |= {"/etc/llm-router/policy", "/var/lib/llm-router/words"}
    for name, folders in can.items():
        found = {folder for folder in asked if running.writes(name, folder)}
        assert found - {"/dev/shm"} == folders - {"/dev/shm"} and (name != "triton" or "/dev/shm" in found), (
            name,
            found,
        )


def check_doors(key: str) -> None:
    """Who reaches the pod's address reaches the gateway and the pages that count, never Triton."""
    running = {port: status(port, "/ready") for port in (9000, 8003)}
    assert running == {9000: 200, 8003: 200}, running
    assert status(8002, "/metrics") == 200 and status(8003, "/health") == 200
    assert status(8000, "/v2/health/live") == 0 and status(8000, "/v2/health/live", "127.0.0.1") == 200
    assert Asked("wrong", "hello").answer.status == 401
    asked = Asked(key, "What is the capital of France?")
    assert asked.answer.status == 200, asked.text()
    assert "default" in asked.answer.headers["x-router-reason"], asked.answer.headers


def check_reloads(running: RunningPod, key: str) -> None:
    """As kubelet changes a ConfigMap, nothing having restarted."""
    source = (ROOT / "bls" / "policy.py").read_text()
    changed = source.replace("SMALL_MAX_PROMPT_TOKENS = 512", "SMALL_MAX_PROMPT_TOKENS = 1")
    assert changed != source
    running.config_maps["policy"].update({"policy.py": changed})
    running.wait("triton", lambda: Asked(key, "hello").answer.headers["x-router-reason"] == "long_prompt", SWAP_S)
    assert "content_filter" not in Asked(key, "zorpblig").text()
    running.config_maps["word-lists"].update(LISTS)
    running.wait("words", lambda: "content_filter" in Asked(key, "zorpblig").text(), SWAP_S)


def check_end(running: RunningPod, key: str) -> None:
    """Kubernetes ends the gateway first, then those of initContainers, the last one first."""
    stream = Asked(key, "Tell me a long story.", max_tokens=200, stream=True)
    assert stream.answer.status == 200
    running.running["gateway"].send_signal(signal.SIGTERM)
    running.wait("gateway", lambda: status(9000, "/ready") in (0, 503), 10)
    told = stream.text()
    assert '"finish_reason":"length"' in told or '"finish_reason":"stop"' in told, told[-500:]
    assert told.rstrip().endswith("[DONE]")
    ended = running.running["gateway"].wait(60), running.end("triton"), running.end("words")
    assert ended == (0, 0, 0), ended


if __name__ == "__main__":
    work = Path(sys.argv[1])
    assert os.getuid() == 0 and shutil.which("setpriv")
    main(work)
    print("the pod did as it should")
