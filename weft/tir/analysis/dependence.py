"""Who feeds whom among the blocks of a scope, and the kinds of block that schedules may move."""

from __future__ import annotations

from collections.abc import Iterable

from weft.ir import TRUE, IntImm, PrimExpr, Var, is_const_int
from weft.tir.analysis.apart import initialises, writes_apart
from weft.tir.analysis.structure import child_realizes, used_vars
from weft.tir.buffer import Buffer
from weft.tir.stmt import Block, BlockRealize, BufferStore, For


def writes_buffer(block: Block, buffer: Buffer) -> bool:
    """Whether the block writes `buffer`."""
    return any(r.buffer is buffer for r in block.writes)


def reads_buffer(block: Block, buffer: Buffer) -> bool:
    """Whether the block reads `buffer`; a reduction that adds to its own output does not count."""
    return any(r.buffer is buffer for r in block.reads) and not (writes_buffer(block, buffer) and reduce_vars(block))


def producers_of(block: Block, scope: Block) -> list[BlockRealize]:
    """List the realizations in `scope` that write a buffer which `block` reads."""
    return [
        r
        for r in child_realizes(scope)
        if r.block is not block and any(reads_buffer(block, w.buffer) for w in r.block.writes)
    ]


def consumers_of(block: Block, scope: Block) -> list[BlockRealize]:
    """List the realizations in `scope` that read a buffer which `block` writes."""
    return [
        r
        for r in child_realizes(scope)
        if r.block is not block and any(reads_buffer(r.block, w.buffer) for w in block.writes)
    ]


def touches(block: Block, buffers: Iterable[Buffer], writes_only: bool = False) -> bool:
    """Whether the block writes one of `buffers`, or reads one."""
    regions = block.writes if writes_only else (*block.reads, *block.writes)
    return any(r.buffer is b for r in regions for b in buffers)


def blocks_from_to(scope: Block, first: BlockRealize, last: BlockRealize) -> list[BlockRealize]:
    """List what runs in `scope` after `first` and before `last`, in the order written."""
    order = child_realizes(scope)
    at = [next(i for i, r in enumerate(order) if r is end) for end in (first, last)]
    return order[at[0] + 1 : at[1]]


def spatial_vars(block: Block) -> list[Var]:
    """List the data-parallel variables of a block."""
    return [iv.var for iv in block.iter_vars if iv.iter_type == "data_par"]


def reduce_vars(block: Block) -> list[Var]:
    """List the reduction variables of a block."""
    return [iv.var for iv in block.iter_vars if iv.iter_type == "reduce"]


def is_data_parallel(block: Block) -> bool:
    """Whether all variables of a block are data-parallel."""
    return all(iv.iter_type == "data_par" for iv in block.iter_vars)


def is_complete(realize: BlockRealize, scope: Block) -> bool:
    """Whether the block alone writes its outputs, each element once, and never reads them."""
    block = realize.block
    if not is_data_parallel(block):
        return False
    alone = all(sum(writes_buffer(r.block, w.buffer) for r in child_realizes(scope)) == 1 for w in block.writes)
    return alone and not any(r.buffer is w.buffer for r in block.reads for w in block.writes) and writes_apart(block)


def is_reduction(realize: BlockRealize, scope: Block) -> bool:
    """Whether the block alone writes its outputs, adding up over reduction variables that no output index contains."""
    block = realize.block
    if not initialises(block) or any(iv.iter_type not in ("data_par", "reduce") for iv in block.iter_vars):
        return False
    if not all(sum(writes_buffer(r.block, w.buffer) for r in child_realizes(scope)) == 1 for w in block.writes):
        return False
    reducing = set(reduce_vars(block))
    fixed = all(used_vars(r.min, r.extent).isdisjoint(reducing) for w in block.writes for r in w.region)
    return fixed and writes_apart(block)


def loop_kind(loop: For) -> str:
    """Return the kind of the block variables that a loop decides: "data_par", "reduce", or "mixed"."""
    kinds = {
        iv.iter_type
        for r in child_realizes(loop.body)
        for iv, value in zip(r.block.iter_vars, r.iter_values, strict=True)
        if loop.loop_var in used_vars(value)
    }
    return "mixed" if len(kinds) > 1 else kinds.pop() if kinds else "data_par"


def is_plain_store(block: Block) -> BufferStore | None:
    """Return the only store of a block whose body is nothing else, or None."""
    return block.body if isinstance(block.body, BufferStore) and block.init is None else None


def plain_indices(indices: tuple[PrimExpr, ...], block: Block) -> bool:
    """Whether `indices` are distinct variables of the block, each over its whole domain, or zeros."""
    seen: set[Var] = set()
    names = set(spatial_vars(block))
    for i in indices:
        if isinstance(i, Var) and i in names and i not in seen:
            seen.add(i)
        elif not is_const_int(i, 0):
            return False
    return True


def has_trivial_predicate(realize: BlockRealize) -> bool:
    """Whether the block runs for all values of its loops."""
    return realize.predicate is TRUE or (isinstance(realize.predicate, IntImm) and bool(realize.predicate.value))
