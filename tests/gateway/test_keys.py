"""Whose requests are answered, and how much each may ask."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gateway.failures import LimitReached, NoKey
from gateway.keys import BadKeys, Key, Keys, new_key, read_file, read_line
from gateway.ledger import Ledger, Spent, this_month
from gateway.limits import Limits
from tests.gateway.gateway_process import ROOT, running
from tests.kubelet import ConfigMapVolume
from tests.waiting import eventually

SECRET, DIGEST = new_key()
CHAT = {"model": "auto", "messages": [{"role": "user", "content": "one two three"}], "max_tokens": 20}


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_a_line_says_what_a_key_may_and_back():
    line = f"alice {DIGEST} tenant=acme rpm=60 tpm=1000 concurrency=2 priority=1 monthly_cost=1.5 models=auto,small"
    key = read_line(line)
    assert (key.tenant, key.rpm, key.priority, key.models) == ("acme", 60, 1, ("auto", "small"))
    assert key.line() == line


@pytest.mark.parametrize(
    "line",
    [
        "alice",
        "al!ce " + "0" * 64,
        "alice 1234",
        f"alice {DIGEST} rpm=many",
        f"alice {DIGEST} rpm=-1",
        f"alice {DIGEST} priority=4",
        f"alice {DIGEST} speed=5",
        f"alice {DIGEST} tenant=",
    ],
)
def test_a_bad_line_is_refused_with_its_place(tmp_path, line):
    file = tmp_path / "keys"
    file.write_text(f"# first\n\n{line}\n")
    with pytest.raises(BadKeys, match=":3: "):
        read_file(file)


def test_a_secret_that_kubelet_swaps_is_read_again(tmp_path):
    volume = ConfigMapVolume(tmp_path / "keys", {"keys.txt": "# nobody yet\n"})
    keys, asked = Keys(volume.folder / "keys.txt"), {b"x-api-key": SECRET.encode()}
    with pytest.raises(NoKey):
        keys.find(asked)
    volume.update({"keys.txt": f"alice {DIGEST}\n"})
    keys.refresh()
    assert keys.find(asked).name == "alice"
    volume.update({"keys.txt": "nonsense\n"})
    keys.refresh()
    assert keys.find(asked).name == "alice"


def test_a_key_comes_as_bearer_as_x_api_key_or_as_a_browsers_password(tmp_path):
    import base64

    file = tmp_path / "keys"
    file.write_text(f"alice {DIGEST}\n")
    keys = Keys(file)
    basic = base64.b64encode(f"anyone:{SECRET}".encode())
    for headers in (
        {b"authorization": b"Bearer " + SECRET.encode()},
        {b"x-api-key": SECRET.encode()},
        {b"authorization": b"Basic " + basic},
    ):
        assert keys.find(headers).name == "alice"
    for headers in ({}, {b"authorization": b"Bearer x"}, {b"authorization": b"Basic ?"}, {b"x-api-key": b"\xff"}):
        with pytest.raises(NoKey):
            keys.find(headers)


def test_a_changed_file_is_in_force_and_a_broken_one_leaves_the_last_good(tmp_path):
    file = tmp_path / "keys"
    file.write_text("")
    keys = Keys(file)
    headers = {b"x-api-key": SECRET.encode()}
    with pytest.raises(NoKey):
        keys.find(headers)
    for text in (f"alice {DIGEST}\n", f"alice {DIGEST} nonsense\n"):
        file.write_text(text)
        keys.refresh()
        assert keys.find(headers).name == "alice"
    file.unlink()
    keys.refresh()
    assert keys.find(headers).name == "alice"


def test_requests_a_minute_come_back_evenly():
    clock = Clock()
    limits, key = Limits(clock=clock), Key("a", rpm=60)
    for _ in range(60):
        limits.admit(key, 1, 0).settle(0)
    with pytest.raises(LimitReached) as refused:
        limits.admit(key, 1, 0)
    assert refused.value.retry_after == pytest.approx(1)
    assert dict(limits.headers(key))[b"x-ratelimit-remaining-requests"] == b"0"
    clock.now += 1
    limits.admit(key, 1, 0)


def test_tokens_are_taken_in_advance_and_given_back():
    clock = Clock()
    limits, key = Limits(clock=clock), Key("a", tpm=1000)
    admitted = limits.admit(key, 1, 900)
    with pytest.raises(LimitReached):
        limits.admit(key, 1, 200)
    admitted.settle(100)
    limits.admit(key, 1, 900).settle(2000)
    with limits.account(key) as account:
        assert account.tokens.level == 1000 - 100 - 2000
    with pytest.raises(LimitReached) as refused:
        limits.admit(key, 1, 1001)
    assert refused.value.should_retry is False and "alone" in refused.value.message


def test_answers_at_a_time_are_counted_until_they_end():
    limits, key = Limits(clock=Clock()), Key("a", concurrency=2)
    first = limits.admit(key, 2, 0)
    with pytest.raises(LimitReached):
        limits.admit(key, 1, 0)
    first.settle(0)
    limits.admit(key, 1, 0)


def test_a_months_budget_is_kept_over_a_restart(tmp_path):
    ledger = Ledger(tmp_path)
    entry = {"key": "a", "prompt_tokens": 60, "completion_tokens": 40, "cost": 0.5}
    ledger.write(entry)
    with (tmp_path / f"usage-{this_month()}.jsonl").open("a") as file:
        file.write("half a li")
    limits = Limits(clock=Clock())
    Ledger(tmp_path).sums(limits.spend)
    with limits.account(Key("a")) as account:
        assert account.spent.tokens == 100
    for key in (Key("a", monthly_tokens=100), Key("a", monthly_cost=0.5)):
        with pytest.raises(LimitReached) as refused:
            limits.admit(key, 1, 0)
        assert refused.value.code == "insufficient_quota"
    limits.admit(Key("a", monthly_tokens=101), 1, 0)


def test_a_new_month_begins_at_nothing_and_a_clock_that_jumps_back_finds_what_was_used():
    month = ["2026-12"]
    spent = Spent(lambda: month[0])
    spent.add(5, 1.0)
    month[0] = "2031-07"
    assert (spent.tokens, spent.cost) == (0, 0.0)
    spent.add(1, 0.5)
    month[0] = "2026-12"
    assert (spent.tokens, spent.cost) == (5, 1.0)


def test_a_line_that_a_full_disk_cut_short_takes_no_other_with_it(tmp_path):
    entry = {"key": "a", "prompt_tokens": 60, "completion_tokens": 40, "cost": 0.5}
    file = tmp_path / f"usage-{this_month()}.jsonl"
    file.write_text('{"key": "a", "prom')
    ledger = Ledger(tmp_path)
    ledger.write(entry)
    ledger.write(entry)
    assert [json.loads(line) for line in file.read_text().splitlines()[1:]] == [entry] * 2
    file.unlink()
    file.symlink_to("/dev/full")
    ledger.write(entry)
    assert ledger.failures == 1
    file.unlink()
    ledger.write(entry)
    assert json.loads(file.read_text()) == entry


@pytest.mark.parametrize("place", ["file/below", "/proc/none"])
def test_a_ledger_that_cannot_be_written_is_refused_by_its_option(tmp_path, fake, place):
    (tmp_path / "file").touch()
    command = [sys.executable, "-m", "scripts.gateway", f"--triton={fake.target}", "--port=0"]
    command.append(f"--ledger={tmp_path / place}")
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1].startswith(f"error: --ledger {tmp_path / place}: ")


def test_a_full_disk_stops_nobodys_answer(keyed, tmp_path):
    key = keyed.add("alice")
    assert let_in(keyed, key)
    (file,) = (tmp_path / "ledger").glob("*.jsonl")
    file.unlink()
    file.symlink_to("/dev/full")
    assert keyed.post("/v1/chat/completions", CHAT, x_api_key=key).status == 200
    assert eventually(lambda: "the ledger lost a line: No space left on device" in keyed.log)
    assert "llm_gateway_ledger_failures_total 1" in keyed.get("/metrics", x_api_key=key).text


@pytest.mark.parametrize("what", ["removed", "misspelt", "a folder", "not text"])
def test_keys_that_break_while_it_runs_leave_those_in_force_and_are_said_once(keyed, what):
    key = keyed.add("alice")
    assert let_in(keyed, key)
    keyed.file.unlink()
    if what == "a folder":
        keyed.file.mkdir()
    elif what != "removed":
        keyed.file.write_bytes(b"alice nonsense" if what == "misspelt" else b"\xff\xfe")
    assert eventually(lambda: "keys: the file is refused" in keyed.log)
    assert [keyed.get("/v1/models", x_api_key=given).status for given in (key, key + "x")] == [200, 401]
    assert keyed.log.count("keys: the file is refused") == 1


def test_keys_that_are_not_there_at_the_start_are_refused_in_one_line(fake, tmp_path):
    command = [sys.executable, "-m", "scripts.gateway", f"--triton={fake.target}", "--port=0"]
    refused = subprocess.run([*command, f"--keys={tmp_path / 'kyes.txt'}"], cwd=ROOT, capture_output=True, text=True)
    assert refused.returncode == 2 and refused.stderr.splitlines()[-1] == (
        f"error: {tmp_path / 'kyes.txt'}: No such file or directory"
    )


@pytest.fixture
def keyed(fake, tmp_path):
    """A gateway with the keys that `add(name, **limits)` makes."""
    file = tmp_path / "keys.txt"
    file.write_text("")

    def add(name, **limits):
        flags = [f"--{option.replace('_', '-')}={value}" for option, value in limits.items()]
        command = [sys.executable, "-m", "scripts.keys", f"--file={file}", "add", name, *flags]
        return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()

    with running(tmp_path, fake.target, f"--keys={file}", f"--ledger={tmp_path / 'ledger'}") as gateway:
        gateway.add = add
        gateway.file = file
        yield gateway


def let_in(gateway, key):
    return eventually(lambda: gateway.get("/v1/models", x_api_key=key).status == 200)


def test_every_path_but_health_and_ready_is_closed_without_a_key(keyed):
    for path in ("/v1/models", "/metrics", "/", "/page/page.js", "/v1/models/auto"):
        reply = keyed.get(path)
        assert (reply.status, reply.error["code"]) == (401, "invalid_api_key"), path
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages"):
        assert keyed.post(path, CHAT).status == 401
    assert keyed.get("/v1/models").headers["www-authenticate"] == "Bearer"
    assert keyed.get("/").headers["www-authenticate"].startswith("Basic ")
    for path in ("/health", "/ready", "/ping", "/health/ready"):
        assert keyed.get(path).status == 200


def test_a_key_that_is_added_works_at_once_and_one_that_is_removed_no_longer(keyed):
    key = keyed.add("alice", tenant="acme")
    assert key not in keyed.file.read_text()
    assert let_in(keyed, key)
    command = [sys.executable, "-m", "scripts.keys", f"--file={keyed.file}", "remove", "alice"]
    subprocess.run(command, cwd=ROOT, check=True)
    assert eventually(lambda: keyed.get("/v1/models", x_api_key=key).status == 401)


def test_tenant_and_priority_are_the_keys_whatever_the_body_says(keyed, fake):
    key = keyed.add("alice", tenant="acme", priority=2)
    assert let_in(keyed, key)
    reply = keyed.post("/v1/chat/completions", {**CHAT, "tenant": "other"}, x_api_key=key)
    assert (reply.status, reply.error["param"]) == (400, "tenant")
    assert keyed.post("/v1/chat/completions", {**CHAT, "service_tier": "priority"}, x_api_key=key).status == 200
    parameters = fake.requests[-1]["parameters"]
    assert parameters["tenant"].string_param == "acme" and parameters["priority"].uint64_param == 2


def test_a_limit_is_a_429_that_says_what_is_left(keyed):
    key = keyed.add("alice", rpm=2)
    assert let_in(keyed, key)
    replies = [keyed.post("/v1/chat/completions", CHAT, x_api_key=key) for _ in range(3)]
    assert [reply.status for reply in replies] == [200, 200, 429]
    assert [reply.headers.get("x-ratelimit-remaining-requests") for reply in replies[:2]] == ["1", "0"]
    assert replies[2].error["type"] == "rate_limit_error" and 1 <= int(replies[2].headers["retry-after"]) <= 31


def test_a_key_for_some_models_is_forbidden_the_others(keyed):
    key = keyed.add("alice", models="small")
    assert let_in(keyed, key)
    assert [model["id"] for model in keyed.get("/v1/models", x_api_key=key).json["data"]] == ["small"]
    assert keyed.post("/v1/chat/completions", CHAT, x_api_key=key).status == 403
    assert keyed.post("/v1/chat/completions", {**CHAT, "model": "small"}, x_api_key=key).status == 200


def test_the_ledger_and_the_metrics_know_the_key_and_no_text(keyed, tmp_path):
    key = keyed.add("alice", tenant="acme")
    assert let_in(keyed, key)
    keyed.post("/v1/chat/completions", CHAT, x_api_key=key)
    (file,) = (tmp_path / "ledger").glob("*.jsonl")
    assert eventually(lambda: file.read_text().endswith("\n"))  # written once the answer is out
    (entry,) = map(json.loads, file.read_text().splitlines())
    assert (entry["key"], entry["tenant"], entry["completion_tokens"]) == ("alice", "acme", 3)
    assert entry["cost"] == pytest.approx((3 * 0.05 + 3 * 0.2) / 1000)
    assert "one two" not in file.read_text() and key not in keyed.log


def test_without_keys_it_listens_on_this_machine_alone(fake):
    command = [sys.executable, "-m", "scripts.gateway", f"--triton={fake.target}", "--port=0", "--host=0.0.0.0"]
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2 and "needs --keys" in refused.stderr
