"""What every engine library does behind engines/worker/pipeline.py, through the scheduler.

OpenVINO is the real one, with the engine that is built for the small tier; TensorRT-LLM's LLM API is its stand-in.
"""

import numpy as np
import pytest

from bls import manifest
from bls.paths import ROOT
from engines.worker.generation import Generation, Guide, Sampling
from engines.worker.parameters import EngineParameters
from engines.worker.scheduler import Scheduler
from tests.llmapi_models import llmapi_pipeline
from tests.openvino_signals import signals_find_their_stack_after_openvino  # noqa: F401

BUILT = ROOT / "engines" / "built" / "small"
PROMPT = (1, 4093, 198, 31530, 549, 253, 1977, 2, 198, 1, 520, 9531, 198)
CACHE_TOKENS = 128


@pytest.fixture(scope="module", params=["openvino", "llmapi"])
def pipeline(request, tmp_path_factory):
    settings = {"cache_tokens": CACHE_TOKENS, "max_num_tokens": 64}
    if request.param == "openvino":
        made = openvino_pipeline(settings)
    else:
        made = llmapi_pipeline(tmp_path_factory.mktemp("model"), guided_decoding="xgrammar", **settings)
    yield made
    made.close()


def openvino_pipeline(settings):
    if not (BUILT / manifest.FILE_NAME).exists():
        pytest.skip(f"{BUILT} is not built")
    from engines.openvino.pipeline import OpenVinoPipeline

    return OpenVinoPipeline(manifest.load(BUILT), EngineParameters(in_flight=True, **settings))


def generation(prompt=PROMPT, max_tokens=8, end_ids=frozenset({49151}), **fields):
    return Generation(prompt, max_tokens, end_ids, **fields)


def run(pipeline, *generations, **options):
    """The ids, log probabilities and ends of requests that run together."""
    scheduler = Scheduler(pipeline, 8, **options)
    for key, one in enumerate(generations):
        scheduler.add(key, one)
    events = []
    while scheduler.is_busy:
        events += scheduler.step()
    mine = [[event for event in events if event.key == key] for key in range(len(generations))]
    ids = [[token for event in one for token in event.ids] for one in mine]
    log_probs = [[value for event in one for value in event.log_probs] for one in mine]
    return ids, log_probs, [one[-1].ended or str(one[-1].error) for one in mine]


def test_it_generates_as_many_ids_as_it_should(pipeline):
    (ids,), _, ends = run(pipeline, generation())
    assert (len(ids), ends) == (8, ["length"])


def test_the_end_id_ends_it_and_is_left_out(pipeline):
    (ids,), _, _ = run(pipeline, generation())
    (short,), _, ends = run(pipeline, generation(end_ids=frozenset({ids[3]})))
    assert (short, ends) == (ids[:3], ["end_id"])


def test_min_tokens_puts_the_end_off(pipeline):
    (ids,), _, _ = run(pipeline, generation())
    (longer,), _, _ = run(pipeline, generation(end_ids=frozenset({ids[0]}), min_tokens=4))
    assert len(longer) >= 4


def test_a_stop_word_ends_it_and_frees_its_blocks(pipeline):
    (ids,), _, _ = run(pipeline, generation())
    (stopped,), _, ends = run(pipeline, generation(max_tokens=100, stop_words=(tuple(ids[2:4]),)))
    assert (stopped, ends) == (ids[:4], ["stop_word"])
    assert pipeline.used_blocks() == 0


def test_blocks_are_held_while_it_runs_and_free_once_it_is_stopped(pipeline):
    scheduler = Scheduler(pipeline, 8)
    scheduler.add(0, generation(prompt=PROMPT * 3, max_tokens=80))
    while pipeline.used_blocks() < 2:
        scheduler.step()
    scheduler.stop(0)
    while scheduler.is_busy:
        scheduler.step()
    assert pipeline.used_blocks() == 0


def test_log_probs_are_the_same_beside_other_requests(pipeline):
    asked = generation(log_probs=True)
    alone, alone_log_probs, _ = run(pipeline, asked)
    together, log_probs, _ = run(pipeline, asked, generation(PROMPT[:5]), generation(PROMPT[:7]))
    assert len(alone_log_probs[0]) == 8
    assert max(alone_log_probs[0]) < 0
    assert together[0] == alone[0]
    # Other requests change the shape of the matrices, hence the last bits.
    assert log_probs[0] == pytest.approx(alone_log_probs[0], abs=0.05)


