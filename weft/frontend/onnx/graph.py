"""The state of one import: the function under construction, values by name, the step from elements to expressions."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np

from weft import ir, relax
from weft.error import ModelImportError
from weft.frontend.building import Emitter
from weft.frontend.common import pairs
from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.model import ELEMENT_TYPES, TensorReader
from weft.frontend.onnx.value import MAX_ELEMENTS, Dim, Value, as_dim
from weft.relax import Var as RelaxVar
from weft.relax import op as relax_op
from weft.relax.transform.fold_constant import evaluate
from weft.spelling import take_name


def identifier(name: str, default: str = "x") -> str:
    """Return a name that is a Python identifier and close to `name`."""
    text = re.sub(r"\W", "_", name, flags=re.ASCII).strip("_")
    return text if text and not text[0].isdigit() else f"{default}_{text}" if text else default


class Scope:
    """Values by ONNX name: of a graph, with the names of the graph around it in reach, or of a function, without."""

    def __init__(self, outer: Scope | None, opsets: dict[str, int]) -> None:
        self.outer, self.opsets = outer, opsets
        self.values: dict[str, Value] = {}

    def find(self, name: str) -> Value | None:
        """Return the value of a name, looking outwards."""
        scope: Scope | None = self
        while scope is not None:
            value = scope.values.get(name)
            if value is not None:
                return value
            scope = scope.outer
        return None


class Graph(Emitter):
    """What converters build into."""

    def __init__(self, reader: TensorReader, keep_params: bool) -> None:
        self.bb = relax.BlockBuilder()
        self.reader = reader
        self.keep_params = keep_params
        self.params: list[tuple[RelaxVar, ir.Constant]] = []
        self.scope = Scope(None, {})
        self.functions: dict[tuple[str, str], Any] = {}
        self.written = 1
        """How many times the loops around are written out."""
        self.declared: dict[str, Any] = {}
        """The types that the graph declares of its values, by name."""
        self.proto: Any = None
        """The model's graph, for what asks for the nodes around it."""
        self.fallback = False
        """Whether the host runs operators that Weft does not have."""
        self.texts: list[str] = []
        """The model's own strings by number, 0 the empty one; none where it has no constant of strings."""
        self.continued: list[list[str]] = []
        """The outputs of each If that has the nodes which use its results in its branches."""
        self.host_calls = 0
        """How many calls of operators of the host there are, which tells each from the others."""
        self._in_branch: list[list[Value]] = []
        self._initializers: dict[Value, str] = {}
        self._names: set[str] = set()

    # --- names --------------------------------------------------------------------------------------------------------

    def fresh(self, hint: str) -> str:
        """Return a name for a symbolic dimension or parameter that is not in use."""
        return take_name(identifier(hint), self._names)

    def names_in_use(self) -> frozenset[str]:
        """Return the names given so far, to tell later variables from earlier ones."""
        return frozenset(self._names)

    def size_var(self, hint: str) -> ir.SizeVar:
        """Make a symbolic dimension."""
        return ir.SizeVar(self.fresh(hint), ir.DataType("int64"))

    def int_var(self, hint: str) -> ir.Var:
        """Make a variable for an integer that is data."""
        return ir.Var(self.fresh(hint), ir.DataType("int64"))

    # --- emission -----------------------------------------------------------------------------------------------------

    def emit(self, expr: ir.Expr) -> Any:
        """Bind an expression; numbers that are known are computed, dimensions that are not known get variables."""
        args = expr.args if isinstance(expr, ir.Call) else ()
        if args and all(isinstance(a, ir.Constant | ir.PrimValue | ir.ShapeExpr) and _is_small(a.ty) for a in args):
            call = self.bb.normalize(expr, atom=False)
            known = evaluate(call) if _is_small(call.ty) else None  # type: ignore[arg-type] - a call stays one
            if known is not None:
                return known
        var = self.bb.emit(expr)
        ty = var.ty
        if isinstance(ty, ir.TensorType) and ty.shape is None:
            if ty.ndim < 0:
                raise ModelImportError("the rank of a value depends on data", expected="a known number of dimensions")
            return self.bb.match_cast(var, ir.tensor_type([self.size_var("d") for _ in range(ty.ndim)], ty.dtype))
        if isinstance(ty, ir.TensorType) and ty.shape and any(map(_is_tangled, ty.shape)):
            dims = [self.size_var("d") if _is_tangled(d) else d for d in ty.shape]
            return self.bb.match_cast(var, ir.tensor_type(dims, ty.dtype))
        return var

    def named(self, dims: Sequence[Dim], hint: str = "v", sizes: bool = True) -> list[Dim]:
        """Give dimensions that are computed from data variables of their own, so that what follows stays simple.

        Parameters
        ----------
        sizes : bool
            Whether they are known to be at least zero.
        """
        computed = [d for d in dims if isinstance(d, ir.PrimExpr) and not isinstance(d, ir.Var) and depends_on_data(d)]
        if not computed:
            return list(dims)
        make = self.size_var if sizes else self.int_var
        names = tuple(make(hint) for _ in computed)
        self.bb.match_cast(ir.shape_expr([s.to_expr(d) for d in computed]), ir.ShapeType(names, len(names)))
        named = dict(zip(computed, names, strict=True))
        return [named.get(d, d) for d in dims]

    def check_equal(self, what: str, found: ir.PrimExpr, expected: ir.PrimExpr, where: str, kind: str) -> None:
        """Check at run time that two scalars are equal; `kind` is the class of the error that says they are not."""
        outer, self.bb.span = self.bb.span, ir.Span(origin=where, check=(kind, what))
        self.bb.match_cast(ir.shape_expr((found,)), ir.ShapeType((expected,), 1), "check")
        self.bb.span = outer

    def check_indices(self, what: str, indices: Any, low: ir.PrimExpr, high: ir.PrimExpr, where: str) -> None:
        """Check at run time that all integers of a tensor lie in ``low <= index < high``."""
        least, greatest = bounds = self.int_var("least_index"), self.int_var("greatest_index")
        self.bb.match_cast(self.bb.emit(relax_op.index_bounds(indices)), ir.ShapeType(bounds, 2), "bounds")
        self.check_equal(what, least, ir.max_(least, low), where, "IndexOutOfRange")
        self.check_equal(what, greatest, ir.min_(greatest, high - 1), where, "IndexOutOfRange")

    @contextmanager
    def branch(self, scope: Scope) -> Generator[Any]:
        """Convert into a branch: what is bound inside is forgotten outside."""
        outer, self.scope = self.scope, scope
        self._in_branch.append([])
        try:
            with self.bb.scope() as inner:
                yield inner
        finally:
            self.scope = outer
            for value in self._in_branch.pop():
                value.expr = None

    @contextmanager
    def inside(self, scope: Scope) -> Generator[None]:
        """Convert with another scope of names."""
        outer, self.scope = self.scope, scope
        span = self.bb.span
        try:
            yield
        finally:
            self.scope, self.bb.span = outer, span

    # --- values -------------------------------------------------------------------------------------------------------

    def expr(self, value: Value) -> Any:
        """Return the expression of a value, made from its elements or data where it has none yet."""
        if value.expr is None:
            array = value.constant
            if array is not None:
                value.expr = self._param(value, ir.constant(array))
            else:
                value.expr = self.materialise(value.elements, value.dtype)
                if self._in_branch:
                    self._in_branch[-1].append(value)
        return value.expr

    def read(self, proto: Any, what: str | None = None) -> Value:
        """Read a tensor of the file."""
        array = self.reader.read(proto, what)
        logical = ELEMENT_TYPES[proto.data_type]
        return self.texts_value(array) if logical == "string" else Value.of_array(array).as_kind(logical)

    def texts_value(self, array: Any) -> Value:
        """Make a constant of strings."""
        given, known = np.asarray(array, object), {t: i for i, t in enumerate(self.texts or [""])}
        numbers = np.array([known.setdefault(t, len(known)) for t in given.reshape(-1)], np.int64)
        self.texts = list(known)
        return Value.of_array(numbers.reshape(given.shape)).as_kind("string")

    def initializer(self, name: str, value: Value) -> Value:
        """Enter the value of a weight."""
        self._initializers[value] = name
        return value

    def _param(self, value: Value, data: ir.Constant) -> Any:
        name = self._initializers.get(value)
        if not self.keep_params or name is None:
            return data
        var = RelaxVar(self.fresh(name), data.ty)
        self.params.append((var, data))
        return var

    def materialise(self, elements: Any, dtype: str) -> Any:
        """Compute a tensor of elements at run time."""
        flat = list(elements.flat)
        if (
            all(not isinstance(e, ir.PrimExpr) or ir.DataType(e.dtype).is_integer for e in flat)
            and ir.DataType(dtype).is_integer
        ):
            vector = self.emit(
                relax_op.shape_to_tensor(ir.shape_expr([s.to_expr(int(e) if s.is_known(e) else e) for e in flat]))
            )
        else:
            items = [_SCALAR(s.to_expr(e, dtype), self) for e in flat]
            items = [i if i.ty.dtype == dtype else self.op("astype", i, dtype=dtype) for i in items]
            vector = items[0] if len(items) == 1 else self.op("concat", ir.Tuple(tuple(items)), axis=0)
        if vector.ty.dtype != dtype:
            vector = self.op("astype", vector, dtype=dtype)
        return vector if elements.ndim == 1 else self.op("reshape", vector, ir.shape_expr(elements.shape))

    def ints(self, value: Value, hint: str = "v", sizes: bool = False) -> list[Dim]:
        """Return the elements of an integer tensor, as run-time variables where they are known only then.

        Parameters
        ----------
        sizes : bool
            Whether unknown elements are sizes (at least zero).
        """
        known = value.known
        if known is None and value.array is not None:
            return [int(v) for v in value.array.reshape(-1)]
        if known is not None:
            return [as_dim(e) for e in known.flat]
        tensor = self.expr(value)
        count = s.product(value.shape)
        if not isinstance(count, int):
            raise ModelImportError(
                "a tensor that gives dimensions or axes has an unknown length",
                expected="a known number of elements",
                found=f"shape ({', '.join(map(str, value.shape))})",
            )
        if len(value.shape) != 1:
            tensor = self.op("reshape", tensor, ir.shape_expr((count,)))
        if tensor.ty.dtype != "int64":
            tensor = self.op("astype", tensor, dtype="int64")
        make = self.size_var if sizes else self.int_var
        names = tuple(make(hint) for _ in range(count))
        self.bb.match_cast(relax_op.tensor_to_shape(tensor), ir.ShapeType(names, count))
        value.elements = np.empty(value.shape, object)
        value.elements.reshape(-1)[:] = names
        if self._in_branch:  # the variables are bound inside of the branch only
            elements, value.elements = value.elements, None
            return list(elements.flat)
        return list(names)

    def at(self, origin: str) -> None:
        """Set the place that the next bindings come from."""
        self.bb.span = ir.Span(origin=origin)


