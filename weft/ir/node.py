"""The base of every IR node: immutable, cheap to make, equal only to itself.

A node is declared as ``class Add(PrimExpr): a: PrimExpr; b: PrimExpr`` and nothing else: the metaclass makes it a
frozen ``msgspec.Struct`` with identity equality. Structural equality, hashing, printing and JSON are generic over
fields. Fields hold nodes, tuples, ``str``, ``int``, ``float``, ``bool``, ``None`` or runtime values (the data of
constants).
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, dataclass_transform

import msgspec
from msgspec.structs import force_setattr
from tvm_ffi import Map

from weft.runtime.container import Object
from weft.spelling import own_names

_BY_NAME: dict[str, type[Node]] = {}
_ABSTRACT: set[type] = set()


class SourceName(str):
    """What a text is called."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The name as a plain string."""
        return str(self)


class ImpliedName(str):
    """A function's symbol that its ``def`` alone says: TVM 0.9 puts none into the function."""

    __slots__ = ()


class _OtherNames(type(msgspec.Struct)):
    """Of structs that take fields by the names that ``__other_names__`` gives them, too."""

    __other_names__: Mapping[str, str] = {}
    __further__: tuple[str, ...] = ()
    """Fields given by name alone that TVM takes by position, behind all others."""

    if not TYPE_CHECKING:  # which would know no field of the classes

        def __call__(cls, *args: Any, **named: Any) -> Any:
            if len(args) > (fields := len(cls.__match_args__)):
                further = dict(zip(cls.__further__, args[fields:], strict=False))
                if twice := further.keys() & named.keys():
                    raise TypeError(f"{cls.__name__}() got '{min(twice)}' by position and by name")
                named |= further
                args = args[: len(args) - len(further)]
            if named:
                own_names(cls.__name__, cls.__other_names__, named)
            return super().__call__(*args, **named)


class Span(msgspec.Struct, metaclass=_OtherNames, frozen=True):
    """A place in source text; lines and columns count from 1.

    ``origin`` is a free text such as ``ONNX node 17 "/encoder/MatMul"`` for sources without lines; ``check`` is on a
    cast that checks a relation: the error's class and what is compared, for the message.
    """

    file: str = "<unknown>"
    line: int = 0
    end_line: int = 0
    column: int = 0
    end_column: int = 0
    origin: str | None = None
    check: tuple[str, str] | None = None

    __other_names__ = {"source_name": "file"}

    @property
    def source_name(self) -> SourceName:
        """What the text is called, under TVM's name."""
        return SourceName(self.file)

    def same_as(self, other: Any) -> bool:
        """Whether `other` is the same place."""
        return self == other

    def __str__(self) -> str:
        return self.origin if self.origin is not None else f"{self.file}:{self.line}:{self.column}"


def _lists_to_tuples(fields: tuple[str, ...], bases: tuple[type, ...]) -> Any:
    """Make what runs after a node was made: fields that are tuples may be given as lists; then what a base defines."""
    inherited = next(
        (
            b.__dict__["__post_init__"]
            for base in bases
            for b in base.__mro__
            if hasattr(b.__dict__.get("__post_init__"), "__code__")
            and b.__dict__["__post_init__"].__name__ != "convert"
        ),
        None,
    )

    def convert(self: Any) -> None:
        for f in fields:
            if type(getattr(self, f)) is not tuple and isinstance(getattr(self, f), Sequence):
                force_setattr(self, f, tuple(getattr(self, f)))
        if inherited is not None:
            inherited(self)

    return convert


class NoField(AttributeError):
    """A node has no such field. What it has is said when the error is shown: most are caught before."""

    def __str__(self) -> str:
        kind: Any = type(self.obj)
        fields = [f for f in kind.__struct_fields__ if f != "span"]
        near = difflib.get_close_matches(str(self.name), [n for n in dir(kind) if not n.startswith("_")], 3)
        hint = f"; did you mean {' or '.join(near)}?" if near else f"; its fields are {', '.join(fields) or 'none'}"
        return f"{kind.__name__} has no attribute '{self.name}'{hint}"


