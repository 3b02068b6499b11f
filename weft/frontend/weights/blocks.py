"""The block formats of GGUF files: bytes of a block to small integers, scales and zero points.

Each decoder takes blocks (n, bytes) uint8 and returns integers (n, elements), and for every group of neighbours a scale
and a minimum: a weight is ``q * scale + minimum``. The layouts are those of the GGML library's public block structures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Decoded = tuple[np.ndarray, np.ndarray, np.ndarray]


class Format(NamedTuple):
    """A block format: its name, elements and bytes of a block, elements of a group, and the decoder."""

    name: str
    elements: int
    size: int
    group: int
    decode: Callable[[np.ndarray], Decoded]


def _half(b: np.ndarray, at: int) -> np.ndarray:
    """Return the float16 numbers at an offset of each block, (n, 1) float32."""
    return np.ascontiguousarray(b[:, at : at + 2]).view(np.float16).astype(np.float32)


def _nibbles(b: np.ndarray) -> np.ndarray:
    """Return all low nibbles of each row, then all high ones."""
    return np.concatenate([b & 15, b >> 4], axis=1)


def _fifth_bits(b: np.ndarray) -> np.ndarray:
    """Return bits of 32-bit words, the lowest first, as 0 or 16."""
    return np.unpackbits(b, axis=1, bitorder="little") << 4


def _q4_0(b: np.ndarray) -> Decoded:
    d = _half(b, 0)
    return _nibbles(b[:, 2:]), d, -8 * d


def _q4_1(b: np.ndarray) -> Decoded:
    return _nibbles(b[:, 4:]), _half(b, 0), _half(b, 2)


def _q5_0(b: np.ndarray) -> Decoded:
    d = _half(b, 0)
    return _nibbles(b[:, 6:]) | _fifth_bits(b[:, 2:6]), d, -16 * d


def _q5_1(b: np.ndarray) -> Decoded:
    return _nibbles(b[:, 8:]) | _fifth_bits(b[:, 4:8]), _half(b, 0), _half(b, 2)


def _q8_0(b: np.ndarray) -> Decoded:
    d = _half(b, 0)
    return np.ascontiguousarray(b[:, 2:]).view(np.int8), d, np.zeros_like(d)


def _q8_k(b: np.ndarray) -> Decoded:
    d = np.ascontiguousarray(b[:, :4]).view(np.float32)
    return np.ascontiguousarray(b[:, 4:260]).view(np.int8), d, np.zeros_like(d)


def _pairs(b: np.ndarray) -> np.ndarray:
    """Return 2-bit fields (n, 2, 4, 32) of 64 bytes: halves of a block, places in a byte, bytes."""
    return np.stack([b.reshape(-1, 2, 32) >> shift & 3 for shift in (0, 2, 4, 6)], axis=2)


def _q2_k(b: np.ndarray) -> Decoded:
    scales, d, least = b[:, :16], _half(b, 80), _half(b, 82)
    return _pairs(b[:, 16:80]).reshape(len(b), 256), d * (scales & 15), -least * (scales >> 4)


def _q3_k(b: np.ndarray) -> Decoded:
    top = np.unpackbits(b[:, :32, None], axis=2, bitorder="little").transpose(0, 2, 1)  # (n, half and place, byte)
    q = _pairs(b[:, 32:96]) | top.reshape(-1, 2, 4, 32) << 2
    low, high = _nibbles(b[:, 96:104]), b[:, 104:108]
    scales = low | np.concatenate([(high >> s & 3) << 4 for s in (0, 2, 4, 6)], axis=1)
    unit = _half(b, 108) * (scales.astype(np.float32) - 32)
    return q.reshape(len(b), 256), unit, -4 * unit


def _sixes(b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return eight scales and eight minima of 6 bits each from 12 bytes."""
    first, second, rest = b[:, :4], b[:, 4:8], b[:, 8:12]
    scales = np.concatenate([first & 63, rest & 15 | first >> 6 << 4], axis=1)
    return scales, np.concatenate([second & 63, rest >> 4 | second >> 6 << 4], axis=1)


def _k_scales(b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scales, minima = _sixes(b[:, 4:16])
    return _half(b, 0) * scales, -_half(b, 2) * minima


def _lines(b: np.ndarray) -> np.ndarray:
    """Return nibbles of 128 bytes in lines of 32: low and high ones of each 32 bytes in turn, (n, 8, 32)."""
    parts = b.reshape(-1, 4, 32)
    return np.stack([parts & 15, parts >> 4], axis=2).reshape(-1, 8, 32)


def _q4_k(b: np.ndarray) -> Decoded:
    return _lines(b[:, 16:]).reshape(len(b), 256), *_k_scales(b)


def _q5_k(b: np.ndarray) -> Decoded:
    fifth = np.unpackbits(b[:, 16:48, None], axis=2, bitorder="little").transpose(0, 2, 1) << 4
    return (_lines(b[:, 48:]) | fifth).reshape(len(b), 256), *_k_scales(b)


def _q6_k(b: np.ndarray) -> Decoded:
    low = b[:, :128].reshape(-1, 2, 2, 32)  # halves, pairs of lines, bytes
    q = np.concatenate([low & 15, low >> 4], axis=2) | _pairs(b[:, 128:192]) << 4
    unit = _half(b, 208) * np.ascontiguousarray(b[:, 192:208]).view(np.int8)
    return q.reshape(len(b), 256), unit, -32 * unit


_STEPS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)
"""The sixteen numbers that four bits of the formats IQ4 stand for."""
_FLOAT4 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)
"""Twice the numbers of four bits with two of exponent and one of mantissa."""


def _iq4_nl(b: np.ndarray) -> Decoded:
    d = _half(b, 0)
    return _STEPS[_nibbles(b[:, 2:])], d, np.zeros_like(d)


def _iq4_xs(b: np.ndarray) -> Decoded:
    low, high = np.stack([b[:, 4:8] & 15, b[:, 4:8] >> 4], axis=2).reshape(-1, 8), b[:, 2:4, None] >> (0, 2, 4, 6) & 3
    unit = _half(b, 0) * ((low | high.reshape(-1, 8) << 4).astype(np.float32) - 32)
    return _STEPS[_nibbles(b[:, 8:].reshape(-1, 16))].reshape(len(b), 256), unit, np.zeros_like(unit)


def _mxfp4(b: np.ndarray) -> Decoded:
    d = np.ldexp(np.float32(1), b[:, :1].astype(np.int32) - 128)
    return _FLOAT4[_nibbles(b[:, 1:])], d, np.zeros_like(d)


FORMATS = {
    2: Format("Q4_0", 32, 18, 32, _q4_0),
    3: Format("Q4_1", 32, 20, 32, _q4_1),
    6: Format("Q5_0", 32, 22, 32, _q5_0),
    7: Format("Q5_1", 32, 24, 32, _q5_1),
    8: Format("Q8_0", 32, 34, 32, _q8_0),
    10: Format("Q2_K", 256, 84, 16, _q2_k),
    11: Format("Q3_K", 256, 110, 16, _q3_k),
    12: Format("Q4_K", 256, 144, 32, _q4_k),
    13: Format("Q5_K", 256, 176, 32, _q5_k),
    14: Format("Q6_K", 256, 210, 16, _q6_k),
    15: Format("Q8_K", 256, 292, 256, _q8_k),
    20: Format("IQ4_NL", 32, 18, 32, _iq4_nl),
    23: Format("IQ4_XS", 256, 136, 32, _iq4_xs),
    39: Format("MXFP4", 32, 17, 32, _mxfp4),
}
"""GGUF's number of a type to its format."""
