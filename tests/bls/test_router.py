from types import SimpleNamespace

import numpy as np
import pytest

from bls import engine_process, request_log
from bls.contract import LARGE, SMALL
from bls.errors import BadRequest, Busy, EngineFailed, EngineUnavailable
from bls.router import Router
from bls.routing.admission import Admission
from bls.routing.policy_file import SHIPPED, load_policy
from bls.routing.route import Routing
from bls.routing.shared_table import SharedTable
from bls.watcher import Watch
from tests.fakes import FAILURE, FakeEngines, FakeMetrics, FakeModels, patient_watch, request


def answer(models, given, engines=None, watch=None, metrics=None, accumulate=False, words=None, safety=None):
    router = Router(models, engines or FakeEngines(), metrics or FakeMetrics(), words, safety, accumulate)
    return list(router.answer(given, watch or patient_watch()))


def texts(replies):
    return [reply.text for reply in replies]


def test_streams_each_response_as_a_delta_and_ends_with_a_reason():
    replies = answer(FakeModels({SMALL: ["Pa", "ris"]}), request(stream=True))
    assert texts(replies) == ["Pa", "ris", ""]
    assert [reply.finish_reason for reply in replies] == ["", "", "stop"]
    assert sum(reply.output_tokens for reply in replies) == 5


def test_answers_in_one_piece_without_stream():
    (reply,) = answer(FakeModels({SMALL: ["Pa", "ris"]}), request())
    assert (reply.text, reply.finish_reason, reply.output_tokens) == ("Paris", "stop", 5)


def test_the_end_rides_on_the_last_tokens_when_the_length_is_reached():
    replies = answer(FakeModels({SMALL: ["Pa", "ris"]}), request(max_tokens=5, stream=True))
    assert texts(replies) == ["Pa", "ris"]
    assert replies[-1].finish_reason == "length"


def test_an_engine_that_gives_nothing_still_ends_the_stream_once():
    for responses in ([], [[]]):
        (reply,) = answer(FakeModels({SMALL: responses}), request(stream=True))
        assert (reply.text, reply.finish_reason) == ("", "stop")


def test_an_empty_answer_says_why():
    (raw,) = answer(FakeModels({SMALL: []}), request())
    assert raw.empty_because.endswith("without a chat template (apply_chat_template)")
    (chat,) = answer(FakeModels({SMALL: []}), request(apply_chat_template=True))
    assert chat.empty_because == "the model ended its answer at once"
    assert not any(reply.empty_because for reply in answer(FakeModels({SMALL: ["Pa"]}), request(stream=True)))


def test_without_a_limit_an_answer_has_the_room_that_the_prompt_leaves_and_is_not_taken_for_a_long_one():
    models = FakeModels({SMALL: ["x" * 40]}, context=8192)
    (reply,) = answer(models, request("x" * 60, max_tokens=-1), FakeEngines(small_context=100))
    (call,) = models.engine_calls()
    assert (call[0], call[2]["request_output_len"].item()) == (SMALL, 40)
    assert (reply.decision.reason, reply.finish_reason) == ("default", "length")


def test_the_first_of_several_pieces_tells_the_route_already():
    first, between, last = answer(FakeModels({SMALL: ["Pa", "ris"]}), request(stream=True))
    outputs = frozenset(["text_output", "model", "reason", "finish_reason"])
    assert set(first.tensors(outputs)) == {"text_output", "model", "reason"}
    assert set(between.tensors(outputs)) == {"text_output"}
    assert set(last.tensors(outputs)) == outputs


def test_accumulates_the_text_when_it_is_told_to():
    assert texts(answer(FakeModels(), request(stream=True), accumulate=True)) == ["Pa", "Paris", "Paris"]
    assert texts(answer(FakeModels(), request(), accumulate=True)) == ["Paris"]


def test_a_long_prompt_goes_to_the_large_engine():
    models = FakeModels()
    (reply,) = answer(models, request("x" * 513))
    assert (reply.decision.model, reply.decision.reason) == (LARGE, "long_prompt")
    assert reply.input_tokens == 513