def depends_on_data(d: ir.PrimExpr) -> bool:
    """Whether an expression has a variable that is not a dimension of an input."""
    return any(isinstance(v, ir.Var) and not isinstance(v, ir.SizeVar) for v in ir.walk(d))


# --- scalar expressions as tensors of shape (1,) ----------------------------------------------------------------------

_SCALAR = ir.Dispatch("scalar expression to tensor", (ir.PrimExpr,))
_BINARY = pairs("""Add:add Sub:subtract Mul:multiply Div:divide Min:minimum Max:maximum EQ:equal NE:not_equal LT:less
    LE:less_equal GT:greater GE:greater_equal And:logical_and Or:logical_or""")
_UNARY = {"tir.floor": "floor", "tir.ceil": "ceil", "tir.nearbyint": "round", "tir.sqrt": "sqrt"}


@_SCALAR.on(ir.PrimExpr)
def _integer(e: Any, graph: Graph) -> Any:
    return graph.emit(relax_op.shape_to_tensor(ir.shape_expr((e,))))


@_SCALAR.on(ir.FloatImm, ir.IntImm)
def _number(e: Any, graph: Graph) -> Any:
    return ir.constant(np.array([e.value], ir.numpy_dtype(e.dtype)))


@_SCALAR.on(ir.Cast)
def _cast(e: Any, graph: Graph) -> Any:
    if ir.DataType(e.dtype).is_integer and ir.DataType(e.value.dtype).is_integer:
        return _integer(e, graph)
    return graph.op("astype", _SCALAR(e.value, graph), dtype=str(e.dtype))


