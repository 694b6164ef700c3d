"""How much of the prompts OpenVINO's KV cache had already, which OpenVINO tells nobody.

It finds blocks by what they and all before them hold, and overwrites the free one that was allocated or found longest
ago (src/cpp/src/continuous_batching/cache/block_manager.hpp of openvinotoolkit/openvino.genai, commit da1db86). That
depends only on the ids, so a book can be kept of it. tests/engines/openvino/test_prefix_cache.py holds it against the
library.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


@dataclass
class _Block:
    """`name` stands for all ids up to the end of the block; 0 while its request still adds to it."""

    stamp: int
    name: int = 0
    holders: int = 1


@dataclass
class _Request:
    prompt: tuple[int, ...]
    blocks: list[_Block]
    generated: list[int] = field(default_factory=list)


class PrefixCache:
    """The book. `reused` and `missed` are blocks of all prompts so far that were there, or had to be computed."""

    def __init__(self, blocks: int, block_tokens: int, is_on: bool) -> None:
        self.reused = self.missed = 0
        self._block_tokens = block_tokens
        self._is_on = is_on
        self._empty = deque(range(-blocks, 0))  # stamps, of blocks that hold nothing
        self._clock = 0
        self._named: dict[int, _Block] = {}
        self._free: list[tuple[int, int]] = []  # a heap of stamps and names, some of them out of date
        self._surplus = 0  # blocks that the library can't have: it made a request wait for them
        self._requests: dict[int, _Request] = {}
        self._arrived: list[_Request] = []

    def begin(self, key: int, prompt: tuple[int, ...]) -> int:
        """Finds the beginning of a prompt; how many of its tokens need not be computed."""
        blocks, tokens = self._find(prompt) if self._is_on else ([], 0)
        self.reused += len(blocks)
        self.missed += -(-len(prompt) // self._block_tokens) - len(blocks)
        self._requests[key] = request = _Request(prompt, blocks)
        if self._is_on:
            self._arrived.append(request)
        return min(tokens, len(prompt) - 1)

    def step(self) -> None:
        """What prompts lack is allocated in the step that computes them, so two that came together share nothing."""
        for request in self._arrived:
            names = list(self._names(request.prompt))
            for name in names[len(request.blocks) : len(request.prompt) // self._block_tokens]:
                request.blocks.append(self._allocate(name))
            if len(request.blocks) < len(names):
                request.blocks.append(self._allocate(0))
        self._arrived.clear()

    def grow(self, key: int, ids: Sequence[int]) -> None:
        self._requests[key].generated += ids

    def end(self, key: int) -> None:
        """Frees the blocks of a request, to be found by later ones. The last id was never put into the cache."""
        request = self._requests.pop(key)
        has_begun = not any(request is each for each in self._arrived)
        self._arrived = [each for each in self._arrived if each is not request]
        content = (*request.prompt, *request.generated[:-1]) if self._is_on and has_begun else ()
        for place, name in enumerate(self._names(content)):
            if place == len(request.blocks):
                request.blocks.append(self._allocate(0))
            if not request.blocks[place].name:
                self._name(request.blocks[place], name)
        for block in request.blocks:
            self._release(block)

    def _find(self, prompt: tuple[int, ...]) -> tuple[list[_Block], int]:
        """Blocks, and the tokens in them: whole blocks, and at last one that another sequence ends in."""
        found: list[_Block] = []
        before, tokens = 0, 0
        for name in self._names(prompt):
            block = self._named.get(name)
            if block is None:
                break
            found.append(self._take(block))
            before, tokens = name, min(tokens + self._block_tokens, len(prompt))
        for part in range(1, min(self._block_tokens, len(prompt) - tokens)):
            block = self._named.get(hash((before, prompt[tokens : tokens + part])))
            if block is not None:
                found.append(self._take(block))
                tokens += part
                break
        if tokens % self._block_tokens and found[-1].holders == 1:  # It will hold more, and goes by another name then.
            del self._named[found[-1].name]
            found[-1].name = 0
        return found, tokens

    def _names(self, content: Sequence[int]) -> Iterator[int]:
        name = 0
        for begin in range(0, len(content), self._block_tokens):
            name = hash((name, tuple(content[begin : begin + self._block_tokens])))
            yield name

    def _take(self, block: _Block) -> _Block:
        block.holders += 1
        self._clock += 1
        block.stamp = self._clock
        return block

    def _allocate(self, name: int) -> _Block:
        if self._empty:
            block = _Block(self._empty.popleft())
        else:
            self._clock += 1
            block = _Block(self._clock)
            if not self._overwrite():
                self._surplus += 1
        if name:
            self._name(block, name)
        return block

    def _overwrite(self) -> bool:
        """Takes away the free block that was used longest ago; False where there is none."""
        while self._free:
            stamp, name = heapq.heappop(self._free)
            block = self._named.get(name)
            if block is not None and block.stamp == stamp and not block.holders:
                del self._named[name]
                return True
        return False

    def _name(self, block: _Block, name: int) -> None:
        other = self._named.get(name)
        if other is not None and not other.holders:
            self._empty.append(other.stamp)
        block.name = name
        self._named[name] = block

    def _release(self, block: _Block) -> None:
        block.holders -= 1
        if block.holders:
            return
        if self._surplus:
            self._surplus -= 1
            if self._named.get(block.name) is block:
                del self._named[block.name]
        elif self._named.get(block.name) is block:
            heapq.heappush(self._free, (block.stamp, block.name))
        else:  # Another one of the same name is the one that is found.
            self._empty.append(block.stamp)
