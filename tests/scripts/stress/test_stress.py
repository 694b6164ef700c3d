from __future__ import annotations

import asyncio
import itertools
import json
import random
import statistics
import xml.etree.ElementTree as ElementTree

import pytest

from bls.contract import PREPROCESSING, ROUTER, TEXT_PIPELINE, contract_of
from bls.paths import ROOT
from scripts.bench.length_buckets import LengthBuckets
from scripts.stress import __main__ as stress
from scripts.stress.picture import draw
from scripts.stress.plan import BadPlan, load_mix, plan
from scripts.stress.report import Objective, Sample, report
from tests.fake_triton import FakeTriton
from tests.server import echo_repository


def run(*arguments):
    """The command beside a fake, which needs a loop of its own; the fake and the exit status."""

    async def whole():
        async with FakeTriton() as fake:
            return fake, await asyncio.to_thread(stress.main, [f"--url={fake.url}", *arguments])

    return asyncio.run(whole())


def mix_of(tmp_path, *lines):
    path = tmp_path / "mix.jsonl"
    path.write_text("\n".join(json.dumps(line) if isinstance(line, dict) else line for line in lines))
    return path


# What is sent, and when


def test_the_mix_that_comes_with_it_is_good_and_mixed():
    mix = load_mix(stress.MIX)
    assert {prompt.kind for prompt in mix} >= {"short", "medium", "long answer", "long prompt"}
    assert max(prompt.max_tokens for prompt in mix) >= 8 * min(prompt.max_tokens for prompt in mix)


def test_the_same_seed_plans_the_same_and_weights_and_rate_hold_on_average(tmp_path):
    mix = load_mix(mix_of(tmp_path, {"text": "a", "weight": 3, "times": 4}, {"text": "b", "kind": "rare"}))
    planned = plan(mix, 4000, 50.0, seed=7)
    assert planned == plan(mix, 4000, 50.0, seed=7) != plan(mix, 4000, 50.0, seed=8)
    assert mix[0].text == "aaaa"
    assert 0.7 < sum(each.prompt.kind == "all" for each in planned) / 4000 < 0.8
    gaps = [later.due_s - earlier.due_s for earlier, later in itertools.pairwise(planned)]
    assert 0.019 < statistics.mean(gaps) < 0.021
    assert 0.018 < statistics.stdev(gaps) < 0.022  # of an exponential distribution it is the mean
    assert {each.due_s for each in plan(mix, 10, None, seed=7)} == {0.0}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2 is not JSON"),
        ({"max_tokens": 5}, "line 2: text is missing"),
        ({"text": "a", "max_tokenz": 5}, "line 2: max_tokenz is not known"),
        ({"text": "a", "max_tokens": 0}, "line 2: max_tokens is 0; it must be a whole number from 1 to 100000"),
        ({"text": "a", "weight": -1}, "line 2: weight is -1; it must be a number > 0"),
    ],
)
def test_a_line_of_the_mix_that_is_wrong_is_named_and_nothing_is_sent(tmp_path, capsys, line, message):
    path = mix_of(tmp_path, {"text": "a"}, line)
    with pytest.raises(BadPlan, match="^" + str(path)):
        load_mix(path)
    fake, status = run(f"--mix={path}")
    assert (status, fake.started()) == (2, 0)
    assert capsys.readouterr().err == f"error: {path}, {message}\n"


def test_a_mix_that_is_not_there_is_said_in_one_line(tmp_path, capsys):
    assert stress.main([f"--mix={tmp_path / 'none'}"]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path / 'none'}: No such file or directory\n"


# The figures


def sample(**fields):
    return Sample(**{"kind": "short", "due_s": 1.0, "sent_s": 1.0, "ended_s": 2.0, **fields})


def test_latency_counts_from_when_a_request_was_due():
    late = sample(sent_s=1.8, arrivals_s=[1.9, 1.95, 2.0], tokens=6)
    assert (late.latency_ms, round(late.first_ms), [round(gap) for gap in late.gaps_ms]) == (1000, 900, [50, 50])
    assert round(late.token_ms) == 20
    assert sample().first_ms == 1000  # not streamed


@pytest.mark.parametrize(
    ("objective", "holds"),
    [
        (Objective(), True),
        (Objective(ttft_ms=500), True),
        (Objective(ttft_ms=499), False),
        (Objective(gap_ms=100, latency_ms=1000), True),
        (Objective(gap_ms=99), False),
        (Objective(latency_ms=999), False),
    ],
)
def test_a_request_is_good_if_it_keeps_every_limit(objective, holds):
    assert objective.holds(sample(arrivals_s=[1.5, 2.0], tokens=6)) is holds
    assert not objective.holds(sample(arrivals_s=[1.5, 2.0], tokens=6, error="BUSY"))


