"""Specifications: which methods a module is exported with, and the types of their arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.error import InvalidArgument
from weft.frontend.nn.tensor import Object as NNObject
from weft.frontend.nn.tensor import dimensions
from weft.ir import DataType

_MODES = ("none", "plain", "packed")


class Int:
    """An integer: the method gets a symbolic number, the exported function takes a shape of one dimension."""

    def __repr__(self) -> str:
        return "int"


class Tensor:
    """A tensor.

    Parameters
    ----------
    shape : sequence of int or str
        The dimensions. A name is a size that a call decides; the same name is the same size in all of a method.
    dtype : str
        The data type.
    """

    def __init__(self, shape: Sequence[int | str], dtype: str) -> None:
        dimensions(shape)
        self.shape = list(shape)
        self.dtype = str(DataType(dtype))

    def __repr__(self) -> str:
        return f"Tensor([{', '.join(map(str, self.shape))}], '{self.dtype}')"


class Object:
    """A value of the runtime that is no tensor; the method gets it as an `object_type`, ``nn.Object`` by default."""

    def __init__(self, object_type: Any = NNObject) -> None:
        if not (isinstance(object_type, type) and issubclass(object_type, NNObject)):
            raise InvalidArgument("object_type is a class of objects", expected="nn.Object", found=repr(object_type))
        self.object_type = object_type

    def __repr__(self) -> str:
        return "object"


class Tuple:
    """A tuple of arguments; the method gets a tuple, or a list where `elements` is one."""

    def __init__(self, name: str, elements: Sequence[Any]) -> None:
        if not isinstance(elements, (list, tuple)):
            raise InvalidArgument("a Tuple takes its elements", expected="a list or tuple", found=repr(elements))
        self.name = name
        self.elements = type(elements)(_argument(e, f"{name}[{i}]") for i, e in enumerate(elements))

    def __repr__(self) -> str:
        return f"({', '.join(map(repr, self.elements))})"


def _argument(raw: Any, name: str) -> Any:
    """Read one argument's specification: of this file, ``int``, ``object``, or a list or tuple of such."""
    if raw is int or raw == "int":
        return Int()
    if raw is object or raw == "object" or (isinstance(raw, type) and issubclass(raw, NNObject)):
        return Object(raw if isinstance(raw, type) and issubclass(raw, NNObject) else NNObject)
    if isinstance(raw, (Int, Tensor, Object, Tuple)):
        return raw
    if isinstance(raw, (list, tuple)):
        return Tuple(name, raw)
    if isinstance(raw, type) and issubclass(raw, (Int, Object)):
        return raw()
    raise InvalidArgument(
        f"argument '{name}' has no specification",
        expected='spec.Tensor([1, "n"], "float32"), int, spec.Object() or a list of them',
        found=repr(raw),
    )


