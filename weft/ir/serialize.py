"""JSON for nodes and modules: a list of nodes in which sharing is kept, children before parents, tensors in base64.

Layout: ``{"weft_ir": version, "root": value, "nodes": [[class, {field: value}], ...], "tensors": [[dtype, shape,
base64], ...], "objects": [text, ...]}``. A value is a JSON scalar, a list (a tuple), or an object with one key: ``n``
node number, ``t`` tensor number, ``o`` object number, ``d`` data type, ``k`` pairs of a mapping, ``p`` of one inside a
node, ``f`` non-finite float, ``e`` enumeration member, ``s`` span, ``m`` module, ``x`` name and value of another
class's form (:func:`register_json_form`). Objects are those whose fields tvm-ffi reflects, an extension's among them,
in tvm-ffi's own JSON. A reader accepts its own version only; fields that it lacks are an error, fields that are
missing take their defaults.
"""

from __future__ import annotations

import base64
import importlib
import json
import math
from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
import tvm_ffi
from tvm_ffi.serialization import from_json_graph_str, to_json_graph_str

from weft.error import InvalidArgument, reading
from weft.ffi import Map
from weft.ir.dtype import DataType, numpy_dtype
from weft.ir.expr import constant
from weft.ir.module import IRModule
from weft.ir.node import _SAVING, Attrs, FrozenMap, Node, Span, plain_text, saved_fields
from weft.ir.scalar import Op
from weft.runtime import Device
from weft.runtime.container import ADT
from weft.spelling import also_called

VERSION = 1

_FORMS: dict[type, tuple[str, Callable[[Any], Any]]] = {}
_READERS: dict[str, Callable[[Any], Any]] = {}


def register_json_form(cls: type, name: str, write: Callable[[Any], Any], read: Callable[[Any], Any]) -> None:
    """Let :func:`save_json` write the objects of a class, which is no node.

    Parameters
    ----------
    cls : type
        The class; its subclasses have forms of their own.
    name : str
        What the form is called in the text.
    write, read : callable
        Turn an object into a value that JSON has, or nodes and tensors, and back.
    """
    _FORMS[cls], _READERS[name] = (name, write), read


# --- saving -----------------------------------------------------------------------------------------------------------


register_json_form(ADT, "adt", lambda v: (v.tag, tuple(v)), lambda v: ADT(*v))
register_json_form(Device, "device", lambda v: (v.device_type, v.device_id), lambda v: Device(*map(int, v)))
register_json_form(
    bytes, "bytes", lambda v: base64.b64encode(v).decode(), lambda text: base64.b64decode(text, validate=True)
)


