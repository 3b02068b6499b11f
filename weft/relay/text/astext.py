"""Whole Relay texts: the version line, data types, functions and the metadata; and when a node is written in Relay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import ir
from weft.ir.node import plain_text
from weft.ir.text import script
from weft.relay.adt import Clause, Constructor, Pattern, TypeData
from weft.relay.expr import Function
from weft.relay.text.literals import identifier
from weft.relay.text.printer import Printer, indented, pattern
from weft.relay.text.scopes import Scopes, is_atom
from weft.relay.text.types import definition
from weft.relay.types import Any as AnyDim

VERSION = "0.0.5"
_OMITTED = "/* The metadata section is left out; astext(show_meta_data=True) shows it. */"


def is_relay(node: ir.IRModule | ir.Node) -> bool:
    """Whether a node or module is written in Relay rather than in TVMScript."""
    if isinstance(node, ir.IRModule):
        return bool(node.type_definitions) or any(isinstance(f, Function) for _, f in node.items())
    return type(node).__module__.startswith("weft.relay")


def text_of(
    node: ir.IRModule | ir.Node,
    *,
    show_meta: bool = False,
    annotate: Callable[[Any], str] | None = None,
    whole: bool = False,
    **options: Any,
) -> str:
    """Write a node or module of any dialect: what stands behind ``str`` and ``astext``. Never fails.

    Parameters
    ----------
    show_meta : bool
        Whether the metadata stands at the end.
    annotate : callable, optional
        Gives the comment behind a Relay expression.
    whole : bool
        Whether the text is a program, with a version line, and declares a variable that stands alone.
    """
    empty = whole and isinstance(node, ir.IRModule) and not node.functions
    if not (is_relay(node) or empty):  # an empty module is of any dialect, and as a program it is one of Relay
        return script(node, show_meta=show_meta, **options)
    try:
        return ir.with_deep_stack(lambda: _text(node, show_meta, annotate, whole))
    except Exception:  # a printer that fails hides the error that it was to show
        return plain_text(node) if isinstance(node, ir.Node) else object.__repr__(node)


def _text(node: Any, show_meta: bool, annotate: Any, whole: bool) -> str:
    p = Printer(annotate, [h.name_hint for h in node.type_definitions] if isinstance(node, ir.IRModule) else ())
    if isinstance(node, ir.IRModule):
        body = _module(node, p, show_meta)
    elif isinstance(node, Function) or (isinstance(node, ir.Expr) and (whole or not is_atom(node))):
        body = "\n".join(p.root(node))
    elif isinstance(node, ir.Expr):
        body = node.name_hint if isinstance(node, Constructor) else p.expr(node)
    elif isinstance(node, TypeData):
        body = definition(node, p)
    elif isinstance(node, ir.Type):
        p.is_program = whole
        body = p.type(node)
    elif isinstance(node, Pattern):
        body = pattern(node, p)
    elif isinstance(node, Clause):
        p.scopes = Scopes(node.rhs)
        lhs, *lines = p.block(node.rhs, p.scopes.root, (node.lhs,))
        body = f"{lhs} => {lines[0] if len(lines) == 1 else p.braces(lines)}"
    else:
        return "?" if isinstance(node, AnyDim) else plain_text(node)
    version = f'#[version = "{VERSION}"]\n' if whole else ""
    return version + indented(body.split("\n")) + _metadata(p, show_meta, isinstance(node, (ir.IRModule, Function)))


def _metadata(p: Printer, show: bool, mention: bool) -> str:
    if not p.metadata:
        return ""
    if not show:
        return "\n\n" + _OMITTED if mention else ""
    return "\n\n#[metadata]\n" + ir.save_json(tuple((k, tuple(v)) for k, v in p.metadata.items()), indent=2)


def _module(mod: ir.IRModule, p: Printer, show_meta: bool) -> str:
    parts = []
    for data in mod.type_definitions.values():
        p.reset()
        parts.append(definition(data, p))
    for var, func in mod.items():
        p.reset()
        if isinstance(func, Function):
            parts.append(p.definition(func, var.name_hint))
        else:
            parts.append(_kernel(func, var.name_hint, p, show_meta))
    p.metadata |= {"IRModule.attrs": [mod.attrs]} if mod.attrs else {}
    p.metadata |= {"IRModule.global_infos": list(mod.global_infos.items())} if mod.global_infos else {}
    return "\n\n".join(parts)


def _kernel(func: Any, name: str, p: Printer, show_meta: bool) -> str:
    """Write a function of another dialect: TVMScript to be read by people, metadata to be parsed."""
    text = script(func.with_attr("global_symbol", name)).strip()
    if not show_meta:
        return text
    comment = text.replace("/*", "/ *").replace("*/", "* /")
    return f"/*\n{comment}\n*/\ndef @{identifier(name)} = {p.meta(func)}"
