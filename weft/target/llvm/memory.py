"""Emission of loads and stores: scalars, contiguous vectors, masked vectors, gathers and scatters."""

from __future__ import annotations

import operator
from typing import NamedTuple

from weft import arith, error, ir, tir
from weft.target.llvm.emitter import EXPR, FunctionEmitter, suffix
from weft.target.llvm.stream import is_streamed
from weft.target.llvm.types import memory_type


def pointer_of(s: FunctionEmitter, buffer: tir.Buffer) -> str:
    """Return the address of a buffer's first element."""
    pointer = s.pointers.get(buffer.data)
    if pointer is None:
        raise error.CodegenError(
            f"buffer '{buffer.name}' has no memory", help="is it a parameter, or allocated around its use?"
        )
    return pointer


def element_pointer(s: FunctionEmitter, buffer: tir.Buffer, index: ir.PrimExpr) -> str:
    """Return the address of an element of a flat buffer."""
    pointer = pointer_of(s, buffer)
    known = ir.as_int(index)
    if known == 0:
        return pointer
    text = str(known) if known is not None else s.expr(index)
    if index.dtype != "int64" and known is None:
        text = s.value(f"sext {memory_type(index.dtype)} {text} to i64")
    return s.value(f"getelementptr inbounds {memory_type(buffer.dtype)}, ptr {pointer}, i64 {text}", "p")


def alignment(buffer: tir.Buffer) -> int:
    """The alignment of an element in bytes."""
    return max(1, ir.DataType(buffer.dtype).itemsize)


@EXPR.on(tir.BufferLoad)
def _load(e: tir.BufferLoad, s: FunctionEmitter) -> str:
    index, dt, m, align = e.indices[0], ir.DataType(e.dtype), memory_type(e.dtype), alignment(e.buffer)
    if dt.lanes == 1 or ir.DataType(index.dtype).lanes == 1:  # an element may be a vector itself
        return _from_memory(s.effect(f"load {m}, ptr {element_pointer(s, e.buffer, index)}, align {align}"), dt, s)
    if isinstance(index, ir.Ramp) and ir.as_int(index.stride) == 1:
        pointer = element_pointer(s, e.buffer, index.base)
        if e.predicate is None:
            return _from_memory(s.effect(f"load {m}, ptr {pointer}, align {align}"), dt, s)
        if _whole(e.buffer, index):
            # a plain load, so that the buffer can live in registers
            return _from_memory(_selected(e, s.effect(f"load {m}, ptr {pointer}, align {align}"), s), dt, s)
        name = f"llvm.masked.load.{_memory_suffix(dt)}.p0"
        args = [("ptr", pointer), ("i32", str(align)), (f"<{dt.lanes} x i1>", s.expr(e.predicate))]
    elif isinstance(index, ir.Broadcast) and e.predicate is None:
        return s.splat(s.expr(tir.BufferLoad(e.buffer, (index.value,))), dt.element, dt.lanes)
    elif isinstance(index, ir.Ramp) and ir.as_int(index.stride) == 2 and dt.lanes >= 4 and e.buffer.scope != "local":
        return _from_memory(_alternate(e, index, s), dt, s)
    elif (near := _near_lanes(index, e.buffer)) is not None and _may_pick(e, near):
        return _from_memory(_selected(e, _picked(e, near, s), s), dt, s)
    else:
        return _from_memory(_gather(e, s), dt, s)
    return _from_memory(s.call(name, m, [*args, (m, "zeroinitializer")]), dt, s)


def _selected(e: tir.BufferLoad, value: str, s: FunctionEmitter) -> str:
    """Keep the lanes of a loaded vector that the mask has."""
    m = memory_type(e.dtype)
    mask = None if e.predicate is None else f"<{ir.DataType(e.dtype).lanes} x i1> {s.expr(e.predicate)}"
    return value if mask is None else s.value(f"select {mask}, {m} {value}, {m} zeroinitializer")


