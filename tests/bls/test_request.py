import re

import numpy as np
import pytest

from bls.contract import ROUTER_CONTRACT
from bls.errors import BadRequest
from bls.request import Defaults, parse
from tests.fakes import request


def message(**tensors):
    with pytest.raises(BadRequest) as caught:
        request(**tensors)
    return str(caught.value)


def test_what_is_not_given_takes_the_peers_defaults_but_for_the_echo():
    parsed = request("hi", 5)
    assert (parsed.text, parsed.max_tokens, parsed.stream, parsed.echo) == ("hi", 5, False, False)
    assert parsed.stop_words == parsed.bad_words == ()
    assert parsed.sampling == {}


def test_a_missing_mandatory_input_is_named():
    assert message(text=None) == "[BAD_REQUEST] text_input is missing"
    assert message(max_tokens=None) == "[BAD_REQUEST] max_tokens is missing"


@pytest.mark.parametrize("max_tokens", [0, -2])
def test_max_tokens_below_one_is_refused_with_its_value(max_tokens):
    assert message(max_tokens=max_tokens) == (
        f"[BAD_REQUEST] max_tokens is {max_tokens}; it must be a single value > 0"
    )


def test_several_values_for_a_single_one_are_refused():
    assert message(max_tokens=[1, 2]) == "[BAD_REQUEST] max_tokens holds 2 values; it must be a single value"
    assert "text_input holds 2 values" in message(text=["a", "b"])


def test_an_empty_prompt_is_refused():
    assert message(text="") == "[BAD_REQUEST] text_input is empty"


def test_messages_take_the_place_of_text_input():
    assert request(text=None, messages='[{"role":"user","content":"hi"}]').messages
    assert request(text="", messages="[]").messages == "[]"
    assert "both given" in message(text="hi", messages="[]")


def test_text_that_is_not_utf8_is_refused_by_name():
    assert message(text=b"\xff\xfe") == "[BAD_REQUEST] text_input is not valid UTF-8 (byte 0)"
    assert message(stop_words=[b"\xff"]) == "[BAD_REQUEST] stop_words is not valid UTF-8 (byte 0)"


@pytest.mark.parametrize("count", ["beam_width", "num_return_sequences"])
def test_more_than_one_answer_is_refused_with_the_limit(count):
    assert request(**{count: 1}).max_tokens == 16
    assert message(**{count: 2}) == f"[BAD_REQUEST] {count} is 2; llm_router supports 1"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("image_url_input", "file:x.png"),
        ("decoder_text_input", "x"),
        ("lora_task_id", 7),
        ("embedding_bias_words", ["a"]),
        ("return_context_logits", True),
        ("use_draft_logits", True),
        ("prompt_embedding_table", np.ones((1, 2, 2), np.float16)),
    ],
)
def test_what_the_router_can_not_honour_is_refused_by_name(name, value):
    assert message(**{name: value}) == f"[BAD_REQUEST] {name} is not supported by llm_router"


def test_the_same_inputs_are_taken_when_they_say_nothing():
    request(image_url_input="", return_context_logits=False, num_draft_tokens=0, embedding_bias_words=[""])


@pytest.mark.parametrize("words", ["END", ["END"], ["END", ""]])
def test_stop_words_are_a_string_or_a_list_and_empty_ones_are_ignored(words):
    assert request(stop_words=words).stop_words == ("END",)


def test_too_many_and_too_long_words_are_refused_with_the_limit():
    assert message(stop_words=["a"] * 65) == "[BAD_REQUEST] stop_words holds 65 words; at most 64 are taken"
    assert message(bad_words="a" * 257) == (
        "[BAD_REQUEST] bad_words holds a word of 257 characters; at most 256 are taken"
    )


def test_sampling_goes_to_the_engine_under_its_names():
    sampling = request(top_k=3, temperature=0.5, length_penalty=1.0).sampling
    assert {name: array.tolist() for name, array in sampling.items()} == {
        "runtime_top_k": [[3]],
        "temperature": [[0.5]],
        "len_penalty": [[1.0]],
    }


