"""Weights of few bits, and products with them."""

import itertools

import numpy as np

from tests.op.contract import Array, Case, Fixed, Sizes, call, case, cases
from tests.pairs import meeting
from weft.op import get_op_def
from weft.relax.transform.pack_nbits import Groups, pack_groups


def _groups(s: Sizes, k: int, n: int, bits: int, group: int, zeros: bool) -> Groups:
    q = s.rng.integers(0, 1 << bits, (k, n)).astype(np.uint8)
    q[0, 0] = (1 << bits) - 1
    shape = (-(-k // group), n)
    half = np.full(shape, 1 << bits - 1, np.uint8)
    zero = s.rng.integers(0, 1 << bits, shape).astype(np.uint8) if zeros else half
    return Groups(q, s.rng.uniform(-0.1, 0.1, shape).astype(np.float32), zero, group)


def _dequantised(axis: int, group: int) -> None:
    @cases("dequantize_groups")
    def make(s: Sizes) -> Case:
        shape = [s.a, 33]
        along = [-(-d // group) if i == axis else d for i, d in enumerate(shape)]
        data = s.integer(*shape, low=-8, high=8, dtype="int8")
        zero = s.integer(*along, low=-8, high=8, dtype="int8")
        return call(data, s.real(*along), zero, axis=axis, group=group, symbolic=False)


_dequantised(0, 2)
_dequantised(1, 16)
_dequantised(-1 % 2, 64)


def _product(
    kind: str, bits: int, group: int, k: int, n: int, zeros: bool, ranks: int = 2, dtype: str = "float32"
) -> None:
    """A product with packed weights: of rows as they are, of rows that it rounds to bytes, or of rounded rows."""

    @cases("nn.matmul_nbits_dot" if kind == "dot" else "nn.matmul_nbits_packed")
    def product(s: Sizes) -> Case:
        made = pack_groups(_groups(s, k, n, bits, group, zeros), 16)
        assert made is not None and made.bits == bits
        rtol = {"float16": 1e-2, "float32": 1e-4, "float64": 1e-12}[dtype]
        taken = {"n": n, "bits": bits, "group": made.group, "rtol": rtol, "atol": min(rtol, 1e-3)}
        weights = [Fixed(Array(a, a.shape)) for a in (made.w, made.scale, made.offset) if a is not None]
        if kind == "packed":
            return call(s.real(*(s.d, s.a, k)[-ranks:], dtype=dtype), *weights, **taken)
        if kind == "rounded":
            return call(s.real(s.b, k), *weights, rows="int8", **taken)
        rows = s.rng.uniform(-2, 2, (s.b, k)).astype(np.float32)
        rows[:, k // 2] = 0
        parts = get_op_def("nn.quantize_groups").reference(rows, group=made.group)  # type: ignore[misc]
        return call(*[Array(p, (s.b, p.shape[-1])) for p in parts], *weights, **taken)


KINDS = ("packed", "rounded", "dot")
SHAPES = ((16, 40, 37, True), (32, 96, 16, False), (128, 130, 5, True))  # group, k, n, zeros
for _kind, _bits, _shape in meeting(itertools.product(KINDS, (2, 4, 8), SHAPES)):
    _product(_kind, _bits, *_shape)
for _kind in KINDS:
    _product(_kind, 4, 64, 64, 33, False, ranks=3)
_product("packed", 4, 32, 50, 17, True, ranks=1, dtype="float16")
_product("packed", 4, 64, 70, 33, True, ranks=3, dtype="float64")


case("nn.quantize_groups", make=lambda s: call(s.real(s.d, s.b, 40), group=16, symbolic=False))
case("nn.quantize_groups", make=lambda s: call(s.real(s.b, 32), group=32))
