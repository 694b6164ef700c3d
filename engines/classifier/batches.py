"""How a batch of texts of different lengths is cut into runs: near lengths together, each run to its longest member.

A run costs about as much as its tokens, padding included, and RUN_TOKENS more. One long text among sixty short ones
would otherwise make all of them as dear as itself.
"""

from __future__ import annotations

from collections.abc import Sequence

RUN_TOKENS = 4  # what starting a run costs, in tokens: multilingual-e5-small in ONNX Runtime on one core, 1 to 2 ms
MAX_RUN_TOKENS = 1024  # nothing is gained beyond, and what a run takes of memory is never given back: 36 MB at most


def runs(lengths: Sequence[int]) -> list[list[int]]:
    """Places in `lengths`, each in exactly one run: the cheapest of all ways to cut the sorted lengths."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    costs = [0]  # of the first n texts in order
    begins = [0]  # where the last run of those begins
    for end, place in enumerate(order, 1):
        longest = lengths[place]
        fewest = end - max(MAX_RUN_TOKENS // max(longest, 1), 1)
        choices = [(costs[begin] + RUN_TOKENS + (end - begin) * longest, begin) for begin in range(max(fewest, 0), end)]
        cost, begin = min(choices)
        costs.append(cost)
        begins.append(begin)
    found = []
    end = len(order)
    while end:
        found.append(order[begins[end] : end])
        end = begins[end]
    return found
