"""Products of matrices by a library's function, which kernels call by its global name (TVM's ``contrib.cblas``).

The functions ``tvm.contrib.cblas.*`` are registered when this module is imported, unless somebody has: NumPy's own
BLAS computes them.
"""

from typing import Any

import numpy as np

from weft import te
from weft.ffi import get_global_func, register_global_func
from weft.runtime import Tensor
from weft.tir import call_packed
from weft.topi.typing import Buffers

_PREFIX = "tvm.contrib.cblas."


def matmul(lhs: te.Tensor, rhs: te.Tensor, transa: bool = False, transb: bool = False, **kwargs: Any) -> te.Tensor:
    """Multiply two matrices, each transposed where that is said; `kwargs` are those of ``te.extern``."""
    shape = (lhs.shape[1 if transa else 0], rhs.shape[0 if transb else 1])
    return _product("matmul", shape, lhs, rhs, transa, transb, kwargs)


def batch_matmul(
    lhs: te.Tensor, rhs: te.Tensor, transa: bool = False, transb: bool = False, iterative: bool = False, **kwargs: Any
) -> te.Tensor:
    """Multiply matrices in pairs, ``(batch, n, k)`` and ``(batch, k, m)``; with `iterative` one pair after another."""
    shape = (lhs.shape[0], lhs.shape[2 if transa else 1], rhs.shape[1 if transb else 2])
    name = "batch_matmul_iterative" if iterative else "batch_matmul"
    return _product(name, shape, lhs, rhs, transa, transb, kwargs)


def _product(name: str, shape: Any, lhs: Any, rhs: Any, transa: bool, transb: bool, options: dict[str, Any]) -> Any:
    def body(ins: Buffers, outs: Buffers) -> Any:
        return call_packed(_PREFIX + name, ins[0], ins[1], outs[0], transa, transb)

    return te.extern(shape, [lhs, rhs], body, name="C", **options)


def _compute(a: Tensor, b: Tensor, out: Tensor, transa: bool = False, transb: bool = False) -> None:
    x, y = a.numpy(), b.numpy()
    np.matmul(
        x.swapaxes(-1, -2) if transa else x, y.swapaxes(-1, -2) if transb else y, out=out.numpy(), casting="unsafe"
    )


for _name in ("matmul", "batch_matmul", "batch_matmul_iterative"):
    if get_global_func(_PREFIX + _name, allow_missing=True) is None:
        register_global_func(_PREFIX + _name, _compute)
