"""Kinds of targets: one registration holds all that the compiler asks of one.

A pass never asks what a target is called. It asks for what the kind brings (:class:`TargetKind`), or for an attribute
by the name of a decision, ``target.attribute("relax.graph_passes", default)``. Floors above this one give attributes to
*keys*, such as ``"cpu"``, and every kind with that key has them; a kind's own attributes come first.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

from weft.error import InvalidArgument
from weft.ffi import get_global_func, register_global_func
from weft.tir.pipeline import lower

if TYPE_CHECKING:
    from weft.ir import IRModule
    from weft.target.target import Target
    from weft.tir import PrimFunc


@dataclass(frozen=True, eq=False)
class TargetKind:
    """What there is to know of a kind of target; equal to its name.

    Attributes
    ----------
    build : callable
        ``build(mod, target)`` compiles TIR functions, which may be scheduled or lowered, to a ``weft.runtime.Module``.
    source : callable, optional
        ``source(mod, target, format)`` returns their text; ``source_format`` is the format by default.
    compile : callable, optional
        ``compile(func, target, linkage)`` compiles one function to object code that links with LLVM's. A kind with it
        has its kernels cached, compiled in parallel, called directly and tuned; without, ``build`` makes all at once.
    services : callable, optional
        ``services(target)`` compiles what all objects of a library need, once; those of kernels are made with
        ``compile(func, target, linkage, beside=True)`` then.
    lower : callable
        ``lower(func, target)`` brings a scheduled function to the form that `compile` generates from: by default the
        passes of ``weft.tir.pipeline``. What `build` alone needs it does itself.
    keys : tuple of str
        What it is like, the most special first: attributes of these it has, too.
    device : str
        The device that its functions run on.
    options : tuple of str, optional
        Names of options, beside those that describe any machine (``weft.machine``); by default any is taken.
    check : callable, optional
        ``check(target)`` refuses values of options.
    triple, cpu : str
        LLVM's, where no option says.
    attributes_text : callable, optional
        The features of a target as LLVM's text, where it is not that of CPUs.
    attributes : mapping
        Decisions that it makes itself, such as ``tir.schedule`` and ``relax.graph_passes``.
    """

    name: str
    _: KW_ONLY
    build: Callable[[IRModule, Target], Any] | None = None
    source: Callable[[IRModule, Target, str], str | bytes] | None = None
    source_format: str = ""
    compile: Callable[..., bytes] | None = None
    services: Callable[[Target], bytes] | None = None
    lower: Callable[[PrimFunc, Any], PrimFunc] = lower
    keys: tuple[str, ...] = ("cpu",)
    device: str = "cpu"
    options: tuple[str, ...] | None = None
    check: Callable[[Target], None] | None = None
    triple: str = ""
    cpu: str = ""
    attributes_text: Callable[[Target], str] | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __str__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return str(other) == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def is_own(self) -> bool:
        """Whether all code of it is Weft's: what others bring has no name that would change with the code."""
        parts = (self.build, self.source, self.compile, self.services, self.lower, self.check, self.attributes_text)
        code = [f for f in (*parts, *self.attributes.values()) if callable(f)]
        return all(str(getattr(f, "__module__", "")).startswith("weft.") for f in code)

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return a decision: the kind's own, else that of the first of its keys that has one, else `default`."""
        if name in self.attributes:
            return self.attributes[name]
        return next((_OF_KEYS[key, name] for key in self.keys if (key, name) in _OF_KEYS), default)


_KINDS: dict[str, TargetKind] = {}
_OF_KEYS: dict[tuple[str, str], Any] = {}


def register_target_kind(kind: TargetKind, override: bool = False) -> TargetKind:
    """Make a kind of target known, so that ``Target(kind.name)`` is one.

    Raises
    ------
    InvalidArgument
        When there is one of this name already.
    """
    if kind.name in _KINDS and not override:
        raise InvalidArgument(f"there is a target kind '{kind.name}' already", help="register it with override=True")
    _KINDS[kind.name] = kind
    for what, function in (("build", kind.build), ("source", kind.source)):
        if function is not None:  # the runtime asks for these names
            register_global_func(f"weft.target.{what}.{kind.name}", function, override=True)
    return kind


def register_attribute(key: str, name: str, value: object) -> None:
    """Give an attribute to all kinds with a key, such as ``"cpu"``."""
    _OF_KEYS[key, name] = value


def is_foreign(name: str) -> bool:
    """Whether somebody brought the kind of that name, or decisions for a key, which may be its."""
    code = [f for f in _OF_KEYS.values() if callable(f)]
    own = all(str(getattr(f, "__module__", "")).startswith("weft.") for f in code)
    if name in _KINDS:
        return not own or not _KINDS[name].is_own
    return not own or get_global_func(f"target.build.{name}", allow_missing=True) is not None


def kind_names() -> list[str]:
    """List the names of the registered kinds."""
    return list(_KINDS)


def kind_named(name: str) -> TargetKind:
    """Return the kind of a name: a registered one, or one with a generator under TVM's name ``target.build.<name>``.

    Raises
    ------
    InvalidArgument
        When there is none; the error names the near ones.
    """
    if name in _KINDS:
        return _KINDS[name]
    build, source = (get_global_func(f"target.{part}.{name}", allow_missing=True) for part in ("build", "source"))
    if build is not None:
        return TargetKind(name, build=build, source=source)
    near = difflib.get_close_matches(name, _KINDS, 1)
    raise InvalidArgument(
        f"unknown target kind '{name}'",
        expected=", ".join(_KINDS),
        help=f"did you mean '{near[0]}'?"
        if near
        else f"or register one: register_target_kind(TargetKind('{name}', "
        "build=...)), or a generator 'target.build." + name + "'",
    )
