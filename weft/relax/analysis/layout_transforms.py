"""Which layouts of a kernel's blocks and operands go with another layout of its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import arith, error, ir, tir
from weft.tir.analysis import loads_of, stores_of
from weft.tir.schedule import IndexMap

_Layout = tuple[ir.Var | None, ...]
"""The spatial axis of a block that each dimension of a buffer follows, None where it follows none."""


def suggest_layout_transforms(
    func: tir.PrimFunc, write_buffer_transforms: Sequence[IndexMap | Callable[..., Any]]
) -> dict[tir.Block, dict[tir.Block | tir.Buffer, IndexMap]]:
    """Suggest how the loops and operands of a kernel's blocks move when its results get another layout.

    Axes keep the order in which results are written. A block stays where it has blocks inside, writes several buffers,
    or writes by more than one axis a dimension; an operand stays that is read so, or in several ways.

    Parameters
    ----------
    func : PrimFunc
        A kernel of blocks.
    write_buffer_transforms : list of IndexMap or callable
        The layouts of its last parameters.

    Returns
    -------
    dict
        For each block that moves: its own map, that of the buffer that it writes, and those of buffers that it reads.

    Raises
    ------
    InvalidArgument
        When there are more maps than parameters, or a map has not as many indices as its buffer has dimensions.
    """
    maps = [m if isinstance(m, IndexMap) else IndexMap.from_func(m) for m in write_buffer_transforms]
    if len(maps) > len(func.params):
        raise error.InvalidArgument(
            "Incompatible PrimFunc and write_transformations",
            expected=f"at most {len(func.params)} maps",
            found=str(len(maps)),
        )
    buffers = dict(func.buffer_map)
    moved: dict[tir.Buffer, IndexMap] = {}
    for param, layout in zip(func.params[len(func.params) - len(maps) :], maps, strict=True):
        buffer = buffers.get(param)
        if buffer is None or len(buffer.shape) != len(layout.initial_indices):
            raise error.InvalidArgument(
                "Mismatch between output buffer shape and index map",
                expected=str(buffer and len(buffer.shape)),
                found=str(layout),
            )
        moved[buffer] = layout
    found = {b: _block(b, moved) for b in reversed(_outer_blocks(func.body))}
    return {b: maps for b, maps in reversed(found.items()) if maps}


def _outer_blocks(body: Any) -> list[tir.Block]:
    """List the blocks below the root, without those inside of others."""
    root = body.block if isinstance(body, tir.BlockRealize) else None
    inside = root.body if root is not None and root.name_hint == "root" else body
    blocks: list[Any] = ir.find(inside, tir.Block)
    nested = {x for b in blocks for x in ir.find(b.body, tir.Block)}
    return [b for b in blocks if b not in nested]


def _block(block: tir.Block, moved: dict[tir.Buffer, IndexMap]) -> dict[Any, IndexMap]:
    """Suggest the maps of one block, and note those of the buffers that it reads."""
    stores = stores_of(block.body)
    written = {s.buffer for s in stores}
    kinds = {iv.iter_type for iv in block.iter_vars}
    if len(block.writes) != 1 or ir.find(block.body, tir.Block) or kinds - {"data_par", "reduce"}:
        return {}
    target = block.writes[0].buffer
    if written != {target} or target not in moved:
        return {}
    axes = tuple(iv.var for iv in block.iter_vars)
    layouts = _layouts(block, [*stores, *loads_of(block.body)])
    write = layouts[target]
    own = None if write is None or None in write else _carried(write, moved[target], axes, axes)
    if write is None or own is None:
        return {}
    domain: Any = {i: iv.dom for i, iv in zip(own.initial_indices, block.iter_vars, strict=True)}
    if not arith.detect_iter_map(own.final_indices, domain, check_level="bijective").indices:
        return {}
    result: dict[Any, IndexMap] = {block: own, target: moved[target]}
    for region in block.reads:
        read = None if region.buffer in moved else layouts.get(region.buffer)
        layout = None if read is None else _carried(write, moved[target], read, axes)
        if layout is not None:
            moved[region.buffer] = result[region.buffer] = layout
    return result


def _layouts(block: tir.Block, accesses: Sequence[Any]) -> dict[tir.Buffer, _Layout | None]:
    """Find the layout of each buffer; None where accesses are no such layout, or several."""
    spatial: dict[ir.Var, Any] = {iv.var: iv.dom for iv in block.iter_vars if iv.iter_type == "data_par"}
    longer = [v for v, dom in spatial.items() if ir.as_int(dom.extent) != 1]
    result: dict[tir.Buffer, _Layout | None] = {}
    for access in accesses:
        fits = arith.detect_iter_map(access.indices, spatial, check_level="nocheck").indices or not access.indices
        used = [[v for v in longer if v in set(ir.find(i, ir.Var))] for i in access.indices]
        layout = tuple(next(iter(vs), None) for vs in used) if fits and all(len(vs) < 2 for vs in used) else None
        same = access.buffer not in result or result[access.buffer] == layout
        result[access.buffer] = layout if same else None
    return result


def _carried(source: _Layout, layout: IndexMap, target: _Layout, axes: tuple[ir.Var, ...]) -> IndexMap | None:
    """Carry a map of what follows `source` to what follows `target`; axes that it does not know stay in their place.

    None where these do not come in order, or an index is made of an axis that `target` has and one that it has not.
    """
    for follows in (source, target):
        places = [axes.index(v) for v in follows if v is not None]
        if places != sorted(set(places)):
            return None
    initial = [i for v, i in zip(source, layout.initial_indices, strict=True) if v in target]
    final: list[ir.PrimExpr] = []
    for index in layout.final_indices:
        used = set(ir.find(index, ir.Var))
        if used <= set(initial):
            final.append(index)
        elif used & set(initial):
            return None
    for place, v in enumerate(target):
        if v is None or v not in source:
            new = ir.Var("d", layout.initial_indices[0].dtype)
            initial.insert(place, new)
            final.insert(place, new)
    return IndexMap(tuple(initial), tuple(final))
