"""A real Prometheus with the configuration of monitoring/, but for the servers that it asks, and oftener."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.server.clients import eventually
from tests.server.serving import ROOT, free_ports

MONITORING = ROOT / "monitoring"


@dataclass(frozen=True)
class Prometheus:
    url: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that an instant query gives, those without a number (0/0) left out."""
        with urllib.request.urlopen(
            f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        ) as reply:
            series = json.load(reply)["data"]["result"]
        return [each for each in series if each["value"][1] != "NaN"]

    def number(self, expression: str) -> float:
        """The sum over the series; 0.0 where there is none."""
        return sum(float(each["value"][1]) for each in self.query(expression))

    def scraped(self, times: int) -> None:
        """Waits until each target has been asked so many times more."""
        before = self.number("sum(count_over_time(up[1h]))")
        targets = self.number("count(up)")
        eventually(lambda: self.number("sum(count_over_time(up[1h]))") >= before + times * targets)


@contextmanager
def running_prometheus(folder: Path, targets: Mapping[str, str]) -> Iterator[Prometheus]:
    """`targets`: host and port for each job of monitoring/prometheus.yml. Skips the test without a Prometheus."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("there is no prometheus; Debian's and Ubuntu's package of that name has it")
    (port,) = free_ports(1)
    (folder / "prometheus.yml").write_text(yaml.safe_dump(_config(targets)))
    command = [
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        prometheus = Prometheus(f"http://127.0.0.1:{port}")
        eventually(lambda: _is_ready(prometheus, process, folder / "prometheus.log"))
        eventually(lambda: prometheus.number("count(up == 1)") == len(targets))
        yield prometheus
    finally:
        process.terminate()
        process.wait(30)


def _config(targets: Mapping[str, str]) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(MONITORING / name) for name in config["rule_files"]]
    assert {job["job_name"] for job in config["scrape_configs"]} == set(targets)
    for job in config["scrape_configs"]:
        job["static_configs"] = [{"targets": [targets[job["job_name"]]]}]
    return config


def _is_ready(prometheus: Prometheus, process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    try:
        with urllib.request.urlopen(f"{prometheus.url}/-/ready"):
            return True
    except OSError:
        return False
