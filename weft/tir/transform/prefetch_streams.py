"""PrefetchStreams: loops that read long stretches of memory ask for what they will read some way ahead."""

from __future__ import annotations

from typing import Any

from weft.ir import (
    DataType,
    IRModule,
    PrimExpr,
    Ramp,
    as_int,
    const,
    fingerprint,
    function_pass,
    rewrite,
    walk,
)
from weft.tir.buffer import BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.intrin import call_intrin
from weft.tir.stmt import Evaluate, For, Stmt, seq

__all__ = ["PREFETCH_MARK", "prefetch_streams"]

PREFETCH_MARK = "pragma_prefetch"
"""The annotation of a loop; its value is how many bytes ahead to ask."""


@function_pass(kind=PrimFunc)
def prefetch_streams(func: PrimFunc, mod: IRModule) -> PrimFunc:
    """Ask, in loops with the annotation ``pragma_prefetch``, for each vector that they load, so many bytes ahead.

    The hardware follows a few streams by itself, and stops at each page; a product that reads a dozen panels of weights
    at once is faster when it is told.

    Requires
        Flat buffers, vectors.
    Ensures
        The same form, without the annotation. Addresses past the end of a buffer may be asked for, which does nothing.
    Example
        Before::

            @T.prim_func
            def f(A: T.Buffer((1024,), "float32"), B: T.Buffer((16,), "float32")):
                for i in T.serial(64, annotations={"pragma_prefetch": 1024}):
                    B[T.Ramp(0, 1, 16)] = B[T.Ramp(0, 1, 16)] + A[T.Ramp(i * 16, 1, 16)]

        After::

            @T.prim_func
            def f(A: T.Buffer((1024,), "float32"), B: T.Buffer((16,), "float32")):
                for i in range(64):
                    T.call_intrin("void", "tir.prefetch", T.address_of(A[i * 16 + 256]), 0, 3, 1)
                    B[T.Ramp(0, 1, 16)] = B[T.Ramp(0, 1, 16)] + A[T.Ramp(i * 16, 1, 16)]
    Cost
        Linear.
    Source
        None.
    """

    def mark(node: Any) -> Any:
        if not isinstance(node, For) or PREFETCH_MARK not in node.annotations:
            return node
        ahead = int(node.annotations[PREFETCH_MARK])
        asked = [_ask(load, ahead) for load in _streams(node)]
        return For(
            node.loop_var, node.min, node.extent, node.kind, seq(*asked, node.body), node.thread_binding,
            node.annotations.without(PREFETCH_MARK), span=node.span,
        )  # fmt: skip

    return rewrite(func, mark)


def _streams(loop: For) -> list[BufferLoad]:
    """The vectors that a loop loads from other places in each iteration, each once."""
    found: dict[str, BufferLoad] = {}
    for node in walk(loop.body):
        if not isinstance(node, BufferLoad) or len(node.indices) != 1:
            continue
        index = node.indices[0]
        if not isinstance(index, Ramp) or as_int(index.stride) != 1:
            continue
        if any(v is loop.loop_var for v in walk(index.base)):
            found.setdefault(f"{id(node.buffer)} {_text(index)}", node)
    return list(found.values())


def _text(index: PrimExpr) -> str:
    return f"{index} {fingerprint(index)}"


def _ask(load: BufferLoad, ahead: int) -> Stmt:
    base: Any = load.indices[0].base  # type: ignore[attr-defined]
    place = base + const(ahead // DataType(load.buffer.dtype).itemsize, base.dtype)
    address = call_intrin("handle", "tir.address_of", BufferLoad(load.buffer, (place,)))
    return Evaluate(call_intrin("void", "tir.prefetch", address, 0, 3, 1))
