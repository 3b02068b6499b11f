"""Sums of products of small integers, the shape that processors have instructions for: what each name describes."""

from collections.abc import Callable
from typing import Any

from weft import ir, tir
from weft.script import tir as script
from weft.script.tensor_intrin.register import Operand, adds, register_instruction
from weft.tir.schedule import TensorIntrin

T: Any = script  # the language of programs


def dot_products(
    name: str,
    lanes: int,
    group: int,
    dtypes: tuple[str, str, str],
    instruction: Callable[..., Any],
    scope: str = "global",
) -> TensorIntrin:
    """Register ``C[i] += sum over k of A[k] * B[i, k]`` under a name.

    Parameters
    ----------
    lanes, group : int
        How many sums there are, and the products of each.
    dtypes : (str, str, str)
        Of A, ``(group,)``, of B, ``(lanes, group)``, and of C, ``(lanes,)``.
    instruction : callable
        ``instruction(c, a, b)`` gives the new C from the three as vectors; B has ``lanes * group`` elements.
    scope : str
        The memory that all three are in.
    """
    shapes = ((group,), (lanes, group), (lanes,))
    operands = [Operand(shape, dtype, scope) for shape, dtype in zip(shapes, dtypes, strict=True)]

    def call(a: tir.Buffer, b: tir.Buffer, c: tir.Buffer) -> tir.Stmt:
        vectors = c.vload([0], f"{c.dtype}x{lanes}"), a.vload([0], f"{a.dtype}x{group}")
        whole = b.vload([0, 0], f"{b.dtype}x{lanes * group}")
        return tir.BufferStore(c, instruction(*vectors, whole), (T.ramp(0, 1, lanes),))

    return register_instruction(
        name, operands, "SR", (lanes, group), lambda a, b, c, i, k: adds(c, (i,), a[k], b[i, k]), call
    )


def one_dot_product(name: str, dtypes: tuple[str, str, str], instruction: Callable[..., Any]) -> TensorIntrin:
    """Register ``C[0] += A[k] * B[k]`` for four k, the first two in shared memory, under a name.

    ``instruction(c, a, b)`` gives the new C from it and from the four elements of A and of B as 32 bits.
    """
    of_a, of_b, of_c = dtypes
    operands = [Operand((4,), d, "shared", align=4) for d in (of_a, of_b)] + [Operand((1,), of_c, "local", align=4)]

    def call(a: tir.Buffer, b: tir.Buffer, c: tir.Buffer) -> tir.Stmt:
        return tir.BufferStore(c, instruction(c[0], _word(a, of_c), _word(b, of_c)), (ir.const(0),))

    return register_instruction(name, operands, "R", (4,), lambda a, b, c, k: adds(c, (0,), a[k], b[k]), call)


def _word(bytes_of: Any, dtype: str) -> Any:
    """Return four bytes as the bits of one number, for which they need not lie at a multiple of four."""
    first, *rest = (T.cast(T.reinterpret("uint8", bytes_of[i]), dtype) for i in range(4))
    for i, byte in enumerate(rest):
        first = first | (byte << 8 * (i + 1))
    return first


def fills(value: ir.PrimExpr, lanes: int, dtype: str = "int32") -> Any:
    """Return a vector of `lanes` times `dtype` in which the bits of a group are repeated."""
    return T.broadcast(T.reinterpret(dtype, value), lanes)