class _Writer:
    """Numbers nodes and tensors as they are met, children first."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.tensors: list[Any] = []
        self.objects: list[str] = []
        self._numbers: dict[int, int] = {}
        self._keep: list[Any] = []

    def root(self, value: Any) -> Any:
        """Write everything below `value` and return its encoding."""
        if isinstance(value, IRModule):
            functions = [[self.root(v), self.root(f)] for v, f in value.items()]
            infos = {k: self.root(tuple(v)) for k, v in value.global_infos.items()}
            fields = {"functions": functions, "attrs": self.root(value.attrs), "global_infos": infos}
            if value.type_definitions:
                fields["types"] = [[self.root(h), self.root(d)] for h, d in value.type_definitions.items()]
            return {"m": fields}
        stack: list[tuple[Any, bool]] = [(value, False)]
        while stack:
            v, ready = stack.pop()
            if isinstance(v, _SEQUENCES):
                stack.extend((x, False) for x in reversed(v))
            elif type(v) in _FORMS:
                stack.append((_FORMS[type(v)][1](v), False))
            elif _is_written(v):
                if ready and id(v) not in self._numbers:
                    self._add(v)
                elif id(v) not in self._numbers:
                    stack.append((v, True))
                    stack.extend((getattr(v, f), False) for f in reversed(_fields(type(v))))
            elif isinstance(v, Mapping):
                stack.extend((x, False) for pair in v.items() for x in pair)
        return self.value(value)

    def _add(self, node: Node) -> None:
        cls = type(node)
        names = _fields(cls)
        required = names[: len(names) - len(getattr(cls, "__struct_defaults__", names))]
        fields = {f: self.value(x) for f in names if (x := getattr(node, f)) is not None or f in required}
        self._numbers[id(node)] = len(self.nodes)
        self._keep.append(node)
        self.nodes.append([f"{cls.__module__.removeprefix('weft.')}.{cls.__name__}", fields])

    def value(self, v: Any) -> Any:
        """Encode a value whose nodes are written."""
        if _is_written(v):
            return {"n": self._numbers[id(v)]}
        if isinstance(v, FrozenMap):
            return {"p": self.value(v.items())}
        if isinstance(v, _SEQUENCES):
            return [self.value(x) for x in v]
        if type(v) in _FORMS:
            name, write = _FORMS[type(v)]
            return {"x": [name, self.value(write(v))]}
        if isinstance(v, Mapping):
            return {"k": [[self.value(k), self.value(x)] for k, x in v.items()]}
        return self._leaf(v)

    def _leaf(self, v: Any) -> Any:
        if v is None or isinstance(v, bool):
            return v
        if isinstance(v, DataType):
            return {"d": str(v)}
        if isinstance(v, IntEnum):
            return {"e": [f"{type(v).__module__.removeprefix('weft.')}.{type(v).__name__}", int(v)]}
        if isinstance(v, (str, int)):
            return v
        if isinstance(v, float):
            return v if math.isfinite(v) else {"f": str(v)}
        if isinstance(v, Span):
            return {"s": [v.file, v.line, v.column, v.end_line, v.end_column, v.origin]}
        if hasattr(v, "__dlpack__"):
            return {"t": self._tensor(v)}
        if isinstance(v, tvm_ffi.Object):
            return {"o": self._object(v)}
        raise _unwritable(v)

    def _object(self, data: tvm_ffi.Object) -> int:
        handle = data.__chandle__()
        known = self._numbers.get(-handle)
        if known is None:
            try:
                text = to_json_graph_str(data)
            except (RuntimeError, TypeError, ValueError) as e:  # a field, or the object, has no reflected form
                raise _unwritable(data) from e
            known = self._numbers[-handle] = len(self.objects)
            self._keep.append(data)
            self.objects.append(text)
        return known

    def _tensor(self, data: Any) -> int:
        known = self._numbers.get(id(data))
        if known is None:
            array = np.ascontiguousarray(data.numpy() if hasattr(data, "numpy") else data)
            text = base64.b64encode(array.tobytes()).decode()
            known = self._numbers[id(data)] = len(self.tensors)
            self._keep.append(data)
            self.tensors.append([str(array.dtype), list(data.shape), text])
        return known


_SEQUENCES = (tuple, list, tvm_ffi.Array, tvm_ffi.List)


def _unwritable(value: Any) -> InvalidArgument:
    return InvalidArgument(
        "a value cannot be written as JSON",
        found=repr(value),
        expected="nodes, tuples, numbers, strings, tensors and objects with reflected fields",
    )


def _is_written(value: Any) -> bool:
    """Whether a value has an entry of its own in the list of nodes."""
    return isinstance(value, Node) or bool(saved_fields(type(value)))


def _fields(cls: type) -> tuple[str, ...]:
    return saved_fields(cls) or cls.__struct_fields__  # type: ignore[attr-defined]


def save_json(node: object, indent: int | None = None) -> str:
    """Write a node or a module as JSON, with constants and the sharing of nodes.

    Parameters
    ----------
    node : Node, IRModule, or tuple, list or mapping of nodes
        What to write; a list is read as a tuple.
    indent : int, optional
        Spaces per level; by default one line.
    """
    writer = _Writer()
    root = writer.root(node)
    document = {"weft_ir": VERSION, "root": root, "nodes": writer.nodes, "tensors": writer.tensors}
    if writer.objects:
        document["objects"] = writer.objects
    return json.dumps(document, indent=indent, allow_nan=False)


# --- loading ----------------------------------------------------------------------------------------------------------


_MALFORMED = "the JSON text of an IR is malformed"


def _malformed(what: str, **details: Any) -> InvalidArgument:
    return InvalidArgument(f"{_MALFORMED}: {what}", **details)


def _class_named(name: str) -> type:
    module, _, short = name.rpartition(".")
    try:
        cls = getattr(importlib.import_module("weft." + module), short, None) if module else None
    except ImportError:
        cls = None
    if not isinstance(cls, type) or not (issubclass(cls, (Node, IntEnum)) or saved_fields(cls)):
        raise _malformed(f"there is no node class '{name}'", help="the text may come from another version of Weft")
    return cls


@cache
def _declared(cls: type) -> dict[str, Any]:
    """The types that the fields of a class of nodes are declared with."""
    return get_type_hints(cls) if issubclass(cls, Node) else {}


def _is_a(value: Any, declared: Any) -> bool:
    """Whether a value is of a declared type; whole numbers are floats, too."""
    kind, inner = get_origin(declared), get_args(declared)
    if kind is UnionType:
        return any(_is_a(value, d) for d in inner)
    if kind is tuple:
        every = inner[:1] * len(value) if isinstance(value, tuple) and inner[-1] is ... else inner
        return isinstance(value, tuple) and len(value) == len(every) and all(map(_is_a, value, every))
    if declared is float:
        return isinstance(value, (int, float))
    return declared is Any or isinstance(value, kind or declared)


class _Reader:
    """Rebuilds nodes in the order of the list."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.tensors = [_read_tensor(t) for t in document.get("tensors", [])]
        self.objects = [_read_object(o) for o in document.get("objects", [])]
        self.nodes: list[Node] = []
        self._classes: dict[str, type] = {}
        for entry in document.get("nodes", []):
            self.nodes.append(self._node(entry))

    def _node(self, entry: Any) -> Node:
        name, fields = entry
        cls = self._classes.get(name)
        if cls is None:
            cls = self._classes[name] = _class_named(name)
        values = {k: self.value(v) for k, v in fields.items()}
        for field, value in values.items():
            if not _is_a(value, declared := _declared(cls).get(field, Any)):
                what = f"node {len(self.nodes)}, {name}: the field '{field}' is of a wrong type"
                raise _malformed(what, expected=str(getattr(declared, "__name__", declared)), found=plain_text(value))
        if cls is Op:
            return Op.get(values["name"])
        with reading(f"{_MALFORMED}: node {len(self.nodes)} is no {name}"):
            return getattr(cls, "from_saved", cls)(**values)

    def value(self, v: Any) -> Any:
        """Decode a value; the nodes that it names come before it."""
        if isinstance(v, list):
            return tuple([self.value(x) for x in v])
        if not isinstance(v, dict):
            return v
        ((kind, x),) = v.items()
        decode: Callable[[_Reader, Any], Any] | None = _DECODE.get(kind)
        if decode is None:
            raise _malformed("a value of unknown kind", found=kind)
        return decode(self, x)

    def module(self, fields: dict[str, Any]) -> IRModule:
        """Decode a module."""
        functions = {self.value(v): self.value(f) for v, f in fields["functions"]}
        infos = {k: self.value(v) for k, v in fields["global_infos"].items()}
        attrs = self.value(fields["attrs"])
        if not isinstance(attrs, Attrs):
            raise _malformed("the module's attributes are no attributes", found=type(attrs).__name__)
        types = {self.value(h): self.value(d) for h, d in fields.get("types", ())}
        return IRModule(functions, attrs, infos, type_definitions=types)