def test_an_unknown_parameter_is_named_with_what_was_probably_meant():
    assert message(parameters={"max_tokenz": 5}) == (
        "[BAD_REQUEST] max_tokenz is not an input or parameter of llm_router; did you mean max_tokens?"
    )
    assert message(parameters={"zzz": 1}) == "[BAD_REQUEST] zzz is not an input or parameter of llm_router"
    assert message(parameters={"": 1}) == "[BAD_REQUEST] '' is not an input or parameter of llm_router"
    assert message(parameters={"top_k ": 1}).startswith("[BAD_REQUEST] 'top_k ' is not an input")


def test_parameters_of_triton_and_its_clients_are_taken():
    request(parameters={"triton_enable_empty_final_response": True, "id": "a", "priority": 1})


@pytest.mark.parametrize("timeout", [-1, 1.5, "300000", True])
def test_a_timeout_that_is_no_number_of_microseconds_is_refused(timeout):
    assert message(parameters={"timeout": timeout}).startswith(f"[BAD_REQUEST] timeout is {timeout!r}")


def test_the_timeout_comes_from_the_scheduler_or_from_the_parameter():
    text = {"text_input": np.array([[b"hi"]], object), "max_tokens": np.array([[1]], np.int32)}
    everything = ROUTER_CONTRACT.output_names
    assert parse(text, {}, everything, timeout_us=250_000).timeout_seconds == 0.25
    assert parse(text, {"timeout": 300_000}, everything).timeout_seconds == 0.3
    assert parse(text, {}, everything).timeout_seconds is None


def test_without_named_outputs_an_answer_holds_what_a_reader_needs():
    assert request().outputs == {"text_output", "finish_reason"}


def test_flags_and_names_bring_further_outputs():
    assert request(return_route_info=True, return_num_input_tokens=True).outputs == {
        "text_output",
        "finish_reason",
        "model",
        "reason",
        "words_version",
        "verdict",
        "verdict_reason",
        "route_info",
        "num_input_tokens",
    }
    assert request(requested={"text_output", "model"}).outputs == {"text_output", "model"}
    assert request(requested={"text_output"}, return_num_output_tokens=True).outputs == {
        "text_output",
        "num_output_tokens",
    }


def test_log_probs_come_only_when_they_were_asked_for():
    assert "cum_log_probs" not in request(requested={"text_output", "cum_log_probs"}).outputs
    assert {"cum_log_probs", "output_log_probs"} <= request(return_log_probs=True).outputs


def read(parameters=None, defaults=None, template_names=("enable_thinking", "documents_first"), **tensors):
    arrays = {
        name: np.array([[value]]) for name, value in {"text_input": b"hi", **tensors}.items() if value is not None
    }
    everything = ROUTER_CONTRACT.output_names
    more = {"template_names": template_names, **({"defaults": defaults} if defaults else {})}
    return parse(arrays, parameters or {}, everything, **more)


def test_what_the_config_says_holds_for_requests_that_do_not():
    defaults = Defaults(apply_chat_template=True, max_tokens=64)
    assert (read(defaults=defaults).apply_chat_template, read(defaults=defaults).max_tokens) == (True, 64)
    said = read(defaults=defaults, apply_chat_template=False, max_tokens=3)
    assert (said.apply_chat_template, said.max_tokens) == (False, 3)


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("runtime_top_k", "top_k", 4),
        ("runtime_top_p", "top_p", 0.5),
        ("random_seed", "seed", 7),
        ("min_length", "min_tokens", 2),
    ],
)
def test_old_names_are_taken_as_what_they_are_today(old, new, value):
    by_old, by_new = read(max_tokens=5, **{old: value}), read(max_tokens=5, **{new: value})
    assert by_old.sampling == by_new.sampling != {}
    with pytest.raises(BadRequest, match=f"{old} and {new} are both given; {old} is the old name of {new}"):
        read(max_tokens=5, **{old: value, new: value})


