"""engines/triton/metrics.py and engines/llmapi/figures.py: TensorRT-LLM's families out of what an engine knows."""

from engines.llmapi import figures
from engines.triton import metrics
from engines.worker.pipeline import Figure
from engines.worker.scheduler import Statistics

RECORD = {
    "iter": 12,
    "gpuMemUsage": 1 << 30,
    "kvCacheStats": {"maxNumBlocks": 100, "reusedBlocks": 7, "missedBlocks": 21},
    "inflightBatchingStats": {
        "numScheduledRequests": 5,
        "numContextRequests": 1,
        "numGenRequests": 4,
        "numPausedRequests": 0,
        "numCtxTokens": 640,
    },
}


def test_an_engine_without_figures_of_its_own_has_those_of_the_scheduler():
    now = Statistics(active=5, scheduled=3, context=1, most=32, used_blocks=10, total_blocks=40, block_tokens=32)
    assert metrics.values(now) == {
        ("request", "active"): 5,
        ("request", "max"): 32,
        ("request", "scheduled"): 3,
        ("request", "context"): 1,
        ("request", "waiting"): 2,
        ("kv_cache_block", "max"): 40,
        ("kv_cache_block", "used"): 10,
        ("kv_cache_block", "free"): 30,
        ("kv_cache_block", "tokens_per"): 32,
        ("kv_cache_block", "fraction"): 0.25,
    }


def test_the_librarys_figures_win_but_never_claim_more_requests_than_there_are():
    known = (Figure("request", "scheduled", 6), Figure("request", "context", 2), Figure("runtime_memory", "gpu", 9))
    found = metrics.values(Statistics(active=5, scheduled=5, context=0, total_blocks=1, figures=known))
    assert found["request", "scheduled"] == 5
    assert found["request", "waiting"] == 0
    assert found["request", "context"] == 2
    assert found["runtime_memory", "gpu"] == 9


def by_kind(record, is_running):
    return {(figure.family, figure.kind): figure.value for figure in figures.figures(record, is_running)}


def test_a_record_gives_what_it_holds_and_no_more():
    found = by_kind(RECORD, True)
    assert found.pop(("general", "timestamp")) > 0
    assert found == {
        ("request", "scheduled"): 5,
        ("request", "context"): 1,
        ("inflight_batcher", "total_context_tokens"): 640,
        ("inflight_batcher", "generation_requests"): 4,
        ("inflight_batcher", "paused_requests"): 0,
        ("kv_cache_block", "reused"): 7,
        ("kv_cache_block", "missed"): 21,
        ("runtime_memory", "gpu"): 1 << 30,
        ("general", "iteration_counter"): 12,
    }
    assert by_kind({}, True) == {}
    assert ("request", "scheduled") not in by_kind({"inflightBatchingStats": None}, True)


def test_nothing_runs_in_an_engine_that_stands_still_whatever_its_last_record_says():
    found = by_kind(RECORD, False)
    assert found["request", "scheduled"] == found["inflight_batcher", "generation_requests"] == 0
    assert found["kv_cache_block", "reused"] == 7


def test_every_figure_belongs_to_a_family_that_is_declared():
    families = {family for family, _ in by_kind(RECORD, True)} | {
        family for family, _ in metrics.values(Statistics(total_blocks=1))
    }
    assert families <= set(metrics.FAMILIES)
