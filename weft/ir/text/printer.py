"""The print driver: gives names, finds each node's rule, and collects declarations and metadata.

Rules are registered by class in three tables: ``EXPR`` (node → document), ``STMT`` (node → lines) and ``FUNCTION``
(function, name → lines). A dialect's rules stand beside its nodes. What is used but nowhere introduced is declared at
the top: of the function that uses it, or of the fragment that is printed.
"""

from __future__ import annotations

import base64
import keyword
import re
import sys
import zlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from weft.ir.deep import with_deep_stack
from weft.ir.dispatch import Dispatch
from weft.ir.expr import BaseFunc, Expr, GlobalVar
from weft.ir.module import IRModule
from weft.ir.node import Attrs, Node, plain_text
from weft.ir.scalar import IntImm, PrimExpr, Var
from weft.ir.serialize import save_json
from weft.ir.text.doc import TERNARY, UNARY, Doc, Lines, Seq, attribute, call, flat, index, mapping, tuple_doc
from weft.ir.types import Type
from weft.spelling import counted_name


def _record(node: Any, p: Printer) -> Doc:
    """Write a node that has no rule of its own as its constructor call."""
    if not isinstance(node, Node):
        return any_literal(node, p)
    fields = [
        (f, any_literal(getattr(node, f), p))
        for f in node.__struct_fields__
        if f != "span" and getattr(node, f) is not None
    ]
    return call(type(node).__name__, (), fields)


EXPR = Dispatch("print an expression", (PrimExpr, Expr, Type), default=_record)
STMT = Dispatch("print a statement", default=lambda node, p: p.lines.add(_record(node, p)))
FUNCTION = Dispatch(
    "print a function", (BaseFunc,), default=lambda node, name, p: p.lines.add(name, " = ", p.expr(node))
)

_RESERVED = {
    "T",
    "R",
    "I",
    "cls",
    "metadata",
    "range",
    "float",
    "int",
    "bool",
    "True",
    "False",
    "None",
    "tvm",
    "weft",
    *keyword.kwlist,
}
_NOT_NAME = re.compile(r"\W")


class _Frame:
    """One function under way: what it has introduced, and the place for declarations."""

    __slots__ = ("defined", "loops", "order", "place", "places", "sizes")

    def __init__(self, place: list[Any] | None) -> None:
        self.place = place
        self.defined: set[Any] = set()
        self.order: list[Any] = []  # of `defined`, so that what a scope introduced can be forgotten
        self.sizes: set[Var] = set()  # those that the signature shows to be dimensions
        self.loops: dict[Var, Any] = {}  # loops under way
        self.places: dict[Any, list[Any]] = {}  # by pointer, 0 for any: where views of the memory are declared