@dataclass_transform(frozen_default=True, eq_default=False)
class NodeMeta(type(msgspec.Struct)):
    """Sets the struct options of all nodes in one place and records each class by its name."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> NodeMeta:
        """Make the class a frozen struct that is compared by identity and may be referenced weakly."""
        abstract = options.pop("abstract", False)
        own = tuple(f for f, a in namespace.get("__annotations__", {}).items() if str(a).startswith("tuple["))
        inherited = next((b.__sequences__ for b in bases if hasattr(b, "__sequences__")), ())
        if own and "__post_init__" not in namespace:
            namespace["__post_init__"] = _lists_to_tuples(inherited + own, bases)
        namespace["__sequences__"] = inherited + own
        cls = super().__new__(mcs, name, bases, namespace, frozen=True, eq=False, weakref=True, **options)
        if abstract:
            _ABSTRACT.add(cls)
        _BY_NAME[f"{cls.__module__}.{name}"] = cls  # type: ignore[assignment]
        return cls


@dataclass_transform(frozen_default=True, eq_default=False)
class OtherNames(_OtherNames, NodeMeta):
    """Of nodes whose fields have other names in releases of TVM, by which they are given and read."""

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_options: Any) -> None:
        super().__init__(name, bases, namespace)
        for other, own in namespace.get("__other_names__", {}).items():
            if not hasattr(cls, other):
                setattr(cls, other, property(attrgetter(own)))


@Object.register
class Node(msgspec.Struct, metaclass=NodeMeta, kw_only=True):
    """An IR node. ``span`` says where it came from and never takes part in comparisons."""

    span: Span | None = None

    def __str__(self) -> str:
        """Render through the text engine when it is loaded, else as a plain record."""
        return _PRINTER[0](self)

    def __repr__(self) -> str:
        return _PRINTER[0](self)

    def script(self, **options: Any) -> str:
        """Return this node as TVMScript."""
        return _PRINTER[0](self, **options)

    def show(self, **options: Any) -> None:
        """Print this node as TVMScript."""
        print(self.script(**options))

    def astext(self, show_meta_data: bool = True, annotate: Any = None) -> str:
        """Return this node as text that can be parsed again: Relay with a version line, else TVMScript.

        Parameters
        ----------
        show_meta_data : bool
            Whether large constants are part of it.
        annotate : callable, optional
            Gives the comment behind a Relay expression instead of its type.
        """
        return _PRINTER[0](self, show_meta=show_meta_data, annotate=annotate, whole=True)

    def same_as(self, other: Any) -> bool:
        """Whether `other` is this very node."""
        return self is other

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise NoField(name=name, obj=self)

    def __reduce__(self) -> Any:
        save, load = _SAVING  # other nodes that are pickled beside it do not share its variables afterwards
        return load, (save(self),)


class SubclassTable(dict[type, bool]):
    """Whether a class is `base` or derived from it: ``table[type(x)]``.

    It answers as ``isinstance`` does, in a quarter of the time: Python asks the metaclass of nodes each time.
    """

    def __init__(self, base: type) -> None:
        super().__init__()
        self.base = base

    def __missing__(self, cls: type) -> bool:
        found = self[cls] = issubclass(cls, self.base)
        return found


def saved_fields(cls: type) -> tuple[str, ...]:
    """Return the fields with which objects of a class that is no node are saved and compared as nodes are.

    A class that nodes may hold names them in ``__saved_fields__``, and its ``from_saved`` takes them by keyword; () for
    any other class.
    """
    return getattr(cls, "__saved_fields__", ())


def plain_text(node: object, **_: Any) -> str:
    """Render a node as nested ``Name(field=value)`` records; the text engine replaces this as printer."""
    if isinstance(node, Node):
        fields = ", ".join(f"{f}={plain_text(getattr(node, f))}" for f in node.__struct_fields__ if f != "span")
        return f"{type(node).__name__}({fields})"
    if isinstance(node, tuple):
        return "(" + ", ".join(plain_text(x) for x in node) + ")"
    return f"{type(node).__module__}.{type(node).__name__}" if hasattr(node, "__dlpack__") else repr(node)


_PRINTER: list[Any] = [plain_text]
_SAVING: list[Any] = []  # how nodes are saved and loaded, by ``serialize``, which knows all of them


def set_printer(printer: Callable[..., str]) -> None:
    """Install ``printer(node, **options) -> str`` behind ``str(node)`` and ``node.script()``."""
    _PRINTER[0] = printer


class _Pairs(tuple[tuple[str, Any], ...]):
    """Names with values: a tuple, which may be called as the method of mappings is."""

    __slots__ = ()

    def __call__(self) -> _Pairs:
        return self


def own_name(key: str) -> str:
    """Return the name that an attribute has here, of TVM's newer one: ``tirx.noalias``, ``s_tir.x``."""
    return f"tir.{key.partition('.')[2]}" if key.startswith(("tirx.", "s_tir.")) else key


_TRUTHS = frozenset(("Primitive", "relax.force_pure", "tir.is_host_func", "tir.is_scheduled", "tir.noalias"))