@pytest.mark.parametrize(("name", "value"), [("beam_width", 1), ("num_draft_tokens", 0)])
def test_what_asks_for_nothing_is_taken(name, value):
    assert read(max_tokens=5, **{name: value}) == read(max_tokens=5)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("max_new_tokens", "max_tokens"), ("streaming", "stream"), ("stop", "stop_words"), ("prompt", "text_input")],
)
def test_the_names_of_other_servers_are_told_ours(theirs, ours):
    assert message(parameters={theirs: 1}) == f"[BAD_REQUEST] {theirs} is called {ours} here"


def test_a_request_may_tell_the_chat_template_what_the_policy_lets_it():
    chat = {"max_tokens": 5, "apply_chat_template": True}
    assert read({"enable_thinking": False}, **chat).template_values == {"enable_thinking": False}
    kwargs = {"chat_template_kwargs": '{"documents_first": true}', "enable_thinking": True}
    assert read(kwargs, **chat).template_values == {"documents_first": True, "enable_thinking": True}


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ({"chat_template_kwargs": "{"}, "chat_template_kwargs is not JSON"),
        ({"chat_template_kwargs": "[]"}, "chat_template_kwargs must be an object of names and values"),
        ({"chat_template_kwargs": 1}, "chat_template_kwargs must be a JSON object as text"),
        ({"chat_template_kwargs": '{"messages": 1}'}, "sets 'messages', which is no variable that may be set"),
        (
            {"chat_template_kwargs": '{"enable_thinking": []}'},
            "sets enable_thinking to what is no boolean, number or text",
        ),
        ({"chat_template_kwargs": " " * 1025}, "chat_template_kwargs has 1025 characters; at most 1024 are taken"),
        (
            {"chat_template_kwargs": '{"mood": 1}'},
            "may not set mood; TEMPLATE_VALUES of the policy allows enable_thinking",
        ),
        ({"enable_thinking": "no"}, "enable_thinking is 'no'; it must be true or false"),
    ],
)
def test_what_it_may_not_is_refused_by_name(parameters, complaint):
    with pytest.raises(BadRequest, match=re.escape(complaint)):
        read(parameters, max_tokens=5, apply_chat_template=True)
    with pytest.raises(BadRequest, match="has no effect: send messages, or apply_chat_template with text_input"):
        read({"enable_thinking": False}, max_tokens=5)


@pytest.mark.parametrize("tiny", [{"temperature": 0.0}, {"temperature": 1e-40}, {"top_p": 1e-12, "temperature": 0.7}])
def test_what_no_arithmetic_can_tell_from_greedy_goes_to_the_engine_as_greedy(tiny):
    sampling = {name: array.item() for name, array in request(**tiny, seed=3).sampling.items()}
    left = {"temperature": pytest.approx(0.7)} if "top_p" in tiny else {}
    assert sampling == {"runtime_top_k": 1, "seed": 3, **left}


@pytest.mark.parametrize("name", ["temperature", "top_p", "repetition_penalty", "frequency_penalty", "length_penalty"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_float_that_is_no_number_is_refused_by_its_name(name, value):
    assert message(**{name: value}) == f"[BAD_REQUEST] {name} is {value}; it must be a finite number"


@pytest.mark.parametrize(
    ("value", "sent"), [(1e-40, 1e-6), (3e38, 1e6), (1.5, 1.5), (1e-6, 1e-6), (0.0, 0.0), (-1e-40, -1e-40)]
)
def test_a_penalty_beyond_the_arithmetic_goes_to_the_engine_as_the_nearest_that_is_not(value, sent):
    (array,) = request(repetition_penalty=value).sampling.values()
    assert array.dtype == np.float32 and array.item() == np.float32(sent)


@pytest.mark.parametrize("value", [-1.0, 0.001])
def test_other_temperatures_are_left_to_the_engine(value):
    assert set(request(temperature=value).sampling) == {"temperature"}