def _gather(e: tir.BufferLoad, s: FunctionEmitter) -> str:
    """Load lanes one by one."""
    index, dt, m = e.indices[0], ir.DataType(e.dtype), memory_type(e.dtype)
    mask = s.expr(e.predicate) if e.predicate is not None else s.constant("true", f"boolx{dt.lanes}")
    name = f"llvm.masked.gather.{_memory_suffix(dt)}.v{dt.lanes}p0"
    pointers = (f"<{dt.lanes} x ptr>", _pointers(e.buffer, index, s))
    args = [pointers, ("i32", str(alignment(e.buffer))), (f"<{dt.lanes} x i1>", mask)]
    return s.call(name, m, [*args, (m, "zeroinitializer")])


def _alternate(e: tir.BufferLoad, index: ir.Ramp, s: FunctionEmitter) -> str:
    """Load every other element: two whole vectors, of which the second ends at the last element, and a shuffle.

    A mask is spread over the elements in between, which are not loaded then.
    """
    n, m = index.lanes, memory_type(e.dtype)
    starts = (index.base, index.base + ir.const(n - 1, index.base.dtype))
    picks = [2 * i if i < n // 2 else n + 2 * i - (n - 1) for i in range(n)]
    parts = []
    for half, start in enumerate(starts):
        pointer, align = element_pointer(s, e.buffer, start), alignment(e.buffer)
        if e.predicate is None:
            parts.append(s.effect(f"load {m}, ptr {pointer}, align {align}"))
            continue
        lane_of = {p - half * n: lane for lane, p in enumerate(picks) if p // n == half}
        order = ", ".join(f"i32 {lane_of.get(i, n)}" for i in range(n))
        t = f"<{n} x i1>"
        spread = f"shufflevector {t} {s.expr(e.predicate)}, {t} zeroinitializer, <{n} x i32> <{order}>"
        args = [("ptr", pointer), ("i32", str(align)), (t, s.value(spread)), (m, "zeroinitializer")]
        parts.append(s.call(f"llvm.masked.load.{_memory_suffix(ir.DataType(e.dtype))}.p0", m, args))
    order = ", ".join(f"i32 {p}" for p in picks)
    return s.value(f"shufflevector {m} {parts[0]}, {m} {parts[1]}, <{n} x i32> <{order}>")


_Lanes = tuple[ir.PrimExpr, list[int], ir.PrimExpr, list[int]]
"""A number, and what is added to it in each lane: a known step, and a known multiple of a number that is not known."""


class _Window(NamedTuple):
    """Lanes that lie within one vector: its least index, how many elements it has, and which is whose lane's."""

    least: ir.PrimExpr
    size: int
    steps: dict[int, int]


def _near_lanes(index: ir.PrimExpr, buffer: tir.Buffer) -> list[_Window] | None:
    """Return the windows in which all lanes lie, where it is known how far they are apart, and windows are few.

    Sizes are powers of two where that leads past neither end of the whole: LLVM picks from others element by element.
    Those of a local buffer are whole vectors, as they were stored, which may be registers.
    """
    found = _lanes(index)
    if found is None:
        return None
    base, steps, unit, times = found
    n, groups = len(steps), []
    if buffer.scope == "local" and (start := ir.as_int(base)) is not None and not any(times):
        places = [start + step for step in steps]
        begins = sorted({at // n * n for at in places})
        if begins[0] >= 0 and begins[-1] + n <= (ir.as_int(buffer.shape[0]) or 0):
            lanes = ({i: at - k for i, at in enumerate(places) if at // n * n == k} for k in begins)
            return [_Window(ir.const(k, base.dtype), n, own) for k, own in zip(begins, lanes, strict=True)]
    for lane in sorted(range(n), key=lambda i: (times[i], steps[i])):
        if not groups or times[lane] != times[groups[-1][0]] or steps[lane] - steps[groups[-1][0]] >= n:
            groups.append([])
        groups[-1].append(lane)
    if len(groups) > max(1, n // 2):
        return None
    windows = []
    for lanes in groups:
        row = times[lanes[0]]
        own = [step for step, at in zip(steps, times, strict=True) if at == row]
        first, size = steps[lanes[0]], steps[lanes[-1]] - steps[lanes[0]] + 1
        size = whole if (whole := 1 << (size - 1).bit_length()) <= max(own) - min(own) + 1 else size
        least = min(first, max(own) - size + 1)
        start = base + ir.const(least, base.dtype) + unit * ir.const(row, base.dtype)
        windows.append(_Window(start, size, {i: steps[i] - least for i in lanes}))
    return windows


def _may_pick(e: tir.BufferLoad, windows: list[_Window]) -> bool:
    """Whether windows of a buffer may be loaded: no mask keeps from it, or those of a local one are numbers inside."""
    if e.buffer.scope != "local":
        return e.predicate is None
    size, starts = ir.as_int(e.buffer.shape[0]) or 0, [ir.as_int(w.least) for w in windows]
    return all(k is not None and 0 <= k <= size - w.size for k, w in zip(starts, windows, strict=True))


def _lanes(index: ir.PrimExpr) -> _Lanes | None:
    """Take a vector of integers apart."""
    if isinstance(index, ir.Broadcast):
        return index.value, [0] * index.lanes, index.value, [0] * index.lanes
    if isinstance(index, ir.Ramp):
        stride, none = ir.as_int(index.stride), [0] * index.lanes
        return None if stride is None else (index.base, [stride * i for i in range(index.lanes)], index.base, none)
    if isinstance(index, ir.Cast):
        a, scalar = _lanes(index.value), ir.DataType(index.dtype).element
        return None if a is None else (ir.cast(scalar, a[0]), a[1], ir.cast(scalar, a[2]), a[3])
    if isinstance(index, (ir.Add, ir.Sub)):
        a, b = _lanes(index.a), _lanes(index.b)
        if a is None or b is None or (any(a[3]) and any(b[3]) and not ir.structural_equal(a[2], b[2])):
            return None
        add = operator.add if isinstance(index, ir.Add) else operator.sub
        return add(a[0], b[0]), [*map(add, a[1], b[1])], a[2] if any(a[3]) else b[2], [*map(add, a[3], b[3])]
    if isinstance(index, (ir.FloorDiv, ir.FloorMod, ir.Mul)) and isinstance(index.b, ir.Broadcast):
        a, by = _lanes(index.a), ir.as_int(index.b.value)
        if a is None or isinstance(index, ir.Mul):
            return a and _times(a, index.b.value)
        if any(a[3]) or not by or by < 0:
            return None
        divisor = ir.const(by, a[0].dtype)
        over = ir.as_int(arith.Analyzer().simplify(ir.floormod(a[0], divisor)))
        if over is None:  # lanes differ by what the number leaves
            return None
        if isinstance(index, ir.FloorMod):
            return ir.const(0, a[0].dtype), [(over + x) % by for x in a[1]], a[2], a[3]
        return ir.floordiv(a[0], divisor), [(over + x) // by for x in a[1]], a[2], a[3]
    return None


def _times(a: _Lanes, factor: ir.PrimExpr) -> _Lanes | None:
    """Multiply a vector that was taken apart; by a number that is not known, what was known becomes its multiple."""
    (base, steps, unit, times), by = a, ir.as_int(factor)
    if by is not None:
        return base * factor, [x * by for x in steps], unit, [x * by for x in times]
    if any(steps) and any(times):
        return None
    unit, times = (unit * factor, times) if any(times) else (factor, steps)
    return base * factor, [0] * len(times), unit, times


def _picked(e: tir.BufferLoad, windows: list[_Window], s: FunctionEmitter) -> str:
    """Load each window at once, pick its lanes, and put those of windows together."""
    lanes, element, result = ir.DataType(e.dtype).lanes, ir.DataType(e.buffer.dtype), ""
    held: dict[int, int] = {}

    def pick(n: int, a: str, b: str, steps: dict[int, int]) -> str:
        order = ", ".join(f"i32 {steps[i]}" if i in steps else "i32 poison" for i in range(lanes))
        t = memory_type(f"{element}x{n}")
        return s.value(f"shufflevector {t} {a}, {t} {b}, <{lanes} x i32> <{order}>")

    for least, n, steps in windows:
        m = memory_type(f"{element}x{n}" if n > 1 else element)
        part = s.effect(f"load {m}, ptr {element_pointer(s, e.buffer, least)}, align {alignment(e.buffer)}")
        if n == 1:
            part = s.splat(part, "uint8" if element.code == "bool" else element, lanes)
        if n != lanes:
            part, steps = part if n == 1 else pick(n, part, "poison", steps), {i: i for i in steps}
        if result:
            steps = held | {i: lanes + p for i, p in steps.items()}
            part, steps = pick(lanes, result, part, steps), {i: i for i in steps}
        result, held = part, steps
    return result if all(i == p for i, p in held.items()) else pick(lanes, result, "poison", held)


def _whole(buffer: tir.Buffer, index: ir.Ramp) -> bool:
    """Whether all lanes of a contiguous access to a local buffer exist, also those that a mask leaves out."""
    base, size = ir.as_int(index.base), ir.as_int(buffer.shape[0])
    return buffer.scope == "local" and base is not None and size is not None and 0 <= base <= size - index.lanes


def _memory_suffix(dt: ir.DataType) -> str:
    return suffix(f"uint8x{dt.lanes}" if dt.code == "bool" else dt)


def _pointers(buffer: tir.Buffer, index: ir.PrimExpr, s: FunctionEmitter) -> str:
    lanes = ir.DataType(index.dtype).lanes
    t = f"<{lanes} x {memory_type(ir.DataType(index.dtype).element)}>"
    return s.value(
        f"getelementptr inbounds {memory_type(buffer.dtype)}, ptr {pointer_of(s, buffer)}, {t} {s.expr(index)}"
    )


def _from_memory(value: str, dt: ir.DataType, s: FunctionEmitter) -> str:
    if dt.code != "bool":
        return value
    return s.value(
        f"icmp ne {memory_type(dt)} {value}, {s.constant('0', f'uint8x{dt.lanes}' if dt.lanes > 1 else 'uint8')}"
    )


def store(
    s: FunctionEmitter, buffer: tir.Buffer, index: ir.PrimExpr, value: ir.PrimExpr, predicate: ir.PrimExpr | None
) -> None:
    """Emit a store, masked where there is a predicate."""
    dt = ir.DataType(value.dtype)
    text, m, align = s.expr(value), memory_type(value.dtype), alignment(buffer)
    if dt.code == "bool":
        text = s.value(f"zext {'i1' if dt.lanes == 1 else f'<{dt.lanes} x i1>'} {text} to {m}")
    if dt.lanes == 1 or ir.DataType(index.dtype).lanes == 1:
        s.emit(f"store {m} {text}, ptr {element_pointer(s, buffer, index)}, align {align}")
        return
    if isinstance(index, ir.Ramp) and ir.as_int(index.stride) == 1:
        pointer = element_pointer(s, buffer, index.base)
        if predicate is None:
            n_bytes = dt.lanes * ir.DataType(buffer.dtype).itemsize
            if s.streamed and is_streamed(s, buffer, index.base, n_bytes):
                s.emit(f"store {m} {text}, ptr {pointer}, align {n_bytes}, !nontemporal !1")
            else:
                s.emit(f"store {m} {text}, ptr {pointer}, align {align}")
            return
        name = f"llvm.masked.store.{_memory_suffix(dt)}.p0"
        args = [(m, text), ("ptr", pointer), ("i32", str(align)), (f"<{dt.lanes} x i1>", s.expr(predicate))]
    else:
        name = f"llvm.masked.scatter.{_memory_suffix(dt)}.v{dt.lanes}p0"
        mask = s.expr(predicate) if predicate is not None else s.constant("true", f"boolx{dt.lanes}")
        pointers = (f"<{dt.lanes} x ptr>", _pointers(buffer, index, s))
        args = [(m, text), pointers, ("i32", str(align)), (f"<{dt.lanes} x i1>", mask)]
    s.module.declare(name, f"declare void @{name}({', '.join([t for t, _ in args])})")
    s.emit(f"call void @{name}({', '.join([f'{t} {v}' for t, v in args])})")
