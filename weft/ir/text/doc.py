"""Documents: the tree between IR and text, and its rendering within a line width.

An expression document is a ``str`` (an atom), a :class:`Seq` (parts written one after another, with the precedence of
its operator) or a :class:`Group` (items between brackets, which may be broken over lines). Statements are lines with
an indentation, in :class:`Lines`. Rendering keeps its own stack, so that long operator chains cost no recursion.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, NamedTuple

# Binding strength, weakest first, as in Python.
TERNARY, OR, AND, NOT, COMPARE, BIT_OR, BIT_XOR, BIT_AND, SHIFT, ADD, MUL, UNARY, POSTFIX, ATOM = range(14)


class Seq(NamedTuple):
    """Parts one after another."""

    precedence: int
    parts: tuple[Any, ...]


class Group(NamedTuple):
    """Items between brackets, with commas: the first place where a line may break."""

    open: str
    items: tuple[Any, ...]
    close: str


Doc = str | Seq | Group


def precedence(doc: Doc) -> int:
    """Return the binding strength of a document's outermost operator."""
    return doc.precedence if type(doc) is Seq else ATOM


def _at_least(doc: Doc, strength: int) -> Doc:
    return doc if precedence(doc) >= strength else Seq(ATOM, ("(", doc, ")"))


def infix(left: Doc, operator: str, right: Doc, strength: int) -> Doc:
    """Write a left-associative binary operator; comparisons do not associate at all."""
    left_strength = strength + 1 if strength == COMPARE else strength
    return Seq(strength, (_at_least(left, left_strength), f" {operator} ", _at_least(right, strength + 1)))


def prefix(operator: str, operand: Doc, strength: int) -> Doc:
    """Write a unary operator."""
    return Seq(strength, (operator, _at_least(operand, strength)))


def attribute(value: Doc, name: str) -> Doc:
    """Write ``value.name``."""
    return Seq(POSTFIX, (_at_least(value, POSTFIX), "." + name))


def index(value: Doc, indices: Iterable[Doc]) -> Doc:
    """Write ``value[i, j]``."""
    items = tuple(indices)
    return Seq(POSTFIX, (_at_least(value, POSTFIX), Group("[", items if items else ("()",), "]")))


def call(function: Doc, args: Iterable[Doc] = (), kwargs: Iterable[tuple[str, Doc]] = ()) -> Doc:
    """Write ``function(args, name=value)``."""
    items = (*args, *[Seq(TERNARY, (k + "=", v)) for k, v in kwargs])
    return Seq(POSTFIX, (_at_least(function, POSTFIX), Group("(", items, ")")))


def tuple_doc(items: Iterable[Doc]) -> Doc:
    """Write a Python tuple."""
    fields = tuple(items)
    return Group("(", fields, ",)" if len(fields) == 1 else ")")


def mapping(items: Iterable[tuple[Doc, Doc]]) -> Doc:
    """Write a Python dictionary."""
    return Group("{", tuple([Seq(TERNARY, (k, ": ", v)) for k, v in items]), "}")


def flat(doc: Doc) -> str:
    """Render on one line."""
    out: list[str] = []
    stack: list[Any] = [doc]
    while stack:
        d = stack.pop()
        if type(d) is Seq:
            stack.extend(reversed(d.parts))
        elif type(d) is Group:
            stack.append(d.close)
            for i in range(len(d.items) - 1, -1, -1):
                stack.append(d.items[i])
                if i:
                    stack.append(", ")
            stack.append(d.open)
        else:
            out.append(d)
    return "".join(out)


def _render(doc: Doc, indent: int, width: int, start: int, suffix: int, enclosed: bool | None = False) -> list[str]:
    """Render as lines, of which the first, without indentation, begins at `start`; `suffix` characters follow the last.

    What is `enclosed` stands alone between brackets, so that its operators may begin lines; None: none may.
    """
    text = flat(doc)
    if start + len(text) + suffix <= width or type(doc) is str:
        return [text]
    if type(doc) is not Group:
        return _render_seq(doc, indent, width, start, suffix, enclosed)  # type: ignore[arg-type]
    if not doc.items:
        return [text]
    lines = [doc.open]
    for item in doc.items:
        inner = _render(item, indent + 4, width, indent + 4, 1, enclosed if enclosed is None else True)
        lines += [" " * (indent + 4) + inner[0], *inner[1:]]
        lines[-1] += ","
    if doc.open == "[":  # after a single index a comma would make it a tuple
        lines[-1] = lines[-1][:-1]
    lines.append(" " * indent + doc.close.removeprefix(","))
    return lines


