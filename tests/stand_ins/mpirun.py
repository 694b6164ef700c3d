#!/usr/bin/env python3
"""Stands in for Open MPI's mpirun 4.1, as far as scripts/serve sees it.

The ranks run in process groups of their own. A rank that fails, or is killed, ends all, and its status is mpirun's; one
that leaves with status 0 is not missed. SIGTERM ends the ranks: a SIGTERM to each, and two seconds later a SIGKILL.
"""

import argparse
import os
import signal
import subprocess
import sys
import time

PATIENCE_S = 2.0


def ranks_of(words):
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--allow-run-as-root", action="store_true", required=True)
    parser.add_argument("--oversubscribe", action="store_true")
    parser.add_argument("--bind-to", choices=["none"], required=True)
    parser.add_argument("-n", type=int, required=True)
    parser.add_argument("program", nargs=argparse.REMAINDER)
    first, *others = split(words)
    options = parser.parse_args(first)
    found = [options.program] * options.n
    for words in others:
        assert words[0] == "-n", words
        found += [words[2:]] * int(words[1])
    return found


def split(words):
    parts = [[]]
    for word in words:
        if word == ":":
            parts.append([])
        else:
            parts[-1].append(word)
    return [part for part in parts if part]


def end(children):
    for number in (signal.SIGTERM, signal.SIGKILL):
        for child in children:
            if child.poll() is None:
                os.killpg(child.pid, number)
        limit = time.monotonic() + PATIENCE_S
        while any(child.poll() is None for child in children) and time.monotonic() < limit:
            time.sleep(0.05)


def main():
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
    commands = ranks_of(sys.argv[1:])
    children = []
    for rank, command in enumerate(commands):
        env = {**os.environ, "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(len(commands))}
        children.append(subprocess.Popen(command, env=env, start_new_session=True))
    while any(child.poll() is None for child in children):
        if asked:
            end(children)
            sys.exit(1)
        failed = next((i for i, child in enumerate(children) if child.poll()), None)
        if failed is not None:
            status = children[failed].returncode
            end(children)
            if status < 0:
                name = signal.Signals(-status).name
                process = f"process rank {failed} with PID 0 on node here"
                print(f"mpirun noticed that {process} exited on signal {-status} ({name}).")
                sys.exit(128 - status)
            print(f"  Process name: [[4711,1],{failed}]\n  Exit code:    {status}")
            sys.exit(status)
        time.sleep(0.05)


if __name__ == "__main__":
    main()