class Printer:
    """State of one rendering.

    Parameters
    ----------
    width : int
        Columns after which lines are broken.
    notes : mapping of node to messages
        Messages to be written as comments under these statements.
    """

    def __init__(self, width: int = 120, notes: Mapping[Node, Sequence[str]] | None = None) -> None:
        self.lines = Lines(width)
        self.notes = dict(notes or {})
        self.metadata: dict[str, list[Any]] = {}
        self.in_module = False
        self.quote_dims = False  # in a signature, where symbolic dimensions are written as strings
        self.dialects: set[str] = set()
        self._metadata_at: dict[int, Doc] = {}
        self._names: dict[Node, str] = {}
        self._used: dict[str, int] = {}
        self.frames: list[_Frame] = [_Frame(None)]

    # --- names ---

    def reset_names(self) -> None:
        """Forget all names, as between two functions of a module."""
        self._names.clear()
        self._used.clear()

    def fresh(self, hint: str) -> str:
        """Return an identifier like `hint` that nothing else has."""
        base = _NOT_NAME.sub("_", hint) or "v"
        if base[0].isdigit():
            base = "v" + base
        if base in _RESERVED:
            base += "_"
        return counted_name(base, self._used)

    def define(self, node: Any, hint: str) -> str:
        """Introduce `node` in the function under way and return its name."""
        name = self.name_of(node, hint)
        self._introduced(node)
        return name

    def _introduced(self, node: Any) -> None:
        frame = self.frames[-1]
        if node not in frame.defined:
            frame.defined.add(node)
            frame.order.append(node)

    @contextmanager
    def scope(self) -> Generator[None, None, None]:
        """Indent, and forget at the end what was introduced inside; names stay taken."""
        frame = self.frames[-1]
        depth = len(frame.order)
        with self.lines.indented():
            yield
        while len(frame.order) > depth:
            frame.defined.discard(frame.order.pop())

    def name_of(self, node: Any, hint: str) -> str:
        """Return the name of `node`, giving it one like `hint` at first."""
        name = self._names.get(node)
        if name is None:
            name = self._names[node] = self.fresh(hint)
        return name

    def alias(self, node: Any, text: str) -> None:
        """Let `node` be written as `text` (such as ``A.data``) in the function under way."""
        self._names[node] = text
        self._introduced(node)

    def is_defined(self, node: Any) -> bool:
        """Whether `node` has been introduced in this function or one around it."""
        return any(node in f.defined for f in self.frames)

    def open_views(self, pointer: Any) -> None:
        """Let views of what `pointer` points to be declared here."""
        self.frames[-1].places[pointer] = self.lines.mark()

    def declare(self, node: Any, hint: str, value: Any, pointer: Any = None, sign: str = " = ") -> str:
        """Return the name of `node`.

        What nothing has introduced is declared as ``value()`` at the top, or where its memory is made.
        """
        if self.is_defined(node):
            return self._names[node]
        frame = self.frames[-1]
        name = self.name_of(node, hint)
        frame.defined.add(node)
        if pointer in frame.places:
            frame.order.append(node)
        place = frame.place if pointer is None else frame.places.get(pointer, frame.places.get(0, frame.place))
        if place is not None:
            place.append(Seq(TERNARY, (name, sign, value())))
        return name

    def open_function(self, place: list[Any] | None) -> None:
        """Begin a function whose declarations go to `place`."""
        self.frames.append(_Frame(place))

    def close_function(self) -> None:
        """End a function."""
        self.frames.pop()

    # --- content ---

    def expr(self, node: Any) -> Doc:
        """Return the document of an expression, type or other value."""
        return EXPR(node, self)

    def stmt(self, node: Any) -> None:
        """Write the lines of a statement, with the notes on it."""
        STMT(node, self)
        self.note(node)

    def note(self, node: Any) -> None:
        """Write the messages about `node` as comments, once."""
        for message in self.notes.pop(node, ()):
            first, *rest = message.splitlines()
            self.lines.add(f"# ^ {first}")
            for line in rest:
                self.lines.add(f"#   {line.strip()}")

    def function(self, func: Any, name: str) -> None:
        """Write the lines of a function."""
        self.note(func)
        FUNCTION(func, name, self)

    def global_var(self, var: GlobalVar) -> Doc:
        """Refer to a function of the module."""
        if self.in_module and var.name_hint.isidentifier():
            return attribute("cls", var.name_hint)
        self.dialects.add("I")
        return call("I.GlobalVar", [repr(var.name_hint).replace("'", '"')])

    def meta(self, node: Any, key: str) -> Doc:
        """Keep `node` apart and return the document of a reference to it."""
        known = self._metadata_at.get(id(node))
        if known is None:
            entries = self.metadata.setdefault(key, [])
            known = self._metadata_at[id(node)] = index(index("metadata", [quote(key)]), [str(len(entries))])
            entries.append(node)
        return known


def quote(text: str) -> str:
    """Write a string with double quotes, on one line."""
    body = repr('"' + text)[2:-1].replace("\\'", "'")
    return '"' + body.replace('"', '\\"') + '"'


def any_literal(value: object, p: Printer) -> Doc:
    """Write a Python value or node so that reading it back gives one of the same class."""
    if isinstance(value, str):
        return quote(str(value))
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return _signed(str(int(value)))
    if isinstance(value, float):
        return _signed(repr(value)) if value - value == 0 else f'float("{value!r}")'
    if isinstance(value, Attrs):
        return mapping([(quote(k), any_literal(v, p)) for k, v in value.items])
    if isinstance(value, (tuple, list)):
        return tuple_doc([any_literal(v, p) for v in value])
    if isinstance(value, Node):
        return p.expr(value)
    if hasattr(value, "__dlpack__"):
        return p.meta(value, "runtime.Tensor")
    as_script = getattr(value, "as_script", None)
    if as_script is not None:
        p.dialects.add("T")
        return as_script()
    return repr(value)


def _signed(text: str) -> Doc:
    return Seq(UNARY, (text,)) if text.startswith("-") else text


# --- whole texts ------------------------------------------------------------------------------------------------------


