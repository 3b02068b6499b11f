"""The parts of a Python program that a printer puts together: expressions, statements, blocks.

Each part may say which objects it shows (``source_paths``, tvm_ffi's access paths): their text can be underlined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum, unique
from typing import Any, Self


class Doc:
    """A part of a program; equal to itself only."""

    source_paths: list[Any]

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self:
        """Make a part that shows no object yet."""
        doc = super().__new__(cls)
        doc.source_paths = []
        return doc


class ExprDoc(Doc):
    """An expression."""

    def attr(self, name: str) -> AttrAccessDoc:
        """Return ``self.name``."""
        return AttrAccessDoc(self, name)

    def call(self, *args: ExprDoc, **kwargs: ExprDoc) -> CallDoc:
        """Return ``self(args, name=kwargs)``."""
        return CallDoc(self, *args, **kwargs)

    def __getitem__(self, indices: Any) -> IndexDoc:
        return IndexDoc(self, list(indices) if isinstance(indices, tuple) else [indices])

    def __iter__(self) -> Iterator[Any]:
        raise RuntimeError(f"{type(self).__name__} is an expression, not a sequence; use the parts that it was made of")


class StmtDoc(Doc):
    """A statement; ``comment`` is written behind it or, for one with a body, before or inside it."""

    comment: str | None = None


class StmtBlockDoc(Doc):
    """Statements one after another."""

    def __init__(self, stmts: Sequence[StmtDoc]) -> None:
        self.stmts = list(stmts)


class LiteralDoc(ExprDoc):
    """None, a text, a number or a truth value."""

    def __init__(self, value: str | float | bool | None, path: Any = None) -> None:
        if value is not None and type(value) not in (str, int, float, bool):
            raise TypeError(f"a literal is None, str, int, float or bool; found {type(value).__name__}")
        self.value = value
        self.source_paths += [path] if path is not None else []


class IdDoc(ExprDoc):
    """A name."""

    def __init__(self, name: str) -> None:
        self.name = name


class AttrAccessDoc(ExprDoc):
    """``value.name``."""

    def __init__(self, value: ExprDoc, name: str) -> None:
        self.value, self.name = value, name


class IndexDoc(ExprDoc):
    """``value[indices]``."""

    def __init__(self, value: ExprDoc, indices: Sequence[Doc]) -> None:
        self.value, self.indices = value, list(indices)


class CallDoc(ExprDoc):
    """``callee(args, key=value)``."""

    def __init__(self, callee: ExprDoc, *args: ExprDoc, **kwargs: ExprDoc) -> None:
        self.callee, self.args = callee, list(args)
        self.kwargs_keys, self.kwargs_values = list(kwargs), list(kwargs.values())


@unique
class OperationKind(IntEnum):
    """Operators; the names with an underscore bound those of one, of two and of other numbers of operands."""

    _UnaryStart = 0
    USub = 1
    Invert = 2
    Not = 3
    _UnaryEnd = 4
    _BinaryStart = 5
    Add = 6
    Sub = 7
    Mult = 8
    Div = 9
    FloorDiv = 10
    Mod = 11
    Pow = 12
    LShift = 13
    RShift = 14
    BitAnd = 15
    BitOr = 16
    BitXor = 17
    Lt = 18
    LtE = 19
    Eq = 20
    NotEq = 21
    Gt = 22
    GtE = 23
    And = 24
    Or = 25
    MatMul = 26
    _BinaryEnd = 27
    _SpecialStart = 28
    IfThenElse = 29
    _SpecialEnd = 30


class OperationDoc(ExprDoc):
    """An operator with its operands; of a conditional expression the condition is the first."""

    def __init__(self, kind: OperationKind, operands: Sequence[ExprDoc]) -> None:
        self.kind, self.operands = OperationKind(kind), list(operands)


class LambdaDoc(ExprDoc):
    """``lambda args: body``."""

    def __init__(self, args: Sequence[IdDoc], body: ExprDoc) -> None:
        self.args, self.body = list(args), body


class TupleDoc(ExprDoc):
    """``(elements)``."""

    def __init__(self, elements: Sequence[ExprDoc]) -> None:
        self.elements = list(elements)


class ListDoc(ExprDoc):
    """``[elements]``."""

    def __init__(self, elements: Sequence[ExprDoc]) -> None:
        self.elements = list(elements)


class DictDoc(ExprDoc):
    """``{key: value}``."""

    def __init__(self, content: Mapping[ExprDoc, ExprDoc]) -> None:
        self.keys, self.values = list(content), list(content.values())


class SliceDoc(Doc):
    """``start:stop:step`` among indices."""

    def __init__(self, start: ExprDoc | None = None, stop: ExprDoc | None = None, step: ExprDoc | None = None) -> None:
        self.start, self.stop, self.step = start, stop, step


class AssignDoc(StmtDoc):
    """``lhs: annotation = rhs``; without ``rhs`` it declares."""

    def __init__(self, lhs: ExprDoc, rhs: ExprDoc | None, annotation: ExprDoc | None = None) -> None:
        if rhs is None and annotation is None:
            raise ValueError("an assignment has a right side or an annotation")
        if annotation is not None and not isinstance(lhs, (IdDoc, AttrAccessDoc, IndexDoc)):
            raise ValueError(f"what is annotated is one name, attribute or element; found {type(lhs).__name__}")
        self.lhs, self.rhs, self.annotation = lhs, rhs, annotation


class IfDoc(StmtDoc):
    """``if predicate: ... else: ...``."""

    def __init__(self, predicate: ExprDoc, then_branch: Sequence[StmtDoc], else_branch: Sequence[StmtDoc]) -> None:
        if not then_branch and not else_branch:
            raise ValueError("an 'if' has a branch that is not empty")
        self.predicate, self.then_branch, self.else_branch = predicate, list(then_branch), list(else_branch)


class WhileDoc(StmtDoc):
    """``while predicate: ...``."""

    def __init__(self, predicate: ExprDoc, body: Sequence[StmtDoc]) -> None:
        self.predicate, self.body = predicate, list(body)


class ForDoc(StmtDoc):
    """``for lhs in rhs: ...``."""

    def __init__(self, lhs: ExprDoc, rhs: ExprDoc, body: Sequence[StmtDoc]) -> None:
        self.lhs, self.rhs, self.body = lhs, rhs, list(body)


class ScopeDoc(StmtDoc):
    """``with rhs as lhs: ...``."""

    def __init__(self, lhs: ExprDoc | None, rhs: ExprDoc, body: Sequence[StmtDoc]) -> None:
        self.lhs, self.rhs, self.body = lhs, rhs, list(body)


class ExprStmtDoc(StmtDoc):
    """An expression as a statement."""

    def __init__(self, expr: ExprDoc) -> None:
        self.expr = expr


class AssertDoc(StmtDoc):
    """``assert test, msg``."""

    def __init__(self, test: ExprDoc, msg: ExprDoc | None = None) -> None:
        self.test, self.msg = test, msg


class ReturnDoc(StmtDoc):
    """``return value``."""

    def __init__(self, value: ExprDoc) -> None:
        self.value = value


class FunctionDoc(StmtDoc):
    """A function; its arguments are assignments without a right side, or with their default as such."""

    def __init__(
        self,
        name: IdDoc,
        args: Sequence[AssignDoc],
        decorators: Sequence[ExprDoc],
        return_type: ExprDoc | None,
        body: Sequence[StmtDoc],
    ) -> None:
        self.name, self.args, self.decorators = name, list(args), list(decorators)
        self.return_type, self.body = return_type, list(body)


class ClassDoc(StmtDoc):
    """A class."""

    def __init__(self, name: IdDoc, decorators: Sequence[ExprDoc], body: Sequence[StmtDoc]) -> None:
        self.name, self.decorators, self.body = name, list(decorators), list(body)


class CommentDoc(StmtDoc):
    """Lines of comment."""

    def __init__(self, comment: str) -> None:
        self.comment = comment


class DocStringDoc(StmtDoc):
    """A docstring."""

    def __init__(self, docs: str) -> None:
        self.comment = docs
