"""Which calls of operators the virtual machine computes in its registers: int32, int64 and bool of rank 0.

LowerRegions leaves such calls where they are, and code generation makes an instruction ``Scalar`` of each, so that a
loop over counters runs without kernels.
"""

from weft import ir

_ARITHMETIC = ("add", "subtract", "multiply", "floor_divide", "floor_mod", "minimum", "maximum")
_COMPARISON = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
_BITWISE = {"bitwise_and": "bitwise_and", "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor"}
_LOGICAL = {"logical_and": "bitwise_and", "logical_or": "bitwise_or", "logical_xor": "bitwise_xor"}
_NUMBERS = ("int32", "int64")


def is_scalar(ty: ir.Type | None) -> bool:
    """Whether values of a type need no memory while they are in registers."""
    return isinstance(ty, ir.TensorType) and ty.shape == () and ty.dtype in (*_NUMBERS, "bool")


def scalar_operation(call: ir.Call) -> str | None:
    """Return how the machine computes a call of an operator on scalars.

    Returns
    -------
    str or None
        An operation of the instruction ``Scalar`` for two arguments; ``"not"``, ``"negative"``, ``"to int64"``,
        ``"to bool"`` or ``"same"`` for one; None when the call needs a kernel.
    """
    if not isinstance(call.op, ir.Op) or not all(is_scalar(a.ty) for a in call.args):
        return None
    name, dtypes = call.op.name, [a.ty.dtype for a in call.args]
    if len(dtypes) == 2 and dtypes[0] == dtypes[1]:
        if name in _COMPARISON or name in _BITWISE:
            return name
        if dtypes[0] == "bool":
            return _LOGICAL.get(name)
        return name if name in _ARITHMETIC else None
    if len(dtypes) == 1:
        if name == "cast":
            wanted = call.attrs.get("dtype")
            return "same" if wanted == dtypes[0] else {"int64": "to int64", "bool": "to bool"}.get(str(wanted))
        if name == "logical_not":
            return "not" if dtypes[0] == "bool" else None
        if name == "negative":
            return name if dtypes[0] in _NUMBERS else None
    return None
