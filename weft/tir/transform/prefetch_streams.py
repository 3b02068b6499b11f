"""PrefetchStreams: loops that read long stretches of memory ask for what they will read some way ahead."""

from __future__ import annotations

from typing import Any

from weft.ir import (
    DataType,
    FloorDiv,
    IRModule,
    PrimExpr,
    Ramp,
    as_int,
    cast,
    const,
    fingerprint,
    function_pass,
    rewrite,
    substitute,
    walk,
)
from weft.tir.analysis.structure import replace_node, stmt_children
from weft.tir.buffer import BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.intrin import call_intrin
from weft.tir.stmt import Evaluate, For, Stmt, seq

__all__ = ["PANEL_MARK", "PREFETCH_MARK", "prefetch_streams"]

PREFETCH_MARK = "pragma_prefetch"
"""The annotation of a loop; its value is how many bytes ahead to ask."""

PANEL_MARK = "pragma_prefetch_panel"
"""The annotation of a loop that reads a panel again for each tile of the loop around it; its value is how many elements
further the next panel begins. Each tile asks for another part of the next panel, so that it comes from memory while
there is time: the first tile alone would wait for it."""

_NEAREST, _NEAR = 3, 2  # the first cache, the second
_LINE = 64
_LINES_OF_UNKNOWN = 2
"""Lines that an iteration asks for where the number of tiles is not known."""


@function_pass(kind=PrimFunc)
def prefetch_streams(func: PrimFunc, mod: IRModule) -> PrimFunc:
    """Ask, in loops with the annotation ``pragma_prefetch``, for each vector that they load, so many bytes ahead.

    The hardware follows a few streams by itself, and stops at each page; a product that reads a dozen panels of weights
    at once is faster when it is told.

    Loops with ``pragma_prefetch_panel`` read a panel of weights once for each tile of the loop around them. They ask
    for the next panel, each tile for another part of it.

    Requires
        Flat buffers, vectors.
    Ensures
        The same form, without the annotations. Addresses past the end of a buffer may be asked for, which does nothing.
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
        if isinstance(node, For) and any(_asks_for_panels(n) for n in _within(node.body)):
            node = replace_node(node, body=_ask_for_panels(node))
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
    return _asked(load, place, _NEAREST)


def _within(body: Any) -> list[Any]:
    """The statements that a loop runs in each iteration, those of inner loops left out."""
    found, stack = [], [body]
    while stack:
        node = stack.pop()
        found.append(node)
        if not isinstance(node, For) and isinstance(node, Stmt):
            stack += list(stmt_children(node))
    return found


def _asks_for_panels(node: Any) -> bool:
    return isinstance(node, For) and PANEL_MARK in node.annotations


def _ask_for_panels(tiles: For) -> Stmt:
    """Return the body of a loop over tiles, in which marked loops ask for their parts of the next panel."""

    def mark(node: Any) -> Any:
        if not _asks_for_panels(node):
            return node
        panel = int(node.annotations[PANEL_MARK])
        notes = node.annotations.without(PANEL_MARK)
        streams = _streams(node)
        place = _tile_number(tiles, streams[0].indices[0]) if streams else None
        asked = [] if place is None else _part_of_panel(node, streams[0], panel, *place)
        return For(
            node.loop_var, node.min, node.extent, node.kind, seq(*asked, node.body), node.thread_binding, notes,
            span=node.span,
        )  # fmt: skip

    return rewrite(tiles.body, mark)


def _tile_number(tiles: For, index: Any) -> tuple[PrimExpr, int | None] | None:
    """Which of the tiles over one panel a loop is at, and how many there are; None where that cannot be seen."""
    var = tiles.loop_var
    if not any(v is var for v in walk(index.base)):
        return var - tiles.min, as_int(tiles.extent)
    by = {as_int(n.b) for n in walk(index.base) if isinstance(n, FloorDiv) and n.a is var}
    count = by.pop() if len(by) == 1 else None
    return None if count is None else (var % const(count, var.dtype), count)


def _part_of_panel(loop: For, load: BufferLoad, panel: int, tile: PrimExpr, n_tiles: int | None) -> list[Stmt]:
    """Ask for lines of the next panel, each iteration and each tile for others."""
    steps = as_int(loop.extent)
    if steps is None:
        return []
    line = _LINE // DataType(load.buffer.dtype).itemsize
    lines = _LINES_OF_UNKNOWN if n_tiles is None else -(-panel // (line * steps * max(n_tiles, 1)))
    base: Any = load.indices[0].base  # type: ignore[attr-defined]
    begin = substitute(base, {loop.loop_var: loop.min})
    t = base.dtype
    first = (cast(t, tile) * const(steps, t) + cast(t, loop.loop_var - loop.min)) * const(lines * line, t)
    places = [begin + first + const(panel + i * line, t) for i in range(lines)]
    return [_asked(load, place, _NEAR) for place in places]


def _asked(load: BufferLoad, place: PrimExpr, locality: int) -> Stmt:
    address = call_intrin("handle", "tir.address_of", BufferLoad(load.buffer, (place,)))
    return Evaluate(call_intrin("void", "tir.prefetch", address, 0, locality, 1))
