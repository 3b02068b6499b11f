"""Which numbers a type holds: what is computed of constants wraps, what is given or is a size is refused."""

from __future__ import annotations

import operator
import threading
from typing import Any, Protocol

from msgspec.structs import force_setattr

from weft.error import DTypeMismatch, InvalidArgument
from weft.ir.dtype import DataType, name_type

HALVES: dict[str, int] = {DataType("int32"): 1 << 31, DataType("int64"): 1 << 63}  # of nearly all constants
MOST = {"float16": 65504.0, "float32": 3.4028234663852886e38, "bfloat16": 3.3895313892515355e38}
_sizes = threading.local()


class exact_sizes:
    """Inside, int64 constants that come out of range are refused: sizes of tensors are not counted modulo ``2**64``."""

    def __enter__(self) -> None:
        self.before, _sizes.exact = getattr(_sizes, "exact", False), True

    def __exit__(self, _kind: object, _e: BaseException | None, _trace: object) -> None:
        _sizes.exact = self.before


def wrap(value: int, dt: DataType) -> int:
    """Return what is left of a number in an integer type."""
    if dt.code == "uint":
        return value & ((1 << dt.bits) - 1)
    half = 1 << (dt.bits - 1)
    if -half <= value < half:
        return value
    exact = dt == "int64" and getattr(_sizes, "exact", False)
    return in_range(value) if exact else (value + half) % (2 * half) - half


def in_range(value: int) -> int:
    """Return a number of 64 bits; an InvalidArgument for one of more."""
    if -HALVES["int64"] <= value < HALVES["int64"]:
        return value
    raise InvalidArgument("a size or number has more than 64 bits", expected="at most 2**63 - 1", found=str(value))


class _Constant(Protocol):
    dtype: str
    value: Any


def check_integer(node: _Constant) -> None:
    """Refuse a constant that is no number of its type, which has one lane; other numbers than Python's become its."""
    name_type(node)
    dt = DataType(node.dtype)
    if dt.lanes != 1 or dt.code not in ("int", "uint", "bool"):
        raise DTypeMismatch("an IntImm is one number of a type of integers, or a bool", found=dt)
    if type(node.value) is not int:
        if not hasattr(node.value, "__index__"):
            raise InvalidArgument("the value of a constant is a whole number", found=repr(node.value))
        force_setattr(node, "value", operator.index(node.value))
    if node.value not in ((0, 1) if dt == "bool" else (wrap(node.value, dt),)):
        raise beyond(node)


def beyond(node: _Constant) -> InvalidArgument:
    """Return the error of a constant that its type does not hold."""
    return InvalidArgument(f"{node.dtype} does not hold {node.value}", help="give a type that does, or cast")
