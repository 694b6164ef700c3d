"""The servers of these tests; what starts them is scripts/bench/local_server.py, which the benchmarks share."""

from scripts.bench.local_server import ROOT, Launch, Server, StartFailed, free_ports, launched, running_server

__all__ = ["ROOT", "Launch", "Server", "StartFailed", "free_ports", "launched", "running_server"]
