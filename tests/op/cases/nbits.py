"""Weights of few bits, and products with them."""

import numpy as np

from tests.op.contract import Array, Case, Fixed, Sizes, call, case, cases
from weft.op import get_op_def
from weft.relax.transform.pack_nbits import Groups, pack_groups


def _fixed(*arrays: np.ndarray | None) -> list[Fixed]:
    return [Fixed(Array(a, a.shape)) for a in arrays if a is not None]


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


def _product(bits: int, group: int, k: int, n: int, zeros: bool, ranks: int = 2, dtype: str = "float32") -> None:
    @cases("nn.matmul_nbits_packed")
    def packed(s: Sizes) -> Case:
        made = pack_groups(_groups(s, k, n, bits, group, zeros), 16)
        assert made is not None and made.bits == bits
        dims = (s.d, s.a, k)[-ranks:]
        return call(
            s.real(*dims, dtype=dtype),
            *_fixed(made.w, made.scale, made.offset),
            n=n,
            bits=bits,
            group=made.group,
            rtol=1e-2 if dtype == "float16" else 1e-4,
            atol=1e-3,
        )

    @cases("nn.matmul_nbits_packed")
    def rounded(s: Sizes) -> Case:
        made = pack_groups(_groups(s, k, n, bits, group, zeros), 16)
        assert made is not None
        return call(
            s.real(s.b, k),
            *_fixed(made.w, made.scale, made.offset),
            n=n,
            bits=bits,
            group=made.group,
            rows="int8",
            rtol=1e-4,
            atol=1e-3,
        )

    @cases("nn.matmul_nbits_dot")
    def dot(s: Sizes) -> Case:
        made = pack_groups(_groups(s, k, n, bits, group, zeros), 16)
        assert made is not None
        rows = s.rng.uniform(-2, 2, (s.b, k)).astype(np.float32)
        rows[:, k // 2] = 0
        parts = get_op_def("nn.quantize_groups").reference(rows, group=made.group)  # type: ignore[misc]
        given = [Array(p, (s.b, p.shape[-1])) for p in parts]
        return call(
            *given, *_fixed(made.w, made.scale, made.offset), n=n, bits=bits, group=made.group, rtol=1e-4, atol=1e-3
        )


for _bits in (2, 4, 8):
    for _group, _k, _n, _zeros in ((16, 40, 37, True), (32, 96, 16, False), (128, 130, 5, True)):
        _product(_bits, _group, _k, _n, _zeros)
_product(4, 64, 64, 33, False, ranks=3)
_product(4, 32, 50, 17, True, ranks=1, dtype="float16")


case("nn.quantize_groups", make=lambda s: call(s.real(s.d, s.b, 40), group=16, symbolic=False))
case("nn.quantize_groups", make=lambda s: call(s.real(s.b, 32), group=32))
