"""What engine servers say of themselves, added up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bls.paths import ROOT
from engines.remote.figures import Tally, parse, total

PAGE = (ROOT / "tests" / "data" / "trtllm_metrics.txt").read_text()
MODEL = "tensorrt_llm_small"


def test_a_page_of_tensorrt_llms_backend_is_read_for_one_model():
    found = parse(PAGE, MODEL)
    assert found.values["request", "active"] == 6 and found.values["kv_cache_block", "used"] == 460
    assert (found.block_tokens, found.waiting, found.is_draining) == (64, 0, False)
    assert parse(PAGE, "tensorrt_llm_huge").values == {}


def test_a_page_may_be_any_text():
    assert parse("<html>\n\nnv_trt_llm_request_metrics{model= 1\n", MODEL).values == {}


def test_a_server_that_is_about_to_end_says_so():
    assert parse(f"{PAGE}llm_router_server_draining 1\n", MODEL).is_draining
    assert not parse(f"{PAGE}llm_router_server_draining 0\n", MODEL).is_draining


def test_two_servers_have_twice_as_many_blocks_of_the_same_size_and_the_same_share_in_use():
    one = parse(PAGE, MODEL).values
    both = total([one, one])
    assert both["kv_cache_block", "max"] == 2 * 4060 and both["kv_cache_block", "tokens_per"] == 64
    assert both["kv_cache_block", "fraction"] == 460 / 4060
    assert both["general", "timestamp"] == one["general", "timestamp"]
    assert total([]) == {}


counts = st.fixed_dictionaries(
    {("kv_cache_block", "used"): st.integers(0, 9), ("kv_cache_block", "max"): st.integers(0, 9)}
)


@given(st.lists(counts.map(lambda each: {**each, ("kv_cache_block", "fraction"): 0.5}), min_size=1, max_size=4))
def test_a_tiers_share_is_that_of_all_its_blocks(each):
    found = total(each)
    used, most = (sum(values["kv_cache_block", kind] for values in each) for kind in ("used", "max"))
    assert found["kv_cache_block", "fraction"] == (used / most if most else 0.0)


REUSED = ("kv_cache_block", "reused")
happenings = st.tuples(
    st.sampled_from("abc"), st.sampled_from(("counts", "ends", "silent", "leaves")), st.integers(0, 9)
)


@given(st.lists(happenings, max_size=40))
def test_what_a_tier_counts_never_falls_and_is_what_its_known_servers_have_counted(happenings):
    tally, counts, counted, before = Tally(), {}, 0.0, 0.0
    for server, what, number in happenings:
        if what == "leaves":
            counts.pop(server, None)
        elif server not in counts:
            counts[server] = float(number)  # its past
        elif what == "counts":
            counts[server] += number
            counted += number
        elif what == "ends" and number < counts[server]:  # and has counted as much again when it is looked at
            counts[server] = float(number)
            counted += number
        servers = {name: {REUSED: count} for name, count in counts.items()}
        if what == "silent" and server in servers:
            servers[server] = {}
            tally.look(servers)
            servers[server] = {REUSED: counts[server]}
        after = tally.look(servers).get(REUSED, 0.0)
        assert after == counted >= before
        before = after


def test_a_server_that_leaves_takes_nothing_with_it_and_one_that_comes_brings_nothing():
    tally = Tally()
    tally.look({"a": {REUSED: 100.0}, "b": {REUSED: 50.0}})
    assert tally.look({"a": {REUSED: 110.0}, "b": {REUSED: 51.0}}) == {REUSED: 11.0}
    assert tally.look({"b": {REUSED: 52.0}}) == {REUSED: 12.0}
    assert tally.look({"b": {REUSED: 52.0}, "c": {REUSED: 9000.0}}) == {REUSED: 12.0}
    assert tally.look({}) == {REUSED: 12.0}
    assert REUSED not in total([{REUSED: 1.0}])
