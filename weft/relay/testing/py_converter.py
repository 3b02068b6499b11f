"""Relay programs as Python programs: a second, independent way to run them. Every expression is one of Python's."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

from weft import error, ir
from weft.ir import Attrs, IRModule, Op
from weft.relay import adt, expr
from weft.relay.operate import operate
from weft.relay.transform.to_a_normal_form import to_a_normal_form, to_a_normal_form_expr
from weft.relay.values import ConstructorValue, RefValue, outward
from weft.spelling import also_called
from weft.target import TargetLike


@also_called(expr="e")
def to_python(e: expr.Expr, mod: IRModule | None = None, target: TargetLike = "llvm") -> ast.Module:
    """Turn an expression, with the functions of its module, into a Python program that binds ``result``.

    Parameters
    ----------
    e : Expr
        What to convert.
    mod : IRModule, optional
        The functions and data types that it refers to.
    target : str or Target
        Not asked: operators are their NumPy references.
    """
    writer = _Writer()
    e = e.astuple() if isinstance(e, expr.TupleWrapper) else e
    functions = to_a_normal_form(mod).items() if mod is not None else ()
    lines = [f"{writer.name(v)} = {writer.of(f)}" for v, f in functions if isinstance(f, expr.Function)]
    return ast.parse("\n".join([*lines, f"result = {writer.of(to_a_normal_form_expr(e))}"]))


@also_called(expr="e")
def run_as_python(e: expr.Expr, mod: IRModule | None = None, target: TargetLike = "llvm") -> Any:
    """Convert an expression to Python, run that, and return its value.

    Returns
    -------
    Tensor, ADT, ConstructorValue, RefValue or callable

    Raises
    ------
    EvaluationError
        When no clause of a match takes a value.
    """
    types = {t.header.name_hint: t for t in mod.type_definitions.values()} if mod is not None else {}

    def constructor(data_type: str, name: str) -> Callable[..., ConstructorValue]:
        made = next(c for c in types[data_type].constructors if c.name_hint == name)
        return lambda *args: ConstructorValue.of(made.tag, args, made)

    def no_clause(value: Any) -> None:
        raise error.EvaluationError("no clause of the match takes the value", found=type(value).__name__)

    names: dict[str, Any] = {
        "array": lambda text: ir.load_json(text).data.numpy(),
        "constructor": constructor,
        "cell": RefValue.of,
        "operate": lambda name, attrs, args: operate(Op.get(name), ir.load_json(attrs) if attrs else Attrs(), args),
        "write": lambda cell, value: setattr(cell, "item", value) or (),
        "no_clause": no_clause,
    }
    exec(compile(to_python(e, mod, target), "<relay>", "exec"), names)
    return outward(names["result"])


class _Writer:
    """What variables are called."""

    def __init__(self) -> None:
        self.names: dict[Any, str] = {}

    def name(self, v: Any) -> str:
        return self.names.setdefault(v, f"{re.sub(r'[^a-zA-Z0-9_]', '_', v.name_hint)}_{len(self.names)}")

    def of(self, e: expr.Expr) -> str:
        """Return the Python expression of one in normal form."""
        if type(e) not in _EXPRESSIONS:
            raise error.InvalidArgument("to_python: this is no Relay expression", found=type(e).__name__)
        return _EXPRESSIONS[type(e)](self, e)

    def all(self, exprs: Any) -> str:
        return "".join(self.of(e) + ", " for e in exprs)

    def let(self, e: expr.Expr) -> str:
        parts = []
        while isinstance(e, expr.Let):
            parts.append(f"{self.name(e.var)} := {self.of(e.value)}")
            e = e.body
        return f"[{', '.join([*parts, self.of(e)])}][-1]"

    def match(self, e: Any) -> str:
        data = self.of(e.data)
        text = ""
        for clause in e.clauses:
            tests: list[str] = ["True"]
            bound: list[str] = []
            self.pattern(clause.lhs, data, tests, bound)
            text += f"[{', '.join([*bound, self.of(clause.rhs)])}][-1] if {' and '.join(tests)} else "
        return f"({text}no_clause({data}))"

    def pattern(self, p: Any, place: str, tests: list[str], bound: list[str]) -> None:
        """List what is to be tested of a value, and what a pattern binds."""
        if isinstance(p, adt.PatternVar):
            bound.append(f"{self.name(p.var)} := {place}")
        elif isinstance(p, (adt.PatternConstructor, adt.PatternTuple)):
            named = isinstance(p, adt.PatternConstructor)
            tests += [f"{place}.tag == {p.constructor.tag}"] if named else []
            for i, q in enumerate(p.patterns):
                self.pattern(q, f"{place}{'.items' if named else ''}[{i}]", tests, bound)

    def call(self, e: expr.Call) -> str:
        if isinstance(e.op, Op):
            return f"operate({e.op.name!r}, {(ir.save_json(e.attrs) if e.attrs else '')!r}, [{self.all(e.args)}])"
        return f"{self.of(e.op)}({self.all(e.args)})"


_EXPRESSIONS: dict[type, Callable[[_Writer, Any], str]] = {
    expr.Var: _Writer.name,
    expr.GlobalVar: _Writer.name,
    expr.Call: _Writer.call,
    expr.Let: _Writer.let,
    adt.Match: _Writer.match,
    adt.Constructor: lambda w, e: f"constructor({e.belong_to.name_hint!r}, {e.name_hint!r})",
    expr.Constant: lambda w, e: f"array({ir.save_json(e)!r})",
    expr.Function: lambda w, e: f"(lambda {', '.join(map(w.name, e.params))}: {w.of(e.body)})",
    expr.If: lambda w, e: f"({w.of(e.true_branch)} if {w.of(e.cond)} else {w.of(e.false_branch)})",
    expr.Tuple: lambda w, e: f"({w.all(e.fields)})",
    expr.TupleGetItem: lambda w, e: f"{w.of(e.tuple_value)}[{e.index}]",
    expr.RefCreate: lambda w, e: f"cell({w.of(e.value)})",
    expr.RefRead: lambda w, e: f"{w.of(e.ref)}.item",
    expr.RefWrite: lambda w, e: f"write({w.of(e.ref)}, {w.of(e.value)})",
}
