"""The buffers of a block, by the forms in which primitives take them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft import arith, ir
from weft.tir.analysis.access import access_regions, point_region
from weft.tir.analysis.structure import loops_around
from weft.tir.buffer import Buffer, BufferLoad, BufferRegion
from weft.tir.schedule.state import refuse
from weft.tir.stmt import Block, BlockRealize, BufferStore, Stmt

BufferName = tuple[str, int] | str | Buffer
"""A buffer of a block: ``("read" or "write", index)``, its name, or itself."""


def copy_block(
    iters: Sequence[ir.IterVar],
    source: Buffer,
    at: tuple[ir.PrimExpr, ...],
    target: Buffer,
    to: tuple[ir.PrimExpr, ...],
    name: str,
) -> Block:
    """Make the block that copies one element of a buffer, at indices of its variables, into another."""
    store = BufferStore(target, BufferLoad(source, at), to)
    return Block(tuple(iters), (point_region(source, at),), (point_region(target, to),), name, store)


def element_nest(
    target: Buffer, name: str, box: Sequence[ir.Range], element: Callable[..., ir.PrimExpr]
) -> tuple[Stmt, Block]:
    """Make a block that stores `element` of its indices at each place of a box of a buffer, and loops around it."""
    iters = tuple(ir.IterVar(r, ir.Var(f"v{i}", r.extent.dtype), "data_par") for i, r in enumerate(box))
    index = tuple(iv.var for iv in iters)
    store, analyzer = BufferStore(target, element(*index), index), arith.Analyzer()
    block = Block(iters, access_regions([store], analyzer)[0], (point_region(target, index),), name, store)
    loops = [ir.Var(f"ax{i}", v.dtype) for i, v in enumerate(index)]
    values = tuple(analyzer.simplify(v + r.min) for v, r in zip(loops, box, strict=True))
    return loops_around(BlockRealize(values, ir.TRUE, block), loops, [r.extent for r in box]), block


def place_of(block: Block, buffer: BufferName) -> tuple[str, int]:
    """Return a buffer of a block, given in any of its forms, as ``("read" or "write", index)``."""
    if isinstance(buffer, (tuple, list)):
        return buffer[0], buffer[1]
    reads = [r.buffer for r in block.reads]
    for kind, buffers in (("write", [w.buffer for w in block.writes]), ("read", reads)):
        for i, b in enumerate(buffers):
            if b is buffer or b.name == buffer:
                return kind, i
    names = ", ".join(b.name for b in (*reads, *(w.buffer for w in block.writes)))
    asked = buffer if isinstance(buffer, str) else buffer.name
    raise refuse(f"the block does not touch '{asked}'", block=block.name_hint, help=f"it touches {names}")


def region_of(block: Block, kind: str, buffer: int | str | Buffer) -> BufferRegion:
    """Return what a block reads or writes of a buffer, which is given by its place there, its name or itself.

    What a block writes is not found among what it reads, unless by its place there.
    """
    found, index = (kind, buffer) if isinstance(buffer, int) else place_of(block, buffer)
    if found != kind:
        verb = "does not write" if kind == "write" else "writes"
        name = buffer if isinstance(buffer, str) else buffer.name  # type: ignore[union-attr]
        raise refuse(f"the block {verb} '{name}'", block=block.name_hint)
    return region_at(block.writes if kind == "write" else block.reads, index, block.name_hint)


def region_at(regions: Sequence[BufferRegion], index: int, name: str) -> BufferRegion:
    """Return one of the regions of the block that is called `name`."""
    if not 0 <= index < len(regions):
        raise refuse(
            f"buffer index {index} is out of range",
            block=name,
            help="the buffers are " + ", ".join(r.buffer.name for r in regions),
        )
    return regions[index]


def buffer_at(block: Block, where: BufferName) -> Buffer:
    """Return a buffer of a block, given in any of its forms."""
    kind, index = place_of(block, where)
    if kind not in ("read", "write"):
        raise refuse(f"unknown kind of buffer '{kind}'", block=block.name_hint, help="'read' or 'write'")
    return region_of(block, kind, index).buffer