def test_engines_with_one_tokenizer_cost_one_call_and_others_one_each():
    for own_tokenizers, calls in ((False, 1), (True, 2)):
        models = FakeModels()
        answer(models, request(), FakeEngines(own_tokenizers=own_tokenizers))
        assert sum(model == "preprocessing" for model, _, _ in models.calls) == calls


def test_a_request_over_both_contexts_is_refused_with_the_numbers_before_an_engine_runs():
    models = FakeModels()
    with pytest.raises(BadRequest) as caught:
        answer(models, request("x" * 60, max_tokens=50), FakeEngines(small_context=64, large_context=100))
    assert str(caught.value) == (
        "[BAD_REQUEST] the prompt has 60 tokens and max_tokens is 50, together 110; "
        "the context of tensorrt_llm_large holds 100"
    )
    assert models.engine_calls() == []


@pytest.mark.parametrize("error", [EngineUnavailable("gone"), Busy("queue full"), EngineFailed("broke")])
def test_falls_back_before_the_first_token(error):
    (reply,) = answer(FakeModels({SMALL: [error], LARGE: ["ok"]}), request())
    assert (reply.text, reply.decision.model, reply.decision.reason) == ("ok", LARGE, "small_unavailable")


def test_does_not_start_over_once_the_engine_took_the_request():
    models = FakeModels({SMALL: ["Pa", EngineFailed("broke")], LARGE: ["ok"]})
    replies = answer(models, request(stream=True))
    assert texts(replies) == ["Pa", ""]
    assert replies[-1].finish_reason == "engine_error"
    assert [model for model, _, _ in models.engine_calls()] == [SMALL]


def test_tries_each_engine_once():
    models = FakeModels({SMALL: [EngineFailed("a")], LARGE: [EngineFailed("b")]})
    with pytest.raises(EngineFailed, match="b"):
        answer(models, request())
    assert [model for model, _, _ in models.engine_calls()] == [SMALL, LARGE]


def test_a_bad_request_is_the_callers_and_is_not_tried_elsewhere():
    models = FakeModels({SMALL: [BadRequest("temperature is -1.0")], LARGE: ["ok"]})
    with pytest.raises(BadRequest, match="temperature"):
        answer(models, request())
    assert len(models.engine_calls()) == 1


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("pieces", [["xEN", "Dy", "more"], ["x", "E", "N", "D", "y"], ["xENDy", "more"]])
def test_the_text_ends_right_before_a_stop_word_and_the_engine_is_stopped_at_once(pieces, stream):
    models = FakeModels({SMALL: pieces})
    replies = answer(models, request(stop_words=["END", "EN!"], stream=stream))
    assert "".join(texts(replies)) == "x"
    assert replies[-1].finish_reason == "stop_word"
    (call,) = models.engine_calls()
    assert models.stopped == [call[1]]
    assert models.sent == 1 + next(n for n in range(len(pieces)) if "END" in "".join(pieces[: n + 1]))
    assert models.closed == 1


def test_a_piece_never_holds_the_start_of_a_stop_word():
    assert texts(answer(FakeModels({SMALL: ["aE", "Nb", "c"]}), request(stop_words=["END"], stream=True))) == [
        "a",
        "ENb",
        "c",
        "",
    ]


def test_held_text_comes_out_when_the_answer_ends():
    assert texts(answer(FakeModels({SMALL: ["aE"]}), request(stop_words=["END"], stream=True))) == ["a", "E"]


def test_a_bad_word_ends_the_text_before_it():
    replies = answer(FakeModels({SMALL: ["so damn", " good"]}), request(bad_words=["damn"], stream=True))
    assert "".join(texts(replies)) == "so "
    assert replies[-1].finish_reason == "bad_word"


def test_words_in_an_echoed_prompt_do_not_end_the_answer():
    given = request("say END", exclude_input_in_output=False, stop_words=["END"], stream=True)
    assert "".join(texts(answer(FakeModels({SMALL: ["ok"]}), given))) == "say ENDok"


@pytest.mark.parametrize("stream", [True, False])
def test_the_echo_is_the_same_streamed_and_not(stream):
    given = request("hi ", exclude_input_in_output=False, stream=stream)
    assert "".join(texts(answer(FakeModels(), given))) == "hi Paris"


