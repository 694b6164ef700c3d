"""Stand-ins for what the router talks to. tests/server holds them to the real server."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import numpy as np

from bls.contract import ENGINE_CONTROL, LARGE, PREPROCESSING, ROUTER_CONTRACT, SMALL
from bls.errors import EngineUnavailable
from bls.request import parse
from bls.safety.judge import PromptSafety
from bls.safety.settings import Safety
from bls.watcher import Watch

FAILURE = object()  # A response: the engine broke after it had sent data.


class FakeModels:
    """Engines by name: each a list of responses, a response being a list of ids, a text, or an error to raise.

    `calls` holds (model, request id, tensors) in order, `stopped` the request ids that a stop came for.
    """

    def __init__(self, engines=None, context=8192, prompt_ids=None):
        self.engines = engines if engines is not None else {SMALL: ["Pa", "ris"], LARGE: ["Par", "is"]}
        self.context = context
        self.prompt_ids = prompt_ids
        self.calls = []
        self.stopped = []
        self.closed = 0
        self.sent = 0

    def call(self, model, tensors, outputs):
        self.calls.append((model, "", dict(tensors)))
        if model == PREPROCESSING:
            given = tensors["QUERY"] if "QUERY" in tensors else tensors["MESSAGES"]
            ids = self.prompt_ids or [ord(character) for character in given.flat[0].decode()]
            words = [w.decode() for w in tensors["STOP_WORDS_DICT"].flat] if "STOP_WORDS_DICT" in tensors else []
            flat = [ord(character) for word in words for character in word]
            offsets = [int(o) for o in np.cumsum([len(w) for w in words])] + [-1] * (len(flat) - len(words))
            return {
                "INPUT_ID": np.array([ids], np.int32),
                "STOP_WORDS_IDS": np.array([[flat, offsets]], np.int32).reshape(1, 2, -1),
                "OUT_END_ID": tensors.get("END_ID", np.array([[2]], np.int32)),
                "OUT_PAD_ID": tensors.get("PAD_ID", np.array([[2]], np.int32)),
            }
        assert model == ENGINE_CONTROL
        return {"stopped": np.array([[True]])}

    def stream(self, model, tensors, outputs, request_id):
        self.calls.append((model, request_id, dict(tensors)))
        if model not in self.engines:
            raise EngineUnavailable(f"{model} is not loaded")
        try:
            for number, response in enumerate(self.engines[model]):
                if request_id in self.stopped:
                    return
                if callable(response):
                    response = response()
                if isinstance(response, Exception):
                    raise response
                self.sent += 1
                yield self.response(response, number, outputs)
        finally:
            self.closed += 1

    @staticmethod
    def response(ids, number, outputs):
        if ids is FAILURE and "sequence_length" not in outputs:
            return {"output_ids": np.array([[[-1]]], np.int32)}
        if ids is FAILURE:
            return {"output_ids": np.empty((1, 1, 0), np.int32), "sequence_length": np.array([[-1]], np.int32)}
        ids = [ord(character) for character in ids] if isinstance(ids, str) else list(ids)
        tensors = {
            "output_ids": np.array(ids, np.int32).reshape(1, 1, -1),
            "sequence_length": np.array([[len(ids)]], np.int32),
            "cum_log_probs": np.array([[-float(number)]], np.float32),
            "output_log_probs": np.full((1, 1, len(ids)), -float(number), np.float32),
        }
        return {name: array for name, array in tensors.items() if name in outputs}

    def stop(self, model, request_id):
        self.stopped.append(request_id)

    def engine_calls(self):
        return [call for call in self.calls if call[0] in (SMALL, LARGE)]


class FakeEngines:
    """EngineFiles whose token ids are code points."""

    models = (SMALL, LARGE)

    def __init__(self, small_context=8192, large_context=8192, own_tokenizers=False):
        self.contexts = {SMALL: small_context, LARGE: large_context}
        self.own_tokenizers = own_tokenizers

    def manifest(self, model):
        return SimpleNamespace(context_tokens=self.contexts[model])

    def tokenized_by(self, model):
        return model if self.own_tokenizers else SMALL

    def decoder(self, model):
        return FakeDecoder()


class SafetyBy(PromptSafety):
    """PromptSafety with one table for all prompts."""

    def __init__(self, settings, *sources, **more):
        super().__init__(*sources, **more)
        self.settings = settings

    def judge(self, *given, **named):
        if given and isinstance(given[0], Safety):
            return super().judge(*given, **named)
        return super().judge(self.settings, *given, **named)


def engine_folders(repository, *models):
    """Makes the folders by which a model repository has these engines, the two shipped ones where none is named."""
    for model in models or (SMALL, LARGE):
        (repository / model).mkdir(parents=True)
        (repository / model / "config.pbtxt").touch()
    return repository


class FakeDecoder:
    def push(self, ids):
        return "".join(chr(token) for token in ids)

    def finish(self):
        return ""


class FakeMetrics:
    """`values` sums what was added, `seen` counts observations, by name and labels."""

    def __init__(self):
        self.values = Counter()
        self.seen = Counter()

    def declare(self, name, kind, description, buckets=None):
        pass

    def add(self, name, amount=1, **labels):
        self.values[(name, *sorted(labels.values()))] += amount

    def show(self, name, **labels):
        self.seen[(name, *sorted(labels.values()))] += 0

    def set(self, name, value, **labels):
        self.values[(name, *sorted(labels.values()))] = value

    def observe(self, name, value, **labels):
        self.seen[(name, *sorted(labels.values()))] += 1


def request(text="hi", max_tokens=16, requested=None, parameters=None, **tensors):
    """A parsed request; every further argument is an input of the router by name."""
    given = {"text_input": text, "max_tokens": max_tokens, **tensors}
    arrays = {name: array_of(value) for name, value in given.items() if value is not None}
    return parse(arrays, parameters or {}, frozenset(requested or ROUTER_CONTRACT.output_names))


def array_of(value):
    """As Triton would hand it over: batch dimension first."""
    if isinstance(value, np.ndarray):
        return value
    values = value if isinstance(value, list) else [value]
    if isinstance(values[0], str | bytes):
        encoded = [v.encode() if isinstance(v, str) else v for v in values]
        return np.array([encoded], dtype=np.object_)
    kind = {bool: np.bool_, int: np.int32, float: np.float32}[type(values[0])]
    return np.array([values], dtype=kind)


def patient_watch():
    """A client that stays, without a deadline worth the name."""
    return Watch(lambda: False, 1000.0, lambda outcome: None)