def test_the_report_counts_errors_by_kind_and_only_answers_have_latencies():
    samples = [sample(ended_s=1.0 + each, tokens=10) for each in (0.5, 1.0, 1.5)]
    samples += [sample(error="BUSY", ended_s=5.0), sample(error="BUSY", ended_s=1.1), sample(error="INTERNAL")]
    found = report(samples, Objective(latency_ms=1000), planned=7)
    assert (found["requests"], found["answered"], found["good"]) == (7, 3, 2)
    assert found["errors"] == {"BUSY": 2, "INTERNAL": 1, "NOT_SENT": 1}
    assert (found["seconds"], found["requests_per_second"], found["tokens_per_second"]) == (5.0, 0.6, 6.0)
    assert (found["latency_ms"]["p50"], found["latency_ms"]["max"]) == (1000.0, 1500.0)
    assert found["response_gap_ms"] == {}


def test_percentiles_are_those_of_the_values():
    values = [float(value) for value in range(1, 101)]
    random.Random(1).shuffle(values)
    found = report([sample(due_s=0.0, ended_s=value) for value in values], Objective(), 100)["latency_ms"]
    assert found == {"mean": 50500.0, "p50": 50500.0, "p90": 90100.0, "p99": 99010.0, "max": 100000.0}


def test_the_picture_is_well_formed_with_a_bar_for_each_part_of_a_request():
    samples = [sample(arrivals_s=[1.5]), sample(error="BUSY")]
    picture = ElementTree.fromstring(draw(samples, "a <title> & more"))
    texts = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert "a <title> & more" in texts
    colours = [element.get("fill") for element in picture.iter("{http://www.w3.org/2000/svg}rect")]
    assert len([colour for colour in colours if colour != "white"]) == 3


@pytest.mark.parametrize(("end", "ticks"), [(0.7, 7), (1.0, 10), (23.7, 4), (26.0, 5), (1e-6, 10), (3600, 7)])
def test_the_axis_has_round_numbers(end, ticks):
    picture = ElementTree.fromstring(draw([Sample("x", 0.0, error="BUSY", ended_s=end)], "title"))
    texts = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    numbers = [float(text.removesuffix(" s")) for text in texts if text.endswith(" s")]
    assert (len(numbers), numbers[0]) == (ticks + 1, 0)
    assert f"{numbers[1]:e}"[0] in "125"


@pytest.mark.parametrize("samples", [[], [Sample("short", 0.0, error="BUSY")]])
def test_a_picture_of_nothing_is_well_formed(samples):
    ElementTree.fromstring(draw(samples, "nothing"))


# The command


def test_each_request_is_answered_and_the_last_line_is_json(tmp_path, capsys):
    mix = mix_of(tmp_path, {"text": "one two three", "max_tokens": 10, "kind": "x"}, {"text": "one", "max_tokens": 3})
    picture, copy = tmp_path / "stress.svg", tmp_path / "stress.json"
    fake, status = run("--requests=40", f"--mix={mix}", f"--picture={picture}", f"--json={copy}", "--ttft-ms=60000")
    said = capsys.readouterr()
    found = json.loads(said.out.splitlines()[-1])
    assert (status, fake.started()) == (0, 40)
    assert (found["requests"], found["answered"], found["good"], found["errors"]) == (40, 40, 40, {})
    assert sum(group["answered"] for group in found["by_kind"].values()) == 40
    assert said.out.startswith("40 of 40 requests answered in ")
    assert "40 of 40 ended" in said.err or "40 ended" in said.err
    assert json.loads(copy.read_text()) == found
    ElementTree.parse(picture)


def test_the_concurrency_is_used_and_kept(tmp_path):
    samples, most_running = played(tmp_path, concurrency=3, requests=12, inputs={"seed": 30}, max_seconds=60)
    assert most_running == 3
    assert [each.error for each in samples] == [""] * 12


def test_half_an_answer_is_an_error(tmp_path):
    broken = {"seed": 1000 * echo_repository.FAILS_LATER}
    samples, _ = played(tmp_path, concurrency=2, requests=2, inputs=broken, max_seconds=60)
    assert [each.error for each in samples] == ["ENGINE_ERROR"] * 2


