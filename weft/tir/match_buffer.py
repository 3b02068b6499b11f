"""Inside a block, a matched buffer is another name for a region: address the region itself."""

from __future__ import annotations

from typing import Any

from weft import ir
from weft.arith import Analyzer
from weft.error import LoweringError
from weft.ir import PrimExpr, Var, const, is_const_int, rewrite, substitute
from weft.tir.analysis.access import source_ranges
from weft.tir.analysis.structure import replace_node
from weft.tir.buffer import BufferLoad, BufferRegion, MatchBufferRegion
from weft.tir.stmt import BufferStore, Stmt


def lower_match_buffers(body: Stmt, matches: tuple[MatchBufferRegion, ...], where: ir.Span | None) -> Stmt:
    """Replace accesses to matched buffers by accesses to what they stand for.

    Variables in the shape, strides and offset of a matched buffer take their values from the region.

    Raises
    ------
    LoweringError
        When the region is not known to have the declared shape, strides and offset.
    """
    for match in reversed(matches):  # an inner match may name a region of an outer one
        body = _lower(body, match, where)
    return body


def _lower(body: Stmt, match: MatchBufferRegion, where: Any) -> Stmt:
    target, source, region = match.buffer, match.source.buffer, match.source.region
    lead = len(region) - len(target.shape)
    if lead < 0 or not all(is_const_int(r.extent, 1) for r in region[:lead]):
        raise LoweringError(
            f"match_buffer: '{target.name}' does not have the shape of its region",
            expected=f"{[str(r.extent) for r in region]}",
            found=f"{[str(d) for d in target.shape]}",
            where=where,
        )
    values: dict[Any, PrimExpr] = {target.data: source.data}
    strides = source.element_strides()
    start: PrimExpr = const(0, "int64") if source.elem_offset is None else source.elem_offset
    for r, s in zip(region, strides, strict=True):
        start = start + r.min * s
    declared = [*zip(target.shape, (r.extent for r in region[lead:]), strict=True)]
    if target.strides:
        declared += zip(target.strides, strides[lead:], strict=True)
    if target.elem_offset is not None:
        declared.append((target.elem_offset, start))
    for expected, found in declared:
        if isinstance(expected, Var) and expected not in values:
            values[expected] = found.astype(expected.dtype)
        elif not Analyzer().can_prove_equal(substitute(expected, values), found.astype(expected.dtype)):
            raise LoweringError(
                f"match_buffer: '{target.name}' does not fit its region of '{source.name}'",
                expected=str(expected),
                found=str(found),
                where=where,
            )

    def moved(indices: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        inner = (r.min + i for r, i in zip(region[lead:], indices, strict=True))
        return (*(r.min for r in region[:lead]), *inner)

    def rule(node: Any) -> Any:
        if isinstance(node, (BufferLoad, BufferStore)) and node.buffer is target:
            return replace_node(node, buffer=source, indices=moved(node.indices))
        if isinstance(node, BufferRegion) and node.buffer is target:
            return BufferRegion(source, source_ranges(match.source, node.region))
        return node

    return substitute(rewrite(body, rule), values)
