"""From the parts of ``doc`` to text, with underlines below what shows an object."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

from weft.script.printer import doc as nodes
from weft.script.printer.doc import Doc, ExprStmtDoc, OperationKind, StmtDoc

_K = OperationKind
_TOKENS: dict[OperationKind, tuple[str, int]] = {  # text, and how tightly it binds
    _K.IfThenElse: ("if", 2),
    _K.Or: ("or", 3),
    _K.And: ("and", 4),
    _K.Not: ("not ", 5),
    _K.Lt: ("<", 6),
    _K.LtE: ("<=", 6),
    _K.Eq: ("==", 6),
    _K.NotEq: ("!=", 6),
    _K.Gt: (">", 6),
    _K.GtE: (">=", 6),
    _K.BitOr: ("|", 7),
    _K.BitXor: ("^", 8),
    _K.BitAnd: ("&", 9),
    _K.LShift: ("<<", 10),
    _K.RShift: (">>", 10),
    _K.Add: ("+", 11),
    _K.Sub: ("-", 11),
    _K.Mult: ("*", 12),
    _K.Div: ("/", 12),
    _K.FloorDiv: ("//", 12),
    _K.Mod: ("%", 12),
    _K.MatMul: ("@", 12),
    _K.USub: ("-", 13),
    _K.Invert: ("~", 13),
    _K.Pow: ("**", 14),
}
_CUT = 2  # as many lines or more are left out; one is shown


def to_python_script(
    doc: Doc,
    indent_spaces: int = 4,
    print_line_numbers: bool = False,
    num_context_lines: int | None = None,
    path_to_underline: Sequence[Any] | None = None,
) -> str:
    """Write a part as Python.

    Parameters
    ----------
    doc : Doc
    indent_spaces : int
        Spaces for each level of a body.
    print_line_numbers : bool
        Whether lines begin with their number.
    num_context_lines : int, optional
        How many lines around those that are underlined are shown; by default all.
    path_to_underline : sequence of AccessPath, optional
        Objects whose text is underlined; of one that no part shows, the nearest one that it lies in.

    Raises
    ------
    ValueError
        When a comment of a statement of one line has several.
    """
    paths = list(path_to_underline or ())
    writer = _Writer(indent_spaces, paths)
    writer.doc(doc)
    text = writer.text.rstrip(" ")
    text += "\n" * bool(text and not text.endswith("\n"))
    shown = _decorated(text, writer.underlined(), print_line_numbers, num_context_lines).rstrip("\n")
    return _header(paths, writer.visible()) + shown


class _Writer:
    """The text so far; for each path that is to be underlined the closest paths that were written, and where."""

    def __init__(self, indent_spaces: int, paths: list[Any]) -> None:
        self.text = ""
        self.step, self.indent = indent_spaces, 0
        self.paths = paths
        self.found: list[tuple[Any, list[tuple[int, int]]]] = [(None, []) for _ in paths]

    def visible(self) -> list[Any]:
        """Return for each path the closest one that was written, or None."""
        return [path for path, _ in self.found]

    def underlined(self) -> set[int]:
        """Return the places of the characters that are underlined."""
        return {i for _, spans in self.found for a, b in spans for i in range(a, max(b, a + 1))}

    def doc(self, doc: Doc) -> None:
        """Write a part."""
        start = len(self.text)
        _WRITE[type(doc)](self, doc)
        for path in doc.source_paths:
            for i, wanted in enumerate(self.paths):
                old, spans = self.found[i]
                if not path.is_prefix_of(wanted) or (old is not None and path.depth < old.depth):
                    continue
                if old is None or path.depth > old.depth:
                    spans = []
                self.found[i] = (path, [*spans, (start, len(self.text))])

    def put(self, *parts: Doc | str) -> None:
        """Write texts and parts one after another."""
        for p in parts:
            if isinstance(p, str):
                self.text += p
            else:
                self.doc(p)

    def joined(self, docs: Sequence[Doc], separator: str = ", ") -> None:
        """Write parts with a text between each two."""
        for i, d in enumerate(docs):
            self.put(separator if i else "", d)

    def line(self) -> None:
        """Begin a line."""
        self.text += "\n" + " " * self.indent

    def body(self, docs: Sequence[Doc], before: Callable[[], None] | None = None) -> None:
        """Write statements of a body."""
        self.indent += self.step
        if before is not None:
            before()
        for d in docs:
            self.line()
            self.doc(d)
        if not docs:
            self.line()
            self.put("pass")
        self.indent -= self.step

    def operand(self, child: Any, level: int, strictly: bool) -> None:
        """Write an operand, in parentheses where it binds less tightly."""
        own = _level(child)
        wrapped = own <= level if strictly else own < level
        self.put(*(("(", child, ")") if wrapped else (child,)))

    def comment_before(self, doc: StmtDoc) -> None:
        """Write the comment of a statement with a body in lines of its own."""
        for text in (doc.comment or "").split("\n") if doc.comment else ():
            self.put(f"# {text}")
            self.line()

    def comment_behind(self, doc: StmtDoc) -> None:
        """Write the comment of a statement of one line behind it."""
        if doc.comment:
            if "\n" in doc.comment:
                raise ValueError(f"the comment of {type(doc).__name__} stands in one line and cannot have newline")
            self.put(f"  # {doc.comment}")

    def docstring(self, text: str | None) -> None:
        """Write a docstring on the lines that follow."""
        if text:
            self.put('"""')
            for one in text.split("\n"):
                self.text += "\n" + (" " * self.indent + one if one else "")
            self.line()
            self.put('"""')

    def decorators(self, docs: Sequence[Doc]) -> None:
        """Write one line for each decorator."""
        for d in docs:
            self.put("@", d)
            self.line()


