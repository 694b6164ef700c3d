"""Weights in blocks of 32: four bits each, and one scale a block. weight = (value - 8) x scale, ggml's Q4_0.

ONNX Runtime multiplies by such blocks (MatMulNBits) and looks rows up in them (GatherBlockQuantized) as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bls.arrays import Array

SIZE, BITS, ZERO = 32, 4, 8
_BYTES = (
    2 + SIZE // 2
)  # of a block in Q4_0: the scale in half precision, then the values, those of place 0 and 16 first


@dataclass(frozen=True)
class Blocks:
    """A matrix [out, in]. `packed` is uint8 [out, in / 2], the even place in the low bits; `scales` [out, in / 32]."""

    packed: Array
    scales: Array

    @property
    def shape(self) -> tuple[int, int]:
        rows, half = self.packed.shape
        return rows, 2 * half

    def scaled(self, factor: float) -> Blocks:
        return Blocks(self.packed, self.scales * np.float32(factor))

    def exact(self) -> Array:
        """The weights as float32."""
        values = np.stack([self.packed & 15, self.packed >> 4], axis=-1).reshape(self.shape)
        centred = values.astype(np.float32) - ZERO
        weights: Array = centred.reshape(-1, SIZE) * self.scales.reshape(-1, 1)
        return weights.reshape(self.shape)


def from_q4_0(body: Array, rows: int, columns: int) -> Blocks:
    """Of the bytes as ggml orders them. Raises ValueError where they are too few or too many."""
    given = body.reshape(rows * columns // SIZE, _BYTES)
    scales = given[:, :2].copy().view(np.float16).astype(np.float32)
    values = np.concatenate([given[:, 2:] & 15, given[:, 2:] >> 4], axis=1)
    packed = values[:, 0::2] | values[:, 1::2] << 4
    return Blocks(packed.reshape(rows, columns // 2), scales.reshape(rows, columns // SIZE))


def joined(parts: Sequence[Blocks]) -> Blocks:
    """One matrix with the rows of all."""
    return Blocks(np.concatenate([part.packed for part in parts]), np.concatenate([part.scales for part in parts]))
