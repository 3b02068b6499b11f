"""Matrix products: MatMul, Gemm, Einsum."""

import math
from typing import Any

from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter
from weft.ir import DataType, Expr, Tuple


@converter("MatMul")
def _matmul(node: Node) -> Any:
    a, b = node.x(0), node.x(1)
    for i in (0, 1):
        node.require_rank(i, 1, math.inf)
    return node.op("matmul", a, b)


@converter("Gemm")
def _gemm(node: Node) -> Any:
    for i in (0, 1):
        node.require_rank(i, 2)
    a = node.permute(node.x(0), (1, 0)) if node.attr("transA", 0) else node.x(0)
    b = node.permute(node.x(1), (1, 0)) if node.attr("transB", 0) else node.x(1)
    dtype = node.dtype()
    out = node.op("matmul", a, b)
    alpha, beta = node.attr("alpha", 1.0), node.attr("beta", 1.0)
    exact = not DataType(dtype).is_integer or (float(alpha).is_integer() and float(beta).is_integer())
    wide = dtype if exact else "float64"

    def scaled(x: Expr, by: float) -> Expr:
        x = node.astype(x, wide)
        return x if by == 1.0 else node.op("multiply", x, node.scalar(by, wide))

    out = scaled(out, alpha)
    if node.has(2) and beta != 0.0:
        node.require_broadcast_to(2, node.dims(out))
        out = node.op("add", *node.broadcasting(out, scaled(node.x(2), beta)))
    return node.astype(out, dtype)


@converter("Einsum")
def _einsum(node: Node) -> Any:
    equation = node.attr("equation").replace(" ", "")
    terms = equation.split("->")[0].split(",")
    if len(terms) != len(node.inputs):
        node.error(
            "its equation does not fit its inputs",
            expected=f"{len(terms)} inputs for '{equation}'",
            found=str(len(node.inputs)),
        )
    return node.op("einsum", Tuple(tuple(node.xs())), subscripts=equation)
