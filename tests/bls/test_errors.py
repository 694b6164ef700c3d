import pytest

from bls.errors import BadRequest, Busy, EngineFailed, EngineUnavailable, NotLoaded, TimedOut, from_message


def test_an_error_is_one_line_with_its_class_in_front():
    assert str(BadRequest("max_tokens is 0;\n  it must be more")) == "[BAD_REQUEST] max_tokens is 0; it must be more"


@pytest.mark.parametrize(
    "error", [BadRequest("a"), Busy("b"), EngineUnavailable("c"), TimedOut("d"), EngineFailed("e")]
)
def test_an_error_of_ours_survives_the_way_through_triton(error):
    again = from_message(str(error))
    assert (type(again), str(again)) == (type(error), str(error))


def test_what_is_neither_ours_nor_tritons_goes_to_the_log_alone(caplog):
    error = from_message("Executor failed: /src/decoder.cpp:12\n  0x7f stack")
    assert str(error) == "[INTERNAL] the engine failed; the server's log says why"
    assert "/src/decoder.cpp:12" in caplog.text


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("Failed for execute the inference request. Model 'llm' is not ready.", NotLoaded),
        ("Stub process 'llm_0_0' is not healthy.", EngineUnavailable),
        ("Exceeds maximum queue size", Busy),
        ("Request timeout expired", TimedOut),
        ("[WHAT] is this", EngineFailed),
        ("anything else", EngineFailed),
    ],
)
def test_tritons_own_words_are_understood(message, kind):
    assert type(from_message(message)) is kind
