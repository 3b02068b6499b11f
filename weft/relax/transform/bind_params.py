"""BindParams: parameters become constants."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from weft import arith, ir
from weft.error import DTypeMismatch, InvalidArgument, ShapeMismatch
from weft.ir import Expr, ExprVar, Function, IRModule, Pass, PrimExpr, TensorType, constant, prim_value, substitute
from weft.relax.expr_functor import PyExprMutator
from weft.relax.infer import function_type, unify_dims


def BindParams(func_name: str, params: Mapping[Any, Any]) -> Pass:
    """Make the pass that replaces parameters of a function by constants.

    Parameters
    ----------
    func_name : str
        The function.
    params : mapping
        From a parameter, or its name, to a tensor, array or Constant. A symbolic dimension of a parameter takes the
        value that its tensor has, in the whole function.

    Raises
    ------
    InvalidArgument
        When the module has no such function, or the function no such parameter.
    DTypeMismatch, ShapeMismatch
        When a tensor does not have its parameter's data type or shape.
    """

    def run(mod: IRModule) -> IRModule:
        """Bind the parameters."""
        found = [(v, f) for v, f in mod.items() if v.name_hint == func_name and isinstance(f, Function)]
        if not found:
            names = [v.name_hint for v, f in mod.items() if isinstance(f, Function)]
            raise InvalidArgument(f"the module has no Relax function '{func_name}'", expected=", ".join(names) or "one")
        new = bind_function_params(func_name, found[0][1], params)
        return mod.with_functions({v: new if v is found[0][0] else f for v, f in mod.items()})

    return Pass("BindParams", run, 0, BindParams.__doc__)


def bind_function_params(name: str, func: Function, params: Mapping[Any, Any]) -> Function:
    """Replace parameters of a function, by themselves or by name, by constants or expressions."""
    renamed: dict[Expr, Any] = {}
    symbols: dict[Any, Any] = {}
    for key, value in params.items():
        param = _parameter(name, func, key)
        data: Any = value if isinstance(value, Expr) else prim_value(value) if _is_number(value) else constant(value)
        want, found = param.ty, data.ty
        if isinstance(want, TensorType) and isinstance(found, TensorType):
            if want.dtype and want.dtype != found.dtype:
                raise DTypeMismatch(
                    f"parameter '{param.name_hint}' of '{name}' has another data type",
                    expected=want.dtype,
                    found=found.dtype,
                )
            if want.shape is not None and found.shape is not None:
                _unify(f"parameter '{param.name_hint}' of '{name}'", want, found, symbols)
        renamed[param] = data
    if not renamed:
        return func
    kept = tuple(p for p in func.params if p not in renamed)
    new = Retype(IRModule(), renamed).visit_expr(func.replace(params=kept, ty=None))
    if symbols:
        new = simplify_types(substitute(new, symbols))
    return new.replace(ty=function_type(new))


class Retype(PyExprMutator):
    """Puts other parameters, or values, in the place of parameters and infers the types that follow again."""

    def __init__(self, mod: IRModule, renamed: Mapping[Expr, Expr]) -> None:
        super().__init__(mod)
        self.params = renamed

    def visit_var_def(self, var: Any) -> Any:
        """Return the parameter of another type."""
        return self.params.get(var, var)

    def visit_var_(self, var: Any) -> Any:
        """Return the value of a parameter."""
        return self.params[var] if var in self.params else self.visit_expr_post_order(var)


def simplify_types(func: Function) -> Function:
    """Write the dimensions that follow from others simpler: ``n * 32`` for ``2 * n * 16``."""
    analyzer = arith.Analyzer()

    def simpler(ty: ir.Type) -> ir.Type:
        return ir.rewrite(ty, lambda n: analyzer.simplify(n) if isinstance(n, PrimExpr) else n)

    return ir.rewrite(func, lambda n: simpler(n) if isinstance(n, ir.Type) else n)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, PrimExpr))


def _unify(what: str, want: TensorType, found: TensorType, symbols: dict[Any, Any]) -> None:
    try:
        unify_dims(want.shape or (), found.shape or (), symbols)
    except ShapeMismatch as e:
        known = [f"{getattr(k, 'name', k)} = {v}" for k, v in symbols.items()]
        raise ShapeMismatch(
            f"{what} has another shape",
            expected=_shape_text(want),
            found=_shape_text(found),
            help=f"other parameters say {', '.join(known)}" if known else None,
        ) from e


def _shape_text(ty: TensorType) -> str:
    return f"({', '.join(map(str, ty.shape or ()))})"


def _parameter(name: str, func: Function, key: Any) -> ExprVar:
    for p in func.params:
        if p is key or (isinstance(key, str) and p.name_hint == key):
            return p
    names = [p.name_hint for p in func.params]
    wanted = getattr(key, "name_hint", str(key))
    near = get_close_matches(wanted, names, 1)
    raise InvalidArgument(
        f"'{name}' has no parameter '{wanted}'",
        expected=f"one of {', '.join(names) or 'none'}",
        help=f"did you mean '{near[0]}'?" if near else None,
    )
