"""A tier named as a cluster's DNS names one, whose records change while it serves: the system's own resolver, which
asks a DNS server of this module's. In namespaces that test_resolved.py makes for it, with their own port 53 and files.

    unshare --user --map-root-user --net --mount python -m tests.engines.remote.resolving
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import tempfile
import threading
from pathlib import Path

from engines.remote.settings import Address
from tests.engine_server import EngineServer
from tests.engines.remote.clients import ask
from tests.engines.remote.test_tier import HOSTS, IDENTITY, IDS, SLOW, tier_of, why_not
from tests.waiting import eventually

NAME = "engines.llm.svc.cluster.local"
A, INTERNET = 1, 1
NO_ERROR, SERVER_FAILURE, NO_SUCH_NAME = 0, 2, 3
TTL_S = 5


class DnsServer:
    """Answers for NAME with `addresses`, or with `error`, or not at all; `asked` counts the questions for it."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.error = NO_ERROR
        self.is_silent = False
        self.asked = 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 53))
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            message, client = self._socket.recvfrom(4096)
            name, kind, question = _question(message)
            self.asked += name == NAME
            if not self.is_silent:
                found = self.addresses if (name, kind) == (NAME, A) and not self.error else []
                error = self.error if name == NAME else NO_SUCH_NAME
                self._socket.sendto(_reply(message, question, error, found), client)


def _question(message: bytes) -> tuple[str, int, bytes]:
    """Its name, the kind of record that it wants, and all of it as it stands in the message (RFC 1035, 4.1.2)."""
    labels, at = [], 12
    while size := message[at]:
        labels.append(message[at + 1 : at + 1 + size].decode())
        at += 1 + size
    (kind,) = struct.unpack_from(">H", message, at + 1)
    return ".".join(labels), kind, message[12 : at + 5]


def _reply(message: bytes, question: bytes, error: int, addresses: list[str]) -> bytes:
    """Each record points back at the question's name."""
    head = message[:2] + struct.pack(">HHHHH", 0x8180 | error, 1, len(addresses), 0, 0)
    record = struct.pack(">HHHIH", 0xC00C, A, INTERNET, TTL_S, 4)
    return head + question + b"".join(record + socket.inet_aton(each) for each in addresses)


def use_it(folder: Path) -> None:
    """For this process and its children alone."""
    files = {"/etc/resolv.conf": "nameserver 127.0.0.1\n", "/etc/nsswitch.conf": "hosts: dns\n"}
    for place, text in files.items():
        own = folder / Path(place).name
        own.write_text(text)
        subprocess.run(["mount", "--bind", own, place], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        use_it(Path(folder))
        told = follow(DnsServer(HOSTS[0]))
    print(json.dumps(told))


def follow(dns: DnsServer) -> dict[str, object]:
    """What becomes of a tier's servers and of a stream, change by change."""
    told: dict[str, object] = {}
    servers = [EngineServer(9001, 9002, host=host, identity=IDENTITY) for host in HOSTS]
    first, second = (each.name for each in servers)
    named = (Address(NAME, 9001),)
    with servers[0], servers[1], tier_of(servers[0], endpoints=named, resolve_seconds=1) as tier:

        def becomes(*names: str) -> bool:
            return eventually(lambda: {name for name, why in why_not(tier).items() if not why} == set(names), 30)

        def stays(*names: str) -> bool:
            asked = dns.asked
            return eventually(lambda: dns.asked >= asked + 3, 60) and becomes(*names)

        told["one"] = becomes(first)
        stream = ask(tier, IDS, tokens=3000, script=SLOW)
        stream.wait_for_ids(1)
        dns.addresses = list(HOSTS)
        told["both"] = becomes(first, second)
        dns.addresses = [HOSTS[1]]
        told["the other"] = becomes(second)
        told["asks the other"] = ask(tier, IDS).wait().ids == IDS and servers[0].told()["started"] == 1
        told["its stream goes on"] = not stream.has_ended
        for problem in ("failure", "no such name", "no address", "silence"):
            dns.error = {"failure": SERVER_FAILURE, "no such name": NO_SUCH_NAME}.get(problem, NO_ERROR)
            dns.addresses = []
            dns.is_silent = problem == "silence"
            told[problem] = stays(second) and ask(tier, IDS).wait().ids == IDS
        dns.is_silent, dns.addresses = False, [HOSTS[0]]
        told["back"] = becomes(first)
        stream.has_left = True
        stream.wait()
    return told


if __name__ == "__main__":
    main()
