"""Inside a block, a matched buffer is another name for a region: address the region itself."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from weft import ir
from weft.arith import Analyzer
from weft.error import LoweringError
from weft.ir import PrimExpr, Var, const, is_const_int, rewrite, substitute, walk
from weft.tir.analysis.access import source_ranges
from weft.tir.analysis.structure import replace_node, used_vars
from weft.tir.analysis.verify import introduced
from weft.tir.buffer import BufferLoad, BufferRegion, MatchBufferRegion
from weft.tir.function import PrimFunc
from weft.tir.stmt import BufferStore, Stmt


def lower_match_buffers(
    body: Stmt, matches: tuple[MatchBufferRegion, ...], where: ir.Span | None, bound: Container[Var]
) -> Stmt:
    """Replace accesses to matched buffers by accesses to what they stand for.

    Variables in the shape, strides and offset of a matched buffer take their values from the region, unless they are
    `bound`.

    Raises
    ------
    LoweringError
        When the region is not known to have the declared shape, strides and offset, or the buffer, which declares no
        offset, is used by its address and the region may start elsewhere.
    """
    for match in reversed(matches):  # an inner match may name a region of an outer one
        body = _lower(body, match, where, bound)
    return body


def bound_names(func: PrimFunc) -> frozenset[Var]:
    """Return the variables that a function introduces otherwise than by the matched buffers of its blocks."""
    declared = ((*b.shape, *b.strides, b.elem_offset) for _, b in func.buffer_map)
    return frozenset(v for n in walk(func) for v in introduced(n)) | used_vars(*(e for es in declared for e in es))


def _lower(body: Stmt, match: MatchBufferRegion, where: Any, bound: Container[Var]) -> Stmt:
    target, source, region = match.buffer, match.source.buffer, match.source.region
    lead = len(region) - len(target.shape)
    if lead < 0 or not all(is_const_int(r.extent, 1) for r in region[:lead]):
        raise LoweringError(
            f"match_buffer: '{target.name}' does not have the shape of its region",
            expected=f"{[str(r.extent) for r in region]}",
            found=f"{[str(d) for d in target.shape]}",
            where=where,
        )
    start: PrimExpr = const(0, "int64") if source.elem_offset is None else source.elem_offset
    for r, stride in zip(region, source.element_strides(), strict=True):
        start = start + r.min * stride
    values = _declared_values(match, start, where, bound)

    def moved(indices: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        inner = (r.min + i for r, i in zip(region[lead:], indices, strict=True))
        return (*(r.min for r in region[:lead]), *inner)

    def rule(node: ir.Node) -> Any:
        if isinstance(node, (BufferLoad, BufferStore)) and node.buffer is target:
            return replace_node(node, buffer=source, indices=moved(node.indices))
        if isinstance(node, BufferRegion) and node.buffer is target:
            return BufferRegion(source, source_ranges(match.source, node.region))
        return node

    moved_body = rewrite(body, rule)
    if target.elem_offset is None and target.data in used_vars(moved_body) and not Analyzer().can_prove_equal(start, 0):
        raise LoweringError(
            f"match_buffer: '{target.name}' is used by its address and declares no offset",
            expected="elem_offset, or offset_factor, which takes it from the region",
            found=f"a region that starts at {start}",
            where=where,
        )
    return substitute(moved_body, values)


def _declared_values(
    match: MatchBufferRegion, start: PrimExpr, where: Any, bound: Container[Var]
) -> dict[Any, PrimExpr]:
    """What the free variables of a matched buffer are; what else it declares is what the region has."""
    target, source = match.buffer, match.source.buffer
    values: dict[Any, PrimExpr] = {target.data: source.data}
    lead = len(source.shape) - len(target.shape)
    declared = [*zip(target.shape, (r.extent for r in match.source.region[lead:]), strict=True)]
    if target.strides:
        declared += zip(target.strides, source.element_strides()[lead:], strict=True)
    if target.elem_offset is not None:
        declared.append((target.elem_offset, start))
    for expected, found in declared:
        if isinstance(expected, Var) and expected not in values and expected not in bound:
            values[expected] = found.astype(expected.dtype)
        elif not Analyzer().can_prove_equal(substitute(expected, values), found.astype(expected.dtype)):
            raise LoweringError(
                f"match_buffer: '{target.name}' does not fit its region of '{source.name}'",
                expected=str(expected),
                found=str(found),
                where=where,
            )
    return values
