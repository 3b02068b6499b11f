"""How many multiplications with addition a network takes."""

import math

from weft import error, ir
from weft.relay.expr import Call, Function
from weft.relay.walk import operator_name, subexpressions


def get_total_mac_number(expr: ir.Expr) -> int:
    """Count the multiply-accumulates of the convolutions and products of an expression whose types are inferred.

    A function of the expression counts once, wherever it is called.

    Raises
    ------
    InvalidArgument
        When such an operator has no type, or a shape that is not constant.
    """
    body = expr.body if isinstance(expr, Function) else expr
    return sum(_macs(e) for e in subexpressions(body) if operator_name(e) in (*_CONVOLUTIONS, *_PRODUCTS))


_CONVOLUTIONS = tuple(f"nn.conv{n}d{t}" for n in (1, 2, 3) for t in ("", "_transpose"))
_PRODUCTS = ("nn.dense", "nn.matmul", "nn.batch_matmul")


def _shape(e: ir.Expr) -> tuple[int, ...]:
    dims = [ir.as_int(d) for d in e.ty.shape or ()] if isinstance(e.ty, ir.TensorType) else [None]
    if any(d is None for d in dims):
        raise error.InvalidArgument("operations are counted where shapes are constant", found=str(e.ty), where=e)
    return tuple(d for d in dims if d is not None)


def _macs(call: Call) -> int:
    name = call.op.name  # type: ignore[union-attr]
    data, weight, out = _shape(call.args[0]), _shape(call.args[1]), _shape(call)
    if name in _PRODUCTS:
        return math.prod(out) * data[-2 if call.attrs.get("transpose_a") else -1]
    # each element of the weight meets each position: of the output, or of the input where that is what spreads
    transposed = name.endswith("_transpose")
    named = call.attrs.get("data_layout") or "NC" + "DHW"[5 - len(data) :]
    layout = [axis for axis in str(named) if axis.isalpha()]
    positions = math.prod(n for n, axis in zip(data if transposed else out, layout, strict=False) if axis in "DHW")
    batch = data[layout.index("N")] if "N" in layout else 1
    return batch * positions * math.prod(weight)
