"""From Relay to Relax: first-order functions, and runs of bindings, as Relax functions over the same operators.

Relay operators are expanded, constants share their data, and each unknown dimension of a parameter becomes a symbolic
variable of its own, so that what is computed from it stays related. Elements of tensors that become dimensions
(``values`` inputs) are symbolic variables, too; where text tells what they are, as it does for ``shape_of``, they are
the expressions themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import error, ir, op, relax
from weft.ir import DataType, Dispatch, IRModule, Op, PrimExpr, TensorType, as_int, tensor_type
from weft.ir import TupleType as IRTupleType
from weft.ir.deep import with_deep_stack
from weft.relax.core_ops import call_dps_packed, tensor_to_shape
from weft.relay.expr import Call, Function, GlobalVar, If, Let, Tuple, TupleGetItem, Var, is_external
from weft.relay.op.registry import expand, known_values
from weft.relay.shape_values import ShapeValues
from weft.relay.types import Any as AnyDim


def to_relax(func_or_mod: IRModule | ir.BaseFunc) -> IRModule:
    """Convert first-order Relay functions to Relax.

    Parameters
    ----------
    func_or_mod : Function or IRModule
        Functions of tensors and tuples of them; they may call each other. A single function becomes ``main``. Types
        must have been inferred (``relay.transform.InferType``).

    Returns
    -------
    IRModule
        The Relax functions, and the TIR functions that there were.

    Raises
    ------
    UnsupportedOperator
        When a function is not of first order: closures, data types, matches and references stay in Relay.
    """
    mod = func_or_mod if isinstance(func_or_mod, IRModule) else IRModule({GlobalVar("main"): func_or_mod})
    out = IRModule({v.name_hint: f for v, f in mod.items() if not isinstance(f, Function)}, mod.attrs)
    for gvar, func in mod.items():
        if isinstance(func, Function) and not is_external(func):
            out = with_deep_stack(lambda g=gvar, f=func, o=out: _function(g.name_hint, f, o, mod))
    return out


def _function(name: str, func: Function, out: IRModule, mod: IRModule) -> IRModule:
    bb = relax.BlockBuilder(out)
    builder = RelaxBuilder(bb, mod)
    params = [builder.param(p) for p in func.params]
    with bb.function(name, params, func.attrs or None):
        bb.emit_func_output(builder.convert(func.body))
    return bb.get()


def relax_type(ty: ir.Type | None, dims: Callable[[], PrimExpr] | None = None) -> Any:
    """Turn Relay's type of a tensor or tuple into Relax's; ``dims()`` makes what stands for an unknown dimension."""
    fresh = dims or (lambda: ir.Var("n", "int64"))
    if isinstance(ty, IRTupleType):
        return IRTupleType(tuple(relax_type(f, fresh) for f in ty.fields))
    if isinstance(ty, TensorType) and ty.shape is not None:
        return tensor_type(tuple(fresh() if isinstance(d, AnyDim) else d for d in ty.shape), ty.dtype)
    raise error.UnsupportedOperator(
        "a value that is no tensor has no form in Relax",
        found=str(ty) if ty is not None else "no type",
        help="infer types first" if ty is None else "only tensors and tuples of them are of first order",
    )


class RelaxBuilder:
    """Emits the Relax form of Relay expressions through a block builder.

    Parameters
    ----------
    bb : BlockBuilder
        It has a function under construction whenever something is converted.
    mod : IRModule, optional
        Where functions that are called are found.
    """

    def __init__(self, bb: relax.BlockBuilder, mod: IRModule | None = None) -> None:
        self.bb, self.mod = bb, mod
        self.env: dict[ir.Expr, Any] = {}
        self.values = ShapeValues()
        self._n_dims = 0
        self._wide: dict[ir.Var, ir.Var] = {}

    def fresh_dim(self) -> ir.Var:
        """Make a symbolic variable."""
        self._n_dims += 1
        return ir.Var(f"n{self._n_dims - 1}", "int64")

    def param(self, var: Var) -> ir.ExprVar:
        """Make the parameter that stands for a Relay variable."""
        ty = ir.rewrite(relax_type(var.ty, self.fresh_dim), lambda n: n, pre=self._wide_dim)
        made = ir.ExprVar(self.bb.fresh_name(var.name_hint), ty)
        self.define(var, made)
        return made

    def _wide_dim(self, node: ir.Node) -> Any:
        """Return the int64 variable that stands for a dimension's variable of another width."""
        if not isinstance(node, ir.Var) or node.dtype == "int64":
            return None
        return self._wide.setdefault(node, ir.Var(node.name, "int64"))

    def define(self, expr: ir.Expr, value: ir.Expr) -> None:
        """Say what a Relay expression is."""
        self.env[expr] = value

    def convert(self, expr: ir.Expr) -> Any:
        """Return the Relax atom (or tuple of atoms) of an expression, emitting what it needs."""
        known = self.env.get(expr)
        if known is None:
            known = _CONVERT(expr, self)
            self.define(expr, known)
        return known

    def free(self, var: Any) -> Any:
        """Return what stands for a variable that nothing binds."""
        raise error.InvalidArgument(f"variable '{var.name_hint}' is not bound", where=var.span)

    def elements(self, tensor: ir.Expr) -> tuple[PrimExpr, ...]:
        """Return the scalar expressions that the elements of a Relax tensor are."""
        known = known_values(tensor) if isinstance(tensor, ir.Constant) else self.values.of(tensor)
        if known is None:
            ty: Any = tensor.ty
            if DataType(ty.dtype).is_float:
                raise error.UnsupportedOperator(
                    "a floating-point number that run time computes decides a shape",
                    found=str(ty),
                    where=tensor.span,
                    help="compute it as int64",
                )
            known = self.name_elements(tensor, count_of(tensor))
            self.values.define(tensor, known)
        return known

    def name_elements(self, tensor: ir.Expr, n: int) -> tuple[PrimExpr, ...]:
        """Bind the `n` elements of a tensor to symbolic variables, where the function stands."""
        source: Any = tensor
        if source.ty.ndim == 0:
            source = self.bb.emit(ir.Call(Op.get("relax.reshape"), (source, ir.shape_expr((1,)))))
        if source.ty.dtype != "int64":
            source = self.bb.emit(ir.Call(Op.get("relax.astype"), (source,), ir.Attrs.of(dtype="int64")))
        dims = tuple(self.fresh_dim() for _ in range(n))
        self.bb.match_cast(self.bb.emit(tensor_to_shape(source)), ir.ShapeType(dims, n))
        return dims


