"""Numbers and names as Relay text writes them: ``1``, ``1i64``, ``0.5f``, ``True``; ``%x``, ``%"a name"``."""

import json
import re
from typing import Any

import numpy as np

from weft import ir

# Suffix -> data type. An int without a suffix is int32, a float without one float32.
SUFFIXES = {
    "": "",
    "f": "float32",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "bf16": "bfloat16",
    "i": "int32",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u": "uint32",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
}
_SUFFIX_OF = {d: s for s, d in SUFFIXES.items() if s not in ("", "i", "u", "i32", "f32")} | {"int32": ""}
NAME = re.compile(r"[^\W\d]\w*(?:[./][^\W\d]\w*)*")
NUMBER = re.compile(r"(?P<digits>(?:inf|nan|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?))(?P<suffix>[A-Za-z]\w*)?")
_TYPE_WORDS = {"Tensor", "fn", "ref", "meta", "_"}


def scalar_text(data: np.ndarray, dtype: str) -> str | None:
    """Write the only element of a tensor; None where no literal stands for it, bit by bit."""
    value: Any = data.reshape(-1)[0]
    if dtype == "bool":
        return str(bool(value))
    suffix = _SUFFIX_OF.get(dtype)
    if suffix is None:
        return None
    if "f" not in suffix:
        return f"{int(value)}{suffix}"
    if dtype == "bfloat16":
        text = repr(float(value))
    elif not value or 1e-5 <= abs(float(value)) < 1e7:
        text = np.format_float_positional(value, trim="-")
    else:
        text = np.format_float_scientific(value, trim="-")
    if np.array(float(text), ir.numpy_dtype(dtype)).tobytes() != value.tobytes():
        return None  # a NaN with a payload
    return text + suffix


def identifier(name: str) -> str:
    """Write a name behind its sigil: as it is where it is plain, otherwise in quotes."""
    return name if NAME.fullmatch(name) else json.dumps(name)


class Names:
    """Hands out names, each once.

    Parameters
    ----------
    taken : iterable of str
        Names that are taken from the start.
    """

    def __init__(self, taken: Any = ()) -> None:
        self._next: dict[str, int] = dict.fromkeys(taken, 1)

    def fresh(self, hint: str) -> str:
        """Return `hint`, with a number behind it if it is taken; a name begins with a letter."""
        base = hint if hint and not hint[0].isdigit() else f"v{hint}"
        if base not in self._next:
            self._next[base] = 1
            return base
        n = self._next[base]
        while f"{base}{n}" in self._next:
            n += 1
        self._next[base], self._next[f"{base}{n}"] = n + 1, 1
        return f"{base}{n}"


class TypeNames:
    """Names of type variables, which must be no words of types."""

    def __init__(self, taken: Any = ()) -> None:
        self._names = Names({*_TYPE_WORDS, *taken})
        self._of: dict[ir.Type, str] = {}

    def __call__(self, var: ir.Type) -> str:
        """Return the name of a type variable."""
        known = self._of.get(var)
        if known is None:
            name = re.sub(r"\W", "_", var.name_hint)  # type: ignore[attr-defined]
            known = self._of[var] = self._names.fresh(name)
        return known
