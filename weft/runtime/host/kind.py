"""Kinds of values, how the machine stores them, and the way in and out."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any

import ml_dtypes
import numpy as np

from weft.error import DTypeMismatch, InvalidArgument

STORED = {
    "string": "int64",
    "int4": "int8",
    "int2": "int8",
    "uint4": "uint8",
    "uint2": "uint8",
    "float4_e2m1fn": "float8_e4m3fn",
    "float6_e2m3fn": "float8_e4m3fn",
    "float6_e3m2fn": "float8_e5m2",
    "float8_e8m0fnu": "bfloat16",
}
"""The element types that the machine does not have, and the type that holds each of their values."""


@dataclass(frozen=True)
class Kind:
    """What a value is.

    Parameters
    ----------
    form : str
        ``"tensor"``, ``"sequence"``, ``"optional"`` or ``"map"``.
    dtype : str
        Of tensors, the element type; of maps, the keys' type.
    rank : int or None
        Of tensors, the number of dimensions where it is known.
    of : Kind, optional
        What sequences, optionals and maps hold.
    keys : tuple of int or str
        Of sequences of maps that all have these keys, which the machine holds as the rows of a tensor.
    """

    form: str
    dtype: str = ""
    rank: int | None = None
    of: Kind | None = None
    keys: tuple[int | str, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether the machine has such values as they are."""
        return self.form == "tensor" and self.dtype not in STORED

    @property
    def storage(self) -> str:
        """The machine's element type of a tensor."""
        return STORED.get(self.dtype, self.dtype)

    def to_json(self) -> Any:
        """Return the kind as lists and texts."""
        return [self.form, self.dtype, self.rank, self.of and self.of.to_json(), self.keys]

    @staticmethod
    def from_json(data: Sequence[Any]) -> Kind:
        """Read what :meth:`to_json` returned."""
        form, dtype, rank, of, *keys = data
        return Kind(form, dtype, rank, of and Kind.from_json(of), *map(tuple, keys))