def count_of(tensor: ir.Expr) -> int:
    """Return the number of elements of a tensor whose elements are dimensions."""
    ty = tensor.ty
    n = 1 if ty.ndim == 0 else as_int(ty.shape[0]) if ty.ndim == 1 else None
    if n is None:
        raise error.UnsupportedOperator(
            "a tensor whose elements are dimensions is a vector of known length", found=str(ty), where=tensor.span
        )
    return n


_CONVERT = Dispatch("Relay to Relax", (ir.Expr,), default=lambda e, b: _refuse(e))


def _refuse(expr: ir.Expr) -> Any:
    raise error.UnsupportedOperator(
        f"{type(expr).__name__} has no form in Relax",
        expected="tensors, tuples, operators, If and calls of functions of the module",
        where=getattr(expr, "span", None),
        help="compile programs with closures, data types or references by relay.vm.compile",
    )


@_CONVERT.on(ir.ExprVar)
def _var(expr: ir.Expr, b: RelaxBuilder) -> Any:
    return b.free(expr)


@_CONVERT.on(ir.Constant)
def _constant(expr: Any, b: RelaxBuilder) -> Any:
    made = ir.Constant(expr.data)
    return ir.Constant(expr.data, span=expr.span, ty=b.bb.atom(made).ty)  # type: ignore[attr-defined]


@_CONVERT.on(ir.Tuple)
def _tuple(expr: Tuple, b: RelaxBuilder) -> Any:
    return b.bb.atom(ir.Tuple(tuple(b.convert(f) for f in expr.fields), span=expr.span))


@_CONVERT.on(ir.TupleGetItem)
def _get_item(expr: TupleGetItem, b: RelaxBuilder) -> Any:
    value = b.convert(expr.tuple_value)
    if isinstance(value, ir.Tuple):
        return value.fields[expr.index]
    return b.bb.emit(ir.TupleGetItem(value, expr.index, span=expr.span))


@_CONVERT.on(Let)
def _let(expr: ir.Expr, b: RelaxBuilder) -> Any:
    while isinstance(expr, Let):
        b.define(expr.var, b.convert(expr.value))
        expr = expr.body
    return b.convert(expr)


@_CONVERT.on(ir.If)
def _if(expr: If, b: RelaxBuilder) -> Any:
    cond = b.convert(expr.cond)
    branches = []
    for branch in (expr.true_branch, expr.false_branch):
        outer = dict(b.env)
        with b.bb.scope() as inner:
            branches.append(b.bb.finish(inner, b.convert(branch)))
        b.env = outer
    return b.bb.emit(ir.If(cond, *branches, span=expr.span))


