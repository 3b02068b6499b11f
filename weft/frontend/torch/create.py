"""Tensors out of nothing: constants, ranges, triangles."""

from typing import Any

from weft import ir
from weft.frontend.torch.node import Node
from weft.frontend.torch.registry import aten


@aten("full", "full_like", "new_full", "fill.Scalar", "fill.Tensor")
def _full(node: Node) -> Any:
    value = node.get("fill_value", node.get("value"))
    node.get("self")  # gives its shape alone
    if isinstance(value, ir.Expr) and not isinstance(value, ir.PrimExpr):
        return node.expand(node.astype(value, node.dtype), node.shape)
    return node.full(node.shape, value, node.dtype)


_CONSTANTS = """zeros zeros_like new_zeros ones ones_like new_ones empty
    empty_like new_empty empty_strided new_empty_strided empty_permuted""".split()


@aten(*_CONSTANTS)
def _constant(node: Node) -> Any:
    for name in ("self", "stride", "physical_layout"):  # where elements lie is Weft's choice
        node.get(name)
    return node.full(node.shape, int("ones" in node.name), node.dtype)


@aten("scalar_tensor")
def _scalar(node: Node) -> Any:
    return node.tensor(node["s"])


@aten("item", "_local_scalar_dense")
def _number(node: Node) -> Any:
    """A number that is no size stays a tensor."""
    return node.reshape(node["self"], [])


@aten("arange")
def _arange(node: Node) -> Any:
    (count,) = node.shape
    start, step = node.get("start", 0), node.get("step", 1)
    wide = "float64" if ir.DataType(node.dtype).is_float else "int64"
    numbers = node.arange(count, wide)
    if step != 1:
        numbers = node.op("multiply", numbers, node.tensor(step, wide))
    return numbers if isinstance(start, int) and start == 0 else node.op("add", numbers, node.tensor(start, wide))


@aten("eye")
def _eye(node: Node) -> Any:
    rows, columns = node.shape
    return node.op("equal", node.reshape(node.arange(rows), [rows, 1]), node.arange(columns))


@aten("tril", "triu")
def _triangle(node: Node) -> Any:
    x, (rows, columns) = node["self"], node.shape[-2:]
    name = "less_equal" if "tril" in node.name else "greater_equal"
    far = node.op("add", node.reshape(node.arange(rows), [rows, 1]), node.tensor(node["diagonal"], "int64"))
    return node.op("where", node.op(name, node.arange(columns), far), x, node.scalar(0, node.dtype))