class MethodSpec:
    """One method and its arguments.

    Parameters
    ----------
    method : callable
        A bound method.
    arg_names, arg_specs : list
        Its arguments in the order of the signature, and what they are.
    param_mode, effect_mode : str
        How the exported function takes parameters and effects: ``"plain"``, one argument each; ``"packed"``, one
        tuple; ``"none"``, not at all.
    """

    def __init__(
        self,
        method: Callable[..., Any],
        arg_names: Sequence[str],
        arg_specs: Sequence[Any],
        param_mode: str = "plain",
        effect_mode: str = "plain",
    ) -> None:
        if len(arg_names) != len(arg_specs):
            raise InvalidArgument(
                "each argument has one specification", expected=str(len(arg_names)), found=str(len(arg_specs))
            )
        for what, mode in (("param_mode", param_mode), ("effect_mode", effect_mode)):
            if mode not in _MODES:
                raise InvalidArgument(f"{what} is one of {', '.join(_MODES)}", found=repr(mode))
        self.method = method
        self.arg_names = list(arg_names)
        self.arg_specs = [_argument(s, n) for n, s in zip(arg_names, arg_specs, strict=True)]
        self.param_mode, self.effect_mode = param_mode, effect_mode

    def _repr(self, name: str) -> str:
        args = (f"{n}: {s!r}" for n, s in zip(self.arg_names, self.arg_specs, strict=True))
        return f"{name}({', '.join(args)})"

    def __repr__(self) -> str:
        return self._repr(getattr(self.method, "__name__", "MethodSpec"))

    @staticmethod
    def from_raw(spec: Any, method: Callable[..., Any]) -> MethodSpec:
        """Make a specification of a mapping from argument names; ``"$"`` in it sets the modes.

        Raises
        ------
        InvalidArgument
            When the names are not those of the method's signature.
        """
        if isinstance(spec, MethodSpec):
            return spec
        name = getattr(method, "__qualname__", repr(method))
        if not isinstance(spec, Mapping):
            raise InvalidArgument(f"the specification of '{name}' maps argument names", found=repr(spec))
        given = {k: v for k, v in spec.items() if k != "$"}
        config = dict(spec.get("$", {}))
        wrong = set(config) - {"param_mode", "effect_mode"}
        if wrong:
            raise InvalidArgument(
                f"'$' of '{name}' has an unknown key",
                expected="param_mode, effect_mode",
                found=", ".join(sorted(wrong)),
            )
        signature = inspect.signature(method).parameters
        needed = [
            n for n, p in signature.items() if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        if not set(needed) <= set(given) or not set(given) <= set(signature):
            raise InvalidArgument(
                f"the specification does not have the arguments of '{name}'",
                expected=", ".join(signature) or "none",
                found=", ".join(given) or "none",
            )
        names = [n for n in signature if n in given]
        return MethodSpec(method, names, [given[n] for n in names], **config)

    @staticmethod
    def from_torch(args: Sequence[Any], method: Callable[..., Any]) -> MethodSpec:
        """Make a specification of example arguments: tensors, arrays, ints and tuples of them."""
        signature = list(inspect.signature(method).parameters)
        if len(args) > len(signature):
            raise InvalidArgument(
                "there are more examples than arguments", expected=str(len(signature)), found=str(len(args))
            )
        names = signature[: len(args)]
        return MethodSpec(method, names, [_example(a, n) for a, n in zip(args, names, strict=True)])


def _example(value: Any, name: str) -> Any:
    if type(value) is int:
        return Int()
    if isinstance(value, (list, tuple)):
        return Tuple(name, type(value)(_example(v, f"{name}[{i}]") for i, v in enumerate(value)))
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return Tensor([int(d) for d in value.shape], str(value.dtype).removeprefix("torch."))
    raise InvalidArgument(
        f"argument '{name}' has no specification", expected="a tensor, an int or a list of them", found=repr(value)
    )


class ModuleSpec:
    """The methods that a module is exported with."""

    def __init__(self, module: Any, method_names: Sequence[str], method_specs: Sequence[MethodSpec]) -> None:
        self.module = module
        self.method_names = list(method_names)
        self.method_specs = list(method_specs)

    @staticmethod
    def from_raw(spec: Any, module: Any) -> ModuleSpec:
        """Make a specification of a mapping from method names to mappings from argument names.

        Raises
        ------
        InvalidArgument
            When the module has no such method, or the method no such arguments.
        """
        if isinstance(spec, ModuleSpec):
            return spec
        if not isinstance(spec, Mapping) or not spec:
            raise InvalidArgument(
                "the specification of a module maps method names",
                expected='such as {"forward": {"x": spec.Tensor([1, "n"], "float32")}}',
                found=repr(spec),
            )
        methods: list[MethodSpec] = []
        for name, raw in spec.items():
            method = getattr(module, name, None)
            if not callable(method):
                raise InvalidArgument(f"module '{type(module).__name__}' has no method '{name}'")
            methods.append(MethodSpec.from_raw(raw, method))
        return ModuleSpec(module, list(spec), methods)

    def unpacked(self) -> ModuleSpec:
        """Return the same methods with parameters and effects as an argument each, where there are any."""
        plain = {"none": "none", "plain": "plain", "packed": "plain"}
        methods = [
            MethodSpec(s.method, s.arg_names, s.arg_specs, plain[s.param_mode], plain[s.effect_mode])
            for s in self.method_specs
        ]
        return ModuleSpec(self.module, self.method_names, methods)

    def __iter__(self) -> Any:
        return iter(zip(self.method_names, self.method_specs, strict=True))

    def __repr__(self) -> str:
        return "\n".join(["ModuleSpec:", *(f"  {s._repr(n)}" for n, s in self)])