def played(tmp_path, concurrency, requests, inputs, max_seconds):
    """The samples of a stress test of one prompt, and how many requests ran at once at most."""

    async def whole():
        async with FakeTriton() as fake, stress.TritonAsyncClient(fake.url) as client:
            test = stress.StressTest(client, "llm_router", concurrency, inputs=inputs)
            mix = load_mix(mix_of(tmp_path, {"text": "one two three"}))
            await test.run(plan(mix, requests, None, 1), max_seconds)
            return test.samples, fake.most_running

    return asyncio.run(whole())


def test_errors_are_counted_by_kind_and_the_test_fails(tmp_path, capsys):
    async def whole():
        async with FakeTriton() as fake:
            fake.failures = [("UNAVAILABLE", "[BUSY] the queue is full", 0), ("INTERNAL", "broken", 1)]
            mix = mix_of(tmp_path, {"text": "one two", "max_tokens": 10})
            return await asyncio.to_thread(stress.main, [f"--url={fake.url}", "--requests=9", f"--mix={mix}"])

    assert asyncio.run(whole()) == 1
    said = capsys.readouterr().out
    assert json.loads(said.splitlines()[-1])["errors"] == {"BUSY": 1, "INTERNAL": 1}
    assert "failed with BUSY: 1" in said


def test_what_has_not_ended_in_time_is_cut_off_and_counted(tmp_path):
    silent = {"seed": 1000 * echo_repository.SILENT}
    samples, most_running = played(tmp_path, concurrency=4, requests=6, inputs=silent, max_seconds=0.5)
    assert [each.error for each in samples] == ["CUT_OFF"] * 4
    assert most_running == 4
    assert report(samples, Objective(), 6)["errors"] == {"CUT_OFF": 4, "NOT_SENT": 2}


@pytest.mark.parametrize("flag", ["--requests=0", "--requests=1000000", "--rate=0", "--max-seconds=100000"])
def test_numbers_without_bounds_are_refused(flag, capsys):
    with pytest.raises(SystemExit):
        stress.main([flag])
    assert flag.split("=")[0] in capsys.readouterr().err


# Near lengths together


def turns(lengths, size, wait_s):
    """The lengths in the order in which they were sent."""

    async def whole():
        buckets = LengthBuckets(size, wait_s)
        order = []

        async def send(length):
            await buckets.turn(length)
            order.append(length)

        await asyncio.gather(*map(send, lengths))
        return order

    return asyncio.run(whole())


def test_a_full_bucket_goes_at_once_and_holds_near_lengths_only():
    assert turns([50, 400, 60, 300, 51, 350, 61, 500], size=4, wait_s=60) == [50, 60, 51, 61, 400, 300, 350, 500]


def test_a_bucket_that_does_not_fill_goes_after_its_wait():
    assert sorted(turns([50, 400, 60], size=4, wait_s=0.01)) == [50, 60, 400]


def test_in_whatever_order_they_come_each_batch_holds_lengths_of_one_bucket():
    chance = random.Random(5)
    lengths = [chance.choice((50, 60, 120, 400)) for _ in range(4 * 50)]
    lengths += [
        each for each in (50, 120, 400) for _ in range(-sum(x.bit_length() == each.bit_length() for x in lengths) % 8)
    ]
    order = turns(lengths, size=8, wait_s=60)
    assert sorted(order) == sorted(lengths)
    for begin in range(0, len(order), 8):
        assert len({length.bit_length() for length in order[begin : begin + 8]}) == 1


def test_one_that_left_does_not_keep_the_others():
    async def whole():
        buckets = LengthBuckets(2, 60)
        left = asyncio.create_task(buckets.turn(50))
        await asyncio.sleep(0)
        left.cancel()
        await buckets.turn(51)

    asyncio.run(asyncio.wait_for(whole(), 10))


def test_the_command_can_send_near_lengths_together(tmp_path):
    mix = mix_of(tmp_path, {"text": "a", "max_tokens": 400}, {"text": "b", "max_tokens": 50})
    fake, status = run("--requests=32", "--bucket=4", f"--mix={mix}", "--seed=3", "--model=llama_7b_ensemble")
    assert (status, fake.started()) == (0, 32)


@pytest.mark.parametrize(
    ("name", "model"), [("router", ROUTER), ("tokenizer", PREPROCESSING), ("classifier", TEXT_PIPELINE)]
)
def test_the_prompts_for_perf_analyzer_name_inputs_of_their_model(name, model):
    rows = json.loads((ROOT / "scripts" / "stress" / f"perf_analyzer_{name}.json").read_text())["data"]
    known = contract_of(model).input_names
    assert rows and all(set(row) <= known and all(len(values) == 1 for values in row.values()) for row in rows)
