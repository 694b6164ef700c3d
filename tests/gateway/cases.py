"""What the gateway does with whatever answers as llm_router does: the stand-in, and the real server with echo engines.

A class of tests gives `self.gateway` and `self.stopped()`, the number of answers that were stopped before their end.
"""

from __future__ import annotations

import pytest

from tests.gateway.gateway_process import opened
from tests.server.echo_repository import ENDLESS, FAILS_FIRST, FAILS_LATER, SILENT
from tests.waiting import eventually

PROMPT = "one two three four five"
LONG = {"max_tokens": 4000, "seed": ENDLESS * 1000 + 5}


class GatewayCases:
    def test_a_whole_answer_is_the_engines(self):
        reply = self.gateway.complete(PROMPT)
        assert reply.status == 200, reply
        (choice,) = reply.json["choices"]
        assert (choice["text"], choice["finish_reason"]) == (PROMPT, "stop")
        assert reply.json["usage"]["completion_tokens"] == 5

    def test_a_stream_has_its_parts_in_their_order(self):
        reply = self.gateway.chat(PROMPT, stream=True, stream_options={"include_usage": True}, max_tokens=60)
        assert reply.headers["content-type"].startswith("text/event-stream")
        *chunks, usage, done = reply.events
        assert done == "[DONE]"
        assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        assert PROMPT in "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
        assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
        assert chunks[-1]["choices"][0]["finish_reason"] == "stop" and chunks[-1]["choices"][0]["delta"] == {}
        assert all(chunk["usage"] is None for chunk in chunks)
        assert usage["choices"] == [] and usage["usage"]["completion_tokens"] >= 5
        assert len({(chunk["id"], chunk["created"]) for chunk in [*chunks, usage]}) == 1

    def test_a_stream_without_the_option_says_nothing_of_usage(self):
        for options in (None, {}):
            fields = {} if options is None else {"stream_options": options}
            chunks = self.gateway.chat(PROMPT, stream=True, **fields).events[:-1]
            assert all("usage" not in chunk for chunk in chunks)

    def test_the_route_is_in_the_headers_streamed_or_not(self):
        for stream in (False, True):
            headers = self.gateway.chat(PROMPT, stream=stream).headers
            assert headers["x-router-model"] == "tensorrt_llm_small" and headers["x-router-reason"] == "default"

    def test_without_a_limit_the_answer_is_not_cropped(self):
        reply = self.gateway.complete(PROMPT, max_tokens=None)
        assert reply.json["choices"][0]["text"] == PROMPT and reply.json["choices"][0]["finish_reason"] == "stop"

    def test_a_limit_ends_the_answer_as_length(self):
        choice = self.gateway.complete(PROMPT, max_tokens=2).json["choices"][0]
        assert (choice["text"], choice["finish_reason"]) == ("one two", "length")

    def test_a_stop_word_ends_the_answer_before_it_and_is_told(self):
        choice = self.gateway.complete(PROMPT, stop=" three").json["choices"][0]
        assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == ("one two", "stop", " three")

    @pytest.mark.parametrize("stream", [False, True])
    def test_several_prompts_and_answers_have_their_places(self, stream):
        reply = self.gateway.complete(["one two", "three four"], n=2, stream=stream)
        if stream:
            choices = [choice for chunk in reply.events[:-1] for choice in chunk["choices"]]
            texts = ["".join(choice["text"] for choice in choices if choice["index"] == place) for place in range(4)]
        else:
            texts = [choice["text"] for choice in reply.json["choices"]]
        assert texts == ["one two", "one two", "three four", "three four"]

    def test_several_streamed_answers_of_a_chat_each_have_role_text_and_end(self):
        chunks = self.gateway.chat(PROMPT, n=3, stream=True, seed=0).events[:-1]
        for place in range(3):
            own = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == place]
            assert own[0]["delta"] == {"role": "assistant", "content": ""}
            assert PROMPT in "".join(choice["delta"].get("content", "") for choice in own)
            assert [choice["finish_reason"] for choice in own if choice["finish_reason"]] == ["stop"]

    def test_a_prompt_is_counted_once_however_many_answers_it_has(self):
        one = self.gateway.complete(PROMPT).json["usage"]
        two = self.gateway.complete(PROMPT, n=2).json["usage"]
        assert two["prompt_tokens"] == one["prompt_tokens"]
        assert two["completion_tokens"] == 2 * one["completion_tokens"]

    def test_too_long_a_request_is_told_so_by_its_code(self):
        reply = self.gateway.complete(PROMPT, max_tokens=100_000)
        assert (reply.status, reply.error["code"]) == (400, "context_length_exceeded")

    def test_an_engine_that_fails_before_its_first_token_is_an_error_with_its_status(self):
        for stream in (False, True):
            reply = self.gateway.complete(PROMPT, seed=FAILS_FIRST * 1000, stream=stream)
            assert (reply.status, reply.error["type"]) == (500, "server_error")
            assert reply.headers["x-should-retry"] == "false"

    def test_an_engine_that_breaks_later_ends_the_stream_with_an_error_event(self):
        reply = self.gateway.complete(PROMPT, seed=FAILS_LATER * 1000, stream=True)
        assert reply.status == 200
        assert reply.events[-1]["error"]["type"] == "server_error"
        assert "".join(chunk["choices"][0]["text"] for chunk in reply.events[:-1]) == "one two"

    @pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
    def test_a_client_that_leaves_a_stream_stops_its_engine(self, path):
        before = self.stopped()
        body = {"model": "auto", "stream": True, **LONG}
        body |= {"prompt": PROMPT} if path == "/v1/completions" else {"messages": [{"role": "user", "content": PROMPT}]}
        with opened(self.gateway.port, path, body) as response:
            assert response.readline().startswith(b"data: ")
        assert eventually(lambda: self.stopped() == before + 1)
        assert eventually(self.gateway.is_idle)

    def test_a_client_that_leaves_before_a_whole_answer_stops_its_engine(self):
        before, began = self.stopped(), self.started()
        with pytest.raises(TimeoutError):
            self.give_up_on({"model": "auto", "prompt": PROMPT, **LONG}, lambda: self.started() > began)
        assert eventually(lambda: self.stopped() == before + 1)
        assert eventually(lambda: self.gateway.metric("llm_gateway_requests_total", status="499") >= 1)

    def test_a_client_that_leaves_an_engine_that_says_nothing_stops_it(self):
        before, began = self.stopped(), self.started()
        body = {"model": "auto", "prompt": PROMPT, "max_tokens": 50, "stream": True, "seed": SILENT * 1000}
        with pytest.raises(TimeoutError):
            self.give_up_on(body, lambda: self.started() > began)
        assert eventually(lambda: self.stopped() == before + 1)

    def give_up_on(self, body, has_begun):
        """Leaves a request for which no response has begun, once the engine has it. Raises TimeoutError."""
        import http.client
        import json

        connection = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=60)
        connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        assert eventually(has_begun)
        connection.close()
        raise TimeoutError

    def test_many_streams_at_once_all_end(self):
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(12) as pool:
            replies = list(pool.map(lambda number: self.gateway.complete(f"number {number}", stream=True), range(48)))
        for number, reply in enumerate(replies):
            text = "".join(choice["text"] for chunk in reply.events[:-1] for choice in chunk["choices"])
            assert text == f"number {number}"
        assert eventually(self.gateway.is_idle)

    def test_models_are_listed_with_the_context_of_the_engines(self):
        assert eventually(lambda: "max_model_len" in self.gateway.get("/v1/models").json["data"][0])
        found = self.gateway.get("/v1/models").json["data"]
        assert [model["id"] for model in found][:3] == ["auto", "small", "large"]
        assert found[0]["max_model_len"] == 8192
        assert self.gateway.get("/v1/models/auto").json == found[0]

    def test_ready_and_health_say_so(self):
        assert self.gateway.get("/health").status == self.gateway.get("/ready").status == 200
