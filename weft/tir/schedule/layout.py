"""Primitives on buffer layouts: transform_layout, storage_align."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from weft import arith, ir
from weft.tir.analysis.access import evaluate_interval, loads_of
from weft.tir.analysis.apart import numbered, values_at
from weft.tir.analysis.structure import bind_domains, blocks_in, replace_node, subst_stmt, used_vars
from weft.tir.buffer import Buffer, BufferLoad, BufferRegion
from weft.tir.schedule.block_buffers import BufferName, buffer_at, element_nest
from weft.tir.schedule.blocks import refresh_accesses
from weft.tir.schedule.cache import top_child
from weft.tir.schedule.compute_at import replace_buffer
from weft.tir.schedule.index_map import IndexMap
from weft.tir.schedule.state import ScheduleState, refuse
from weft.tir.stmt import Block, BufferStore, seq
from weft.tir.typing import Value


def transform_layout(
    state: ScheduleState,
    name: str,
    where: BufferName,
    index_map: Callable[..., Sequence[Any]] | IndexMap,
    pad_value: Value | IndexMap | None = None,
    assume_injective: bool = False,
) -> None:
    """Store a buffer in another order: element ``[i...]`` moves to ``[index_map(i...)]`` and all accesses follow.

    ``IndexMap.AXIS_SEPARATOR`` between indices separates the dimensions of the new buffer there. The buffer grows where
    the map does not fill its image; the surplus is never read. With a `pad_value` a buffer that the function fills
    holds that there; of a parameter that is read the caller promises it. An IndexMap as the padding gives
    it of the indices in the new buffer.
    """
    block = state.realize(name).block
    old = buffer_at(block, where)
    if old.strides:
        raise refuse(f"'{old.name}' has strides", block=name)
    state.check_loaded(old)
    analyzer = arith.Analyzer()
    sources = [ir.Var(f"i{n}", d.dtype) for n, d in enumerate(old.shape)]
    for v, d in zip(sources, old.shape, strict=True):
        analyzer.bind(v, ir.Range.from_min_extent(ir.const(0, v.dtype), d))
    marked = [ir.as_expr(e, "int64") for e in index_map(*sources)]
    image = [e for e in marked if not isinstance(e, ir.StringImm)]
    separators = (n for n, e in enumerate(marked) if isinstance(e, ir.StringImm) and e.value == IndexMap.AXIS_SEPARATOR)
    shape = _image_shape(image, sources, old, analyzer, name)
    if not assume_injective:
        _check_injective(image, sources, old, name)
    places = tuple(n - i for i, n in enumerate(separators))
    new = replace_node(old, data=ir.Var(old.name, "handle"), shape=shape, axis_separators=places)

    def indices(point: tuple[ir.PrimExpr, ...]) -> tuple[ir.PrimExpr, ...]:
        values = {v: ir.cast(v.dtype, i) for v, i in zip(sources, point, strict=True)}
        return tuple(subst_stmt(e, values) for e in image)

    def rule(node: object) -> object:
        if isinstance(node, (BufferLoad, BufferStore)) and node.buffer is old:
            return replace_node(node, buffer=new, indices=indices(node.indices))
        if isinstance(node, BufferRegion) and node.buffer is old:
            return BufferRegion(new, tuple(ir.Range(d) for d in new.shape))
        return node

    if pad_value is not None:
        padding = _padding(state, name, old, len(shape), pad_value)
        _fill_first(state, name, old, new, padding, _grown(image, sources, old, analyzer))
    users = [b.name_hint for b in blocks_in(state.body) if any(r.buffer is old for r in (*b.reads, *b.writes))]
    state.rewrite_body(lambda body: ir.substitute(ir.rewrite(body, rule), {old: new}))
    for user in users:
        current = state.realize(user).block
        state.replace(current, refresh_accesses(state, _simplified(current, new), user))
    _exchange_argument(state, old, new)


def _exchange_argument(state: ScheduleState, old: Buffer, new: Buffer) -> None:
    """Let the function take a buffer in the place of another, if that is an argument."""
    if state.is_argument(old):
        pairs = tuple((v, new if b is old else b) for v, b in state.func.buffer_map)
        state.func = replace_node(state.func, buffer_map=pairs)


def _grown(
    image: list[ir.PrimExpr], sources: list[ir.Var], old: Buffer, analyzer: arith.Analyzer
) -> tuple[int, ir.PrimExpr] | None:
    """Find the one index of the new buffer along which it grows at its end, and where its last, partial piece begins.

    That is ``i // c`` beside ``i % c``, where all other indices are variables; None where the map is of another form.
    """
    pieces = [(n, e) for n, e in enumerate(image) if not isinstance(e, ir.Var)]
    match sorted(pieces, key=lambda p: isinstance(p[1], ir.FloorMod)):
        case [(at, ir.FloorDiv(a=ir.Var() as i, b=ir.IntImm() as c)), (_, ir.FloorMod(a=j, b=ir.IntImm() as d))]:
            return (at, analyzer.simplify(old.shape[sources.index(i)] // c)) if i is j and c.value == d.value else None
        case _:
            return None


def _padding(
    state: ScheduleState, name: str, old: Buffer, rank: int, pad_value: Value | IndexMap
) -> Callable[..., ir.PrimExpr]:
    """Return what is stored at each index where the new buffer, of `rank` dimensions, grows."""

    def element(*index: ir.PrimExpr) -> ir.PrimExpr:
        value = pad_value
        if isinstance(pad_value, IndexMap):
            (made,) = pad_value(*index)
            counted = ir.is_integer(made.dtype) and ir.is_integer(old.dtype)
            value = made.value if isinstance(made, ir.IntImm) else ir.cast(old.dtype, made) if counted else made
        stored = ir.as_expr(value, old.dtype)
        if stored.dtype != old.dtype or (isinstance(value, float) and isinstance(stored, ir.IntImm)):
            raise refuse(f"the padding {value} is no {old.dtype}, which '{old.name}' holds", block=name)
        return stored

    known = {*state.func.params, *used_vars(*(d for _, b in state.func.buffer_map for d in b.shape))}
    probe = [ir.Var(f"i{n}", d) for n, d in enumerate([old.shape[0].dtype if old.shape else "int64"] * rank)]
    if isinstance(pad_value, IndexMap) and (len(pad_value.initial_indices), len(pad_value.final_indices)) != (rank, 1):
        raise refuse(f"the padding {pad_value.as_python()} is no number of {rank} indices", block=name)
    value = element(*probe)
    if loads_of(value) or not used_vars(value) <= {*probe, *known}:
        raise refuse(
            f"the padding {value} is made of more than the indices and the parameters of the function",
            block=name,
            help="give a number, or a function of the indices of the new buffer",
        )
    return element


def _fill_first(
    state: ScheduleState,
    name: str,
    old: Buffer,
    new: Buffer,
    padding: Callable[..., ir.PrimExpr],
    grown: tuple[int, ir.PrimExpr] | None,
) -> None:
    """Store the padding in the part of the new buffer that grew, or in all of it, before the first block writes it."""
    blocks = (b for b in blocks_in(state.body) if b.iter_vars and any(w.buffer is old for w in b.writes))
    writer = next((b.name_hint for b in blocks), None)
    if writer is None:
        return
    scope = state.scope_of_block(writer)
    path = state.path_to_block(writer)
    starts = [
        grown[1] if grown is not None and i == grown[0] else ir.const(0, d.dtype) for i, d in enumerate(new.shape)
    ]
    box = [
        ir.Range.from_min_extent(s, arith.Analyzer().simplify(d - s)) for d, s in zip(new.shape, starts, strict=True)
    ]
    nest, _ = element_nest(new, state.fresh_name(f"{old.name}_pad"), box, padding)
    top = top_child(scope, path)
    state.replace(top, seq(nest, top))


def _image_shape(
    image: list[ir.PrimExpr], sources: list[ir.Var], old: Buffer, analyzer: arith.Analyzer, name: str
) -> tuple[ir.PrimExpr, ...]:
    """Find how far each component of the map reaches."""
    domain = {v: (ir.const(0, v.dtype), d - 1) for v, d in zip(sources, old.shape, strict=True)}
    shape = []
    for e in image:
        box = evaluate_interval(analyzer.simplify(e), domain)
        low = None if box is None else analyzer.simplify(box[0])
        if box is None or not (isinstance(low, ir.IntImm) and low.value == 0):
            raise refuse(f"the index {e} has no known range from 0", block=name)
        shape.append(analyzer.simplify(box[1] + 1))
    return tuple(shape)


_POINTS = 1 << 16  # so many elements of a buffer are looked at one by one
_SIZES = (7, 11, 5, 13, 3), (11, 7, 13, 3, 5), (1 << 20, 6)
"""What symbolic dimensions are: one greater than the next and less, so that a wrong stride shows, and very many."""


def _check_injective(image: list[ir.PrimExpr], sources: list[ir.Var], old: Buffer, name: str) -> None:
    """Refuse a map that puts two elements in one place, as far as a corner of the buffer and a sample of it show."""
    mapped = f"the map ({', '.join(map(str, image))})"
    symbols = sorted(used_vars(*old.shape), key=lambda v: v.name)
    choices = []
    for sizes in _SIZES if symbols else _SIZES[:1]:
        values = {v: np.asarray(n) for v, n in zip(symbols, itertools.cycle(sizes), strict=False)}
        extents = [values_at(d, values) for d in old.shape]
        if all(e is None or e >= 0 for e in extents):  # others are no buffer's
            choices.append((values, extents))
    if not choices:
        raise refuse(
            f"{mapped} is of a buffer whose sizes are not known",
            block=name,
            help="assume_injective_transform=True says that elements stay apart",
        )
    for values, extents in choices:
        for points in _looks([_POINTS if e is None else int(e) for e in extents]):
            places = [values_at(e, values | dict(zip(sources, points, strict=True))) for e in image]
            known = [p for p in places if p is not None]
            if len(known) < len(places):
                raise refuse(
                    f"{mapped} has more than sums, products, quotients and remainders of "
                    f"the indices and dimensions of '{old.name}', so that it is not known whether elements "
                    "stay apart",
                    block=name,
                    help="assume_injective_transform=True says they do",
                )
            numbers = np.sort(numbered(known, points.shape[1]))
            if not (numbers[1:] != numbers[:-1]).all():
                raise refuse(
                    f"{mapped} puts several elements of '{old.name}' in one place",
                    block=name,
                    help="each index must be found again from the new indices, as i is from (i // 4, i % 4)",
                )


def _looks(extents: list[int]) -> Iterator[np.ndarray]:
    """Indices of all elements, or of those in a corner, then of some anywhere: ``(rank, count)`` int64."""
    corner = _corner(extents, _POINTS)
    if 0 not in corner:
        yield np.indices(corner).reshape(len(corner), math.prod(corner))
    if corner != extents:
        wide = _corner(extents, 1 << 62)
        some = np.unique(np.random.default_rng(0).integers(0, math.prod(wide), _POINTS))
        yield np.array(np.unravel_index(some, wide))


def _corner(extents: list[int], most: int) -> list[int]:
    """Extents of a corner that has `most` elements at most."""
    corner = list(extents)
    while math.prod(corner) > most:
        widest = corner.index(max(corner))
        corner[widest] //= 2
    return corner


def _simplified(block: Block, buffer: Buffer) -> Block:
    """Simplify the indices with which a block addresses `buffer`."""
    analyzer = bind_domains(arith.Analyzer(), block)

    def rule(node: object) -> object:
        if isinstance(node, (BufferLoad, BufferStore)) and node.buffer is buffer:
            return replace_node(node, indices=tuple(analyzer.simplify(i) for i in node.indices))
        return node

    return ir.rewrite(block, rule)


def storage_align(state: ScheduleState, name: str, buffer_index: int, axis: int, factor: int, offset: int) -> None:
    """Ask that the stride of an axis be ``factor * n + offset`` elements, against bank conflicts and cache aliasing."""
    block = state.realize(name).block
    if not 0 <= buffer_index < len(block.writes):
        raise refuse(f"buffer index {buffer_index} is out of range", block=name)
    buffer = block.writes[buffer_index].buffer
    axis = axis + len(buffer.shape) if axis < 0 else axis
    if not 0 <= axis < len(buffer.shape):
        raise refuse(f"axis {axis} is out of range for '{buffer.name}'", block=name)
    if factor <= 0:
        raise refuse(f"factor {factor} is not positive", block=name)
    if state.is_argument(buffer):
        raise refuse(f"'{buffer.name}' is a parameter of the function", block=name, help="cache it first")
    state.check_loaded(buffer, views=True)
    kept = tuple(t for t in (block.annotations.get("buffer_dim_align") or ()) if tuple(t[:2]) != (buffer_index, axis))
    notes = (*kept, (buffer_index, axis, factor, offset))
    state.replace(block, replace_node(block, annotations=ir.Attrs.of(block.annotations, buffer_dim_align=notes)))


def set_axis_separator(state: ScheduleState, name: str, where: BufferName, separators: Sequence[int]) -> None:
    """Note the separators of a buffer wherever it is used.

    Raises
    ------
    ScheduleError
        When they are not increasing numbers from 1 to the rank less 1.
    """
    block = state.realize(name).block
    old = buffer_at(block, where)
    steps = tuple(separators)
    if list(steps) != sorted(set(steps)) or any(not 0 < s < len(old.shape) for s in steps):
        raise refuse(
            f"{list(steps)} are no places between the {len(old.shape)} dimensions of '{old.name}'",
            block=name,
            help="increasing numbers from 1",
        )
    new = replace_node(old, axis_separators=steps)
    replace_buffer(state, old, new)
    _exchange_argument(state, old, new)
