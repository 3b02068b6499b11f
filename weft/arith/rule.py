"""Rewrite rules as text: ``"min(max(x, y), y) => y"``, ``"x // c1 < c2 => x < c1 * c2 if c1 > 0"``.

In a pattern ``c``, ``c1``, ... match integer constants, ``n``, ``m`` lane counts, number literals themselves, and
other names anything; a name that occurs twice matches equal terms. Functions: ``min max select ramp broadcast``. A
condition is Python over the constants and lane counts; ``prove(p)`` in it holds when the analyzer proves ``p``. The
first rule that matches is applied.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from weft import error, ir

Env = dict[str, Any]
Matcher = Callable[[Any, Env, Any], bool]
Builder = Callable[[Env, Any], Any]

_BINARY: dict[type, tuple[type, Callable[..., Any]]] = {
    ast.Add: (ir.Add, ir.add),
    ast.Sub: (ir.Sub, ir.sub),
    ast.Mult: (ir.Mul, ir.mul),
    ast.FloorDiv: (ir.FloorDiv, ir.floordiv),
    ast.Mod: (ir.FloorMod, ir.floormod),
    ast.Div: (ir.Div, lambda a, b: a / b),
    ast.Lt: (ir.LT, ir.less),
    ast.LtE: (ir.LE, ir.less_equal),
    ast.Gt: (ir.GT, ir.greater),
    ast.GtE: (ir.GE, ir.greater_equal),
    ast.Eq: (ir.EQ, ir.equal),
    ast.NotEq: (ir.NE, ir.not_equal),
    ast.And: (ir.And, ir.logical_and),
    ast.Or: (ir.Or, ir.logical_or),
}
_CALLS: dict[str, tuple[type, Callable[..., Any]]] = {
    "min": (ir.Min, ir.min_),
    "max": (ir.Max, ir.max_),
    "select": (ir.Select, ir.select),
    "ramp": (ir.Ramp, lambda b, s, n: ir.Ramp(b, s, n) if n > 1 else b),
    "broadcast": (ir.Broadcast, lambda x, n: ir.Broadcast(ir.as_expr(x), n)),
}


class RuleTable:
    """An ordered list of rules for one group of node classes.

    Parameters
    ----------
    text : str
        One rule a line; ``#`` starts a comment.
    """

    def __init__(self, text: str) -> None:
        self.lines = [line.split("#")[0].strip() for line in text.splitlines() if line.split("#")[0].strip()]
        self._rules: list[tuple[type, tuple[type | None, ...], Callable[[Any, Any], Any]]] | None = None
        self._by_kind: dict[tuple[type, ...], list[Callable[[Any, Any], Any]]] = {}

    def apply(self, node: ir.PrimExpr, analyzer: Any) -> ir.PrimExpr | None:
        """Return the result of the first rule that matches `node`, or None."""
        kind: Any = type(node)
        fields = [getattr(node, f) for f in kind.__match_args__[: _ARITY.get(kind, 2)]]
        signature = (kind, *map(type, fields))
        rules = self._by_kind.get(signature)
        if rules is None:
            rules = self._by_kind[signature] = self._select(kind, signature[1:])
        for rule in rules:
            result = rule(node, analyzer)
            if result is not None:
                return result
        return None

    def _select(self, kind: type, children: tuple[type, ...]) -> list[Callable[[Any, Any], Any]]:
        if self._rules is None:
            self._rules = [_compile(line) for line in self.lines]
        return [
            fn
            for root, wanted, fn in self._rules
            if root is kind and all(w is None or issubclass(t, w) for w, t in zip(wanted, children, strict=False))
        ]


_ARITY = {ir.Not: 1, ir.Select: 3, ir.Ramp: 2, ir.Broadcast: 1}


def _compile(line: str) -> tuple[type, tuple[type | None, ...], Callable[[Any, Any], Any]]:
    try:
        left, right = line.split("=>")
        right, _, condition = right.partition(" if ")
        pattern = ast.parse(left.strip(), mode="eval").body
        matcher, build = _pattern(pattern), _template(ast.parse(right.strip(), mode="eval").body)
        check = _condition(ast.parse(condition.strip(), mode="eval").body) if condition else None
    except (SyntaxError, ValueError, KeyError) as e:
        raise error.InternalError(f"malformed rule: {line}", found=str(e)) from e
    root, parts = _shape(pattern)
    assert root is not None

    def run(node: Any, analyzer: Any) -> Any:
        env: Env = {}
        if matcher(node, env, analyzer):
            with suppress(_Wraps):
                return build(env, analyzer) if check is None or check(env, analyzer) else None
        return None

    return root, tuple(_shape(p)[0] for p in parts), run


def _shape(p: ast.AST) -> tuple[type | None, list[ast.expr]]:
    """Return the node class that a pattern stands for and its parts."""
    if isinstance(p, ast.BinOp):
        return _BINARY[type(p.op)][0], [p.left, p.right]
    if isinstance(p, ast.Compare):
        return _BINARY[type(p.ops[0])][0], [p.left, p.comparators[0]]
    if isinstance(p, ast.BoolOp):
        return _BINARY[type(p.op)][0], list(p.values)
    if isinstance(p, ast.UnaryOp):
        return (ir.Not, [p.operand]) if isinstance(p.op, ast.Not) else (None, [])
    if isinstance(p, ast.Call):
        assert isinstance(p.func, ast.Name)
        return _CALLS[p.func.id][0], list(p.args)
    return None, []


def _pattern(p: ast.AST) -> Matcher:
    if isinstance(p, ast.Name):
        name = p.id
        if name == "c" or (name[0] == "c" and name[1:].isdigit()):
            return lambda e, env, an: isinstance(e, ir.IntImm) and _bind(name, e, env, an)
        return lambda e, env, an: _bind(name, e, env, an)
    literal = _literal(p)
    if literal is not None:
        kind = ir.FloatImm if isinstance(literal, float) else ir.IntImm
        return lambda e, env, an: type(e) is kind and e.value == literal
    root, parts = _shape(p)
    assert root is not None
    fields = root.__match_args__[: len(parts)]  # type: ignore[attr-defined]
    matchers = [(f, _pattern(part)) for f, part in zip(fields, parts, strict=True)]
    return lambda e, env, an: type(e) is root and all(m(getattr(e, f), env, an) for f, m in matchers)


def _literal(p: ast.AST) -> Any:
    if isinstance(p, ast.Constant):
        return p.value
    if isinstance(p, ast.UnaryOp) and isinstance(p.op, ast.USub) and isinstance(p.operand, ast.Constant):
        return -p.operand.value  # type: ignore[operator]
    return None


def _bind(name: str, e: Any, env: Env, analyzer: Any) -> bool:
    if name not in env:
        env[name] = e
        return True
    old = env[name]
    return old is e or (old == e if isinstance(e, int) else analyzer.same(old, e))


def _template(p: ast.AST) -> Builder:
    if isinstance(p, ast.Name):
        return lambda env, an: env[p.id]
    literal = _literal(p)
    if isinstance(literal, bool):
        return lambda env, an: ir.TRUE if literal else ir.FALSE
    if literal is not None:
        return lambda env, an: literal
    root, parts = _shape(p)
    assert root is not None
    make = (
        next(fn for table in (_BINARY, _CALLS) for cls, fn in table.values() if cls is root)
        if root is not ir.Not
        else ir.logical_not
    )
    builders = [_template(part) for part in parts]

    def build(env: Env, an: Any) -> Any:
        args = [b(env, an) for b in builders]
        numbers = [ir.as_int(a) for a in args]
        if root not in _FOLDS or None in numbers:
            return make(*args)
        exact = _FOLDS[root](*numbers)
        made = exact if all(isinstance(a, int) for a in args) else make(*args)
        if ir.as_int(made) != exact:
            raise _Wraps
        return made

    return build


_FOLDS: dict[type, Callable[..., int]] = {ir.Add: operator.add, ir.Sub: operator.sub, ir.Mul: operator.mul}


class _Wraps(Exception):
    """A rule computes a constant that the type does not hold: it says nothing there."""


def _condition(p: ast.AST) -> Callable[[Env, Any], bool]:
    if isinstance(p, ast.BoolOp):
        parts = [_condition(v) for v in p.values]
        combine = all if isinstance(p.op, ast.And) else any
        return lambda env, an: combine(c(env, an) for c in parts)
    if isinstance(p, ast.Call) and isinstance(p.func, ast.Name) and p.func.id == "prove":
        build = _template(p.args[0])
        return lambda env, an: an.can_prove(build(env, an))
    code = compile(ast.Expression(p), "<rule condition>", "eval")  # type: ignore[arg-type]

    def check(env: Env, _: Any) -> bool:
        values = {k: v.value if isinstance(v, ir.IntImm) else v for k, v in env.items()}
        return bool(eval(code, {"__builtins__": {}}, values))

    return check