@_CONVERT.on(ir.Call)
def _call(expr: Call, b: RelaxBuilder) -> Any:
    if isinstance(expr.op, Op):
        return _operator(expr, b)
    if isinstance(expr.op, Function):
        return _called_in_place(expr, b)
    if isinstance(expr.op, GlobalVar) and (b.mod is None or expr.op in b.mod):
        args = tuple(b.convert(a) for a in expr.args)
        if b.mod is not None and is_external(b.mod[expr.op]):
            return b.bb.emit(_external(b.mod[expr.op], args, expr))
        return b.bb.emit(ir.Call(ir.GlobalVar(expr.op.name_hint), args, span=expr.span, ty=_declared(expr.ty)))
    return _refuse(expr)


def _external(func: Any, args: tuple[Any, ...], expr: ir.Expr) -> ir.Call:
    """Call what an external compiler makes of a function: it takes the tensors of the arguments, and fills others."""
    tensors = [f for a in args for f in (a.fields if isinstance(a, ir.Tuple) else (a,))]
    types: Any = relax_type(expr.ty)
    out = list(types.fields) if isinstance(types, IRTupleType) else types
    return call_dps_packed(ir.ExternFunc(str(func.attrs["global_symbol"])), tensors, out)


def _declared(ty: ir.Type | None) -> Any:
    """The type of what a function returns that may not have been converted: unknown dimensions leave the rank."""
    if isinstance(ty, IRTupleType):
        return IRTupleType(tuple(_declared(f) for f in ty.fields))
    if isinstance(ty, TensorType) and any(isinstance(d, AnyDim) for d in ty.shape or ()):
        return TensorType(None, ty.dtype, ty.ndim)
    return relax_type(ty)


def _operator(expr: Any, b: RelaxBuilder) -> Any:
    args = tuple(b.convert(a) for a in expr.args)
    outer, b.bb.span = b.bb.span, expr.span
    expanded = expand(ir.Call(expr.op, args, expr.attrs, span=expr.span), b.elements)
    made = b.bb.atom(expanded)
    b.bb.span = outer
    if expr.op.name == "shape_of":
        b.values.define(made, args[0].ty.shape)
    b.values.infer(expanded, made)
    return made


def _called_in_place(expr: Any, b: RelaxBuilder) -> Any:
    """A function literal that is called: a group of FuseOps becomes a private function, others are inlined."""
    func: Function = expr.op
    args = tuple(b.convert(a) for a in expr.args)
    group = _group(func, args, b) if func.attrs.get("Primitive") else None
    if group is not None:
        return b.bb.emit(ir.Call(b.bb.add_func(group, "fused"), args, span=expr.span))
    outer, b.env = b.env, dict(b.env)  # another call of the function has other arguments
    for p, a in zip(func.params, args, strict=True):
        b.define(p, a)
    made = b.convert(func.body)
    b.env = outer
    return made


def _group(func: Function, args: tuple[Any, ...], b: RelaxBuilder) -> ir.Function | None:
    """Return a group as a Relax function, or None where it has no form that becomes one kernel."""
    inner = RelaxBuilder(relax.BlockBuilder(), b.mod)
    params = [ir.ExprVar(p.name_hint, b.bb.atom(a).ty) for p, a in zip(func.params, args, strict=True)]  # type: ignore[attr-defined]
    for p, made in zip(func.params, params, strict=True):
        inner.define(p, made)
    with inner.bb.function("fused", params, {"Primitive": 1}, private=True):
        with inner.bb.dataflow():
            result = inner.convert(func.body)
            bindings = inner.bb.bindings()
            values = [v.value for v in bindings]
            if not bindings or result is not bindings[-1].var or not all(map(_has_kernel, values)):
                bindings.clear()
                inner.bb.emit_output(ir.Tuple(()))
                result = None
            else:
                bindings[-1] = relax.VarBinding(ir.ExprVar(result.name_hint, result.ty), values[-1])
                result = bindings[-1].var
        inner.bb.emit_func_output(ir.Tuple(()) if result is None else result)
    return None if result is None else inner.bb.get()["fused"]  # type: ignore[return-value]


def _has_kernel(value: Any) -> bool:
    if not isinstance(value, ir.Call) or not isinstance(value.op, Op) or not isinstance(value.ty, TensorType):
        return False
    return value.op.name.removeprefix("relax.") in op.list_ops() and op.get_op_def(value.op).lower is not None
