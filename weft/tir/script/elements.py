"""Elements and regions of buffers in TIR programs: what subscripts give, and operators on slices."""

from collections.abc import Sequence
from typing import Any

from weft import ir
from weft.arith import Analyzer
from weft.error import ParseError
from weft.ir.text.evaluate import BINARY, SUBSCRIPT, Evaluator, operator_of
from weft.ir.text.scalar import slice_of
from weft.tir.buffer import Buffer, BufferLoad, BufferRegion
from weft.tir.typing import Index


@BINARY.on(BufferRegion)
def _slices(a: Any, b: Any, name: str, p: Evaluator) -> Any:
    """Compute with the elements that slices name."""
    a, b = (x.asobject() if isinstance(x, BufferRegion) else x for x in (a, b))
    if b is None:
        return -a if name == "negative" else ~a
    return operator_of(name)(a, b)


@SUBSCRIPT.on(Buffer)
def _element(buffer: Buffer, indices: tuple[Any, ...], p: Evaluator) -> Any:
    if len(indices) != len(buffer.shape):
        raise ParseError(
            f"buffer '{buffer.name}' has another number of dimensions",
            expected=str(len(buffer.shape)),
            found=f"{len(indices)} indices",
        )
    steps = any(isinstance(i, slice) and i.step is not None for i in indices)
    if steps or not any(isinstance(i, (slice, ir.Range)) for i in indices):
        return BufferLoad(buffer, as_lanes(indices, buffer))
    return BufferRegion(buffer, tuple(_range_of(i, d) for i, d in zip(indices, buffer.shape, strict=True)))


@SUBSCRIPT.on(ir.Var)
def _element_behind(pointer: Any, indices: tuple[Any, ...], p: Any) -> Any:
    memory = getattr(p.state, "memory", {}).get(pointer)
    return pointer[indices] if memory is None else _element(memory, indices, p)


def as_lanes(indices: Sequence[Index], buffer: Buffer) -> tuple[ir.PrimExpr, ...]:
    """Make vectors of slices: ``A[i : i + 8]`` and ``A[i : i + 16 : 2]`` have eight lanes."""
    out = []
    for index, dim in zip(indices, (*buffer.shape, *(ir.const(1, "int32") for _ in indices)), strict=False):
        if not isinstance(index, (slice, ir.Range)):
            out.append(ir.as_expr(index))
            continue
        step = index.step if isinstance(index, slice) and index.step is not None else 1
        r = _range_of(slice(index.start, index.stop) if isinstance(index, slice) else index, dim)
        extent, stride = ir.lanes_from(Analyzer().simplify(r.extent)), ir.as_int(step)
        if extent is None or stride is None or stride < 1:
            raise ParseError("a slice of elements has a constant length and step", found=f"{r.extent}, step {step}")
        count = extent if stride == 1 else -(-extent // stride)
        out.append(r.min if count == 1 else ir.Ramp(r.min, ir.const(stride, r.min.dtype), count))
    return tuple(out)


def _range_of(index: Any, dim: ir.PrimExpr) -> ir.Range:
    if isinstance(index, ir.Range):
        return index
    if not isinstance(index, slice):
        start = ir.as_expr(index)
        return ir.Range.from_min_extent(start, ir.const(1, start.dtype))
    if index.step is not None:
        raise ParseError("regions have no steps")
    low = index.start if index.start is not None else ir.const(0, dim.dtype)
    r = slice_of(low, index.stop if index.stop is not None else dim)
    if isinstance(r.extent, ir.IntImm) or not isinstance(r.extent, ir.Sub):
        return r
    return ir.Range.from_min_extent(r.min, Analyzer().simplify(r.extent))