class Texts:
    """The texts of a model by number, 0 the empty one; none where no constant of it could be equal to another text."""

    def __init__(self, texts: Sequence[str] = ()) -> None:
        self._given = texts

    @cached_property
    def table(self) -> np.ndarray:
        """The texts, an array of objects."""
        return np.array([*dict.fromkeys(["", *self._given])], object)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each text."""
        return {t: i for i, t in enumerate(self.table.tolist())} if self._given else {}


class known_texts:  # a generator would cost each run a microsecond
    """Number the texts of one run of a program: one of the model has its number, others new ones each time."""

    def __init__(self, model: Texts) -> None:
        self._model, self._chunks = model, [model.table]

    def __enter__(self) -> None:
        self._outer, _runs.newest = getattr(_runs, "newest", None), self

    def __exit__(self, *error: object) -> None:
        _runs.newest = self._outer

    @staticmethod
    def of_this_run() -> known_texts:
        """The table of the run in progress in this thread."""
        if (newest := getattr(_runs, "newest", None)) is None:
            raise InvalidArgument("strings are known only while a session runs", help="run the model with weft.Session")
        return newest

    def numbers(self, texts: np.ndarray) -> np.ndarray:
        """Return the numbers of an array of objects, each a ``str``."""
        items, known = texts.reshape(-1), self._model.numbers
        found = np.fromiter(map(known.get, items.tolist(), repeat(-1)), np.int64, items.size) if known else None
        if found is None:
            found = self._enter(items.copy())
        elif np.minimum.reduce(found, initial=0) < 0:
            new = found < 0
            found[new] = self._enter(items[new])
        return found.reshape(texts.shape)

    def _enter(self, items: np.ndarray) -> np.ndarray:
        begin = sum(map(len, self._chunks))
        self._chunks.append(items)
        return np.arange(begin, begin + items.size)

    def texts(self, numbers: np.ndarray) -> np.ndarray:
        """Return the texts of numbers, an array of objects."""
        if len(self._chunks) > 1:
            self._chunks = [np.concatenate(self._chunks)]
        return self._chunks[0][numbers.reshape(-1)].reshape(numbers.shape)


_runs = threading.local()


def numbers_of(texts: np.ndarray) -> np.ndarray:
    """Return the numbers that the texts of an array have in this run; numbers stay as they are."""
    return known_texts.of_this_run().numbers(texts) if texts.dtype == object else texts


def texts_of(numbers: np.typing.ArrayLike) -> np.ndarray:
    """Return the texts of an array of numbers."""
    return known_texts.of_this_run().texts(np.asarray(numbers))


def _text(item: Any) -> str:
    if not isinstance(item, (str, bytes)):
        raise DTypeMismatch("a tensor of strings has an element that is none", expected="str", found=repr(item))
    return item.decode("utf-8") if isinstance(item, bytes) else str(item)


def to_machine(value: object, kind: Kind, name: str = "value") -> Any:
    """Return a user's value in the form that the machine holds.

    Raises
    ------
    InvalidArgument
        When it is not of the kind; `name` is the value's.
    DTypeMismatch
        When a tensor has another element type.
    """
    if kind.form == "tensor":
        return _tensor(value, kind, name)
    assert kind.of is not None or kind.form == "map"
    if kind.form == "optional":
        return [] if value is None else [to_machine(value, kind.of, name)]  # type: ignore[arg-type]
    if kind.form == "sequence":
        if not isinstance(value, (list, tuple)):
            raise InvalidArgument(f"'{name}' is no sequence", expected="a list of arrays", found=type(value).__name__)
        return [to_machine(v, kind.of, f"{name}[{i}]") for i, v in enumerate(value)]  # type: ignore[arg-type]
    if not isinstance(value, dict):
        raise InvalidArgument(f"'{name}' is no map", expected="a dict", found=type(value).__name__)
    return dict(value)


def in_type(value: object, dtype: np.dtype[Any] | None, name: str) -> np.ndarray:
    """Return an array of a value; of Python's numbers, alone or in lists, in a type of their kind.

    Raises
    ------
    InvalidArgument
        When lists are ragged, or that type does not hold a number, which would become another; `name` is the value's.
    """
    try:
        array = np.asarray(value)
    except ValueError as e:
        raise InvalidArgument(f"input '{name}' is not an array", found=str(e)) from e
    if dtype is None:
        return array
    whole = "int" in dtype.name
    kept = array.dtype.kind in "biu" if whole else np.can_cast(array.dtype, dtype, "same_kind")
    plain = isinstance(value, (int, float, complex, list, tuple)) and array.dtype.kind in "biufc"
    if array.dtype == dtype or not plain or not (kept or not array.size):
        return array
    with np.errstate(all="ignore"):
        made = array.astype(dtype)
    if whole:
        lost = (made.astype(array.dtype) != array) | ((made < dtype.type(0)) != (array < 0))
    else:
        lost = np.isfinite(made.astype("complex128")) != np.isfinite(array)
    if lost.any():
        raise InvalidArgument(f"input '{name}': no number of its dtype", expected=dtype.name, found=f"{array[lost][0]}")
    return made


def _tensor(value: Any, kind: Kind, name: str) -> np.ndarray:
    given = value.numpy() if hasattr(value, "numpy") else value
    array = in_type(given, None if kind.dtype == "string" else _numpy(kind.dtype), name)
    if kind.rank is not None and array.ndim != kind.rank:
        raise InvalidArgument(f"'{name}' has a wrong rank", expected=f"{kind.rank} dimensions", found=str(array.ndim))
    if kind.dtype == "string":
        if array.dtype.kind not in "OUST":
            raise DTypeMismatch(f"'{name}' has a wrong dtype", expected="strings", found=str(array.dtype))
        texts = array.astype(object, copy=False)
        if {*map(type, items := texts.reshape(-1).tolist())} - {str}:
            texts = np.array([*map(_text, items)], object).reshape(array.shape)
        return numbers_of(texts)
    if array.dtype.name != kind.dtype:
        raise DTypeMismatch(f"'{name}' has a wrong dtype", expected=kind.dtype, found=array.dtype.name)
    return np.ascontiguousarray(array.astype(_numpy(kind.storage))).reshape(array.shape)


def from_machine(value: Any, kind: Kind) -> Any:
    """Return the machine's value as users see it: arrays, lists, dicts, and None for an optional without a value."""
    if kind.keys:
        return _dictionaries(value.numpy() if hasattr(value, "numpy") else value, kind.keys)
    if kind.form == "tensor":
        array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
        if kind.dtype == "string":
            return texts_of(array)
        return array if kind.is_plain else array.astype(_numpy(kind.dtype))
    if kind.form == "map":
        return value
    assert kind.of is not None
    items = list(value) if kind.of.form == "map" else [from_machine(v, kind.of) for v in value]
    return items if kind.form == "sequence" else items[0] if items else None


def _dictionaries(rows: np.ndarray, keys: Sequence[int | str]) -> list[dict[int | str, Any]]:
    """Make a dictionary of each row; of many, copies of one, filled by columns, take half the time."""
    if len(rows) <= len(keys):
        return [*map(dict, map(zip, repeat(keys), rows.tolist()))]
    empty: dict[int | str, Any] = dict.fromkeys(keys)
    made = [empty.copy() for _ in range(len(rows))]
    for key, column in zip(keys, rows.T.tolist(), strict=True):
        for entry, number in zip(made, column, strict=True):
            entry[key] = number
    return made


def _numpy(dtype: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, dtype, dtype))
