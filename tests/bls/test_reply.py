import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bls.contract import ROUTER_CONTRACT
from bls.reply import UNASKED_FOR, PieceTensors, Reply, accumulated, joined
from bls.routing.decision import Decision

EVERYTHING = ROUTER_CONTRACT.output_names


def test_only_wanted_outputs_are_made():
    reply = Reply("hi", 2, finish_reason="stop", decision=Decision("m", "r"), input_tokens=3)
    assert set(reply.tensors(frozenset({"text_output"}))) == {"text_output"}
    assert set(reply.tensors(EVERYTHING)) == {
        "text_output",
        "finish_reason",
        "model",
        "reason",
        "route_info",
        "num_input_tokens",
        "num_output_tokens",
    }


def test_every_output_is_declared_and_has_the_shape_that_nvidias_has_at_run_time():
    reply = Reply("hi", 2, {"cum_log_probs": np.zeros((1, 1), np.float32)}, "stop", Decision("m", "r"), 3)
    declared = {tensor.name: tensor for tensor in ROUTER_CONTRACT.outputs}
    for name, array in reply.tensors(EVERYTHING).items():
        assert array.shape == ((1,) if declared[name].datatype == "TYPE_STRING" else (1, 1)), name


def test_only_the_last_piece_tells_why_it_ended_and_who_answered():
    assert set(
        Reply("hi", decision=Decision("m", "r")).tensors(frozenset({"text_output", "finish_reason", "model"}))
    ) == {"text_output"}


def test_joined_says_what_all_pieces_said():
    whole = joined([Reply("a", 1), Reply("b", 2, finish_reason="length", input_tokens=4)])
    assert (whole.text, whole.output_tokens, whole.finish_reason, whole.input_tokens) == ("ab", 3, "length", 4)


def test_accumulated_repeats_the_text_but_not_the_counts():
    pieces = list(accumulated([Reply("a", 1), Reply("b", 2)]))
    assert [(piece.text, piece.output_tokens) for piece in pieces] == [("a", 1), ("ab", 2)]


def test_an_empty_answer_says_why_to_whoever_names_no_outputs_or_the_route():
    reply = Reply(finish_reason="stop", decision=Decision("m", "r"), empty_because="it ended")
    for outputs in (UNASKED_FOR, EVERYTHING):
        assert json.loads(reply.tensors(outputs)["route_info"][0])["empty"] == "it ended"
    assert set(reply.tensors(frozenset({"text_output"}))) == {"text_output"}


replies = st.builds(
    Reply,
    text=st.text(max_size=5),
    output_tokens=st.integers(0, 9),
    log_probs=st.sampled_from([{}, {"cum_log_probs": np.zeros((1, 1), np.float32)}]),
    finish_reason=st.sampled_from(["", "", "stop"]),
    decision=st.just(Decision("m", "r")),
    input_tokens=st.integers(0, 9),
    verdict=st.just(("allow", "clean")),
    is_first=st.booleans(),
)


@given(st.lists(replies, max_size=6), st.sets(st.sampled_from(sorted(EVERYTHING))).map(frozenset))
def test_a_piece_has_the_same_tensors_whether_they_are_made_for_it_or_filled_anew(pieces, outputs):
    made = PieceTensors(outputs)
    for piece in pieces:
        found, expected = made.of(piece), piece.tensors(outputs)
        assert {name: (array.dtype, array.tolist()) for name, array in found.items()} == {
            name: (array.dtype, array.tolist()) for name, array in expected.items()
        }
