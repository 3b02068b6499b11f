"""The standard library of Relay, written in Relay text (``std/*.rly``): lists, trees, options, arrays of tensors."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft import ir
from weft.error import InvalidArgument
from weft.ir import IRModule, structural_equal
from weft.relay.adt import Constructor
from weft.relay.expr import GlobalVar
from weft.relay.infer import infer_type, inferred_type
from weft.relay.static_tensor_array import StaticTensorArrayOps as StaticTensorArrayOps
from weft.relay.static_tensor_array import name_static
from weft.relay.text import parse
from weft.relay.types import Any as AnyDim
from weft.relay.types import GlobalTypeVar, TypeCall

_STD = Path(__file__).parent / "std"
_DTYPES = ("float32", "float16", "float64", "int32", "uint8", "int8", "int16", "uint16", "int64")
_DTYPE = re.compile(r"(?:u?int|float|bfloat)\d+|bool")


def import_std(mod: IRModule, name: str) -> None:
    """Put the data types and functions of a text of the standard library into a module, in place.

    Parameters
    ----------
    mod : IRModule
        The module.
    name : str
        The file, such as ``"prelude.rly"``.

    Raises
    ------
    InvalidArgument
        When there is no such text, or the module has something else of one of its names.
    """
    _merge(mod, _library(name))


def _merge(mod: IRModule, library: IRModule) -> None:
    """Add what a module lacks. What it has must be the same, up to what inference found."""
    known = {h.name_hint: d for h, d in mod.type_definitions.items()}
    for header, data in library.type_definitions.items():
        if header.name_hint not in known:
            mod.type_definitions[header] = data
        elif known[header.name_hint] is not data and not _same_type(known[header.name_hint], data):
            raise InvalidArgument(f"the module has another data type '{header.name_hint}' than the standard library")
    for var, func in library.items():
        if var.name_hint not in mod:
            mod[var] = _STANDARD.setdefault(id(func), func)


_STANDARD: dict[int, ir.BaseFunc] = {}


def is_standard(func: ir.BaseFunc) -> bool:
    """Whether a function is one of the standard library, as that came into a module: it is there for others to call."""
    return id(func) in _STANDARD


def _same_type(a: Any, b: Any) -> bool:
    one, other = (IRModule(type_definitions={d.header: d}) for d in (a, b))
    return structural_equal(one, other)


@functools.cache
def _library(name: str, dtype: str = "float32") -> IRModule:
    """Read a text of the standard library, once, with types inferred."""
    texts = sorted(p.name for p in _STD.glob("*.rly"))
    if name not in texts:
        raise InvalidArgument(f"there is no standard text '{name}'", expected=" or ".join(texts))
    text = (_STD / name).read_text(encoding="utf-8")
    base = None
    if name not in ("core.rly", "prelude.rly", "tensor.rly"):
        base = _library("prelude.rly").copy()
        base.update(_library("tensor.rly", dtype))
    if dtype != "float32":
        text = text.replace("float32", dtype)
    return infer_type(parse(text, name if dtype == "float32" else f"{name}[{dtype}]", base))


class TensorArrayOps:
    """The names of arrays of tensors of one data type.

    Parameters
    ----------
    prelude : Prelude
        What they are added to.
    dtype : str
        Data type of the elements.
    """

    def __init__(self, prelude: Prelude, dtype: str) -> None:
        self.prelude, self.dtype = prelude, dtype

    def register(self) -> None:
        """Put the data type and the functions into the module, unless they are there."""
        if not _DTYPE.fullmatch(self.dtype):
            raise InvalidArgument("a tensor array has no such data type", expected="such as float32", found=self.dtype)
        if self.get_name("tensor_array") not in self.prelude.mod:
            _merge(self.prelude.mod, _library("tensor_array.rly", self.dtype))

    def get_name(self, canonical: str) -> str:
        """Return the name of a function, constructor or (``tensor_t``) of the data type itself."""
        return self.prelude.get_name(canonical, self.dtype)

    def get_global_var(self, canonical: str) -> GlobalVar:
        """Return a function: ``tensor_array``, ``tensor_array_read``, ``tensor_array_unstack_tensor2`` and so on."""
        return self.prelude.get_global_var(canonical, self.dtype)

    def get_type(self, canonical: str) -> GlobalTypeVar:
        """Return the data type ``tensor_t``."""
        return self.prelude.get_type(canonical, self.dtype)

    def get_ctor(self, canonical: str) -> Constructor:
        """Return a constructor: ``tensor_nil``, ``tensor0`` to ``tensor6``."""
        return self.prelude.get_tensor_ctor(canonical, self.dtype)


class Prelude:
    """A module with the standard library.

    The functions are attributes: ``p.map``, ``p.foldl``, ``p.length``; so are the constructors ``p.cons``, ``p.nil``,
    ``p.some``, ``p.none`` and ``p.rose``. The functions of arrays of tensors are there for the usual data types; those
    of others are added when they are first asked for.

    Parameters
    ----------
    mod : IRModule, optional
        The module that the library is added to, in place; by default a new one.
    """

    id: GlobalVar
    map: GlobalVar

    def __init__(self, mod: IRModule | None = None) -> None:
        self.mod = IRModule() if mod is None else mod
        import_std(self.mod, "prelude.rly")
        for dtype in _DTYPES:
            TensorArrayOps(self, dtype).register()
        for var in _library("prelude.rly").get_global_vars():
            setattr(self, var.name_hint, self.mod.get_global_var(var.name_hint))
        self.optional, self.some, self.none = self.mod.get_type("Option")
        self.l, self.cons, self.nil = self.mod.get_type("List")
        self.tree, self.rose = self.mod.get_type("Tree")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the prelude has no '{name}'")

    def get_name(self, canonical: str, dtype: str) -> str:
        """Return the name that something of tensor arrays has for a data type."""
        return f"tensor_{dtype}_t" if canonical == "tensor_t" else f"{canonical}_{dtype}"

    def get_global_var(self, canonical: str, dtype: str) -> GlobalVar:
        """Return a function of tensor arrays: ``p.get_global_var("tensor_array_read", "float32")``."""
        TensorArrayOps(self, dtype).register()
        return self.mod.get_global_var(self.get_name(canonical, dtype))  # type: ignore[return-value]

    def get_type(self, canonical: str, dtype: str | None = None) -> Any:
        """Return a data type.

        For tensor arrays (``p.get_type("tensor_t", "float32")``) this is its type variable; without a data type, as in
        ``rlist, cons, nil = p.get_type("List")``, the constructors come with it.
        """
        if dtype is None:
            return self.mod.get_type(canonical)
        TensorArrayOps(self, dtype).register()
        return self.mod.get_global_type_var(self.get_name(canonical, dtype))

    def get_ctor(self, ty_name: str, canonical: str, dtype: str | None = None) -> Constructor:
        """Return a constructor of a data type; with a data type of elements, that of tensor arrays.

        Raises
        ------
        InvalidArgument
            When there is none of that name.
        """
        if dtype is not None:
            TensorArrayOps(self, dtype).register()
        name = canonical if dtype is None else self.get_name(canonical, dtype)
        _, *constructors = self.mod.get_type(ty_name)
        for c in constructors:
            if c.name_hint == name:
                return c
        known = ", ".join(c.name_hint for c in constructors)
        raise InvalidArgument(f"data type '{ty_name}' has no constructor '{name}'", found=known)

    def get_tensor_ctor(self, canonical: str, dtype: str) -> Constructor:
        """Return a constructor of the elements of tensor arrays: ``p.get_tensor_ctor("tensor2", "float32")``."""
        return self.get_ctor(self.get_name("tensor_t", dtype), canonical, dtype)

    def get_name_static(
        self, canonical: str, dtype: str, shape: Sequence[Any], batch_dim: int | None = None, extra_shapes: Any = None
    ) -> str:
        """Return the name that something of arrays of tensors of one shape has."""
        return name_static(canonical, dtype, shape, batch_dim, extra_shapes)

    def get_global_var_static(
        self, canonical: str, dtype: str, shape: Sequence[Any], batch_dim: int | None = None
    ) -> GlobalVar:
        """Return a function of arrays of tensors of one shape, which ``StaticTensorArrayOps.register`` defined."""
        return StaticTensorArrayOps(self, dtype, shape, batch_dim).get_global_var(canonical)

    def get_type_static(self, canonical: str, dtype: str, shape: Sequence[Any]) -> GlobalTypeVar:
        """Return the data type ``tensor_t`` of arrays of tensors of one shape."""
        return StaticTensorArrayOps(self, dtype, shape).get_type(canonical)

    def get_tensor_ctor_static(self, name: str, dtype: str, shape: Sequence[Any]) -> Constructor:
        """Return a constructor of an element: ``tensor_constructor`` or ``tensor_nil``."""
        return StaticTensorArrayOps(self, dtype, shape).get_ctor(name)

    def get_ctor_static(self, ty_name: str, name: str, dtype: str, shape: Sequence[Any]) -> Constructor:
        """Return a constructor of the data type ``ty_name``, which is ``"tensor_t"``."""
        return self.get_ctor(name_static(ty_name, dtype, shape), name_static(name, dtype, shape))


def get_tensor_array_shape(expr: ir.Expr, dtype: str, prelude: Prelude) -> tuple[Any, ...] | None:
    """Return the shape of the elements of an array of tensors; None where they may have any.

    Raises
    ------
    InvalidArgument
        When the expression is no array of tensors.
    """
    ty: Any = inferred_type(expr, prelude.mod)
    inner: Any = ty.args[0] if isinstance(ty, TypeCall) and ty.args else None
    if not isinstance(inner, TypeCall):
        raise InvalidArgument("the expression is no array of tensors", found=str(ty))
    header: Any = inner.func
    name, prefix = header.name_hint, f"static_tensor_{dtype}_"
    if not name.startswith(prefix):
        return None
    text = name[len(prefix) : -len("_t")]
    return tuple(AnyDim() if d in ("any", "?") else int(d) for d in text.split("_") if d != "scalar")
