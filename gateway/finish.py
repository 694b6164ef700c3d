"""How answers end: the router's words, OpenAI's, Anthropic's."""

from __future__ import annotations

import msgspec

from gateway import router_errors
from gateway.ask import Piece
from gateway.failures import Broken, Failure

OPENAI = {
    "stop": "stop",
    "stop_word": "stop",
    "length": "length",
    "timeout": "length",
    "bad_word": "content_filter",
    "filtered": "content_filter",
    "refused": "content_filter",
}
ANTHROPIC = {
    "stop": "end_turn",
    "stop_word": "stop_sequence",
    "length": "max_tokens",
    "timeout": "max_tokens",
    "bad_word": "refusal",
    "filtered": "refusal",
    "refused": "refusal",
}


def note_hidden(piece: Piece) -> None:
    """A structured answer in which the word lists hid something may be no JSON any more, so it ends as filtered:
    OpenAI's own clients then say so, where they would else fail at its text."""
    if piece.route_info and msgspec.json.decode(piece.route_info).get("filtered_json"):
        piece.finish = "filtered"


def check(piece: Piece, refusals_are_errors: bool) -> None:
    """Raises a Failure for a piece that ends an answer as no answer should end."""
    if piece.finish == "refused" and refusals_are_errors:
        raise router_errors.refused(f"{piece.text} ({piece.reason})")
    if piece.finish and piece.finish not in OPENAI:
        raise failure_of(piece.finish)


def failure_of(finish: str) -> Failure:
    if finish == "engine_error":
        return Broken("the engine broke in the middle of the answer; what came before is all there is")
    return Broken(f"the answer ended as {finish[:32]}")


def stop_reason(piece: Piece, stops: tuple[str, ...]) -> str | None:
    """The word that ended the answer, as far as that is known (vLLM's field), or that its time had run out."""
    if piece.finish == "timeout":
        return "timeout"
    return stops[0] if piece.finish == "stop_word" and len(stops) == 1 else None
