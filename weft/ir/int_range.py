"""Which numbers a type holds: what is computed of constants wraps, what is given or is a size is refused."""

from __future__ import annotations

import operator
import threading

from msgspec.structs import force_setattr

from weft.error import DTypeMismatch, InvalidArgument
from weft.ir.dtype import DataType, name_type
from weft.ir.node import Node

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


def check_integer(node: Node) -> None:
    """Refuse a constant that is no number of its type, which has one lane; other numbers than Python's become its."""
    name_type(node)
    dt, value = DataType(node.dtype), node.value  # type: ignore[attr-defined]
    if dt.lanes != 1 or dt.code not in ("int", "uint", "bool"):
        raise DTypeMismatch("an IntImm is one number of a type of integers, or a bool", found=dt)
    if type(value) is not int:
        if not hasattr(value, "__index__"):
            raise InvalidArgument("the value of a constant is a whole number", found=repr(value))
        value = operator.index(value)
        force_setattr(node, "value", value)
    if value not in ((0, 1) if dt == "bool" else (wrap(value, dt),)):
        raise beyond(dt, value)


def beyond(dtype: str, value: float) -> InvalidArgument:
    """Return the error of a constant that its type does not hold."""
    return InvalidArgument(f"{dtype} does not hold {value}", help="give a type that does, or cast")