def test_each_engine_call_has_an_id_of_its_own():
    models = FakeModels()
    for _ in range(2):
        answer(models, request())
    first, second = (call[1] for call in models.engine_calls())
    assert first and second and first != second


def test_a_client_that_left_before_the_engine_was_called_costs_no_engine_call():
    models = FakeModels()
    replies = answer(models, request(), watch=Watch(lambda: True, 1000.0, lambda outcome: None))
    assert [reply.finish_reason for reply in replies] == ["cancelled"]
    assert models.engine_calls() == []


def test_a_deadline_that_passes_in_mid_stream_ends_it_with_what_was_sent():
    watch = patient_watch()

    def late():
        watch.outcome = "timeout"
        return "b"

    replies = answer(FakeModels({SMALL: ["a", late, "c"]}), request(stream=True), watch=watch)
    assert "".join(texts(replies)) == "ab"
    assert replies[-1].finish_reason == "timeout"


def test_an_engine_that_calls_its_stop_an_error_still_ends_the_stream_well():
    for first in ([], ["a"]):
        watch = patient_watch()

        def stopped(watch=watch):
            watch.outcome = "timeout"
            return EngineFailed("stopped")

        replies = answer(FakeModels({SMALL: [*first, stopped]}), request(stream=True), watch=watch)
        assert replies[-1].finish_reason == "timeout"


def test_log_probs_follow_their_tokens_streamed_or_not():
    models = FakeModels({SMALL: ["Pa", "ris"]})
    (reply,) = answer(models, request(return_log_probs=True))
    assert reply.log_probs["output_log_probs"].tolist() == [[[0.0, 0.0, -1.0, -1.0, -1.0]]]
    assert reply.log_probs["cum_log_probs"].tolist() == [[-1.0]]
    streamed = answer(models, request(return_log_probs=True, stream=True))
    assert np.concatenate([r.log_probs["output_log_probs"] for r in streamed if r.log_probs], axis=-1).shape == (
        1,
        1,
        5,
    )


def test_the_metrics_count_each_request_once_by_model_reason_and_finish():
    metrics = FakeMetrics()
    answer(FakeModels(), request(), metrics=metrics)
    answer(FakeModels({LARGE: ["x"]}), request(), metrics=metrics)
    with pytest.raises(EngineUnavailable):
        answer(FakeModels({}), request(), metrics=metrics)
    counted = {key[1:]: value for key, value in metrics.values.items() if key[0] == request_log.REQUESTS}
    assert counted == {
        ("default", "stop", SMALL): 1,
        ("small_unavailable", "stop", LARGE): 1,
        ("none", "none", "unavailable"): 1,
    }
    assert metrics.values[(request_log.IN_FLIGHT,)] == 0
    assert metrics.values[(request_log.OUTPUT_TOKENS, SMALL)] == 5
    assert metrics.seen == {(request_log.FIRST_TOKEN, SMALL): 1, (request_log.FIRST_TOKEN, LARGE): 1}


@pytest.mark.parametrize("is_abandoned", [False, True])
def test_the_request_of_a_process_that_died_is_in_flight_until_another_takes_its_place(tmp_path, is_abandoned):
    metrics = FakeMetrics()  # which all processes of a server share

    def process() -> tuple[Router, SharedTable]:
        table = SharedTable(tmp_path / "table")
        return Router(FakeModels(), FakeEngines(), metrics, routing=Routing(admission=Admission(table))), table

    router, table = process()
    begun = router.answer(request(stream=True), patient_watch())
    next(begun)
    assert metrics.values[(request_log.IN_FLIGHT,)] == 1
    if is_abandoned:  # its engine died, so that it hangs
        router.abandon()
        assert metrics.values[(request_log.IN_FLIGHT,)] == 0
    table.close()  # as the end of the process would
    process()
    assert metrics.values[(request_log.IN_FLIGHT,)] == 0
    begun.close()


