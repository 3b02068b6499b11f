"""Arrays of tensors of one shape, of which some dimensions may be unknown (``std/static_tensor_array.rly``)."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weft import error, ir
from weft.relay.adt import Constructor
from weft.relay.expr import GlobalVar
from weft.relay.text import parse
from weft.relay.types import Any as AnyDim
from weft.relay.types import GlobalTypeVar, TensorType

_TEXT = Path(__file__).parent / "std" / "static_tensor_array.rly"
_ONLY = ("tensor_t", "tensor_constructor", "tensor_nil")  # these are the same in arrays of one element


@functools.cache
def _sections() -> dict[str, list[str]]:
    """The definitions of the text by section."""
    found: dict[str, list[str]] = {}
    for part in _TEXT.read_text(encoding="utf-8").split("// --- ")[1:]:
        title, _, body = part.partition(" ---\n")
        found[title] = [d.strip() for d in re.split(r"\n(?=def |type )", body) if d.strip()]
    return found


def _shape_text(shape: Sequence[Any]) -> str:
    return "_".join("any" if ir.as_int(d) is None else str(ir.as_int(d)) for d in shape)


def name_static(
    canonical: str,
    dtype: str,
    shape: Sequence[Any],
    batch_dim: int | None = None,
    extra_shapes: Mapping[str, Sequence[Any]] | None = None,
) -> str:
    """Return the name of a function, a constructor or (``tensor_t``) the data type for a data type and a shape."""
    text = _shape_text(shape) + "".join(f"_{n}_{_shape_text(s)}" for n, s in (extra_shapes or {}).items())
    text = f"{dtype}_{text or 'scalar'}"
    if canonical == "tensor_t":
        return f"static_tensor_{text}_t"
    if batch_dim == 1 and canonical not in _ONLY:
        text = text.replace(dtype, f"{dtype}_batch1", 1)
    return f"{canonical}_{text}"


class StaticTensorArrayOps:
    """The names of arrays of tensors of one data type and shape.

    Parameters
    ----------
    prelude : Prelude
        What they are added to.
    dtype : str
        Data type of the elements.
    shape : sequence of int or Any
        Shape of the elements, ``relay.Any()`` where a dimension is unknown.
    batch_dim : int, optional
        1 where arrays that are stacked have one element.
    """

    def __init__(self, prelude: Any, dtype: str, shape: Sequence[Any], batch_dim: int | None = None) -> None:
        self.prelude, self.dtype, self.shape, self.batch_dim = prelude, dtype, list(shape), batch_dim

    def register(self) -> None:
        """Put the data types and the functions into the module, unless they are there."""
        self.define_tensor_adt()
        rows: list[Any] = [AnyDim(), *self.shape[1:]]
        stack: list[Any] = [1 if self.batch_dim == 1 else AnyDim(), *self.shape]
        above = self._with(stack)
        above._define("each")
        self._with([AnyDim(), *self.shape])._define("each")
        above._define("rows", ROWS=[AnyDim(), *self.shape])
        self._define("only" if self.batch_dim == 1 else "stack", STACK=stack)
        self._define("stack", STACK=stack)  # what the arrays of one element share with the others
        if self.shape:
            self._with(self.shape[1:])._define("each")
            self._with(rows)._define("each")
            self._with(rows)._define("rows", ROWS=rows)
            self._define("rows", ROWS=rows)
            self._define("array of rows", ROWS=rows, ROW=self.shape[1:])
        self.define_tensor_array_scatter()
        self.define_tensor_array_split()

    def define_tensor_adt(self) -> None:
        """Put the data type, and the functions that know one element at a time, into the module."""
        self._define("each")

    def define_tensor_array_scatter(
        self, indices_shape: Sequence[Any] | None = None, force_update: bool = False
    ) -> None:
        """Define ``tensor_array_scatter``, for indices of a known shape under a name that ends with it."""
        extra = None if indices_shape is None else {"indices": indices_shape}
        name = self.get_name("tensor_array_scatter", extra).removeprefix("tensor_array_scatter_")
        self._define("scatter", force_update, ELEM_INDICES=name, INDICES=indices_shape or [AnyDim()])

    def define_tensor_array_split(
        self,
        value_shape: Sequence[Any] | None = None,
        lengths_shape: Sequence[Any] | None = None,
        force_update: bool = False,
    ) -> None:
        """Define ``tensor_array_split``; what is split may have another shape than the elements."""
        if not self.shape:
            return
        rows, value = [AnyDim(), *self.shape[1:]], self.shape if value_shape is None else list(value_shape)
        for shape in (rows, value):
            self._with(shape)._define("each")
        self._with(value)._define("rows", ROWS=rows)
        self._define("split", force_update, ROWS=rows, VALUE=value, LENGTHS=lengths_shape or [AnyDim()])

    def get_name(self, canonical: str, extra_shapes: Mapping[str, Sequence[Any]] | None = None) -> str:
        """Return the name of a function, constructor or (``tensor_t``) of the data type itself."""
        return name_static(canonical, self.dtype, self.shape, self.batch_dim, extra_shapes)

    def get_global_var(self, canonical: str) -> GlobalVar:
        """Return a function: ``tensor_array``, ``tensor_array_read``, ``tensor_array_unstack`` and so on."""
        return self.prelude.mod.get_global_var(self.get_name(canonical))

    def get_type(self, canonical: str) -> GlobalTypeVar:
        """Return the data type ``tensor_t``."""
        return self.prelude.mod.get_global_type_var(self.get_name(canonical))

    def get_ctor(self, canonical: str) -> Constructor:
        """Return a constructor: ``tensor_constructor`` or ``tensor_nil``."""
        return self.prelude.get_ctor(self.get_name("tensor_t"), self.get_name(canonical))

    def _with(self, shape: Sequence[Any]) -> StaticTensorArrayOps:
        return StaticTensorArrayOps(self.prelude, self.dtype, shape, None)

    def _define(self, section: str, force: bool = False, **shapes: Any) -> None:
        """Parse a section with names and types in their places; what the module has stays unless `force` says so."""
        mod = self.prelude.mod
        words = {k: v if isinstance(v, str) else name_static("", self.dtype, v)[1:] for k, v in shapes.items()}
        words["ELEM"] = name_static("", self.dtype, self.shape)[1:]
        dtypes = {"INDICES": "int32", "LENGTHS": "int32"}
        types = {
            k: TensorType(tuple(v), dtypes.get(k, self.dtype)) for k, v in shapes.items() if not isinstance(v, str)
        }
        types["ELEM"] = TensorType(tuple(self.shape), self.dtype)
        batch = f"batch1_{words['ELEM'].removeprefix(self.dtype + '_')}"
        texts, known = [], {v.name_hint for v in (*mod.get_global_vars(), *mod.get_global_type_vars())}
        for text in _sections()[section]:
            made = re.sub(r"\[([A-Z]+)\]", lambda m: str(types[m[1]]) if m[1] in types else m[0], text)
            if self.batch_dim == 1:
                made = re.sub(r"@(\w+)_ELEM\b", rf"@\1_{self.dtype}_{batch}", made)
            for word in sorted(words, key=len, reverse=True):
                made = made.replace(word, words[word])
            name = re.match(r"(?:def @|type )(\w+)", made)
            if name is None:
                raise error.InvalidArgument("the standard text has something that is no definition", found=made[:60])
            if force or name[1] not in known:
                texts.append(made)
        if texts:
            self._parse("\n\n".join(texts))

    def _parse(self, text: str) -> None:
        mod = self.prelude.mod
        known = {v.name_hint: v for v in mod.get_global_vars()}
        base = mod.copy()
        for name in re.findall(r"def @(\w+)", text):
            if name in known:
                del base[name]
        made = parse('#[version = "0.0.5"]\n' + text, _TEXT.name, base)
        for header, data in made.type_definitions.items():
            if header not in mod.type_definitions:
                mod.type_definitions[header] = data
        for var, func in made.items():
            if var not in base:
                mod[known.get(var.name_hint, var)] = func
