"""Runs pods of the chart, whole or in tiers; test_pod.py starts it, and whatever isn't as it should be is raised.

    unshare --net --mount --pid --fork --mount-proc python -m tests.deployment.pod_run whole|tiers FOLDER

FOLDER holds the volumes and what the containers print.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from bls.paths import ROOT
from gateway.keys import new_key
from tests.deployment.chart import pods, template, values_of
from tests.deployment.pod_sandbox import HOME, Asked, Network, RunningPod

SWAP_S = 20.0
LISTS = {"categories.toml": '[categories.mine]\naction = "terminate"\n', "deny/mine.txt": "zorpblig\n"}
LONG = 300  # tokens of an answer, from which on the policy takes the large engine


def whole(folder: Path) -> None:
    """The pod of values/cpu.yaml."""
    key, digest = new_key()
    objects = template(*values_of("cpu"))
    (pod,) = [each for each in pods(objects) if each.component == "router"]
    router = RunningPod(pod, objects, folder / "router", Network(), {"keys.txt": f"me {digest}\n"})
    for name in ("words", "triton", "gateway"):
        router.start(name)
    check_rights(router)
    check_doors(router, key)
    check_reloads(router, key)
    check_end(router, key)


def tiers(folder: Path) -> None:
    """A pod of each kind of values/tiers.yaml."""
    key, digest = new_key()
    objects, network = template(*values_of("tiers")), Network()
    found = {pod.component: pod for pod in pods(objects)}
    engines = {tier: RunningPod(found[tier], objects, folder / tier, network) for tier in ("small", "large")}
    names = {f"chat-llm-router-{tier}.llm.svc": engine.address for tier, engine in engines.items()}
    router = RunningPod(found["router"], objects, folder / "router", network, {"keys.txt": f"me {digest}\n"}, names)
    for engine in engines.values():
        engine.start("triton")
    for name in ("words", "triton", "gateway"):
        router.start(name)
    check_doors(router, key)
    for fields, tier in (({}, "small"), ({"max_tokens": LONG, "stop": ["."]}, "large")):
        asked = Asked(router, key, "What is the capital of France?", **fields)
        assert asked.answer.status == 200 and tier in asked.answer.headers["x-router-model"], asked.answer.headers
        asked.text()
    check_engine_ends(router, engines["small"], key)
    assert engines["large"].end("triton") == 0
    check_end(router, key, is_answered=False)


def check_rights(router: RunningPod) -> None:
    """What each container can write, and what it can't."""
    can = {"words": {"/tmp", "/var/lib/llm-router/words"}, "triton": {"/tmp", f"{HOME}/logs", "/dev/shm"}}
    can["gateway"] = {"/tmp", f"{HOME}/logs"}
    asked = {"/tmp", "/dev/shm", "/", "/etc", f"{HOME}", f"{HOME}/bls", f"{HOME}/logs", f"{HOME}/words"}
    asked |= {"/etc/llm-router/policy", "/var/lib/llm-router/words"}
    for name, folders in can.items():
        found = {folder for folder in asked if router.writes(name, folder)}
        assert found - {"/dev/shm"} == folders - {"/dev/shm"} and (name != "triton" or "/dev/shm" in found), (
            name,
            found,
        )


def check_doors(router: RunningPod, key: str) -> None:
    """Who reaches the pod's address reaches the gateway and the pages that count, never Triton."""
    asked = ((9000, "/ready"), (8003, "/ready"), (8003, "/health"), (8002, "/metrics"))
    found = {(port, path): router.status(port, path) for port, path in asked}
    assert set(found.values()) == {200}, found
    assert router.status(8000, "/v2/health/live") == 0
    assert Asked(router, "wrong", "hello").answer.status == 401
    answer = Asked(router, key, "What is the capital of France?").answer
    assert answer.status == 200 and "default" in answer.headers["x-router-reason"], answer.headers


def check_reloads(router: RunningPod, key: str) -> None:
    """As kubelet changes a ConfigMap, nothing having restarted."""
    source = (ROOT / "bls" / "policy.py").read_text()
    changed = source.replace("SMALL_MAX_PROMPT_TOKENS = 512", "SMALL_MAX_PROMPT_TOKENS = 1")
    assert changed != source
    router.config_maps["policy"].update({"policy.py": changed})
    router.wait("triton", lambda: reason(router, key, "hello") == "long_prompt", SWAP_S)
    assert "content_filter" not in Asked(router, key, "zorpblig").text()
    router.config_maps["word-lists"].update(LISTS)
    router.wait("words", lambda: "content_filter" in Asked(router, key, "zorpblig").text(), SWAP_S)


def reason(router: RunningPod, key: str, text: str) -> str:
    """Why the policy took which engine."""
    return Asked(router, key, text).answer.headers["x-router-reason"] or ""


def check_engine_ends(router: RunningPod, engine: RunningPod, key: str) -> None:
    """A stream at an engine pod that is told to end ends as it would have; the next request goes to the other tier."""
    stream = Asked(router, key, "Tell me a long story.", max_tokens=200, stream=True)
    assert stream.answer.status == 200 and "small" in stream.answer.headers["x-router-model"]
    assert engine.end("triton") == 0
    assert_whole(stream.text())
    answer = Asked(router, key, "hello").answer
    assert answer.status == 200 and "large" in answer.headers["x-router-model"], answer.headers


def check_end(router: RunningPod, key: str, is_answered: bool = True) -> None:
    """Kubernetes ends the gateway first, then those of initContainers, the last one first."""
    stream = Asked(router, key, "Tell me a long story.", max_tokens=200, stream=True) if is_answered else None
    assert stream is None or stream.answer.status == 200
    router.running["gateway"].send_signal(signal.SIGTERM)
    if stream:
        router.wait("gateway", lambda: router.status(9000, "/ready") in (0, 503), 10)
        assert_whole(stream.text())
    ended = router.running["gateway"].wait(60), router.end("triton"), router.end("words")
    assert ended == (0, 0, 0), ended


def assert_whole(stream: str) -> None:
    """It has an end of its own, and nothing was cut off."""
    assert '"finish_reason":"length"' in stream or '"finish_reason":"stop"' in stream, stream[-500:]
    assert stream.rstrip().endswith("[DONE]"), stream[-500:]


if __name__ == "__main__":
    {"whole": whole, "tiers": tiers}[sys.argv[1]](Path(sys.argv[2]))
    print("the pods did as they should")
