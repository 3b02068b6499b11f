"""Automatic differentiation: to a function, another that also returns the adjoints of its parameters.

The adjoint of the result is 1; of several results, the first is what is differentiated. ``first_order`` takes straight
programs of tensors and tuples and makes such; ``higher_order`` takes the whole language, and its result may be
differentiated again.

Source: Griewank and Walther, *Evaluating Derivatives*, 2008; Wang et al., *Demystifying Differentiable Programming*,
2019; TVM's ``gradient``.
"""

from __future__ import annotations

from typing import Any

from weft import ir
from weft.error import InvalidArgument
from weft.relay.expr import Call, Constant, Function, Tuple, TupleGetItem, Var
from weft.relay.infer import infer_type
from weft.relay.op.registry import op_call
from weft.relay.primal_gradient import field_of, ones_of, primal_gradient, zeros_of
from weft.relay.transform.reverse_mode import reverse_mode
from weft.relay.walk import parts


def gradient(expr: ir.Expr, mod: ir.IRModule | None = None, mode: str = "higher_order") -> Function:
    """Differentiate a function.

    Parameters
    ----------
    expr : Function or GlobalVar
        Its parameters and its result are tensors (and, of first order, tuples of them).
    mod : IRModule, optional
        Where functions that are called are found; those that the result needs are added to it.
    mode : str
        ``"higher_order"`` or ``"first_order"``.

    Returns
    -------
    Function
        From the same parameters to ``(result, (adjoint of each parameter))``.

    Raises
    ------
    UnsupportedOperator
        When an operator has no gradient.
    InvalidArgument
        When the program has what the mode cannot differentiate.
    """
    if mode not in ("first_order", "higher_order"):
        raise InvalidArgument("gradient: unknown mode", expected="'first_order' or 'higher_order'", found=repr(mode))
    if isinstance(expr, ir.GlobalVar) and mod is not None:
        expr = mod[expr.name_hint]
    if not isinstance(expr, Function):
        raise InvalidArgument("only functions are differentiated", found=type(expr).__name__)
    if expr.body.ty is None:
        expr = infer_type(expr)
        assert isinstance(expr, Function)
    return _first_order(expr) if mode == "first_order" else reverse_mode(expr, mod)


@ir.module_pass
def first_order_gradient(mod: ir.IRModule) -> ir.IRModule:
    """Differentiate each function by itself: it returns its result and the adjoint of each parameter.

    Requires: Types; functions that :func:`gradient` takes in its mode ``"first_order"``.
    Ensures: The same.
    Before::

        def @main(%x: Tensor[(2), float32]) { negative(%x) }

    After::

        def @main(%x: Tensor[(2), float32]) { (negative(%x), (negative(ones_like(negative(%x))),)) }
    Cost: Linear.
    Source: TVM's ``FirstOrderGradient``.
    """
    made = {v: gradient(f, mod, "first_order") for v, f in mod.items() if type(f) is Function}
    return mod.with_functions({v: made.get(v, f) for v, f in mod.items()})


def _first_order(func: Function) -> Function:
    order = ir.operands_first((func.body,), lambda e: [p for p in parts(e) if not isinstance(p, ir.Op)])
    adjoints: dict[Any, Any] = {func.body: ones_of(func.body, func.body.ty)}
    for e in reversed(order):
        if e in adjoints:
            _back(e, adjoints)
    found = tuple(adjoints[p] if p in adjoints else zeros_of(p, p.ty) for p in func.params)
    return Function(func.params, Tuple((func.body, Tuple(found))), None, func.type_params)


def _back(e: ir.Expr, adjoints: dict[Any, Any]) -> None:
    """Add to the adjoints of what an expression is made of."""
    g = adjoints[e]
    if isinstance(e, (Var, Constant)):
        return
    if type(e) is Tuple:
        for i, f in enumerate(e.fields):
            _add(adjoints, f, field_of(g, i))
    elif type(e) is TupleGetItem:
        whole, ty = e.tuple_value, e.tuple_value.ty
        fields = [zeros_of(TupleGetItem(whole, i), t) for i, t in enumerate(ty.fields)]
        fields[e.index] = g
        _add(adjoints, whole, Tuple(tuple(fields)))
    elif type(e) is Call and isinstance(e.op, ir.Op):
        for a, partial in zip(e.args, primal_gradient(e, e.args, g), strict=True):
            _add(adjoints, a, partial)
    else:
        raise InvalidArgument(
            "gradient: first order has operators and tuples only",
            found=type(e).__name__,
            where=e.span,
            help='use mode="higher_order"',
        )


def _add(adjoints: dict[Any, Any], e: ir.Expr, partial: Any) -> None:
    adjoints[e] = _plus(adjoints[e], partial, e.ty) if e in adjoints else partial


def _plus(a: Any, b: Any, ty: ir.Type) -> Any:
    if isinstance(ty, ir.TupleType):
        return Tuple(tuple(_plus(field_of(a, i), field_of(b, i), t) for i, t in enumerate(ty.fields)))
    return op_call("add", a, b)
