"""Containers of the chart's pods as kubelet would run them, as far as Linux goes; pod_run.py tries things with them.

Each container has a mount namespace of its own: this checkout at /opt/llm-router, a root that can't be written, and the
pod's volumes where it mounts them. It runs as user 1000, without rights to gain, in the network of its pod, which has
an address on a bridge. What the image sets (PATH, HOME) is set here; .venv stands in for the packages of all images.
"""

from __future__ import annotations

import http.client
import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from bls.paths import ROOT
from tests.deployment.chart import Object, Pod, bytes_of, of_kind
from tests.deployment.release import port_number
from tests.kubelet import ConfigMapVolume

HOME = Path("/opt/llm-router")
VOLUMES = Path("/opt/volumes")
START_S = 500.0
BRIDGE = "10.88.0.1/24"  # in namespaces of this process alone
ENVIRONMENT = {"HOME": "/tmp", "PYTHONPATH": str(HOME), "PATH": f"{HOME}/.venv/bin:/usr/local/bin:/usr/bin:/bin"}


class Network:
    """A bridge, and a network namespace with an address for each pod. The process is in one of its own."""

    def __init__(self) -> None:
        self.addresses: dict[str, str] = {}
        Path("/run/netns").mkdir(exist_ok=True)
        subprocess.run(
            ["mount", "-t", "tmpfs", "tmpfs", "/run/netns"], check=True
        )  # so that names leave nothing behind
        _ip("link set lo up")
        _ip("link add name pods type bridge")
        _ip(f"addr add {BRIDGE} dev pods")
        _ip("link set pods up")

    def add(self, name: str) -> str:
        """The new pod's address."""
        self.addresses[name] = address = f"10.88.0.{len(self.addresses) + 2}"
        _ip(f"netns add {name}")
        _ip(f"link add name {name} type veth peer name eth0 netns {name}")
        _ip(f"link set {name} master pods up")
        for command in (f"addr add {address}/24 dev eth0", "link set eth0 up", "link set lo up"):
            _ip(f"-n {name} {command}")
        return address


def _ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True)


class RunningPod:
    """A pod whose containers are started one by one. `hosts`: addresses by the names that cluster DNS would know."""

    def __init__(
        self,
        pod: Pod,
        objects: list[Object],
        folder: Path,
        network: Network,
        secrets: Mapping[str, str] = {},
        hosts: Mapping[str, str] = {},
    ) -> None:
        self.pod, self.folder = pod, folder
        folder.mkdir()
        folder.chmod(0o755)
        self.address = network.add(pod.component)
        (folder / "hosts").write_text("".join(f"{address} {name}\n" for name, address in hosts.items()))
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
        inside_pod = ["ip", "netns", "exec", self.pod.component]
        return [*inside_pod, "unshare", "--mount", "--propagation=private", "sh", "-c", script]

    def _mounts(self, container: Object) -> list[str]:
        """Commands that make the container's view."""
        lines = ["mount -t tmpfs tmpfs /opt", f"mkdir {HOME}", f"mount --bind {ROOT} {HOME}"]
        lines += [f"mkdir {VOLUMES} && mount --bind {self.folder} {VOLUMES}"]  # which lies in the /tmp that goes
        lines += ["mount --bind /opt/volumes/hosts /etc/hosts", *_open_python()]
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
        return self.status(port_number(container, asked["port"]), asked["path"]) == 200

    def status(self, port: int, path: str) -> int:
        """Of a GET at the pod's address; 0 where nobody listens there."""
        connection = http.client.HTTPConnection(self.address, port, timeout=10)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()

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


class Asked:
    """A chat at the gateway, whose answer is read later."""

    def __init__(self, pod: RunningPod, key: str, text: str, **fields: object) -> None:
        self._connection = http.client.HTTPConnection(pod.address, 9000, timeout=120)
        body = {"model": "auto", "messages": [{"role": "user", "content": text}], "max_tokens": 8, **fields}
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        self._connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        self.answer = self._connection.getresponse()

    def text(self) -> str:
        found = self.answer.read().decode()
        self._connection.close()
        return found
