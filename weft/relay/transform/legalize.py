"""Legalize: calls of operators become what a function registered with the operator makes of them."""

from typing import Any

from msgspec.structs import force_setattr

from weft import ir
from weft.relay.expr import Call, Function, TupleWrapper
from weft.relay.transform.typed_pass import over_typed_functions, with_types
from weft.relay.walk import rewrite


@with_types
def Legalize(legalize_map_attr_name: str = "FTVMLegalize") -> ir.Pass:
    """Make the pass that asks the function registered with each operator for what stands in place of a call.

    Parameters
    ----------
    legalize_map_attr_name : str
        The attribute of operators that has the function ``fn(attrs, args, types)``: the call's attributes, its
        arguments, and the types of the arguments and of the call. It returns an expression, or None to keep the call.

    Source: TVM's ``Legalize``.
    """

    @over_typed_functions
    def legalize(func: Function) -> Function:
        """Replace the calls of a function."""

        def rule(e: ir.Node) -> Any:
            if type(e) is not Call or not isinstance(e.op, ir.Op):
                return e
            make = e.op.get_attr(legalize_map_attr_name)
            made = None if make is None else make(e.attrs, list(e.args), [*(a.ty for a in e.args), e.ty])
            return e if made is None else replaced(e, made)

        return rewrite(func, rule)

    return ir.Pass("Legalize", legalize, 1, Legalize.__doc__)


def replaced(old: ir.Expr, new: ir.Expr) -> Any:
    """Return what stands in the place of an expression, with its type."""
    made = new.astuple() if isinstance(new, TupleWrapper) else new
    if made.ty is None:
        force_setattr(made, "ty", old.ty)
    return made
