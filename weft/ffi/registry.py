"""The registry of global functions, which all users of tvm-ffi in the process share."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import tvm_ffi

from weft.error import InvalidArgument
from weft.ffi.convert import convert_func
from weft.ffi.function import PackedFunc, packed


def register_global_func(
    func_name: str | Callable[..., Any], f: Callable[..., Any] | None = None, override: bool = False
) -> Any:
    """Register a function under a global name; usable as a decorator.

    Parameters
    ----------
    func_name : str or callable
        The name; a callable registers itself under its ``__name__``.
    f : callable, optional
        The function. Without it a decorator is returned.
    override : bool
        Whether a function of that name may be replaced.

    Returns
    -------
    callable
        `f` itself, or the decorator.

    Raises
    ------
    InvalidArgument
        When the name is taken and `override` is false.
    """
    if callable(func_name):
        return register_global_func(func_name.__name__, func_name, override)

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if not override and tvm_ffi.get_global_func(func_name, allow_missing=True) is not None:
            raise InvalidArgument(
                f"the global function '{func_name}' is already registered", help="pass override=True to replace it"
            )
        tvm_ffi.register_global_func(func_name, convert_func(function), override=override)
        return function

    return register(f) if f is not None else register


register_func = register_global_func


def register_on_demand(module: str, functions: Mapping[str, str]) -> None:
    """Register functions of a module that is imported by their first call.

    Parameters
    ----------
    module : str
    functions : mapping of str to str
        From global names to those in the module.
    """
    for name, attribute in functions.items():
        register_global_func(name, _on_demand(module, attribute), override=True)


def _on_demand(module: str, attribute: str) -> Callable[..., Any]:
    @cache
    def found() -> Callable[..., Any]:
        return getattr(importlib.import_module(module), attribute)

    return lambda *args: found()(*args)


def get_global_func(name: str, allow_missing: bool = False) -> PackedFunc | None:
    """Look a global function up; an InvalidArgument where there is none, unless that is allowed.

    Weft keeps those of its own whose names Apache TVM takes too under ``weft.``: both may live in one process. They
    are found under the common name as long as nobody else took it; so are the machine's builtins.
    """
    for known in (name, f"weft.{name}"):
        found = tvm_ffi.get_global_func(known, allow_missing=True)
        if found is not None:
            return packed(found)
    machine_function = _builtin(name) if name.startswith("vm.builtin.") else None
    if machine_function is not None:
        return packed(machine_function)
    if allow_missing:
        return None
    raise InvalidArgument(f"there is no global function '{name}'", help="register it with register_global_func")


def remove_global_func(name: str) -> None:
    """Remove a global function; it need not exist."""
    tvm_ffi.registry.remove_global_func(name)


def list_global_func_names() -> list[str]:
    """Names of all global functions."""
    return list(tvm_ffi.registry.list_global_func_names())


def builtin(name: str) -> PackedFunc:
    """A builtin of the virtual machine, ``vm.builtin.<x>`` (the prefix may be left out).

    Builtins live in the runtime's own table, not in the global registry.
    """
    full = name if name.startswith("vm.builtin.") else "vm.builtin." + name
    found = _builtin(full)
    if found is None:
        names = ", ".join(sorted(n.removeprefix("vm.builtin.") for n in _builtin_names()))
        raise InvalidArgument(f"there is no builtin '{name}'", help=f"the builtins are: {names}")
    return packed(found)


def register_error(name: str, cls: type[BaseException]) -> None:
    """Native errors of kind `name` are raised as `cls`."""
    tvm_ffi.register_error(name, cls)


_builtin = tvm_ffi.get_global_func("weft.builtin")
_builtin_names = tvm_ffi.get_global_func("weft.builtin_names")