def script(
    node: object,
    *,
    show_meta: bool = False,
    width: int = 120,
    name: str = "Module",
    notes: Mapping[Node, Sequence[str]] | None = None,
    verbose_expr: bool = False,
    **_: Any,
) -> str:
    """Render a node or a module as TVMScript.

    Printing never fails: what has no rule is written as a record of its fields.

    Parameters
    ----------
    show_meta : bool
        Whether large constants are written at the top, compressed, so that the text can be parsed.
    width : int
        Columns.
    name : str
        The name of a module's class.
    notes : mapping of node to messages
        Comments to stand under statements.
    verbose_expr : bool
        Whether variables and buffers of an expression are declared before it.
    """
    try:
        return with_deep_stack(lambda: _script(node, show_meta, width, name, notes, verbose_expr))
    except Exception:  # a printer that fails hides the error that it was to show
        return plain_text(node) if isinstance(node, Node) else object.__repr__(node)


def _script(
    node: Any, show_meta: bool, width: int, name: str, notes: Mapping[Node, Sequence[str]] | None, verbose_expr: bool
) -> str:
    p = Printer(width, notes)
    if isinstance(node, IRModule):
        _module(node, p, name)
    elif isinstance(node, BaseFunc):
        p.function(node, _function_name(node))
    elif STMT.get(type(node)) is not STMT.default:
        p.frames[-1].place = p.lines.mark()
        p.stmt(node)
    elif isinstance(node, IntImm) and node.dtype in ("int32", "int64"):
        p.lines.add(str(node.value))  # in a sentence the type of an index does not help
    else:
        if verbose_expr:
            p.frames[-1].place = p.lines.mark()
        p.lines.add(p.expr(node))
    text = p.lines.text()
    if not isinstance(node, (IRModule, BaseFunc)):
        return text
    return "\n".join([*_head(p, show_meta), text])


def _head(p: Printer, show_meta: bool) -> list[str]:
    modules = {"I": "ir", "T": "tir", "R": "relax"}
    here = next((name for name in ("tvm", "weft") if sys.modules.get(name) is sys.modules["weft"]), "weft")
    lines = [f"# from {here}.script import {modules[d]} as {d}" for d in "ITR" if d in p.dialects]
    if p.metadata and show_meta:
        packed = base64.b64encode(
            zlib.compress(save_json(tuple((k, tuple(v)) for k, v in p.metadata.items())).encode())
        ).decode()
        lines.append(f'metadata = I.metadata("{packed}")')
    elif p.metadata:
        lines.append("# Constants are omitted; script(show_meta=True) shows them.")
    return [*lines, ""] if lines else []


def _function_name(func: Any) -> str:
    name = func.attrs.get("global_symbol") if hasattr(func, "attrs") else None
    return name if isinstance(name, str) and name.isidentifier() else "main"


def _module(mod: IRModule, p: Printer, name: str) -> None:
    p.dialects.add("I")
    p.in_module = True
    p.lines.add("@I.ir_module")
    p.lines.add(f"class {name}:")
    with p.lines.indented():
        if mod.attrs:
            p.lines.add(call("I.module_attrs", [any_literal(mod.attrs, p)]))
        if mod.global_infos:
            infos = [(quote(k), Seq(TERNARY, ("[", flat(_items(v, p)), "]"))) for k, v in mod.global_infos.items()]
            p.lines.add(call("I.module_global_infos", [mapping(infos)]))
        for i, (var, func) in enumerate(mod.items()):
            if i or mod.attrs or mod.global_infos:
                p.lines.blank()
            p.reset_names()
            p.function(func, var.name_hint)
        if not (len(mod) or mod.attrs or mod.global_infos):
            p.lines.add("pass")


def _items(values: Sequence[Any], p: Printer) -> Doc:
    parts: list[Any] = []
    for v in values:
        parts += [", ", any_literal(v, p)] if parts else [any_literal(v, p)]
    return Seq(TERNARY, tuple(parts))


@EXPR.on(GlobalVar)
def _global_var(node: GlobalVar, p: Printer) -> Doc:
    return p.global_var(node)


@EXPR.on(Attrs)
def _attrs(node: Attrs, p: Printer) -> Doc:
    return any_literal(node, p)


def type_or_none(ty: Type | None, p: Printer) -> Doc:
    """Write a type, ``None`` where there is none."""
    return "None" if ty is None else p.expr(ty)
