"""Questions about types: symbolic sizes in them, what is common to two, what remains without some variables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from typing import Any

from weft import arith, ir
from weft.relax.analysis.arguments import contradict
from weft.relax.infer import derive_call_type, merge_types, type_of
from weft.relax.rename import variables
from weft.spelling import also_called


def used_vars(expr: ir.Expr) -> list[ir.ExprVar]:
    """List the variables that an expression uses, each once."""
    return list(dict.fromkeys(reversed(variables(expr))))


@also_called(sinfo="ty")
def tir_vars_in_type(ty: ir.Type) -> list[ir.Var]:
    """List the symbolic variables in a type, each once."""
    return list(dict.fromkeys(ir.find(ty, ir.Var)))


@also_called(sinfo="ty")
def definable_tir_vars_in_type(ty: ir.Type) -> list[ir.Var]:
    """List the symbolic variables that a value of a type gives a value: those that stand alone as a dimension."""
    if isinstance(ty, ir.TupleType):
        found = [v for f in ty.fields for v in definable_tir_vars_in_type(f)]
    else:
        dims: Any = ty.shape if isinstance(ty, ir.TensorType) else ty.values if isinstance(ty, ir.ShapeType) else ()
        found = [d for d in ((ty.value,) if isinstance(ty, ir.PrimType) else dims or ()) if isinstance(d, ir.Var)]
    return list(dict.fromkeys(found))


def type_lca(lhs: ir.Type, rhs: ir.Type) -> ir.Type:
    """Return the narrowest type that holds the values of two types."""
    return merge_types(lhs, rhs)


@also_called(func_sinfo="func_ty")
def derive_call_ret_type(func_ty: ir.FuncType, call: ir.Call, ctx: object = None) -> ir.Type:
    """Return the type of what a call of a function of a type returns."""
    return derive_call_type(func_ty, call)


class BaseCheckResult(IntEnum):
    """How the values of a type relate to another type."""

    FAIL_L0 = 0
    """None is of the other type: it is of another kind."""
    FAIL_L1 = 1
    """None is: a data type, rank or size differs."""
    FAIL_L2 = 2
    """Some are, as a check at run time tells."""
    PASS = 3
    """All are."""


def type_base_check(base: ir.Type, derived: ir.Type) -> BaseCheckResult:
    """Say whether values of type `derived` are of type `base`."""
    if ir.structural_equal(base, derived) or ir.structural_equal(merge_types(base, derived), base):
        return BaseCheckResult.PASS
    if contradict(base, derived):
        return BaseCheckResult.FAIL_L0 if type(base) is not type(derived) else BaseCheckResult.FAIL_L1
    return BaseCheckResult.FAIL_L2


@also_called(sinfo="ty")
def get_static_type(ty: ir.Type) -> ir.Type:
    """Return a type without dimensions: ranks and data types alone."""
    return erase_to_well_defined(ty, every=True)


@also_called(sinfo="ty")
def erase_to_well_defined(
    ty: ir.Type,
    shape_var_map: Mapping[ir.Var, Any] | Collection[ir.Var] = (),
    var_map: Mapping[Any, Any] | None = None,
    *,
    every: bool = False,
) -> ir.Type:
    """Return a type without the dimensions that mention variables other than those that are known, ranks staying.

    Parameters
    ----------
    shape_var_map : mapping or iterable of Var, optional
        What known symbolic variables become; those of an iterable stay.
    var_map : mapping, optional
        Taken for TVM's sake: types name no variables of programs here.
    every : bool
        Whether to leave out constant dimensions as well.
    """
    analyzer = arith.Analyzer()
    if shape_var_map and isinstance(shape_var_map, Mapping):
        values = {k: ir.as_shape((v,))[0] for k, v in shape_var_map.items()}
        ty = ir.rewrite(ir.substitute(ty, values), lambda n: analyzer.simplify(n) if isinstance(n, ir.PrimExpr) else n)
        known = {n for v in values.values() for n in ir.walk(v)}
    else:
        known = set(shape_var_map or ())

    def drops(dims: Any) -> bool:
        return every or any(isinstance(n, ir.Var) and n not in known for d in dims or () for n in ir.walk(d))

    def visit(t: Any) -> Any:
        if isinstance(t, ir.TensorType):
            gone = t.shape is not None and drops(t.shape)
            return ir.TensorType(None, t.dtype, t.ndim, t.vdevice) if gone else t
        if isinstance(t, ir.ShapeType):
            return ir.ShapeType(None, t.ndim) if t.values is not None and drops(t.values) else t
        if isinstance(t, ir.PrimType):
            return ir.PrimType(t.dtype) if t.value is not None and drops((t.value,)) else t
        if isinstance(t, ir.TupleType):
            return ir.TupleType(tuple(map(visit, t.fields)))
        if isinstance(t, ir.FuncType) and not every:  # the sizes that it names are those of its arguments
            return t
        if isinstance(t, ir.FuncType):
            return ir.FuncType(None if t.params is None else tuple(map(visit, t.params)), visit(t.ret), t.purity)
        return t if t is not None else ir.AnyType()

    new = visit(ty)
    return ty if ir.structural_equal(new, ty) else new


def type_outside(params: Iterable[ir.ExprVar], body: ir.Expr, known: Iterable[ir.Var] = ()) -> ir.Type:
    """Return the type of a function's body without sizes that only its inside names.

    Parameters
    ----------
    known : iterable of Var
        Symbolic variables of what is around the function.
    """
    types = [v.ty for v in params if v.ty is not None]
    return erase_to_well_defined(type_of(body), (*known, *(v for t in types for v in tir_vars_in_type(t))))