def _level(doc: Doc) -> int:
    if isinstance(doc, nodes.OperationDoc):
        return _TOKENS[doc.kind][1]
    return 1 if isinstance(doc, nodes.LambdaDoc) else 15


def _literal(w: _Writer, d: nodes.LiteralDoc) -> None:
    w.put(json.dumps(d.value, ensure_ascii=False) if isinstance(d.value, str) else repr(d.value))


def _operation(w: _Writer, d: nodes.OperationDoc) -> None:
    token, level = _TOKENS[d.kind]
    if d.kind < _K._UnaryEnd:
        w.put(token)
        w.operand(d.operands[0], level, strictly=False)
    elif d.kind == _K.IfThenElse:
        for i, text in ((1, f" {token} "), (0, " else ")):
            w.operand(d.operands[i], level, strictly=True)
            w.put(text)
        w.operand(d.operands[2], level, strictly=True)
    elif d.kind == _K.Pow:
        w.operand(d.operands[0], level, strictly=True)
        w.put(f" {token} ")
        w.operand(d.operands[1], _TOKENS[_K.USub][1], strictly=False)  # a sign needs no parentheses behind it
    else:
        w.operand(d.operands[0], level, strictly=False)
        w.put(f" {token} ")
        w.operand(d.operands[1], level, strictly=True)


def _access(w: _Writer, value: Doc, *parts: Doc | str) -> None:
    w.operand(value, 15, strictly=False)
    w.put(*parts)


def _index(w: _Writer, d: nodes.IndexDoc) -> None:
    _access(w, d.value, "[")
    w.joined(d.indices)
    w.put("()" if not d.indices else "", "]")


def _call(w: _Writer, d: nodes.CallDoc) -> None:
    _access(w, d.callee, "(")
    w.joined(d.args)
    for i, (key, value) in enumerate(zip(d.kwargs_keys, d.kwargs_values, strict=True)):
        w.put(", " if i or d.args else "", key, "=", value)
    w.put(")")


def _lambda(w: _Writer, d: nodes.LambdaDoc) -> None:
    w.put("lambda ")
    w.joined(d.args)
    w.put(": ", d.body)


def _tuple(w: _Writer, d: nodes.TupleDoc) -> None:
    w.put("(")
    w.joined(d.elements)
    w.put(",)" if len(d.elements) == 1 else ")")


def _list(w: _Writer, d: nodes.ListDoc) -> None:
    w.put("[")
    w.joined(d.elements)
    w.put("]")


def _dict(w: _Writer, d: nodes.DictDoc) -> None:
    w.put("{")
    for i, (key, value) in enumerate(zip(d.keys, d.values, strict=True)):
        w.put(", " if i else "", key, ": ", value)
    w.put("}")


def _slice(w: _Writer, d: nodes.SliceDoc) -> None:
    w.put(*([d.start] if d.start is not None else []), ":", *([d.stop] if d.stop is not None else []))
    w.put(*([":", d.step] if d.step is not None else []))


def _block(w: _Writer, d: nodes.StmtBlockDoc) -> None:
    for i, stmt in enumerate(d.stmts):
        if i:
            w.line()
        w.doc(stmt)


def _assign(w: _Writer, d: nodes.AssignDoc) -> None:
    if isinstance(d.lhs, nodes.TupleDoc) and d.lhs.elements:
        w.joined(d.lhs.elements)
        w.put("," if len(d.lhs.elements) == 1 else "")
    else:
        w.doc(d.lhs)
    w.put(*([": ", d.annotation] if d.annotation is not None else []), *([" = ", d.rhs] if d.rhs is not None else []))
    w.comment_behind(d)


def _if(w: _Writer, d: nodes.IfDoc) -> None:
    w.comment_before(d)
    w.put("if ", d.predicate, ":")
    w.body(d.then_branch)
    if d.else_branch:
        w.line()
        w.put("else:")
        w.body(d.else_branch)


def _while(w: _Writer, d: nodes.WhileDoc) -> None:
    w.comment_before(d)
    w.put("while ", d.predicate, ":")
    w.body(d.body)


def _for(w: _Writer, d: nodes.ForDoc) -> None:
    w.comment_before(d)
    w.put("for ")
    bare = isinstance(d.lhs, nodes.TupleDoc) and len(d.lhs.elements) > 1
    w.joined(d.lhs.elements) if bare else w.doc(d.lhs)  # type: ignore[attr-defined]
    w.put(" in ", d.rhs, ":")
    w.body(d.body)