def said(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a program says of a function; a number, which earlier TVM wrote for true and false, is a truth."""
    named = {own_name(k): v for k, v in attrs.items()}
    return {k: v != 0 if k in _TRUTHS and type(v) is int else v for k, v in named.items()}


DERIVED: dict[str, tuple[str, Callable[[Attrs], Any]]] = {}
"""What else attributes answer to: TVM's name, the name of what it follows from, and how."""


class Attrs(Node):
    """Named attributes of a call, function or loop: an immutable mapping in insertion order.

    Values are nodes, tuples, ``str``, ``int``, ``float``, ``bool`` or ``None``.
    """

    pairs: tuple[tuple[str, Any], ...] = ()

    @staticmethod
    def of(mapping: Any = None, **kwargs: Any) -> Attrs:
        """Make attributes from a mapping and keyword arguments; lists become tuples."""
        if isinstance(mapping, Attrs):
            mapping = dict(mapping.pairs)
        merged = {**(mapping or {}), **kwargs}
        return Attrs(tuple((own_name(str(k)), _freeze(v)) for k, v in merged.items())) if merged else NO_ATTRS

    @property
    def items(self) -> _Pairs:
        """The names with their values in order; ``attrs.items()`` is the same."""
        return _Pairs(self.pairs)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of `key`, or `default`."""
        for k, v in self.pairs:
            if k == key:
                return v
        own = own_name(key)
        return default if own == key else self.get(own, default)

    def __getitem__(self, key: str) -> Any:
        for k, v in self.pairs:
            if k == key:
                return v
        if own_name(key) != key:
            return self[own_name(key)]
        raise KeyError(key)

    def __getattr__(self, key: str) -> Any:
        for k, v in self.pairs:
            if k == key:
                return v
        if key in DERIVED and DERIVED[key][0] in self:
            return DERIVED[key][1](self)
        raise AttributeError(f"no attribute '{key}'; there are: {', '.join(k for k, _ in self.pairs) or 'none'}")

    def __contains__(self, key: object) -> bool:
        return any(k == key for k, _ in self.pairs) or (
            isinstance(key, str) and own_name(key) != key and own_name(key) in self
        )

    def __len__(self) -> int:
        return len(self.pairs)

    def __bool__(self) -> bool:
        return bool(self.pairs)

    def keys(self) -> tuple[str, ...]:
        """Return the names in order."""
        return tuple(k for k, _ in self.pairs)

    def with_(self, **kwargs: Any) -> Attrs:
        """Return a copy with some values set; a value of ``None`` is kept as a value."""
        return Attrs.of(dict(self.pairs), **kwargs)

    def without(self, *names: str) -> Attrs:
        """Return a copy without some names."""
        own = {own_name(n) for n in names}
        return Attrs(tuple((k, v) for k, v in self.pairs if k not in own))


Map.register(Attrs)  # pyright: ignore[reportAttributeAccessIssue] - as every abstract base class

NO_ATTRS = Attrs(())


def _freeze(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_freeze(v) for v in value)
    if isinstance(value, dict):
        return Attrs.of(value) if all(isinstance(k, str) for k in value) else FrozenMap(value.items())
    constant = type(getattr(value, "value", None)) is int and getattr(value, "dtype", None) == "bool"
    return value.value != 0 if constant else value


class FrozenMap(tuple[tuple[Any, Any], ...]):
    """A mapping whose keys are nodes, as the pairs that it is made of."""

    __slots__ = ()

    def items(self) -> tuple[tuple[Any, Any], ...]:
        """Return the pairs."""
        return tuple(self)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, (int, slice)):
            return super().__getitem__(key)
        for k, v in self:
            if k is key or k == key:
                return v
        raise KeyError(key)


def kinds(*bases: type) -> list[type]:
    """List classes of nodes and all their subclasses, without those declared ``abstract=True``.

    Together they are the union that a :class:`~weft.ir.Dispatch` must cover. Private classes are left out: they
    stand in for their base inside one pass.
    """
    found: dict[type, None] = {}
    stack = list(reversed(bases))
    while stack:
        cls = stack.pop()
        if cls not in _ABSTRACT and not cls.__name__.startswith("_"):
            found[cls] = None
        stack.extend(reversed(cls.__subclasses__()))
    return list(found)


def make_node(type_key: str, **fields: Any) -> Node:
    """Make a node by the name of its class, as TVM's ``ir.make_node`` does.

    Parameters
    ----------
    type_key : str
        ``"module.Class"`` or TVM's key, whose last part names the class (``"ir.IntImm"``).
    **fields
        Its fields. The type of a scalar may be given as ``ty``, and what follows from other fields is left out.
    """
    module, _, short = type_key.rpartition(".")
    if short.endswith("Attrs"):  # of operators: here all have one class
        return Attrs.of(fields)
    named = [(name, cls) for name, cls in _BY_NAME.items() if name.rsplit(".", 1)[-1] == short]
    if not named:
        return _make_saved(type_key, fields)
    inside = [cls for name, cls in named if name == type_key or f".{module}." in name]
    cls = (inside or [named[0][1]])[0]
    if "ty" in fields and "dtype" in cls.__struct_fields__ and "ty" not in cls.__struct_fields__:
        fields["dtype"] = str(getattr(fields["ty"], "dtype", fields["ty"]))
        del fields["ty"]
    derived = [f for f in fields if f not in cls.__struct_fields__ and hasattr(cls, f)]
    return cls(**{k: v for k, v in fields.items() if k not in derived})


def _make_saved(type_key: str, fields: dict[str, Any]) -> Any:
    """Make what is no node and is saved as nodes are, such as a tensor expression."""
    module, _, short = type_key.rpartition(".")
    cls = getattr(sys.modules.get(f"weft.{module}"), short, None)
    if not isinstance(cls, type) or not saved_fields(cls):
        raise KeyError(f"no node class is called '{type_key}'")
    make: Any = getattr(cls, "from_saved", cls)
    return make(**{f: fields[f] for f in saved_fields(cls)})
