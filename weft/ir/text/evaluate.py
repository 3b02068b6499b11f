"""Expressions of a program: Python's, evaluated over IR values, with the place of whatever goes wrong.

Names stand for what the program introduced or for Python values around it. What IR values do under operators, calls
and subscripts is found in three tables by class, which dialects fill: ``BINARY``, ``CALL``, ``SUBSCRIPT``.
"""

from __future__ import annotations

import ast
import builtins
import difflib
import operator
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from weft.error import ParseError, WeftError
from weft.ir import arithmetic
from weft.ir.dispatch import Dispatch
from weft.ir.node import Node, Span
from weft.ir.scalar import PrimExpr
from weft.ir.text.source import Source

BINARY = Dispatch("operator in a script")
"""Class → ``rule(a, b, operator name, evaluator)`` where either operand is of the class."""
CALL = Dispatch("call in a script")
"""Class of the callee → ``rule(callee, args, kwargs, evaluator)``."""
SUBSCRIPT = Dispatch("subscript in a script")
"""Class → ``rule(value, indices, evaluator)``, indices a tuple in which slices are slice objects."""

PLACE = Dispatch("place of a call in a script")
"""Class of a call's result → ``rule(result, span)``, which returns it with its place."""

_BINARY: dict[type, tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("add", operator.add),
    ast.Sub: ("subtract", operator.sub),
    ast.Mult: ("multiply", operator.mul),
    ast.Div: ("divide", operator.truediv),
    ast.FloorDiv: ("floor_divide", operator.floordiv),
    ast.Mod: ("floor_mod", operator.mod),
    ast.Pow: ("power", operator.pow),
    ast.LShift: ("left_shift", operator.lshift),
    ast.RShift: ("right_shift", operator.rshift),
    ast.BitAnd: ("bitwise_and", operator.and_),
    ast.BitOr: ("bitwise_or", operator.or_),
    ast.BitXor: ("bitwise_xor", operator.xor),
    ast.MatMult: ("matmul", operator.matmul),
    ast.Eq: ("equal", operator.eq),
    ast.NotEq: ("not_equal", operator.ne),
    ast.Lt: ("less", operator.lt),
    ast.LtE: ("less_equal", operator.le),
    ast.Gt: ("greater", operator.gt),
    ast.GtE: ("greater_equal", operator.ge),
    ast.Is: ("is", operator.is_),
    ast.IsNot: ("is_not", operator.is_not),
    ast.In: ("in", lambda a, b: a in b),
    ast.NotIn: ("not_in", lambda a, b: a not in b),
}


# Python asks the right operand of `1 < x` for `x > 1`; these keep the order.
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: arithmetic.equal,
    ast.NotEq: arithmetic.not_equal,
    ast.Lt: arithmetic.less,
    ast.LtE: arithmetic.less_equal,
    ast.Gt: arithmetic.greater,
    ast.GtE: arithmetic.greater_equal,
}


def operator_of(name: str) -> Callable[[Any, Any], Any]:
    """Return what an operator does to scalars, by the name that rules of :data:`BINARY` get."""
    return next(function for n, function in _BINARY.values() if n == name)