def _render_seq(doc: Seq, indent: int, width: int, start: int, suffix: int, enclosed: bool | None) -> list[str]:
    """Break the longest part that can be broken (a later one at least half as long comes first).

    The others stay flat. Operands that are too long for that have a line each.
    """
    parts = doc.parts
    texts = [flat(p) for p in parts]
    chain = parts[1] if parts[0] == "(" else doc
    operators = type(chain) is Seq and OR <= chain.precedence <= MUL and len(chain.parts) == 3
    if operators and sum(map(len, texts)) > 16 * width:
        return ["".join(texts)]  # to look for a place in every prefix would be quadratic
    lines = ["".join(texts)]
    if breakable := [i for i, p in enumerate(parts) if _breaks(p)]:
        longest = max(len(texts[i]) for i in breakable)
        at = max(i for i in breakable if 2 * len(texts[i]) >= longest)
        before, after = "".join(texts[:at]), "".join(texts[at + 1 :])
        begun = start + len(before)
        lines = _render(parts[at], indent, width, begun, suffix + len(after), None if operators else enclosed and False)
        lines[0] = before + lines[0]
        lines[-1] += after
    if not operators or enclosed is None:
        return lines
    if max(start + len(lines[0]), *map(len, lines[1:]), len(lines[-1]) + suffix) <= width:
        return lines
    return _render_operands(chain, indent, width, suffix, enclosed and chain is doc)


def _render_operands(doc: Doc, indent: int, width: int, suffix: int, enclosed: bool) -> list[str]:
    """Render an operator, and those of its strength on its left, as a line for each operand, between parentheses."""
    chain: list[tuple[str, Doc]] = []
    strength = precedence(doc)
    while type(doc) is Seq and doc.precedence == strength and len(doc.parts) == 3:
        doc, operator, right = doc.parts
        chain.insert(0, (operator.lstrip(), right))
    inner = indent if enclosed else indent + 4
    lines = []
    for operator, operand in [("", doc), *chain]:
        rendered = _render(operand, inner, width, inner + len(operator), suffix)
        lines += [" " * inner + operator + rendered[0], *rendered[1:]]
    return [lines[0].lstrip(" "), *lines[1:]] if enclosed else ["(", *lines, " " * indent + ")"]


def _breaks(doc: Any) -> bool:
    """Whether a group lies on the doc's outer levels: a few are asked, so that deep chains stay cheap."""
    for _ in range(8):
        if type(doc) is Group:
            return bool(doc.items)
        if type(doc) is not Seq:
            return False
        doc = next((p for p in reversed(doc.parts) if type(p) is not str), "")
    return False


class Lines:
    """Statements under construction: documents with their indentation.

    ``mark`` reserves a place for lines that come later: declarations of what turns out to be needed.
    """

    def __init__(self, width: int = 120) -> None:
        self.width = width
        self.indent = 0
        self._lines: list[tuple[int, Any] | list[Any]] = []

    def add(self, *parts: Any) -> None:
        """Add a statement made of text and documents."""
        self._lines.append((self.indent, parts[0] if len(parts) == 1 else Seq(TERNARY, parts)))

    def blank(self) -> None:
        """Add an empty line."""
        self._lines.append((0, ""))

    @contextmanager
    def indented(self) -> Generator[None, None, None]:
        """Indent what is added inside."""
        self.indent += 1
        yield
        self.indent -= 1

    def mark(self, place: list[Any] | None = None) -> list[Any]:
        """Reserve a place at this indentation; append documents to the list that is returned (or given) to fill it."""
        place = [] if place is None else place
        place.insert(0, self.indent)
        self._lines.append(place)
        return place

    def text(self) -> str:
        """Render everything."""
        out: list[str] = []
        for line in self._lines:
            indent, docs = (line[0], line[1:]) if isinstance(line, list) else (line[0], [line[1]])
            for doc in docs:
                rendered = _render(doc, 4 * indent, self.width, 4 * indent, 0)
                out.append(" " * (4 * indent) + rendered[0] if rendered[0] else "")
                out += rendered[1:]
        return "\n".join(out)
