"""Where what stands in the file of bls/routing/shared_table.py, and what another program may want of it."""

from __future__ import annotations

import struct
from pathlib import Path

ROWS = 256  # router processes at most; the rows that nobody uses take no memory
MODELS = 8
BUCKETS = 10

MAGIC = b"RTABLE03"
NAME_BYTES = 64
TEXT_BYTES = 1 << 18

# The file: magic, how many rows were ever taken, which of them live and when somebody looked, the models' names, some
# numbers for each model, the rows, the text.
TAKEN_AT = 8
ALIVE_AT = 16
ALIVE = struct.Struct(f"<d{ROWS // 8}s")  # seconds of the kernel's clock, a bit a row
NAMES_AT = 64
SHARED_AT = NAMES_AT + MODELS * NAME_BYTES
SHARED = 6  # numbers a model
ROWS_AT = 4096
# A row's numbers for a model: how many are in flight, the work that waits for a first token and since when, whose row
# it is and how many requests it answers (both for the first model alone), then BUCKETS times these five.
IN_FLIGHT, WAITING, SINCE, PROCESS, ANSWERING, FIRST_BUCKET = range(6)
START, SUCCESSES, FAILURES, FIRST_TOKENS, FIRST_TOKEN_SECONDS = range(5)
BUCKET_FIELDS = 5
ROW_NUMBERS = FIRST_BUCKET + BUCKETS * BUCKET_FIELDS
TEXT_AT = ROWS_AT + ROWS * MODELS * ROW_NUMBERS * 8
SIZE = TEXT_AT + TEXT_BYTES


def idle_processes(path: Path) -> frozenset[int]:
    """The ids of the router processes, living or dead, that answer no request. OSError."""
    content = path.read_bytes()
    if content[: len(MAGIC)] != MAGIC or len(content) != SIZE:
        raise OSError(f"{path} is not a table of this version")
    numbers = memoryview(content)[ROWS_AT:TEXT_AT].cast("d")
    found = set()
    for row in range(int.from_bytes(content[TAKEN_AT : TAKEN_AT + 8], "little")):
        first = row * MODELS * ROW_NUMBERS
        if not numbers[first + ANSWERING]:
            found.add(int(numbers[first + PROCESS]))
    return frozenset(found)
