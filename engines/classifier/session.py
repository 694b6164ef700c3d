"""The classifier in ONNX Runtime: a batch of requests of any lengths in, one answer each out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnxruntime

from bls.arrays import Array, Tensors
from bls.errors import BadRequest, RouterError
from engines.classifier.batches import runs
from engines.classifier.manifest import TextManifest


def open_session(model: str | bytes, threads: int) -> onnxruntime.InferenceSession:
    """`threads` compute in turn with the caller's, and sleep where there is nothing to do."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Its threads would otherwise turn in circles between two runs, and take the engines' cores.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.enable_mem_pattern = False  # it keeps a plan for each shape, and here every batch has its own
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class Classifier:
    """`answer` is called by one thread; the labels are those of the model file."""

    def __init__(self, manifest: TextManifest, threads: int = 1) -> None:
        if threads < 1:
            raise ValueError(f"parameter threads is {threads}; it must be at least 1")
        self._manifest = manifest
        self._session = open_session(str(manifest.model_path), threads)

    def answer(self, batch: Sequence[tuple[Tensors, frozenset[str]]]) -> list[dict[str, Array] | RouterError]:
        """For each request of the batch its requested outputs, or what is wrong with it."""
        checked = [self._check(inputs) for inputs, _ in batch]
        rows = [row for found in checked if not isinstance(found, RouterError) for row in found]
        names = sorted({name for _, requested in batch for name in requested})
        outputs = self.run(rows, names)
        answers: list[dict[str, Array] | RouterError] = []
        begin = 0
        for (_, requested), found in zip(batch, checked, strict=True):
            if isinstance(found, RouterError):
                answers.append(found)
            else:
                answers.append({name: outputs[name][begin : begin + len(found)] for name in names if name in requested})
                begin += len(found)
        return answers

    def run(self, rows: Sequence[tuple[Array, Array]], names: Sequence[str]) -> dict[str, Array]:
        """The outputs of all rows, each ids and mask without padding, in the rows' order."""
        outputs: dict[str, Array] = {}
        for places in runs([len(ids) for ids, _ in rows]) if names else []:
            feeds = _padded([rows[place] for place in places], self._manifest.pad_id)
            for name, array in zip(names, self._session.run(names, feeds), strict=True):
                if name not in outputs:
                    outputs[name] = np.empty((len(rows), *array.shape[1:]), array.dtype)
                outputs[name][places] = array
        if "labels" in outputs:
            labels = outputs["labels"]  # str objects, where Triton wants bytes
            outputs["labels"] = np.array([[label.encode() for label in row] for row in labels], np.object_)
        return outputs

    def _check(self, inputs: Tensors) -> list[tuple[Array, Array]] | BadRequest:
        """The rows without what their mask leaves out at the end."""
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        if ids.ndim != 2 or ids.shape != mask.shape:
            return BadRequest(f"input_ids is {list(ids.shape)}, attention_mask is {list(mask.shape)}")
        if not np.isin(mask, (0, 1)).all():
            return BadRequest("attention_mask holds other values than 0 and 1")
        largest = self._manifest.vocab_size - 1
        if ids.size and not 0 <= ids.min() <= ids.max() <= largest:
            return BadRequest(f"input_ids holds {ids.min()} to {ids.max()}; ids are 0 to {largest}")
        lengths = [int(row.nonzero()[0].max(initial=-1)) + 1 for row in mask]
        if not all(lengths):
            return BadRequest("attention_mask leaves no token in a row")
        most = self._manifest.max_tokens * self._manifest.max_windows
        if max(lengths) > most:
            return BadRequest(f"input_ids has {max(lengths)} tokens; at most {most} are taken")
        return [(ids[row, :length], mask[row, :length]) for row, length in enumerate(lengths)]


def _padded(rows: Sequence[tuple[Array, Array]], pad_id: int) -> dict[str, Array]:
    """[rows, longest row] each."""
    shape = len(rows), max(len(ids) for ids, _ in rows)
    padded_ids, padded_mask = np.full(shape, pad_id, np.int64), np.zeros(shape, np.int64)
    for place, (ids, mask) in enumerate(rows):
        padded_ids[place, : len(ids)] = ids
        padded_mask[place, : len(mask)] = mask
    return {"input_ids": padded_ids, "attention_mask": padded_mask}
