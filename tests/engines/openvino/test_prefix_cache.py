"""engines/openvino/prefix_cache.py held against the real library, which tells nothing.

But with a few tokens a step, the steps up to the first token are those of the tokens that it had to compute.
"""

import random

import pytest

from engines.builders import build
from engines.openvino.pipeline import BLOCK_TOKENS, OpenVinoPipeline
from engines.openvino.prefix_cache import PrefixCache
from engines.specs import Spec
from engines.worker.generation import Generation
from engines.worker.parameters import EngineParameters
from tests import small_gguf
from tests.openvino_signals import signals_find_their_stack_after_openvino  # noqa: F401

TOKENS_PER_STEP = 2


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    file = small_gguf.write(folder / "tiny-llama.F16.gguf", "llama")
    return build.build(folder / "built", "small", Spec(str(file)), lambda text: None)


def made(manifest, blocks, **settings):
    settings = {"cache_tokens": blocks * BLOCK_TOKENS, "max_num_tokens": TOKENS_PER_STEP, **settings}
    return OpenVinoPipeline(manifest, EngineParameters(in_flight=True, **settings))


def conversations(chance, count):
    """Prompts, many of which go on as an earlier one did, and the lengths of their answers. `seen` is to be filled."""
    seen = []
    for _ in range(count):
        prompt = tuple(chance.choices(range(5, 10), k=chance.choice((1, 31, 32, 33, 64, 65, 100))))
        if seen and chance.random() < 0.6:
            earlier = chance.choice(seen[-6:])
            prompt = earlier[: chance.randint(1, len(earlier))] + prompt[: chance.choice((0, 1, 5, 40))]
        yield prompt[:150], chance.choice((1, 2, 5, 20, 40)), seen


def steps_to_first_token(pipeline, book, key, prompt, answer_tokens):
    """Steps, and the ids of the whole answer."""
    pipeline.add(key, Generation(prompt, answer_tokens, frozenset({0}), min_tokens=answer_tokens))
    steps, first, ids, ended = 0, 0, [], ""
    while not ended:
        produced = pipeline.step()
        book.step()
        steps += 1
        for one in produced:
            assert one.error is None
            first = first or steps
            ids += one.ids
            book.grow(key, one.ids)
            ended = one.ended
    pipeline.step()  # Only now it frees what the request held.
    book.end(key)
    return first, tuple(ids)


def wrong_ones(pipeline, blocks, count):
    book = PrefixCache(blocks, BLOCK_TOKENS, True)
    wrong = 0
    for key, (prompt, answer_tokens, seen) in enumerate(conversations(random.Random(7), count)):
        left = len(prompt) - book.begin(key, prompt)
        steps, ids = steps_to_first_token(pipeline, book, key, prompt, answer_tokens)
        wrong += steps != -(-left // TOKENS_PER_STEP)
        seen.append(prompt + ids)
    assert {(one.kind, one.value) for one in pipeline.figures()} == {("reused", book.reused), ("missed", book.missed)}
    assert book.reused > count / 5
    return wrong


def test_the_book_knows_what_the_library_computes_while_the_cache_has_room(manifest):
    assert wrong_ones(made(manifest, 400), 400, 60) == 0


def test_the_book_knows_it_of_nearly_all_prompts_when_the_cache_is_full_all_the_time(manifest):
    assert wrong_ones(made(manifest, 12), 12, 60) <= 1


def test_without_reuse_every_block_is_missed(manifest):
    pipeline = made(manifest, 20, reuse_cache=False)
    for key in range(2):
        steps, _ = steps_to_first_token(pipeline, PrefixCacheOfNobody(), key, tuple(range(5, 75)), 3)
        assert steps == 70 / TOKENS_PER_STEP
    assert {(one.kind, one.value) for one in pipeline.figures()} == {("reused", 0), ("missed", 6)}


class PrefixCacheOfNobody:
    def __getattr__(self, name):
        return lambda *arguments: None


def test_two_prompts_that_come_together_share_nothing_and_a_third_shares_with_them():
    book = PrefixCache(20, 4, True)
    prompt = tuple(range(9))
    assert book.begin(1, prompt) == book.begin(2, prompt) == 0
    book.step()
    assert book.begin(3, prompt) == 8
    assert (book.reused, book.missed) == (2, 3 + 3 + 1)


def test_a_stopped_request_leaves_what_it_computed_and_one_that_never_began_leaves_nothing():
    book = PrefixCache(20, 4, True)
    book.begin(1, tuple(range(9)))
    book.end(1)
    assert book.begin(2, tuple(range(8))) == 0
    book.step()
    book.grow(2, [8, 9, 10, 11, 12])
    book.end(2)
    assert book.begin(3, tuple(range(14))) == 12


def test_more_requests_than_the_cache_holds_leave_no_more_blocks_than_there_are():
    book = PrefixCache(4, 4, True)
    for key in range(3):
        book.begin(key, tuple(range(key * 100, key * 100 + 9)))
    book.step()
    for key in range(3):
        book.end(key)
    found = [book.begin(key + 10, tuple(range(key * 100, key * 100 + 9))) for key in range(3)]
    assert sum(found) // 4 <= 4
