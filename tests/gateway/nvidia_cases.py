"""What NVIDIA's own OpenAI frontend for Triton (python/openai of its server repository) is tested for, by the names of
those tests, asked of this gateway over HTTP. Where ours answers otherwise on purpose, the test says so.

Left out, as they are about that frontend's insides: the choice of a tokenizer, LoRA, which the gateway has no option
for. test_*_seed and test_*_temperature_* need an engine that draws: tests/server/test_gateway_real.py.
"""

from __future__ import annotations

import pytest

SAYS = "What is machine learning?"
SAMPLING = [
    {"temperature": 0.7}, {"max_tokens": 10}, {"top_p": 0.9}, {"frequency_penalty": 0.5}, {"presence_penalty": 0.2},
    {"n": 1}, {"min_tokens": 16}, {"ignore_eos": True, "max_tokens": 10},
]  # fmt: skip
WRONG = [
    {"temperature": 2.1}, {"temperature": -0.1}, {"max_tokens": -1}, {"top_p": 1.1}, {"frequency_penalty": 3},
    {"frequency_penalty": -3}, {"presence_penalty": 2.1}, {"presence_penalty": -2.1}, {"min_tokens": -1},
    {"ignore_eos": 123},
]  # fmt: skip


class NvidiaChatCases:
    def message(self, *messages, **fields):
        body = {"model": "auto", "messages": [{"role": role, "content": text} for role, text in messages], **fields}
        reply = self.gateway.post("/v1/chat/completions", body)
        assert reply.status == 200, reply
        message = reply.json["choices"][0]["message"]
        assert message["role"] == "assistant" and message["content"].strip()
        return message["content"]

    def words(self, **fields):
        return len(
            self.gateway.chat(SAYS, **{"max_tokens": None, **fields}).json["choices"][0]["message"]["content"].split()
        )

    def test_chat_completions_defaults(self):
        self.message(("user", SAYS))
        assert self.gateway.chat(SAYS).json["usage"]["total_tokens"] > 0  # which theirs has for some backends only

    def test_chat_completions_system_prompt(self):
        self.message(("system", "You are an expert."), ("user", SAYS))

    def test_chat_completions_system_prompt_only(self):
        self.message(("system", "You are an expert."))

    def test_chat_completions_user_prompt_str(self):
        self.message(("user", SAYS))

    def test_chat_completions_user_prompt_dict(self):
        self.message(("user", [{"type": "text", "text": SAYS}]))

    @pytest.mark.parametrize("fields", [*SAMPLING, {"stop": "."}, {"stop": []}, {"stop": [".", ","]}])
    def test_chat_completions_sampling_parameters(self, fields):
        self.message(("user", SAYS), **fields)

    @pytest.mark.parametrize("fields", [{"logprobs": True}, {"logit_bias": {"0": 1}}])
    def test_chat_completions_sampling_parameters_that_are_refused(self, fields):
        assert self.gateway.chat(SAYS, **fields).error["param"] == next(iter(fields))

    @pytest.mark.parametrize("fields", [*WRONG, {"max_completion_tokens": -1}])
    def test_chat_completions_invalid_sampling_parameters(self, fields):
        reply = self.gateway.chat(SAYS, **fields)
        assert (reply.status, reply.error["param"]) == (400, next(iter(fields)))  # theirs is FastAPI's 422

    @pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
    def test_chat_completions_max_tokens(self, name):
        usages = [self.gateway.chat(SAYS, **{"max_tokens": None, name: most}).json["usage"] for most in (1, 1, 100)]
        first, second, longer = [usage["completion_tokens"] for usage in usages]
        assert first == second == 1 < longer <= 100

    def test_chat_completions_both_max_tokens_and_max_completion_tokens(self):
        both = self.gateway.chat(SAYS, max_tokens=50, max_completion_tokens=2).json["usage"]
        assert both["completion_tokens"] == 2
        assert self.gateway.chat(SAYS, max_tokens=3).json["usage"]["completion_tokens"] == 3

    def test_chat_completions_no_message(self):
        reply = self.gateway.post("/v1/chat/completions", {"model": "auto", "messages": []})
        assert (reply.status, reply.error["param"]) == (400, "messages")

    def test_chat_completions_empty_message(self):
        reply = self.gateway.post("/v1/chat/completions", {"model": "auto", "messages": [{}]})
        assert (reply.status, reply.error["param"]) == (400, "messages[0].role")

    def test_chat_completions_multiple_choices(self):
        choices = self.gateway.chat(SAYS, n=2).json["choices"]  # which theirs refuses
        assert [choice["index"] for choice in choices] == [0, 1]

    def test_chat_completions_no_streaming(self):
        self.message(("user", SAYS), stream=False)

    @pytest.mark.parametrize("fields", [{}, {"stop": " is"}, {"stop": [" is", ".", ","]}])
    def test_chat_streaming(self, fields):
        whole = self.gateway.chat(SAYS, **fields).json["choices"][0]
        *chunks, done = self.gateway.chat(SAYS, stream=True, **fields).events
        deltas = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]
        reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
        assert done == "[DONE]" and "".join(deltas) == whole["message"]["content"]
        assert reasons[-1] == whole["finish_reason"] and set(reasons[:-1]) == {None}

    @pytest.mark.parametrize("path", ["chat", "complete"])
    def test_streaming_usage_option(self, path):
        ask = getattr(self.gateway, path)
        without = ask(SAYS, stream=True, stream_options={"include_usage": False}).events
        with_usage = ask(SAYS, stream=True, stream_options={"include_usage": True}).events
        assert len(with_usage) == len(without) + 1 and not any("usage" in chunk for chunk in without[:-1])
        assert with_usage[-2]["choices"] == [] and with_usage[-2]["usage"] == ask(SAYS).json["usage"]
        assert all(chunk["usage"] is None for chunk in with_usage[:-2])

    @pytest.mark.parametrize("path", ["chat", "complete"])
    def test_stream_options_without_streaming(self, path):
        reply = getattr(self.gateway, path)(SAYS, stream=False, stream_options={"include_usage": True})
        assert (reply.status, reply.error["param"]) == (400, "stream_options")

    @pytest.mark.parametrize("stream", [False, True])
    def test_logprobs(self, stream):
        """All four tests of that name, as theirs are for TensorRT-LLM: refused before anything is sent."""
        for reply in (
            self.gateway.chat(SAYS, logprobs=True, top_logprobs=2, stream=stream),
            self.gateway.complete(SAYS, logprobs=3, stream=stream),
        ):
            assert (reply.status, reply.error["param"]) == (400, "logprobs")

    def test_top_logprobs_requires_logprobs(self):
        assert self.gateway.chat(SAYS, top_logprobs=2).error["param"] == "top_logprobs"


