"""SplitArgs: concatenations of more tensors than a kernel may have arguments are made in parts."""

from typing import Any

from weft.error import InvalidArgument
from weft.ir import Op, Pass
from weft.relay.expr import Call, Expr, Function, Tuple
from weft.relay.op.registry import op_call
from weft.relay.transform.typed_pass import over_typed_functions, with_types
from weft.relay.walk import rewrite


@with_types
def SplitArgs(max_function_args: int) -> Pass:
    """Make the pass that lets no kernel of ``concatenate`` take more than a number of arguments.

    Parameters
    ----------
    max_function_args : int
        How many, the output among them; 0 or less is no limit. ``target.max_function_args`` has that of a target.

    Raises
    ------
    InvalidArgument
        When it is 1 or 2, which leaves no room for two operands.

    Source: TVM's ``SplitArgs``.
    """
    limit = max_function_args - 1
    if 0 <= limit < 2:
        raise InvalidArgument(
            "SplitArgs: a concatenation has two operands and an output",
            found=str(max_function_args),
            expected="3 or more, or 0 for no limit",
        )

    def rule(e: Expr) -> Any:
        if type(e) is not Call or e.op is not Op.get("concatenate") or type(e.args[0]) is not Tuple:
            return e
        fields = e.args[0].fields
        if len(fields) <= limit:
            return e
        while len(fields) > limit:
            parts = [fields[i : i + limit] for i in range(0, len(fields), limit)]
            fields = tuple(op_call("annotation.stop_fusion", Call(e.op, (Tuple(p),), e.attrs)) for p in parts)
        return Call(e.op, (Tuple(fields),), e.attrs, ty=e.ty, span=e.span)

    def split(func: Function) -> Function:
        return rewrite(func, rule) if limit > 0 else func

    return Pass("SplitArgs", over_typed_functions(split), 1, SplitArgs.__doc__)
