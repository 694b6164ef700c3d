"""Bodies that nobody would write, and what any of them may be answered with."""

from __future__ import annotations

import http.client
import json

from hypothesis import HealthCheck
from hypothesis import strategies as st

from gateway.chat_body import ChatBody
from gateway.completions import CompletionBody
from gateway.embeddings import EmbeddingBody
from gateway.messages import CountBody, MessagesBody
from gateway.responses_body import ResponsesBody

BODIES = {
    "/v1/chat/completions": (ChatBody, {"model": "auto", "messages": [{"role": "user", "content": "hi"}]}),
    "/v1/completions": (CompletionBody, {"model": "auto", "prompt": "hi"}),
    "/v1/embeddings": (EmbeddingBody, {"model": "text-classifier-embedding", "input": "hi"}),
    "/v1/responses": (ResponsesBody, {"model": "auto", "input": "hi"}),
    "/v1/messages": (MessagesBody, {"model": "auto", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}),
    "/v1/messages/count_tokens": (CountBody, {"model": "auto", "messages": [{"role": "user", "content": "hi"}]}),
}
TEXTS = st.text(max_size=12)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
    | st.sampled_from(["auto", "small", "user", "system", "text", "json_object", "json_schema", "none", "required", ""])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            TEXTS | st.sampled_from(["role", "content", "type", "text", "function", "name"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)
# The echoes' seeds that mean "say nothing, ever", "go on for ever" or "a second for a token" are no fault of a body.
SEEDS = st.integers(-5, 5) | st.integers(2**63, 2**65)


@st.composite
def requests(draw):
    """A path and a body that is mostly right: some fields of it are anything."""
    path = draw(st.sampled_from(sorted(BODIES)))
    kind, right = BODIES[path]
    names = st.sampled_from([name for name in kind.__struct_fields__ if name != "seed"])
    body = {**right, **draw(st.dictionaries(names | TEXTS, VALUES, max_size=5))}
    if draw(st.booleans()) and "seed" in kind.__struct_fields__:
        body["seed"] = draw(SEEDS)
    if body.get("min_tokens") or body.get("max_tokens") is None:
        body.pop("min_tokens", None)
    return path, json.dumps(body).encode("utf-8", "surrogatepass")


def check(gateway, path, body):
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
    try:
        connection.request("POST", path, body, {"content-type": "application/json"})
        response = connection.getresponse()
        text = response.read().decode()
    finally:
        connection.close()
    assert response.status in (200, 400, 404), (path, body, response.status, text)
    if response.status == 200:
        assert "server_error" not in text, (path, body, text)
    else:
        assert json.loads(text)["error"]["message"]


FUZZ = {"deadline": None, "suppress_health_check": list(HealthCheck)}
