"""Data types as strings with structure: ``float32``, ``int64``, ``bool``, ``bfloat16``, ``float32x8``, ``handle``."""

from __future__ import annotations

import re
from enum import IntEnum
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from msgspec.structs import force_setattr

from weft.error import InvalidArgument

_FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
_FLOATS = frozenset(("float", "bfloat", *_FLOAT8))
_CUSTOM = re.compile(r"^(custom\[\w+\])(\d+)(?:x(\d+))?$")
_PATTERN = re.compile(rf"^(bool|handle|void|bfloat|{'|'.join(_FLOAT8)}|float|uint|int)(\d*)(?:x(\d+|vscalex\d+))?$")
_DEFAULT_BITS = {
    "bool": 8,
    "bfloat": 16,
    "handle": 64,
    "void": 0,
    **dict.fromkeys(("int", "uint", "float"), 32),
    **dict.fromkeys(_FLOAT8, 8),
}
_WIDTHS = {"float": (8, 16, 32, 64), "bfloat": (16,), "int": range(1, 129), "uint": range(1, 129)}
_EXTENDED = {"bfloat16": ml_dtypes.bfloat16, **{name: getattr(ml_dtypes, name) for name in _FLOAT8}}


class DataTypeCode(IntEnum):
    """DLPack's number of a kind of data type."""

    INT = 0
    UINT = 1
    FLOAT = 2
    HANDLE = 3
    BFLOAT = 4
    BOOL = 6
    FLOAT8_E4M3FN = 10
    FLOAT8_E4M3FNUZ = 11
    FLOAT8_E5M2 = 12
    FLOAT8_E5M2FNUZ = 13


class ScalableLanes(int):
    """A number of lanes that is this often the length of the machine's vectors, in 128 bits: ``vscalex4``."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"vscalex{int(self)}"

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return str(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ScalableLanes) and int(self) == int(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(str(self))

    def __mul__(self, other: Any) -> Any:
        return ScalableLanes(int(self) * int(other))

    __rmul__ = __mul__


class DataType(str):
    """A data type: a string that knows its kind, bits and lanes.

    ``DataType("float32x8")`` has ``code == "float"``, ``bits == 32``, ``lanes == 8``, ``element == "float32"``.
    Instances are interned: making one from a known text is a dictionary look-up.
    """

    code: str
    bits: int
    lanes: int
    __slots__ = ("bits", "code", "lanes")

    def __new__(cls, text: Any = None, *, type_str: Any = None) -> DataType:
        """Return the data type that `text` spells, be it a string, a NumPy type or a data type."""
        if type_str is not None and text is not None:
            raise TypeError("DataType() got one argument under two names, 'type_str' and 'text'")
        text = text if type_str is None else type_str
        kind = type(text)
        if kind is str:
            return _parse(text)
        if kind is DataType or isinstance(text, HandleType):
            return text
        if not isinstance(text, str) and isinstance(getattr(text, "dtype", None), str):  # a PrimType
            return cls(text.dtype)
        return HandleType(text) if hasattr(text, "storage_scope") else _parse(str(text))

    __new__.other_names = {"type_str": "text"}  # type: ignore[attr-defined] - it is called too often for a decorator

    @property
    def dtype(self) -> DataType:
        """The data type itself: of values with a type object, TVM's programs ask ``x.dtype.dtype``."""
        return self

    @property
    def itemsize(self) -> int:
        """Bytes of one value, all lanes."""
        return (self.bits * self.lanes + 7) // 8

    @property
    def element(self) -> DataType:
        """The type of one lane."""
        if isinstance(self.lanes, ScalableLanes):
            return _parse(str(self).rpartition("xvscalex")[0])
        return self if self.lanes == 1 else _parse(str(self).rsplit("x", 1)[0])

    @property
    def type_code(self) -> DataTypeCode:
        """DLPack's number of the kind; void counts as a handle."""
        return DataTypeCode[self.code.upper() if self.code != "void" else "HANDLE"]

    @property
    def is_float(self) -> bool:
        """Whether values are floating-point, bfloat16 and float8 included."""
        return self.code in _FLOATS

    @property
    def is_real(self) -> bool:
        """Whether values are floating-point, or of a type that a program registered."""
        return self.is_float or self.is_custom

    @property
    def is_custom(self) -> bool:
        """Whether the type is one that a program registered (``custom[name]16``)."""
        return self.code.startswith("custom[")

    @property
    def is_integer(self) -> bool:
        """Whether values are signed or unsigned integers; bool is neither."""
        return self.code in ("int", "uint")


