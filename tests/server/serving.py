"""The servers of these tests; what starts them is scripts/local_server.py, which the benchmarks share."""

from scripts.local_server import ROOT, Launch, Server, StartFailed, free_ports, launched, running_server

__all__ = ["ROOT", "Launch", "Server", "StartFailed", "free_ports", "launched", "running_server"]
