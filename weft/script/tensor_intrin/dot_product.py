"""Sums of products of small integers, the shape that processors have instructions for: what each name describes."""

# pyright: reportInvalidTypeForm=false, reportUnknownParameterType=false

from collections.abc import Callable
from typing import Any

from weft.script import tir
from weft.tir.schedule import TensorIntrin
from weft.tir.script.parsing import prim_func

T: Any = tir  # the language of programs


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
    of_a, of_b, of_c = dtypes

    @prim_func
    def desc(
        A: T.Buffer((group,), of_a, offset_factor=1, scope=scope),
        B: T.Buffer((lanes, group), of_b, offset_factor=1, scope=scope),
        C: T.Buffer((lanes,), of_c, offset_factor=1, scope=scope),
    ) -> None:
        with T.block("root"):
            T.reads(C[0:lanes], A[0:group], B[0:lanes, 0:group])
            T.writes(C[0:lanes])
            for i, k in T.grid(lanes, group):
                with T.block("update"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    C[vi] = C[vi] + T.cast(A[vk], of_c) * T.cast(B[vi, vk], of_c)

    @prim_func
    def impl(
        A: T.Buffer((group,), of_a, offset_factor=1, scope=scope),
        B: T.Buffer((lanes, group), of_b, offset_factor=1, scope=scope),
        C: T.Buffer((lanes,), of_c, offset_factor=1, scope=scope),
    ) -> None:
        with T.block("root"):
            T.reads(C[0:lanes], A[0:group], B[0:lanes, 0:group])
            T.writes(C[0:lanes])
            C[T.ramp(0, 1, lanes)] = instruction(
                C.vload([0], f"{of_c}x{lanes}"),
                A.vload([0], f"{of_a}x{group}"),
                B.vload([0, 0], f"{of_b}x{lanes * group}"),
            )

    return TensorIntrin.register(name, desc, impl, override=True)


def one_dot_product(name: str, dtypes: tuple[str, str, str], instruction: Callable[..., Any]) -> TensorIntrin:
    """Register ``C[0] += A[k] * B[k]`` for four k, the first two in shared memory, under a name.

    ``instruction(c, a, b)`` gives the new C from it and from the four elements of A and of B as 32 bits.
    """
    of_a, of_b, of_c = dtypes

    @prim_func
    def desc(
        A: T.Buffer((4,), of_a, offset_factor=1, align=4, scope="shared"),
        B: T.Buffer((4,), of_b, offset_factor=1, align=4, scope="shared"),
        C: T.Buffer((1,), of_c, offset_factor=1, align=4, scope="local"),
    ) -> None:
        with T.block("root"):
            T.reads(C[0], A[0:4], B[0:4])
            T.writes(C[0])
            for k in range(4):
                with T.block("update"):
                    vk = T.axis.R(4, k)
                    C[0] = C[0] + T.cast(A[vk], of_c) * T.cast(B[vk], of_c)

    @prim_func
    def impl(
        A: T.Buffer((4,), of_a, offset_factor=1, align=4, scope="shared"),
        B: T.Buffer((4,), of_b, offset_factor=1, align=4, scope="shared"),
        C: T.Buffer((1,), of_c, offset_factor=1, align=4, scope="local"),
    ) -> None:
        with T.block("root"):
            T.reads(C[0], A[0:4], B[0:4])
            T.writes(C[0])
            C[0] = instruction(C[0], _word(A, of_c), _word(B, of_c))

    return TensorIntrin.register(name, desc, impl, override=True)


def _word(bytes_of: Any, dtype: str) -> Any:
    """Return four bytes as the bits of one number, for which they need not lie at a multiple of four."""
    first, *rest = (T.cast(T.reinterpret("uint8", bytes_of[i]), dtype) for i in range(4))
    for i, byte in enumerate(rest):
        first = first | (byte << 8 * (i + 1))
    return first


def fills(value: Any, lanes: int, dtype: str = "int32") -> Any:
    """Return a vector of `lanes` times `dtype` in which the bits of a group are repeated."""
    return T.broadcast(T.reinterpret(dtype, value), lanes)
