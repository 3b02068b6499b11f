"""Where a program's text comes from: the file of a decorated function or class, or a string."""

from __future__ import annotations

import ast
import itertools
import linecache
import textwrap
from collections.abc import Callable
from types import FrameType
from typing import Any

from weft.error import ParseError
from weft.ir.node import Span

_COUNTER = itertools.count(1)
_TREES: dict[str, tuple[int, Source]] = {}


class Source:
    """A parsed file or string, which turns AST nodes into spans."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.lines = text.splitlines()
        try:
            self.tree = ast.parse(text, file)
        except SyntaxError as e:
            line, column = e.lineno or 1, e.offset or 1
            span = Span(file, line, e.end_lineno or line, column, e.end_offset or column + 1)
            raise ParseError(f"invalid syntax: {e.msg}", where=span) from None
        except (RecursionError, MemoryError):  # as Python's parser says that the text nests deeper than it follows
            raise ParseError("the text nests too deep", where=file, help="give names to parts of it") from None
        except ValueError as e:  # a zero byte
            raise ParseError("this is no program text", where=file, found=str(e)) from None

    def span(self, node: ast.AST) -> Span:
        """Return the place of an AST node; columns count characters from 1."""
        line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
        end_line, end_column = getattr(node, "end_lineno", line), getattr(node, "end_col_offset", column)
        return Span(self.file, line, end_line, self._column(line, column), self._column(end_line, end_column))

    def _column(self, line: int, offset: int) -> int:
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        return offset + 1 if text.isascii() else len(text.encode()[:offset].decode(errors="ignore")) + 1


def source_of_text(text: str) -> Source:
    """Take a program from a string; error messages show its lines."""
    text = textwrap.dedent(text)
    file = f"<script {next(_COUNTER)}>"
    linecache.cache[file] = (len(text), None, [line + "\n" for line in text.splitlines()], file)
    return Source(file, text)


def _file_source(file: str, what: str) -> Source:
    linecache.checkcache(file)
    lines = linecache.getlines(file)
    if not lines:
        raise ParseError(
            f"the source of {what} cannot be read from '{file}'",
            help="write the program in a file, or pass its text to weft.script.from_source",
        )
    text = "".join(lines)
    known = _TREES.get(file)
    if known is None or known[0] != hash(text):
        known = _TREES[file] = (hash(text), Source(file, text))
    return known[1]


def source_of_function(fn: Callable[..., Any]) -> tuple[Source, ast.FunctionDef]:
    """Find the definition of a function that a decorator was given."""
    code = fn.__code__
    source = _file_source(code.co_filename, f"function '{fn.__name__}'")
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef) and node.name == fn.__name__ and _first_line(node) == code.co_firstlineno:
            return source, node
    raise ParseError(
        f"the definition of function '{fn.__name__}' is not at line {code.co_firstlineno} of '{code.co_filename}'"
    )


def source_of_class(cls: type, frame: FrameType) -> tuple[Source, ast.ClassDef]:
    """Find the definition of a class that is being decorated in `frame`."""
    source = _file_source(frame.f_code.co_filename, f"class '{cls.__name__}'")
    found = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef)
        and node.name == cls.__name__
        and _first_line(node) <= frame.f_lineno <= (node.end_lineno or 0)
    ]
    if not found:
        raise ParseError(
            f"the definition of class '{cls.__name__}' is not around line {frame.f_lineno} of '{source.file}'"
        )
    return source, max(found, key=_first_line)


def _first_line(node: Any) -> int:
    return min([node.lineno, *[d.lineno for d in node.decorator_list]])