def name_type(node: Any) -> None:
    """Let the data type of a node be one where a type was given."""
    if not isinstance(node.dtype, str):
        force_setattr(node, "dtype", DataType(node.dtype))


class HandleType(DataType):
    """The type of a pointer that knows what it points to: ``ty`` is its type. It compares as ``handle``."""

    ty: Any
    __slots__ = ("ty",)

    def __new__(cls, ty: Any) -> HandleType:
        """Make the type of a pointer to `ty`."""
        made = str.__new__(cls, "handle")
        made.code, made.bits, made.lanes, made.ty = "handle", _DEFAULT_BITS["handle"], 1, ty
        return made


@cache
def _parse(text: str) -> DataType:
    text = re.sub("^(e4m3|e5m2)_float8", lambda m: f"float8_{m[1]}{'fn' if m[1] == 'e4m3' else ''}", text)  # of 0.18
    match = _PATTERN.match(text) or _CUSTOM.match(text)
    if match is None:
        raise InvalidArgument(
            f"unknown data type '{text}'", help="data types look like float32, int64, bool, float32x8"
        )
    code, bits, lanes = match.groups()
    if code in ("bool", "handle", "void") and bits:
        raise InvalidArgument(f"unknown data type '{text}'", help=f"write '{code}'")
    dt = str.__new__(DataType, text)
    dt.code = code
    dt.bits = int(bits) if bits else _DEFAULT_BITS[code]
    dt.lanes = ScalableLanes(lanes[7:]) if lanes and lanes[0] == "v" else int(lanes or 1)
    allowed = _WIDTHS.get(code)
    if (allowed is not None and dt.bits not in allowed) or dt.lanes < 1:
        raise InvalidArgument(f"unknown data type '{text}'", help=f"there is no {code} of this width")
    return dt


def dtype_of(value: object) -> DataType:
    """Return the data type that a Python or NumPy value, dtype or text stands for."""
    if isinstance(value, str):
        return DataType(value)
    if isinstance(value, (bool, np.bool_)):
        return DataType("bool")
    if isinstance(value, int):
        return DataType("int32" if -(2**31) <= value < 2**31 else "int64")
    if isinstance(value, float) and not isinstance(value, np.float64):  # which is a float, too
        return DataType("float64" if 3.4028235677973366e38 <= abs(value) < np.inf else "float32")
    return DataType(np.dtype(getattr(value, "dtype", value)).name)  # type: ignore[arg-type]


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """Return the NumPy dtype of one lane; bfloat16 and float8 through ``ml_dtypes``, custom types as their bits."""
    element = DataType(dtype).element
    if element.is_custom:
        return np.dtype(f"uint{element.bits}")
    return np.dtype(_EXTENDED.get(str(element), str(element)))


@cache
def with_lanes(dtype: str, lanes: int) -> DataType:
    """Return `dtype` with another number of lanes."""
    return DataType(dtype).element if lanes == 1 else vector_of(dtype, lanes)


@cache
def vector_of(dtype: str, lanes: int) -> DataType:
    """Return the type of a vector of the elements of `dtype`, which is one also where it has one lane."""
    return DataType(f"{DataType(dtype).element}x{lanes}")


def is_float(dtype: str) -> bool:
    """Whether `dtype` is floating-point."""
    return DataType(dtype).is_float


def is_integer(dtype: str) -> bool:
    """Whether `dtype` is a signed or unsigned integer."""
    return DataType(dtype).is_integer