class NvidiaCompletionCases:
    def test_completions_defaults(self):
        reply = self.gateway.post("/v1/completions", {"model": "auto", "prompt": SAYS}).json
        assert reply["choices"][0]["text"].strip() and reply["usage"]

    def test_usage_response(self):
        usage = self.gateway.complete(SAYS).json["usage"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > usage["prompt_tokens"] > 0

    @pytest.mark.parametrize("fields", [*SAMPLING, {"best_of": 1}])
    def test_completions_sampling_parameters(self, fields):
        assert self.gateway.complete(SAYS, **fields).json["choices"][0]["text"].strip()

    @pytest.mark.parametrize("fields", WRONG)
    def test_completions_invalid_sampling_parameters(self, fields):
        reply = self.gateway.complete(SAYS, **fields)
        assert (reply.status, reply.error["param"]) == (400, next(iter(fields)))

    def test_completions_max_tokens(self):
        counts = [
            self.gateway.complete(SAYS, max_tokens=most).json["usage"]["completion_tokens"] for most in (1, 1, 100)
        ]
        assert counts[0] == counts[1] == 1 < counts[2]

    @pytest.mark.parametrize(
        ("body", "param"),
        [
            ({}, "model"),
            ({"prompt": SAYS}, "model"),
            ({"model": "auto"}, "prompt"),
            ({"model": "auto", "prompt": ""}, "prompt"),
        ],
    )
    def test_completions_empty_request_no_model_no_prompt_empty_prompt(self, body, param):
        reply = self.gateway.post("/v1/completions", body)
        assert (reply.status, reply.error["param"]) == (400, param)

    def test_completions_multiple_choices(self):
        assert len(self.gateway.complete(SAYS, n=2).json["choices"]) == 2  # which theirs refuses
        for fields in ({"best_of": 2}, {"n": 2, "best_of": 2}, {"n": 2, "best_of": 1}):
            assert (self.gateway.complete(SAYS, **fields).status == 200) == (fields["best_of"] == 1)

    def test_echo(self):
        """Only that it is asked for as it is: the answer of the engines of these tests is the prompt."""
        assert self.gateway.complete(SAYS, echo=True).json["choices"][0]["text"].startswith(SAYS)

    def test_completion_streaming(self):
        whole = self.gateway.complete(SAYS, max_tokens=10, temperature=0.0).json["choices"][0]
        choices = [chunk["choices"][0] for chunk in self.gateway.complete(SAYS, max_tokens=10, stream=True).events[:-1]]
        assert "".join(choice["text"] for choice in choices) == whole["text"]
        assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == [whole["finish_reason"]]