@_SCALAR.on(ir.BinaryOp, ir.CmpOp)
def _binary(e: Any, graph: Graph) -> Any:
    if isinstance(e, ir.BinaryOp) and not ir.DataType(e.dtype).is_float:
        return _integer(e, graph)
    return graph.op(_BINARY[type(e).__name__], _SCALAR(e.a, graph), _SCALAR(e.b, graph))


@_SCALAR.on(ir.Not)
def _not(e: ir.Not, graph: Graph) -> Any:
    return graph.op("logical_not", _SCALAR(e.a, graph))


@_SCALAR.on(ir.Select)
def _select(e: ir.Select, graph: Graph) -> Any:
    if ir.DataType(e.dtype).is_integer:
        return _integer(e, graph)
    return graph.op("where", *(_SCALAR(x, graph) for x in (e.condition, e.true_value, e.false_value)))


@_SCALAR.on(ir.CallIntrin)
def _intrinsic(e: ir.CallIntrin, graph: Graph) -> Any:
    name = _UNARY.get(e.op.name)
    return _integer(e, graph) if name is None else graph.op(name, _SCALAR(e.args[0], graph))


def _is_small(ty: ir.Type | None) -> bool:
    """Whether a value has so few elements, of known number, that they are computed here."""
    sizes = [ir.as_int(d) for d in ty.shape or ()] if isinstance(ty, ir.TensorType) else []
    return None not in sizes and prod(n or 0 for n in sizes) <= MAX_ELEMENTS


def _is_tangled(dim: ir.PrimExpr) -> bool:
    """Whether a dimension is chosen from chosen ones: that of a chain of broadcasts is three times as long each.

    One that is padded by what is data has four maxima, and four more behind each further padding.
    """
    if isinstance(dim, (ir.Var, ir.IntImm)):
        return False
    choices = ir.find(dim, ir.Select, ir.Min, ir.Max)
    return len(choices) > 7 or sum(isinstance(n, ir.Select) for n in choices) > 3
