"""docker-compose.yml and the Dockerfile, as far as they can be checked without Docker's engine."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from bls.paths import ROOT
from scripts import serve

COMPOSE = ROOT / "docker-compose.yml"
DOCKERFILE = (ROOT / "Dockerfile").read_text()
SERVICES = yaml.safe_load(COMPOSE.read_text())["services"]
SERVERS = {"gpu": "triton-gpu", "cpu": "triton-cpu"}
SECRET = re.compile(r"PASSWORD|TOKEN|SECRET|KEY")

each_service = pytest.mark.parametrize("name", SERVICES)


def default_profiles():
    settings = dict(
        line.split("=", 1) for line in (ROOT / ".env").read_text().splitlines() if line[:1] not in ("", "#")
    )
    assert list(settings) == ["COMPOSE_PROFILES"], "nothing else is to be in a committed .env"
    return settings["COMPOSE_PROFILES"].split(",")


def started(*profiles):
    """The services that `up` starts with these profiles."""
    return [name for name, service in SERVICES.items() if set(service.get("profiles", profiles)) & set(profiles)]


def mounts(service):
    """Source, target and mode of each volume."""
    return [(*volume.split(":"), "rw")[:3] for volume in service.get("volumes", [])]


def stage(name):
    """The instructions of a stage of the Dockerfile."""
    stages = re.split(r"^FROM \S+ AS ", DOCKERFILE, flags=re.MULTILINE)
    return next(text for text in stages if text.startswith(f"{name}\n"))


def entrypoint(name):
    return json.loads(re.search(r"^ENTRYPOINT (.*)$", stage(name), re.MULTILINE)[1])


@pytest.mark.parametrize("profile", SERVERS)
def test_compose_takes_the_file_with_either_profile(profile):
    program = _compose()
    command = [*program, "--file", str(COMPOSE), "--profile", profile, "config", "--quiet"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def _compose():
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    if shutil.which("docker") and not subprocess.run(["docker", "compose", "version"], capture_output=True).returncode:
        return ["docker", "compose"]
    pytest.skip("there is no Docker Compose; Debian's and Ubuntu's package docker-compose has it")


def test_up_serves_on_gpus_or_on_a_cpu_and_never_on_both():
    assert default_profiles() == ["gpu"]
    for profile, server in SERVERS.items():
        assert started(profile) == [server, "gateway", "prometheus", "grafana"]
        ports = [port.rpartition(":")[0] for name in started(profile) for port in SERVICES[name]["ports"]]
        assert len(ports) == len(set(ports))
    both = [SERVICES[server]["ports"] for server in SERVERS.values()]
    assert both[0] == both[1]  # Whoever asks for both is told that the ports are taken.


@each_service
def test_no_service_may_do_more_than_it_needs(name):
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service.keys() & {"privileged", "cap_add", "pid", "ipc", "network_mode"}
    assert all(mode == "ro" for source, _, mode in mounts(service) if source.startswith("."))


@each_service
def test_each_image_is_pinned_and_each_port_is_of_this_machine_unless_somebody_says_so(name):
    service = SERVICES[name]
    assert re.fullmatch(r"[\w./-]+:(v?\d+\.\d+\.\d+|gpu|cpu|gateway)", service["image"])
    for port in service.get("ports", []):
        assert re.fullmatch(
            r"\$\{LLM_ROUTER_(MONITORING_)?BIND:-127\.0\.0\.1\}:\$\{LLM_ROUTER_\w+_PORT:-\d+\}:\d+", port
        )


@each_service
def test_a_secret_comes_from_the_environment(name):
    environment = SERVICES[name].get("environment", {})
    assert all(value is None for key, value in environment.items() if SECRET.search(key))


@each_service
def test_what_is_mounted_is_there(name):
    """Docker can make no mount point in a folder that it mounts read-only, so git must have it."""
    volumes = yaml.safe_load(COMPOSE.read_text())["volumes"]
    folders = {target: ROOT / source for source, target, _ in mounts(SERVICES[name]) if source.startswith(".")}
    assert all(path.exists() for path in folders.values())
    for source, target, _ in mounts(SERVICES[name]):
        assert source.startswith(".") or source in volumes
        for above, folder in folders.items():
            if target.startswith(f"{above}/"):
                assert is_kept(folder / target[len(above) + 1 :]), f"{target} is not in git"


def is_kept(path):
    """Whether a clone has the path; where this is none, whether it is there."""
    if not (ROOT / ".git").exists():
        return path.exists()
    return bool(subprocess.run(["git", "ls-files", path], cwd=ROOT, capture_output=True, check=True).stdout)


@pytest.mark.parametrize(("target", "server"), SERVERS.items())
def test_the_servers_are_started_by_flags_that_scripts_serve_takes(target, server):
    command = entrypoint(target)
    arguments = command[command.index("scripts/serve") + 1 :]
    options, extra = serve.parse(arguments)
    assert (options.target, options.host, extra) == (target, "0.0.0.0", [])
    inside = {port.rpartition(":")[2] for port in SERVICES[server]["ports"]}
    assert inside == {
        str(port) for port in (options.http_port, options.grpc_port, options.metrics_port, options.ready_port)
    }
    scraped = re.findall(r"triton:(\d+)", (ROOT / "monitoring" / "prometheus.yml").read_text())
    assert set(scraped) == {str(options.metrics_port), str(options.ready_port)}


@pytest.mark.parametrize("target", SERVERS)
def test_the_images_are_healthy_when_every_model_is_and_run_without_root(target):
    text = stage(target)
    assert re.findall(r"^USER (.*)$", text, re.MULTILINE) == ["1000:1000"]
    (command,) = re.findall(r"^HEALTHCHECK .*CMD (.*)$", text, re.MULTILINE)
    _, *module, flag = json.loads(command)
    assert module == ["-m", "scripts.server.readiness"]
    assert flag.startswith("--ready-port=") and flag in entrypoint(target)


def test_what_the_dockerfile_names_is_sent_to_the_builder():
    """.dockerignore leaves everything out but what it names."""
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert all((ROOT / path).exists() for path in sent)
    assert set(re.findall(r"\b(requirements[\w-]*\.txt)\b", DOCKERFILE)) <= sent
    assert sent >= {"bls", "engines", "gateway", "model_repository", "requirements.txt", "scripts", "words"}


def test_the_dockerfile_is_clean():
    program = Path(shutil.which("hadolint") or ROOT / ".venv" / "bin" / "hadolint")
    if not program.exists():
        pytest.skip("there is no hadolint; scripts/install --dev brings it")
    done = subprocess.run([program, ROOT / "Dockerfile"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")
