"""From Relax values to te tensors and back: how operators and ``emit_te`` become TIR functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import error, ir, te, tir
from weft.te import compute, create_prim_func, placeholder


class PrimFuncCall:
    """A TIR function made of te tensors, and what a ``call_tir`` of it takes."""

    def __init__(self, func: tir.PrimFunc, args: list[ir.Expr], out_types: list[ir.TensorType]) -> None:
        self.func, self.args, self.out_types = func, args, out_types


def prim_func_from_te(func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> PrimFuncCall:
    """Make a TIR function by running a te function on placeholders for Relax values.

    The function has variables of its own. Its parameters are tensors and scalars in the order of the arguments, then
    symbolic variables that the shapes of its buffers do not determine, then the results.
    """
    inputs = _Inputs()
    te_args = [inputs.to_te(a) for a in args]
    out = func(*te_args, **{k: inputs.to_te(v) for k, v in kwargs.items()})
    outs = [fresh_output(o, inputs.params) for o in (out if isinstance(out, (list, tuple)) else [out])]
    made = create_prim_func([*inputs.params, *outs], index_dtype_override="int64")
    extra = undefined_vars(made)
    if extra:
        n = len(inputs.params)
        made = made.replace(params=(*made.params[:n], *extra, *made.params[n:]))
    made = made.without_attr("global_symbol")
    outer = {v: k for k, v in inputs.vars.items()}
    types = [ir.tensor_type([ir.substitute(d, outer) for d in o.shape], o.dtype) for o in outs]
    scalars = [ir.prim_value(ir.substitute(v, outer)) for v in extra]
    return PrimFuncCall(made, [*inputs.exprs, *scalars], [inputs.placed(t) for t in types])


def fresh_output(tensor: te.Tensor, inputs: list[Any]) -> te.Tensor:
    """Copy a result that is one of the inputs, so that the function has something to write."""
    if any(tensor is t for t in inputs):
        return compute(tensor.shape, lambda *i: tensor(*i), name="copy")
    return tensor


class _Inputs:
    """The arguments met so far, as te placeholders and scalar parameters; symbolic variables get twins."""

    def __init__(self) -> None:
        self.exprs: list[ir.Expr] = []
        self.params: list[Any] = []
        self.vars: dict[ir.Var, ir.Var] = {}
        self.vdevice: ir.VDevice | None = None

    def to_te(self, value: Any) -> Any:
        """Convert an argument of a te function."""
        if isinstance(value, (list, tuple)):
            return type(value)(self.to_te(v) for v in value)
        if isinstance(value, dict):
            return {k: self.to_te(v) for k, v in value.items()}
        if isinstance(value, ir.PrimExpr):
            return self.scalar(value)
        if not isinstance(value, ir.Expr):
            return value
        if isinstance(value, ir.Tuple):
            return tuple(self.to_te(f) for f in value.fields)
        if isinstance(value.ty, ir.TupleType):
            return tuple(self.to_te(ir.TupleGetItem(value, i, ty=t)) for i, t in enumerate(value.ty.fields))
        if isinstance(value, ir.PrimValue):
            return self.scalar(value.value)
        ty = value.ty
        values = value.values if isinstance(value, ir.ShapeExpr) else getattr(ty, "values", None)
        if values is not None:
            return tuple(self.scalar(v) for v in values)
        if isinstance(ty, ir.PrimType):
            return self.scalar(ty.value) if ty.value is not None else self.parameter(value, ty)
        return self.tensor(value, ty) if isinstance(ty, ir.TensorType) else getattr(value, "value", value)

    def scalar(self, value: ir.PrimExpr) -> Any:
        """Return a scalar expression over variables of the function's own."""
        for v in ir.walk(value):
            if isinstance(v, ir.Var) and v not in self.vars:
                self.vars[v] = ir.Var(v.name, v.dtype)
        return ir.substitute(value, self.vars)

    def parameter(self, value: ir.Expr, ty: ir.PrimType) -> ir.Var:
        """Return the parameter of a scalar that is known when the function is called."""
        return self._add(value, ir.Var(self._name(value), ty.dtype))

    def tensor(self, value: ir.Expr, ty: ir.TensorType) -> te.Tensor:
        """Return the placeholder of a tensor."""
        if ty.shape is None or not ty.dtype:
            raise error.InvalidArgument(
                "a te function needs tensors of known shape and data type", found=str(ty), help="use match_cast first"
            )
        self.vdevice = self.vdevice or ty.vdevice
        return self._add(value, placeholder([self.scalar(d) for d in ty.shape], ty.dtype, name=self._name(value)))

    def placed(self, ty: ir.TensorType) -> ir.TensorType:
        """Put a result where the arguments are."""
        return ty if self.vdevice is None else ir.TensorType(ty.shape, ty.dtype, ty.ndim, self.vdevice)

    def _add(self, value: ir.Expr, param: Any) -> Any:
        self.exprs.append(value)
        self.params.append(param)
        return param

    def _name(self, value: ir.Expr) -> str:
        n = len(self.params)
        return getattr(value, "name_hint", chr(ord("A") + n) if n < 26 else f"tensor_input_{n}")


def undefined_vars(func: tir.PrimFunc) -> list[ir.Var]:
    """List the scalar variables that a function uses without a definition, in order of first use.

    Parameters, loop and block variables, pointers of buffers, and dimensions of parameter buffers that are bare
    variables count as defined.
    """
    defined: set[ir.Node] = set(func.params)
    for _, buffer in func.buffer_map:
        defined.update(buffer.shape)
    used: list[ir.Var] = []
    for node in ir.find(func.body, tir.For, ir.IterVar, tir.LetStmt, ir.Let, tir.Buffer, ir.Var):
        if isinstance(node, tir.For):
            defined.add(node.loop_var)
        elif isinstance(node, (ir.IterVar, tir.LetStmt, ir.Let)):
            defined.add(node.var)
        elif isinstance(node, tir.Buffer):
            defined.add(node.data)
        else:
            used.append(node)
    for _, buffer in func.buffer_map:
        used.extend(v for d in buffer.shape for v in ir.find(d, ir.Var))
    return [v for v in dict.fromkeys(used) if v not in defined]