_DECODE: dict[str, Callable[[_Reader, Any], Any]] = {
    "n": lambda r, x: r.nodes[x],
    "t": lambda r, x: r.tensors[x],
    "d": lambda r, x: DataType(x),
    "f": lambda r, x: float(x),
    "e": lambda r, x: _class_named(x[0])(x[1]),
    "s": lambda r, x: Span(x[0], x[1], x[3], x[2], *x[4:]),  # written before Span took TVM's order
    "p": lambda r, x: FrozenMap(r.value(x)),
    "m": lambda r, x: r.module(x),
    "o": lambda r, x: r.objects[x],
    "x": lambda r, x: _form_named(x[0])(r.value(x[1])),
    "k": lambda r, x: Map({r.value(k): r.value(v) for k, v in x}),
}


def _form_named(name: str) -> Callable[[Any], Any]:
    if name not in _READERS:
        raise _malformed(f"there is no form '{name}'", help="the text may come from another version of Weft")
    return _READERS[name]


def _read_object(text: str) -> Any:
    try:
        return from_json_graph_str(text)
    except (RuntimeError, TypeError, ValueError) as e:
        raise _malformed("an object cannot be made", found=str(e), help="load the library that has its type") from None


def _read_tensor(entry: Any) -> Any:
    dtype, shape, text = entry
    array = np.frombuffer(base64.b64decode(text, validate=True), numpy_dtype(dtype)).reshape(shape).copy()
    return constant(array).data


@also_called(json_str="text")
def load_json(text: str) -> Any:
    """Read what :func:`save_json` wrote.

    Raises
    ------
    InvalidArgument
        When the text is no JSON, of another version, or malformed.
    """
    with reading(f"{_MALFORMED}: it is no JSON"):
        document = json.loads(text)
    if not isinstance(document, dict) or document.get("weft_ir") != VERSION:
        found = document.get("weft_ir", "no version") if isinstance(document, dict) else type(document).__name__
        raise _malformed("unknown version", expected=f"weft_ir {VERSION}", found=str(found))
    with reading(f"{_MALFORMED}: a part is missing or of a wrong kind"):
        return _Reader(document).value(document["root"])


_SAVING[:] = save_json, load_json
