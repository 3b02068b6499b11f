"""Hybrid script as statements: the script's Python runs once, with loops, tests and variables that write TIR.

The source is rewritten before that (``_Rewriter``): ``for`` asks the tracer for its iterations, ``if`` for its
branches, comparisons, ``and``, ``or``, ``not`` and conditional expressions are calls, and a variable that is assigned
more than once, or anything but a Python number, is a buffer of one element that lives until its scope ends.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from weft import ir, tir
from weft.error import InvalidArgument, ParseError
from weft.te.hybrid.runtime import CASTS
from weft.tir.intrin import INTRINSICS
from weft.tir.ir_builder import BufferVar, IRBuilder

_TRACER = "_hybrid_tracer"


class Handle(BufferVar):
    """A tensor of a script while it is traced: indexed like an array, with a shape."""

    def __init__(self, tracer: Tracer, buffer: tir.Buffer) -> None:
        super().__init__(tracer.builder, buffer)
        self.tracer = tracer

    @property
    def shape(self) -> tuple[ir.PrimExpr, ...]:
        """The shape."""
        return self.buffer.shape


class Constants(list[Any]):
    """A list, of lists perhaps, that takes several indices as an array does."""

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, tuple):
            return functools.reduce(operator.getitem, index, self)
        if _known(index) is None:
            raise InvalidArgument("a list is indexed by a variable", found=str(index), help="loop over const_range")
        return list.__getitem__(self, _known(index))


class _Cell(Handle):
    """A variable."""


class _Loop:
    """The iterations of a ``for``: between bounds, and how they run."""

    def __init__(self, kind: str, *bounds: Any, thread: str = "") -> None:
        if not 1 <= len(bounds) <= 2:
            raise InvalidArgument("a loop of a hybrid script has an end, or a begin and an end", found=repr(bounds))
        self.kind, self.thread = kind, thread
        self.begin, self.end = (0, *bounds)[-2:]


class Tracer:
    """Runs scripts and collects their statements."""

    def __init__(self) -> None:
        self.builder = IRBuilder()
        self.outputs: list[tir.Buffer] = []
        self.names: list[dict[str, _Cell]] = [{}]
        self.naming, self.depth = "buffer", 0

    def globals(self) -> dict[str, Any]:
        """The words of hybrid script."""
        names = [*INTRINSICS, "power", "likely", "max", "min"]
        words: dict[str, Any] = {name: getattr(tir, name) for name in names if hasattr(tir, name)}
        words |= {name: lambda x, name=name: ir.cast(name, ir.as_expr(x)) for name in CASTS}
        for kind in ("serial", "parallel", "vectorize", "unroll"):
            words[kind] = lambda *bounds, kind=kind: _Loop(kind, *bounds)
        return words | {
            "range": words["serial"],
            "const_range": lambda *bounds: range(*map(_number, bounds)),
            "bind": lambda thread, extent: _Loop("bind", extent, thread=thread),
            "allocate": self.allocate,
            "output_tensor": self.output_tensor,
            _TRACER: self,
            "ceil_div": lambda a, b: ir.floordiv(a + b - 1, b),
            "len": lambda x: x.shape[0] if isinstance(x, Handle) else len(x),
        }

    def output_tensor(self, shape: Sequence[Any], dtype: Any) -> Handle:
        """Make a tensor that the script returns; in a script that another one calls it is the caller's own."""
        if self.depth > 1:
            return self.allocate(shape, dtype)
        buffer = tir.decl_buffer(tuple(ir.as_expr(s) for s in shape), str(dtype), self.naming)
        self.outputs.append(buffer)
        return Handle(self, buffer)

    def allocate(self, shape: Sequence[Any], dtype: Any = "float32", scope: str = "global") -> Handle:
        """Make a buffer that lives until the scope ends."""
        return Handle(self, self.builder.allocate(str(dtype), tuple(shape), self.naming, scope).buffer)

    def loop(self, name: str, iterations: Any) -> Iterator[Any]:
        """Run the body of a ``for`` once, over a loop; over Python's own ranges and lists as often as they say."""
        if not isinstance(iterations, _Loop):
            for i in iterations:
                with self._names():
                    yield i
            return
        if iterations.kind == "bind":
            var = ir.Var(name, "int32")
            axis = ir.IterVar(ir.Range(0, iterations.end), var, "thread", iterations.thread)
            with self.builder.new_scope(), self._names():
                self.builder.scope_attr(axis, "thread_extent", iterations.end)
                yield var
            return
        with self.builder.for_range(iterations.begin, iterations.end, name, kind=iterations.kind) as var, self._names():
            yield var

    def branches(self, condition: Any, has_else: bool) -> Iterator[bool]:
        """Give True for the branch of an ``if`` and False for its ``else``; only one of them where it is known."""
        known = _known(condition)
        if known is not None:
            yield bool(known)
            return
        with self.builder.if_scope(condition), self._names():
            yield True
        if has_else:
            with self.builder.else_scope(), self._names():
                yield False

    @contextmanager
    def _names(self) -> Generator[None]:
        self.names.append({})
        yield
        self.names.pop()

    def assign(self, name: str, value: Callable[[], Any], once: bool) -> Any:
        """Give a variable a value, or name a tensor."""
        self.naming = name
        found = value()
        if isinstance(found, (Handle, list, tuple)) or (once and _known(found) is not None):
            return found
        expr = ir.as_expr(found)
        cell = next((scope[name] for scope in reversed(self.names) if name in scope), None)
        if cell is None:
            buffer = self.builder.allocate(str(expr.dtype), (1,), name, "global").buffer
            cell = self.names[-1][name] = _Cell(self, buffer)
        cell[0] = ir.cast(cell.dtype, expr)
        return cell

    @staticmethod
    def value(x: Any) -> Any:
        """Return what a name stands for: the element of a variable."""
        return x[0] if isinstance(x, _Cell) else x

    def check(self, condition: Any, message: str = "assertion of a hybrid script") -> None:
        """Check a condition, now where it is known."""
        if _known(condition) is None:
            self.builder.emit(tir.AssertStmt(ir.as_expr(condition), ir.StringImm(message), tir.Evaluate(ir.as_expr(0))))
        else:
            assert _known(condition), message

    @staticmethod
    def test(kind: str, *values: Any) -> Any:
        """Join conditions, or compare, by expressions where a value is one."""
        if kind in ("And", "Or", "Not"):
            if all(_known(v) is not None for v in values):
                known = [bool(_known(v)) for v in values]
                return {"And": all(known), "Or": any(known), "Not": not known[0]}[kind]
            exprs = [ir.as_expr(v) for v in values]
            return ir.Not(exprs[0]) if kind == "Not" else (ir.all_of if kind == "And" else ir.any_of)(*exprs)
        a, b = values
        plain, of_exprs = _COMPARED[kind]
        return (of_exprs if any(isinstance(v, ir.PrimExpr) for v in values) else plain)(a, b)

    @staticmethod
    def choose(condition: Any, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
        """Return one of two values."""
        known = _known(condition)
        return tir.if_then_else(condition, yes(), no()) if known is None else yes() if known else no()


_COMPARED = {
    "Eq": (operator.eq, ir.equal),
    "NotEq": (operator.ne, ir.not_equal),
    "Lt": (operator.lt, ir.less),
    "LtE": (operator.le, ir.less_equal),
    "Gt": (operator.gt, ir.greater),
    "GtE": (operator.ge, ir.greater_equal),
}


def _known(value: Any) -> Any:
    """Return a Python number that is known; None for an expression of variables."""
    if isinstance(value, ir.PrimExpr):
        return getattr(value, "value", None) if isinstance(value, (ir.IntImm, ir.FloatImm)) else None
    return value


def _number(value: Any) -> int:
    known = _known(value)
    if known is None:
        raise InvalidArgument("a bound of const_range is no number", found=str(value), help="use range")
    return int(known)


class _Rewriter(ast.NodeTransformer):
    """Rewrites a script to what the tracer runs."""

    def __init__(self, tree: ast.FunctionDef) -> None:
        self.counts: dict[str, int] = {}
        for n in ast.walk(tree):
            for target in (
                n.targets if isinstance(n, ast.Assign) else [n.target] if isinstance(n, ast.AugAssign) else []
            ):
                if isinstance(target, ast.Name):
                    self.counts[target.id] = self.counts.get(target.id, 0) + 1

    def _call(self, method: str, *args: Any) -> ast.Call:
        values = [a if isinstance(a, ast.AST) else ast.Constant(a) for a in args]
        return ast.Call(ast.Attribute(ast.Name(_TRACER, ast.Load()), method, ast.Load()), values, [])  # type: ignore[arg-type]

    def _later(self, value: Any) -> ast.Lambda:
        return ast.Lambda(ast.arguments([], [], None, [], [], None, []), self.visit(value))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        body = [s for s in node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
        return ast.FunctionDef(node.name, node.args, [self.visit(s) for s in body], [], None)

    def visit_For(self, node: ast.For) -> Any:
        if not isinstance(node.target, ast.Name) or node.orelse:
            raise ParseError("a loop of a hybrid script has one variable and no else", found=ast.unparse(node.target))
        iterations = self._call("loop", node.target.id, self.visit(node.iter))
        return ast.For(node.target, iterations, [self.visit(s) for s in node.body], [])

    def visit_If(self, node: ast.If) -> Any:
        branch = ast.Name("_branch", ast.Load())
        body = ast.If(branch, [self.visit(s) for s in node.body], [self.visit(s) for s in node.orelse] or [ast.Pass()])
        turns = self._call("branches", self.visit(node.test), bool(node.orelse))
        return ast.For(ast.Name("_branch", ast.Store()), turns, [body], [])

    def visit_Assign(self, node: ast.Assign) -> Any:
        target = node.targets[0]
        if len(node.targets) == 1 and isinstance(target, ast.Name):
            once = self.counts[target.id] == 1
            return ast.Assign(node.targets, self._call("assign", target.id, self._later(node.value), once))
        return ast.Assign([self.visit(t) for t in node.targets], self.visit(node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        read: Any = ast.parse(ast.unparse(node.target), mode="eval").body
        return self.visit_Assign(ast.Assign([node.target], ast.BinOp(read, node.op, node.value)))

    def visit_Assert(self, node: ast.Assert) -> Any:
        return ast.Expr(self._call("check", self.visit(node.test), *([node.msg] if node.msg else [])))

    def visit_Name(self, node: ast.Name) -> Any:
        stored = isinstance(node.ctx, ast.Store) or node.id not in self.counts
        return node if stored else self._call("value", node)

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        return self._call("test", type(node.op).__name__, *map(self.visit, node.values))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        value = self.visit(node.operand)
        return self._call("test", "Not", value) if isinstance(node.op, ast.Not) else ast.UnaryOp(node.op, value)

    def visit_Compare(self, node: ast.Compare) -> Any:
        values = [self.visit(v) for v in (node.left, *node.comparators)]
        kinds = [type(op).__name__ for op in node.ops]
        if not _COMPARED.keys() >= set(kinds):
            raise ParseError("hybrid script has no such comparison", found=ast.unparse(node))
        pairs = [self._call("test", k, a, b) for k, a, b in zip(kinds, values, values[1:], strict=False)]
        return pairs[0] if len(pairs) == 1 else self._call("test", "And", *pairs)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        return self._call("choose", self.visit(node.test), self._later(node.body), self._later(node.orelse))

    def visit_While(self, node: ast.While) -> Any:
        raise ParseError("hybrid script has no while", found=ast.unparse(node.test), help="use a loop with an extent")


def traced(tree: ast.FunctionDef, scope: dict[str, Any], filename: str, tracer: Tracer) -> Callable[..., Any]:
    """Return the function that writes a script's statements, in a scope of globals and captured values."""
    module = ast.Module([_Rewriter(tree).visit(tree)], [])
    space = {**scope, **tracer.globals()}
    exec(compile(ast.fix_missing_locations(module), filename, "exec"), space)
    return space[tree.name]