class Evaluator:
    """Evaluates expressions of one source in nested scopes.

    Parameters
    ----------
    source : Source
        Where the AST comes from.
    outer : dict
        Python values that names may stand for.
    """

    def __init__(self, source: Source, outer: dict[str, Any]) -> None:
        self.source = source
        self.outer = outer
        self.scopes: list[dict[str, Any]] = [{}]

    def span(self, node: ast.AST) -> Span:
        """Return the place of an AST node."""
        return self.source.span(node)

    def fail(self, node: ast.AST, what: str, **details: Any) -> ParseError:
        """Make the error `what` at a node."""
        return ParseError(what, where=self.span(node), **details)

    def lookup(self, name: str) -> Any:
        """Return what a name stands for; KeyError when nothing."""
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        if name in self.outer:
            return self.outer[name]
        return builtins.__dict__[name]

    def define(self, name: str, value: Any) -> None:
        """Let a name stand for a value in the innermost scope."""
        self.scopes[-1][name] = value

    @contextmanager
    def placed(self, node: ast.AST) -> Generator[None]:
        """Give errors the place of a node; what Python raises over a program that makes no sense is one."""
        try:
            yield
        except WeftError as e:
            if e.where is None:
                e.where = self.span(node)
            raise
        except (AttributeError, TypeError, ValueError, AssertionError) as e:
            raise self.fail(node, str(e) or f"this makes no sense ({type(e).__name__})") from e

    def evaluate(self, node: ast.AST) -> Any:
        """Return the value of an expression; errors carry its place."""
        try:
            return _EVALUATE.get(type(node), Evaluator._python)(self, node)
        except WeftError as e:
            if e.where is None:
                e.where = self.span(node)
            raise
        except RecursionError:
            raise
        except Exception as e:  # whatever user code raises is reported at the expression
            raise self.fail(node, _message(e)) from e

    # --- by kind of AST node ---

    def _constant(self, node: ast.Constant) -> Any:
        return node.value

    def _name(self, node: ast.Name) -> Any:
        try:
            return self.lookup(node.id)
        except KeyError:
            known = {n for scope in self.scopes for n in scope} | set(self.outer)
            near = difflib.get_close_matches(node.id, known, 3)
            hint = f"did you mean {' or '.join(near)}?" if near else None
            raise self.fail(node, f"name '{node.id}' is not defined", help=hint) from None

    def _attribute(self, node: ast.Attribute) -> Any:
        owner = self.evaluate(node.value)
        own = getattr(type(owner), "attribute_in_program", None)  # where a program reads more than the node says
        return getattr(owner, node.attr) if own is None else own(owner, node.attr)

    def _tuple(self, node: ast.Tuple) -> Any:
        return tuple(self._elements(node.elts))

    def _list(self, node: ast.List) -> Any:
        return self._elements(node.elts)

    def _elements(self, nodes: list[ast.expr]) -> list[Any]:
        values: list[Any] = []
        for n in nodes:
            if isinstance(n, ast.Starred):
                values.extend(self.evaluate(n.value))
            else:
                values.append(self.evaluate(n))
        return values

    def _dict(self, node: ast.Dict) -> Any:
        result: dict[Any, Any] = {}
        for k, v in zip(node.keys, node.values, strict=True):
            if k is None:
                result.update(self.evaluate(v))
            else:
                result[self.evaluate(k)] = self.evaluate(v)
        return result

    def _slice(self, node: ast.Slice) -> slice:
        return slice(*[None if x is None else self.evaluate(x) for x in (node.lower, node.upper, node.step)])

    def _subscript(self, node: ast.Subscript) -> Any:
        value = self.evaluate(node.value)
        indices = self.evaluate(node.slice)
        rule = SUBSCRIPT.get(type(value))
        if rule is not None:
            return rule(value, indices if isinstance(indices, tuple) else (indices,), self)
        return value[indices]

    def _binary(self, node: ast.BinOp) -> Any:
        chain: list[ast.BinOp] = []
        first: ast.expr = node
        while isinstance(first, ast.BinOp):  # sums nested to the left, in a loop
            chain.append(first)
            first = first.left
        value = self.evaluate(first)
        for n in reversed(chain):
            value = self._apply(n.op, value, self.evaluate(n.right))
        return value

    def _apply(self, op: ast.AST, a: Any, b: Any) -> Any:
        name, function = _BINARY[type(op)]
        # Python asks the right side first where its class derives from the left's, as SizeVar does from Var.
        if type(op) in _COMPARE and isinstance(b, PrimExpr) and isinstance(a, (int, float, PrimExpr)):
            return _COMPARE[type(op)](a, b)
        rule = BINARY.get(type(a)) or BINARY.get(type(b))
        return function(a, b) if rule is None or name in ("is", "is_not") else rule(a, b, name, self)

    def _compare(self, node: ast.Compare) -> Any:
        result: Any = None
        left = self.evaluate(node.left)
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(right_node)
            value = self._apply(op, left, right)
            result = value if result is None else _and(result, lambda v=value: v)
            left = right
        return result

    def _bool_op(self, node: ast.BoolOp) -> Any:
        join = _and if isinstance(node.op, ast.And) else _or
        result = self.evaluate(node.values[0])
        for v in node.values[1:]:
            result = join(result, lambda v=v: self.evaluate(v))
        return result

    def _unary(self, node: ast.UnaryOp) -> Any:
        value = self.evaluate(node.operand)
        if isinstance(node.op, ast.Not):
            return arithmetic.logical_not(value) if isinstance(value, PrimExpr) else not truth(value)
        rule = BINARY.get(type(value))
        if rule is not None:
            return rule(value, None, "negative" if isinstance(node.op, ast.USub) else "bitwise_not", self)
        return -value if isinstance(node.op, ast.USub) else ~value if isinstance(node.op, ast.Invert) else +value

    def _if_exp(self, node: ast.IfExp) -> Any:
        condition = self.evaluate(node.test)
        if isinstance(condition, PrimExpr):
            return arithmetic.if_then_else(condition, self.evaluate(node.body), self.evaluate(node.orelse))
        return self.evaluate(node.body if truth(condition) else node.orelse)

    def _call(self, node: ast.Call) -> Any:
        function = self.evaluate(node.func)
        args = self._elements(node.args)
        kwargs: dict[str, Any] = {}
        for k in node.keywords:
            if k.arg is None:
                kwargs.update(self.evaluate(k.value))
            else:
                kwargs[k.arg] = self.evaluate(k.value)
        rule = CALL.get(type(function))
        result = function(*args, **kwargs) if rule is None else rule(function, args, kwargs, self)
        place = PLACE.get(type(result))
        return result if place is None else place(result, self.span(node))

    def _python(self, node: ast.AST) -> Any:
        """Let Python evaluate what has no meaning of its own here: comprehensions, lambdas, format strings."""
        names = dict(self.outer)
        for scope in self.scopes:
            names.update(scope)
        code = compile(ast.Expression(node), self.source.file, "eval")  # type: ignore[arg-type]
        return eval(code, names)


