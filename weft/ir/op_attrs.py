"""Operators, and their attributes by name: what passes and tuners look up, and what programs register or override."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.error import InvalidArgument
from weft.ir.node import Node

_ATTRS: dict[str, dict[str, tuple[int, Any]]] = {}  # by operator, then key: the level it was registered at, the value

_DEFAULTS: dict[str, Callable[[Any], Any]] = {}  # by key


def default_op_attr(attr_key: str) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Register ``fn(op) -> value or None``: what an attribute is where nobody registered another."""

    def register(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
        _DEFAULTS[attr_key] = fn
        return fn

    return register


def default_attr(op: object, attr_key: str) -> Any:
    """Return what an attribute is where nobody registered it, or None."""
    made = _DEFAULTS.get(attr_key)
    return None if made is None else made(op)


def register_op_attr(op_name: str, attr_key: str, value: object = None, level: int = 10) -> Callable[[Any], Any] | None:
    """Set an attribute of an operator; as a decorator of the value where none is given.

    Parameters
    ----------
    op_name : str
        The operator's name.
    attr_key : str
        The attribute's name, such as ``"TOpPattern"``.
    value : object, optional
        Its value.
    level : int
        A registration replaces those of lower levels, and none of higher ones.

    Raises InvalidArgument when another value was registered at the same level.
    """

    def register(value: Any) -> Any:
        attrs = _ATTRS.setdefault(op_name, {})
        known = attrs.get(attr_key)
        if known is not None and known[0] == level and known[1] is not value and known[1] != value:
            raise InvalidArgument(
                f"attribute '{attr_key}' of operator '{op_name}' is already registered at level {level}",
                help="give another level, or reset the attribute",
            )
        if known is None or known[0] <= level:
            attrs[attr_key] = (level, value)
        return value

    if value is None:
        return register
    register(value)
    return None


def op_attr(op_name: str, attr_key: str) -> Any:
    """Return an attribute of an operator, or None."""
    found = _ATTRS.get(op_name, {}).get(attr_key)
    return None if found is None else found[1]


def reset_op_attr(op_name: str, attr_key: str) -> None:
    """Forget what was registered for an attribute of an operator."""
    _ATTRS.get(op_name, {}).pop(attr_key, None)


class _TirName(str):
    """A name of TIR's, ``tir.x``, which TVM's newest release writes ``tirx.x``: it equals both."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        if str.__eq__(self, other) is True:
            return True
        return isinstance(other, str) and other.startswith("tirx.") and str.__eq__(self, "tir." + other[5:])

    def __ne__(self, other: object) -> bool:
        return not self == other


class Op(Node):
    """A named operator or intrinsic. There is one object per name; get it with :meth:`Op.get`."""

    name: str

    @staticmethod
    def get(op_name: str) -> Op:
        """Return the operator called `op_name`, making the reference if it is the first use.

        TVM's newer names of those of TIR, ``tirx.x``, mean the same.
        """
        if op_name not in _OPS and op_name.startswith("tirx."):
            return Op.get("tir." + op_name[5:])
        return _OPS.get(op_name) or _OPS.setdefault(
            op_name, Op(_TirName(op_name) if op_name.startswith("tir.") else op_name)
        )

    def get_attr(self, attr_name: str) -> Any:
        """Return what was registered for an attribute, else its default, or None."""
        own = op_attr(self.name, attr_name)
        return default_attr(self, attr_name) if own is None else own

    def set_attr(self, attr_name: str, value: Any, plevel: int = 10) -> None:
        """Register an attribute; it replaces registrations of lower levels."""
        register_op_attr(self.name, attr_name, value, plevel)

    def reset_attr(self, attr_name: str) -> None:
        """Forget what was registered for an attribute."""
        reset_op_attr(self.name, attr_name)

    @property
    def num_inputs(self) -> int:
        """How many inputs it takes; -1 where nobody said."""
        found = op_attr(self.name, "num_inputs")
        return -1 if found is None else int(found)

    def _say(self, attr_name: str, value: Any) -> None:
        self.reset_attr(attr_name)
        self.set_attr(attr_name, value)

    def set_num_inputs(self, n: int) -> None:
        """Say how many inputs it takes."""
        self._say("num_inputs", n)

    @property
    def support_level(self) -> int:
        """The level that its registration says, 10 where nobody did."""
        found = op_attr(self.name, "support_level")
        return 10 if found is None else int(found)

    def set_support_level(self, level: int) -> None:
        """Say the level."""
        self._say("support_level", level)

    def add_argument(self, name: str, type: str, description: str) -> None:
        """Describe an argument, in order."""
        self._say("arguments", (*(op_attr(self.name, "arguments") or ()), (name, type, description)))

    def set_attrs_type_key(self, key: str) -> None:
        """Name the type of the attributes of calls; calls take any."""
        self._say("attrs_type_key", key)

    def add_type_rel(self, rel_name: str, type_rel_func: Any = None) -> None:
        """Say how the type of a call follows from those of its arguments.

        Parameters
        ----------
        rel_name : str
            ``"Identity"`` or ``"Broadcast"``, or the name of `type_rel_func`.
        type_rel_func : callable, optional
            ``fn(arg_types, attrs)`` returns the type.
        """
        self._say("FTypeRelation", (rel_name, type_rel_func))

    def has_attr(self, attr_name: str) -> bool:
        """Whether the operator has an attribute."""
        return self.get_attr(attr_name) is not None


_OPS: dict[str, Op] = {}