LEAST = float(np.finfo(np.float32).smallest_subnormal)


@pytest.mark.parametrize(
    "tiny",
    [
        Sampling(temperature=1e-40, seed=7),
        Sampling(temperature=LEAST, seed=7),
        Sampling(temperature=1e-7, seed=7),
        Sampling(temperature=1.0, top_p=LEAST, seed=7),
    ],
)
def test_a_float_too_small_for_the_arithmetic_means_the_likeliest_token(pipeline, tiny):
    (likeliest,), _, _ = run(pipeline, generation())
    assert run(pipeline, generation(sampling=tiny))[0] == [likeliest]


@pytest.mark.parametrize("beyond", [LEAST, 1e-30, 1e30, 3e38])
def test_a_penalty_beyond_the_arithmetic_is_the_nearest_that_is_not(pipeline, beyond):
    nearest = min(max(beyond, 1e-6), 1e6)
    ids = [run(pipeline, generation(sampling=Sampling(repetition_penalty=each)))[0] for each in (beyond, nearest)]
    assert ids[0] == ids[1] != [[]] or ids == [[[]], [[]]]  # refused by an engine that has no penalties


def test_a_seed_alone_decides_what_is_drawn(pipeline):
    def draw(seed):
        return run(pipeline, generation(sampling=Sampling(temperature=1.0, seed=seed), max_tokens=20))[0]

    assert draw(5) == draw(5)
    assert draw(5) != draw(6)


def test_top_k_one_is_greedy_whatever_the_temperature(pipeline):
    greedy = run(pipeline, generation())[0]
    assert run(pipeline, generation(sampling=Sampling(temperature=2.0, top_k=1, seed=3)))[0] == greedy


def test_penalties_change_what_is_chosen(pipeline):
    repeating = generation(max_tokens=40)
    penalised = generation(max_tokens=40, sampling=Sampling(repetition_penalty=2.0))
    assert run(pipeline, repeating)[0] != run(pipeline, penalised)[0]


@pytest.mark.parametrize("in_flight", [True, False])
@pytest.mark.parametrize("no_evict", [True, False])
def test_more_requests_than_the_cache_holds_all_end_well(pipeline, in_flight, no_evict):
    many = [generation(prompt=PROMPT[: 5 + key], max_tokens=50) for key in range(4)]
    ids, _, ends = run(pipeline, *many, in_flight=in_flight, no_evict=no_evict)
    assert [len(one) for one in ids] == [50] * 4
    assert ends == ["length"] * 4


def test_a_prompt_longer_than_a_step_is_computed_in_parts(pipeline):
    (ids,), _, _ = run(pipeline, generation(prompt=PROMPT * 9, max_tokens=3))
    assert len(ids) == 3


@pytest.mark.parametrize(
    ("guide", "expected"),
    [
        (Guide("regex", "[0-9]{3}"), 3),
        (Guide("ebnf_grammar", 'root ::= "12345"'), 5),
    ],
)
def test_a_guide_shapes_the_output(pipeline, guide, expected):
    """Every digit is a token of its own here."""
    (ids,), _, ends = run(pipeline, generation(max_tokens=30, end_ids=frozenset({2}), guide=guide))
    assert (len(ids), ends) == (expected, ["end_id"])


@pytest.mark.parametrize(
    ("guide", "message"),
    [
        (Guide("json_schema", '{"type": 12'), "guided_decoding_guide is not a valid json_schema: Failed to parse JSON"),
        (Guide("json_schema", '{"type": "objekt"}'), 'not a valid json_schema: Unsupported type "objekt"'),
        (Guide("regex", "[0-"), "not a valid regex: Regex parsing error"),
        (Guide("ebnf_grammar", "rot ::= x"), "not a valid ebnf_grammar: EBNF parser error at line 1"),
    ],
)
def test_a_wrong_guide_is_refused_and_spares_the_others(pipeline, guide, message):
    ids, _, ends = run(pipeline, generation(guide=guide), generation())
    assert message in ends[0]
    assert "/" not in ends[0]
    assert (len(ids[1]), ends[1]) == (8, "length")


def test_any_json_is_a_guide_too(pipeline):
    (ids,), _, ends = run(pipeline, generation(max_tokens=30, end_ids=frozenset({2}), guide=Guide("json", "")))
    assert ids
    assert ends[0] in ("end_id", "length")
