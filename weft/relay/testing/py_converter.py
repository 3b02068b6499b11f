"""Relay programs as Python programs: a second, independent way to run them."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Callable
from typing import Any

from weft import ir
from weft.error import EvaluationError, InvalidArgument
from weft.ir import Attrs, IRModule, Op
from weft.relay.adt import Constructor, Match, PatternConstructor, PatternTuple, PatternVar
from weft.relay.expr import (
    Call,
    Constant,
    Function,
    GlobalVar,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    TupleWrapper,
    Var,
)  # fmt: skip
from weft.relay.operate import operate
from weft.relay.transform.to_a_normal_form import to_a_normal_form, to_a_normal_form_expr
from weft.relay.values import ConstructorValue, RefValue, outward

__all__ = ["run_as_python", "to_python"]


def to_python(expr: Any, mod: IRModule | None = None, target: Any = "llvm") -> ast.Module:
    """Turn an expression, with the functions of its module, into a Python program that binds ``result``.

    Parameters
    ----------
    expr : Expr
        What to convert.
    mod : IRModule, optional
        The functions and data types that it refers to.
    target : str or Target
        Not asked: operators are their NumPy references.
    """
    writer = _Writer()
    for v, f in to_a_normal_form(mod).items() if mod is not None else ():
        if isinstance(f, Function):
            writer.define(writer.name(v), f, 0)
    expr = expr.astuple() if isinstance(expr, TupleWrapper) else expr
    writer.put(to_a_normal_form_expr(expr), "result", 0)
    return ast.parse("\n".join(writer.lines))


def run_as_python(expr: Any, mod: IRModule | None = None, target: Any = "llvm") -> Any:
    """Convert an expression to Python, run that, and return its value.

    Returns
    -------
    Tensor, ADT, ConstructorValue, RefValue or callable

    Raises
    ------
    EvaluationError
        When no clause of a match takes a value.
    """
    names: dict[str, Any] = {
        "array": lambda text: ir.load_json(text).data.numpy(), "constructor": _constructor(mod), "cell": RefValue.of,
        "operate": lambda name, attrs, args: operate(Op.get(name), ir.load_json(attrs) if attrs else Attrs(), args),
        "write": _write, "no_clause": _no_clause,
    }  # fmt: skip
    exec(compile(to_python(expr, mod, target), "<relay>", "exec"), names)
    return outward(names["result"])


def _constructor(mod: IRModule | None) -> Callable[[str, str], Callable[..., ConstructorValue]]:
    def find(data_type: str, name: str) -> Callable[..., ConstructorValue]:
        if mod is None:
            raise InvalidArgument(f"nothing defines the data type '{data_type}'", help="give run_as_python its module")
        found = next(t for v, t in mod.type_definitions.items() if v.name_hint == data_type)
        made = next(c for c in found.constructors if c.name_hint == name)
        return lambda *args: ConstructorValue.of(made.tag, args, made)

    return find


def _write(cell: RefValue, value: Any) -> tuple[()]:
    cell.item = value
    return ()


def _no_clause(value: Any) -> None:
    raise EvaluationError("no clause of the match takes the value", found=type(value).__name__)


class _Writer:
    """The lines so far, and what variables are called in them."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[Any, str] = {}

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def name(self, v: Any) -> str:
        """Return the name of a variable, which no other has."""
        if v not in self.names:
            text = re.sub(r"\W", "_", v.name_hint)
            self.names[v] = f"{text}_{len(self.names)}" if not keyword.iskeyword(text) else f"v{len(self.names)}"
        return self.names[v]

    def define(self, name: str, func: Function, depth: int) -> None:
        self.line(depth, f"def {name}({', '.join(map(self.name, func.params))}):")
        self.put(func.body, "", depth + 1)

    def put(self, e: Any, target: str, depth: int) -> None:
        """Write an expression in normal form into a variable; return it where there is none."""
        while isinstance(e, Let):
            self.put(e.value, self.name(e.var), depth)
            e = e.body
        given = f"{target} = " if target else "return "
        if isinstance(e, If):
            self.line(depth, f"if {self.value(e.cond)}:")
            self.put(e.true_branch, target, depth + 1)
            self.line(depth, "else:")
            self.put(e.false_branch, target, depth + 1)
        elif isinstance(e, Function):
            name = target or f"fn_{len(self.lines)}"
            self.define(name, e, depth)
            if not target:
                self.line(depth, f"return {name}")
        elif isinstance(e, Match):
            self.match(e, target, depth)
        else:
            self.line(depth, given + self.value(e))

    def match(self, e: Match, target: str, depth: int) -> None:
        data = self.value(e.data)
        word = "if"
        for clause in e.clauses:
            tests: list[str] = []
            bound: list[str] = []
            self.pattern(clause.lhs, data, tests, bound)
            self.line(depth, f"{word} {' and '.join(tests) or 'True'}:")
            for text in bound:
                self.line(depth + 1, text)
            self.put(clause.rhs, target, depth + 1)
            word = "elif"
        self.line(depth, "else:" if e.clauses else "if True:")
        self.line(depth + 1, f"no_clause({data})")

    def pattern(self, p: Any, place: str, tests: list[str], bound: list[str]) -> None:
        """List what is to be tested of a value, and what a pattern binds."""
        if isinstance(p, PatternVar):
            bound.append(f"{self.name(p.var)} = {place}")
        elif isinstance(p, (PatternConstructor, PatternTuple)):
            if isinstance(p, PatternConstructor):
                tests.append(f"{place}.tag == {p.constructor.tag}")
            inner = f"{place}.items" if isinstance(p, PatternConstructor) else place
            for i, q in enumerate(p.patterns):
                self.pattern(q, f"{inner}[{i}]", tests, bound)

    def value(self, e: Any) -> str:
        """Return the Python expression of an operation on atoms."""
        rule = _VALUES.get(type(e))
        if rule is None:
            raise InvalidArgument("to_python: this is no Relay expression", found=type(e).__name__)
        return rule(self, e)

    def call(self, e: Call) -> str:
        args = "".join(self.value(a) + ", " for a in e.args)
        if isinstance(e.op, Op):
            return f"operate({e.op.name!r}, {(ir.save_json(e.attrs) if e.attrs else '')!r}, [{args}])"
        return f"{self.value(e.op)}({args})"


_VALUES: dict[type, Callable[[_Writer, Any], str]] = {
    Var: _Writer.name, GlobalVar: _Writer.name, Call: _Writer.call,
    Constant: lambda w, e: f"array({ir.save_json(e)!r})",
    Tuple: lambda w, e: f"({''.join(w.value(f) + ', ' for f in e.fields)})",
    TupleGetItem: lambda w, e: f"{w.value(e.tuple_value)}[{e.index}]",
    RefCreate: lambda w, e: f"cell({w.value(e.value)})",
    RefRead: lambda w, e: f"{w.value(e.ref)}.item",
    RefWrite: lambda w, e: f"write({w.value(e.ref)}, {w.value(e.value)})",
    Constructor: lambda w, e: f"constructor({e.belong_to.name_hint!r}, {e.name_hint!r})",
}  # fmt: skip