def _scope(w: _Writer, d: nodes.ScopeDoc) -> None:
    w.comment_before(d)
    w.put("with ", d.rhs, *([" as ", d.lhs] if d.lhs is not None else []), ":")
    w.body(d.body)


def _line(*parts: Callable[[Any], Any]) -> Callable[[_Writer, Any], None]:
    def write(w: _Writer, d: Any) -> None:
        w.put(*(x for p in parts for x in [p(d)] if x is not None))
        w.comment_behind(d)

    return write


def _assert(w: _Writer, d: nodes.AssertDoc) -> None:
    w.put("assert ", d.test, *([", ", d.msg] if d.msg is not None else []))
    w.comment_behind(d)


def _documented(w: _Writer, d: Any) -> None:
    """Write the body of a function or class, its comment first."""

    def before() -> None:
        if d.comment:
            w.line()
            w.docstring(d.comment)

    w.body(d.body, before)
    w.text += "\n" if w.indent else ""


def _function(w: _Writer, d: nodes.FunctionDoc) -> None:
    for a in d.args:
        if a.comment:
            raise ValueError("an argument of a function has no comment")
    w.decorators(d.decorators)
    w.put("def ", d.name, "(")
    w.joined(d.args)
    w.put(")", *([" -> ", d.return_type] if d.return_type is not None else []), ":")
    _documented(w, d)


def _class(w: _Writer, d: nodes.ClassDoc) -> None:
    w.decorators(d.decorators)
    w.put("class ", d.name, ":")
    _documented(w, d)


def _comment(w: _Writer, d: nodes.CommentDoc) -> None:
    for i, text in enumerate(d.comment.split("\n") if d.comment else ()):
        if i:
            w.line()
        w.put(f"# {text}")


_WRITE: dict[type, Callable[[_Writer, Any], None]] = {
    nodes.AssertDoc: _assert,
    nodes.AssignDoc: _assign,
    nodes.CallDoc: _call,
    nodes.AttrAccessDoc: lambda w, d: _access(w, d.value, ".", d.name),
    nodes.ClassDoc: _class,
    nodes.CommentDoc: _comment,
    nodes.DictDoc: _dict,
    nodes.DocStringDoc: lambda w, d: w.docstring(d.comment),
    ExprStmtDoc: _line(lambda d: d.expr),
    nodes.ForDoc: _for,
    nodes.FunctionDoc: _function,
    nodes.IdDoc: lambda w, d: w.put(d.name),
    nodes.IfDoc: _if,
    nodes.IndexDoc: _index,
    nodes.LambdaDoc: _lambda,
    nodes.ListDoc: _list,
    nodes.LiteralDoc: _literal,
    nodes.OperationDoc: _operation,
    nodes.ReturnDoc: _line(lambda d: "return ", lambda d: d.value),
    nodes.ScopeDoc: _scope,
    nodes.SliceDoc: _slice,
    nodes.StmtBlockDoc: _block,
    nodes.TupleDoc: _tuple,
    nodes.WhileDoc: _while,
}


def _header(paths: Sequence[Any], visible: Sequence[Any]) -> str:
    """Say which paths were asked for, and which of them no text shows."""
    lines = []
    for wanted, found in zip(paths, visible, strict=True):
        lines.append(f"Access path: {wanted}")
        if found is None:
            lines.append("Note: No visible object for this path is rendered in TVMScript.")
        elif found.depth < wanted.depth:
            lines.append("Note: The underlined object is the nearest visible parent of this path.")
    return "\n".join(lines) + "\n\n" if lines else ""


def _decorated(text: str, marked: set[int], numbers: bool, context: int | None) -> str:
    """Underline characters, number lines, and leave out those far from what is underlined."""
    lines = text.splitlines()
    width = len(str(len(lines))) + 1 if numbers else 0
    starts = [sum(len(x) + 1 for x in lines[:i]) for i in range(len(lines))]
    carets = [
        "".join("^" if starts[i] + j in marked else " " for j in range(len(x) or 1)).rstrip()
        for i, x in enumerate(lines)
    ]
    shown = _shown(len(lines), [i for i, c in enumerate(carets) if c], context)
    out, skipped = [], 0
    for i, line in enumerate(lines):
        if i not in shown:
            skipped += 1
            if i + 1 == len(lines) or i + 1 in shown:
                out.append(f"(... {skipped} lines skipped ...)")
                skipped = 0
            continue
        out.append((f"{i + 1} ".rjust(width) if numbers else "") + line)
        if carets[i]:
            out.append(" " * width + carets[i])
    return "".join(x + "\n" for x in out)


def _shown(count: int, underlined: list[int], context: int | None) -> set[int]:
    """Return the lines that are shown: all, or those near underlines and single ones between them."""
    if context is None or context < 0 or not underlined:
        return set(range(count))
    near = {i for u in underlined for i in range(max(u - context, 0), min(u + context + 1, count))}
    edges = [-1, *sorted(near), count]
    for a, b in itertools.pairwise(edges):
        if b - a - 1 < _CUT:
            near.update(range(a + 1, b))
    return near
