"""Inverses, solutions, determinants, factors of matrices; a matrix that has none stops the program, as in PyTorch."""

from __future__ import annotations

from typing import Any

from weft import ir, topi
from weft.frontend.torch.node import Node
from weft.frontend.torch.registry import aten

SINGULAR = "the matrix is singular: an element of the diagonal is zero"


def _called(node: Node, kernel: Any, count: int, *operands: Any) -> list[Any]:
    """A kernel's results for stacks of matrices, all leading dimensions as one; the last operand is its refusal."""
    *stacks, refusal = operands
    lead = node.dims(stacks[0])[:-2]
    flat = [node.reshape(x, [node.product(lead), *node.dims(x)[-2:]]) for x in stacks]
    found = node.emit(node.bb.call_te(kernel, *flat, refusal=refusal))
    parts = [node.emit(ir.TupleGetItem(found, i)) for i in range(count)]
    return [node.reshape(x, [*lead, *node.dims(x)[1:]]) for x in parts]


def _solved(node: Node, a: Any, b: Any, checked: bool) -> list[Any]:
    return _called(node, topi.linalg.solve, 5, a, b, SINGULAR if checked else "")


def _turned(node: Node, x: Any) -> Any:
    rank = len(x.ty.shape)
    return node.permute(x, [*range(rank - 2), rank - 1, rank - 2])


def _checked(node: Node) -> bool:
    """Whether the operator itself says what is wrong; others return a number that tells."""
    return bool(node.get("check_errors", "_ex" not in node.name))


@aten("linalg_inv", "inverse", "linalg_inv_ex")
def _inverse(node: Node) -> Any:
    a = node.get("A", node.args.get("self"))
    size = node.dims(a)[-1]
    unit = node.op("equal", node.reshape(node.arange(size), [size, 1]), node.arange(size))
    x, *_, info = _solved(node, a, node.expand(node.astype(unit, node.dtype), node.dims(a)), _checked(node))
    return [x, info] if isinstance(node.value, (tuple, list)) else x


@aten("linalg_solve", "_linalg_solve_ex")
def _solution(node: Node) -> Any:
    a, b, shape = node["A"], node["B"], node.shape
    vector = len(b.ty.shape) == 1 or (len(b.ty.shape) < len(a.ty.shape) and node.same(node.dims(b), node.dims(a)[:-1]))
    b = node.reshape(b, [*node.dims(b), 1]) if vector else b
    if not node["left"]:
        a, b = _turned(node, a), _turned(node, b)
    lead = shape[:-1] if vector else shape[:-2]
    a, b = (node.expand(x, [*lead, *node.dims(x)[-2:]]) for x in (a, b))
    x, *_, info = _solved(node, a, b, _checked(node))
    x = node.reshape(x if node["left"] else _turned(node, x), shape)
    if not isinstance(node.value, (tuple, list)):
        return x
    if {1, 2} & node.used:
        node.error("the factors of a solution's matrix")
    return [x, None, None, info]


@aten("linalg_det", "det", "_linalg_det", "linalg_slogdet", "slogdet", "_linalg_slogdet")
def _determinant(node: Node) -> Any:
    a = node.get("A", node.args.get("self"))
    _, _, diagonal, sign, _ = _solved(node, a, node.full([*node.dims(a)[:-1], 1], 0, node.dtype), False)
    axis = len(a.ty.shape) - 2
    signs = node.op("multiply", sign, node.op("prod", node.op("sign", diagonal), axis=(axis,)))
    size = node.op("abs", diagonal)
    if "slogdet" in node.name:
        found = [signs, node.op("sum", node.op("log", size), axis=(axis,))]
    else:
        found = [node.op("multiply", signs, node.op("prod", size, axis=(axis,)))]
    if set(range(len(found), 4)) & node.used:
        node.error("the factors of a determinant's matrix")
    return [*found, None, None] if isinstance(node.value, (tuple, list)) else found[0]


@aten("linalg_cholesky", "cholesky", "linalg_cholesky_ex")
def _cholesky(node: Node) -> Any:
    x = _turned(node, node["self"]) if node["upper"] else node["self"]
    refusal = "the matrix is not positive definite" if _checked(node) else ""
    low, info = _called(node, topi.linalg.cholesky, 2, x, refusal)
    low = _turned(node, low) if node["upper"] else low
    return [low, info] if isinstance(node.value, (tuple, list)) else low


@aten("linalg_solve_triangular")
def _triangular(node: Node) -> Any:
    a, b = node.op("triu" if node["upper"] else "tril", node["self"]), node["B"]
    if node["unitriangular"]:
        size = node.dims(a)[-1]
        unit = node.op("equal", node.reshape(node.arange(size), [size, 1]), node.arange(size))
        a = node.op("where", unit, node.scalar(1, node.dtype), a)
    if not node["left"]:
        a, b = _turned(node, a), _turned(node, b)
    lead = node.shape[:-2]
    a, b = (node.expand(x, [*lead, *node.dims(x)[-2:]]) for x in (a, b))
    x = _solved(node, a, b, False)[0]
    return x if node["left"] else _turned(node, x)


@aten("cholesky_solve")
def _cholesky_solution(node: Node) -> Any:
    low = _turned(node, node["input2"]) if node["upper"] else node["input2"]
    lead = node.shape[:-2]
    low, b = (node.expand(x, [*lead, *node.dims(x)[-2:]]) for x in (low, node["self"]))
    return _solved(node, _turned(node, low), _solved(node, low, b, False)[0], False)[0]