_EVALUATE: dict[type, Callable[[Evaluator, Any], Any]] = {
    ast.Constant: Evaluator._constant,
    ast.Name: Evaluator._name,
    ast.Attribute: Evaluator._attribute,
    ast.Tuple: Evaluator._tuple,
    ast.List: Evaluator._list,
    ast.Dict: Evaluator._dict,
    ast.Slice: Evaluator._slice,
    ast.Subscript: Evaluator._subscript,
    ast.BinOp: Evaluator._binary,
    ast.Compare: Evaluator._compare,
    ast.BoolOp: Evaluator._bool_op,
    ast.UnaryOp: Evaluator._unary,
    ast.IfExp: Evaluator._if_exp,
    ast.Call: Evaluator._call,
}


def _and(a: Any, b: Callable[[], Any]) -> Any:
    if isinstance(a, PrimExpr):
        return arithmetic.logical_and(a, b())
    return b() if truth(a) else a


def _or(a: Any, b: Callable[[], Any]) -> Any:
    if isinstance(a, PrimExpr):
        return arithmetic.logical_or(a, b())
    return a if truth(a) else b()


def truth(value: object) -> bool:
    """Whether a value that is known while the program is read holds; buffers and tensors have no truth."""
    if isinstance(value, Node):
        raise TypeError(f"a {type(value).__name__} is neither true nor false; a condition compares elements of it")
    return bool(value)


def _message(error: Exception) -> str:
    if isinstance(error, (AttributeError, TypeError, ValueError)) and str(error):
        return str(error)
    return f"{type(error).__name__}: {error}"
