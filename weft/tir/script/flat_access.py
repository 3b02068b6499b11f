"""``T.load`` and ``T.store`` of programs before 0.10: elements of memory by their distance from its start."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from weft import ir
from weft.ir import DataType, Var, as_expr, as_int, const, with_lanes
from weft.tir.buffer import Buffer, BufferLoad
from weft.tir.stmt import BufferStore, Stmt
from weft.tir.typing import Value

_FLAT: WeakKeyDictionary[Var, dict[str, Buffer]] = WeakKeyDictionary()


def _flat(memory: Any, dtype: str) -> Buffer:
    """Return the buffer of one dimension over some memory; the same one for all its accesses."""
    if isinstance(memory, Buffer) and len(memory.shape) == 1 and memory.dtype == dtype:
        return memory
    pointer: Var = memory.data if isinstance(memory, Buffer) else memory
    known = _FLAT.setdefault(pointer, {})
    if dtype not in known:
        size: Any = const(1, "int32")
        for d in memory.shape if isinstance(memory, Buffer) else ():
            size = size * d
        known[dtype] = Buffer(pointer, dtype, (size,), (), None, pointer.name)
    return known[dtype]


def _mask(predicate: Any) -> Any:
    return None if predicate is None or as_int(predicate) == 1 else as_expr(predicate)


def load(dtype: str, memory: Buffer | ir.Var, index: Value, predicate: Value | None = None) -> BufferLoad:
    """Load the element, or the elements, at an offset."""
    return BufferLoad(_flat(memory, with_lanes(DataType(dtype), 1)), (as_expr(index),), _mask(predicate))


def store(memory: Buffer | ir.Var, index: Value, value: Value, predicate: Value | None = None) -> Stmt:
    """Store an element, or elements, at an offset."""
    number = as_expr(value)
    return BufferStore(
        _flat(memory, with_lanes(DataType(number.dtype), 1)), number, (as_expr(index),), _mask(predicate)
    )