def test_a_refusal_of_a_model_behind_names_the_field_as_the_client_sent_it():
    refusal = BadRequest("runtime_top_p is 1.5; with request_output_len 4")
    with pytest.raises(BadRequest, match=r"\[BAD_REQUEST\] top_p is 1.5; with max_tokens 4"):
        answer(FakeModels({SMALL: [refusal]}), request())


def test_a_request_that_could_not_be_read_is_counted_and_logged(caplog):
    caplog.set_level("INFO")
    metrics = FakeMetrics()
    Router(FakeModels(), FakeEngines(), metrics).refuse("a", BadRequest("max_tokens is missing"))
    assert metrics.values[request_log.REQUESTS, "bad_request", "none", "none"] == 1
    assert "finish=bad_request" in caplog.text


def test_the_log_line_never_holds_the_prompt_or_the_answer(caplog):
    caplog.set_level("INFO")
    answer(FakeModels({SMALL: ["secret answer"]}), request("secret prompt"))
    (line,) = [entry.getMessage() for entry in caplog.records]
    assert "secret" not in line
    assert "model=tensorrt_llm_small reason=default finish=stop input_tokens=13 output_tokens=13" in line


def test_a_failure_that_an_engine_sends_as_data_ends_the_stream_with_what_was_sent():
    replies = answer(FakeModels({SMALL: ["Pa", FAILURE]}), request(stream=True))
    assert (texts(replies), replies[-1].finish_reason) == (["Pa", ""], "engine_error")


@pytest.mark.parametrize("stop_words", [None, ["END"]])
def test_an_engine_that_breaks_before_anything_was_sent_is_an_error(stop_words):
    with pytest.raises(EngineFailed, match="mid-stream"):
        answer(FakeModels({SMALL: ["Pa", FAILURE]}), request(stop_words=stop_words))
    with pytest.raises(EngineFailed, match="mid-stream"):
        answer(FakeModels({SMALL: [[], FAILURE]}), request(stream=True))


def test_thoughts_are_cut_out_where_the_policy_says_so_and_an_answer_of_thoughts_alone_says_why():
    policy = load_policy(SHIPPED, SHIPPED.read_bytes() + b'THINKING = "cut"\n')
    routing = Routing(SimpleNamespace(current=policy))

    def texts_of(given, *pieces):
        router = Router(FakeModels({SMALL: list(pieces)}), FakeEngines(), FakeMetrics(), routing=routing)
        return list(router.answer(given, patient_watch()))

    streamed = texts_of(request(stream=True, max_tokens=99), "<thi", "nk>Hm", ".</think", ">\n\nPa", "ris")
    assert [reply.text for reply in streamed] == ["Pa", "ris", ""]
    (inside,) = texts_of(request("Why? <think>\n", max_tokens=99), "Hm.</think>\nParis")
    assert inside.text == "Paris"
    (empty,) = texts_of(request(max_tokens=5), "<think")
    assert (empty.text, empty.finish_reason) == ("", "length")
    assert empty.empty_because.startswith("the model's answer has no text; THINKING")


class AskedModels(FakeModels):
    def stream(self, model, tensors, outputs, request_id):
        self.asked_for = outputs
        yield from super().stream(model, tensors, outputs, request_id)


def test_an_engine_of_this_server_is_asked_for_ids_alone_and_its_failure_as_data_is_an_id(monkeypatch):
    served = SimpleNamespace(is_gone=False)
    monkeypatch.setattr(engine_process, "of", lambda model: served if model == SMALL else None)
    models = AskedModels({SMALL: ["Pa", "ris", []]})
    replies = answer(models, request(stream=True))
    assert models.asked_for == ["output_ids"]
    assert ("".join(texts(replies)), replies[-1].finish_reason) == ("Paris", "stop")
    replies = answer(AskedModels({SMALL: ["Pa", FAILURE]}), request(stream=True))
    assert (texts(replies), replies[-1].finish_reason) == (["Pa", ""], "engine_error")
    models = AskedModels({SMALL: [EngineUnavailable("gone")], LARGE: ["ok"]})
    answer(models, request(stream=True))
    assert models.asked_for == ["output_ids", "sequence_length"]
