"""Inverses, solutions, determinants, factors of matrices; a matrix that has none stops the program, as in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import ir, topi
from weft.frontend.complex_arithmetic import Complex
from weft.frontend.lapack import call_lapack
from weft.frontend.torch.node import Node, dtype_name
from weft.frontend.torch.registry import aten
from weft.frontend.torch.symbols import Dim, as_expr

SINGULAR = "the matrix is singular: an element of the diagonal is zero"
_EXACT = "float64"
"""What orthogonal factors and exponentials are computed in: their errors are those of the last rounding."""
_TERMS, _HALVINGS = 14, 24
"""Of the exponential's series for a sum of 1/2 in each column, and how often a matrix is halved to become one."""


def _called(node: Node, kernel: Any, *stacks: Any, **options: Any) -> list[Any]:
    """A kernel's results for stacks of matrices, all leading dimensions as one."""
    lead = node.dims(stacks[0])[:-2]
    flat = [node.reshape(x, [node.product(lead), *node.dims(x)[-2:]]) for x in stacks]
    call = node.op if isinstance(kernel, str) else lambda *args, **kw: node.emit(node.bb.call_te(*args, **kw))
    found = call(kernel, *flat, **options)
    return [node.reshape(x, [*lead, *node.dims(x)[1:]]) for x in node.fields(found)]


def _solved(node: Node, a: Any, b: Any, checked: bool) -> list[Any]:
    return _called(node, "linalg.solve", a, b, refusal=SINGULAR if checked else "")


def _turned(node: Node, x: Any) -> Any:
    rank = len(x.ty.shape)
    return node.permute(x, [*range(rank - 2), rank - 1, rank - 2])


def _checked(node: Node) -> bool:
    """Whether the operator itself says what is wrong; others return a number that tells."""
    return bool(node.get("check_errors", "_ex" not in node.name))


def _on_diagonal(node: Node, rows: Dim, columns: Dim) -> Any:
    """What is true on the diagonal alone."""
    return node.op("equal", node.reshape(node.arange(rows), [rows, 1]), node.arange(columns))


def _unit(node: Node, like: Any) -> Any:
    """Unit matrices of a stack's shape."""
    unit = _on_diagonal(node, *node.dims(like)[-2:])
    return node.expand(node.astype(unit, node.dtype), node.dims(like))


@aten("linalg_inv", "inverse", "linalg_inv_ex")
def _inverse(node: Node) -> Any:
    a = node.get("A", node.args.get("self"))
    x, *_, info = _solved(node, a, _unit(node, a), _checked(node))
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
    low, info = _called(node, topi.linalg.cholesky, x, refusal=refusal)
    low = _turned(node, low) if node["upper"] else low
    return [low, info] if isinstance(node.value, (tuple, list)) else low


@aten("linalg_solve_triangular")
def _triangular(node: Node) -> Any:
    a, b = node.op("triu" if node["upper"] else "tril", node["self"]), node["B"]
    if node["unitriangular"]:
        unit = _on_diagonal(node, *node.dims(a)[-2:])
        a = node.op("where", unit, node.scalar(1, node.dtype), a)
    if not node["left"]:
        a, b = _turned(node, a), _turned(node, b)
    lead = node.shape[:-2]
    a, b = (node.expand(x, [*lead, *node.dims(x)[-2:]]) for x in (a, b))
    x = _solved(node, a, b, False)[0]
    return x if node["left"] else _turned(node, x)


@aten("cholesky_solve", "cholesky_inverse")
def _cholesky_solution(node: Node) -> Any:
    factor, b = (node["input2"], node["self"]) if "input2" in node.args else (node["self"], _unit(node, node["self"]))
    factor = node.op("triu" if node["upper"] else "tril", factor)  # the other half is not read
    low = _turned(node, factor) if node["upper"] else factor
    lead = node.shape[:-2]
    low, b = (node.expand(x, [*lead, *node.dims(x)[-2:]]) for x in (low, b))
    return _solved(node, _turned(node, low), _solved(node, low, b, False)[0], False)[0]


@aten("linalg_matrix_exp", "matrix_exp")
def _exponential(node: Node) -> Any:
    """Taylor's series of a matrix that is halved until it is small, then squared as often."""
    a, rank = node.astype(node["self"], _EXACT), len(node.shape)
    if node.shape[-1] == 0:
        return node["self"]
    size = node.op("max", node.op("sum", node.op("abs", a), axis=(rank - 2,), keepdims=True), axis=(-1,), keepdims=True)
    times = node.op("add", node.op("ceil", node.op("log2", size)), node.scalar(1, _EXACT))
    times = node.op("minimum", node.op("maximum", times, node.scalar(0, _EXACT)), node.scalar(_HALVINGS, _EXACT))
    a = node.op("multiply", a, node.op("power", node.scalar(0.5, _EXACT), times))
    found = unit = node.astype(_unit(node, a), _EXACT)
    for k in range(_TERMS, 0, -1):
        term = node.op("multiply", node.op("matmul", a, found), node.scalar(1 / k, _EXACT))
        found = node.op("add", unit, term)
    for k in range(_HALVINGS):
        more = node.op("greater", times, node.scalar(k, _EXACT))
        found = node.op("where", more, node.op("matmul", found, found), found)
    return found


# --- orthogonal factors -----------------------------------------------------------------------------------------------


def _smaller(m: Dim, n: Dim) -> Dim:
    return min(m, n) if isinstance(m, int) and isinstance(n, int) else ir.Min(as_expr(m), as_expr(n))


def _cut(node: Node, x: Any, back: int, count: Dim) -> Any:
    """The first elements along an axis, which is counted from the back."""
    axis = len(x.ty.shape) - back
    if node.same(node.dims(x)[axis : axis + 1], [count]):
        return x
    return node.op("strided_slice", x, axes=(axis,), begin=(0,), end=(count,), assume_inbound=True)


def _diagonal(node: Node, x: Any) -> Any:
    """The diagonal's elements, one for each row; zeros where it has ended."""
    here = _on_diagonal(node, *node.dims(x)[-2:])
    return node.op("sum", node.op("where", here, x, node.scalar(0, _EXACT)), axis=(len(x.ty.shape) - 1,))


def _factored(node: Node, a: Any, columns: Dim) -> tuple[Any, Any]:
    """Q with so many columns, and R with as many rows."""
    q, r, *_ = _called(node, topi.linalg.qr, a, columns=as_expr(columns))
    return q, node.op("triu", _cut(node, r, 2, columns))


@aten("linalg_qr")
def _qr(node: Node) -> Any:
    a = node.astype(node["A"], _EXACT)
    m, n = node.dims(a)[-2:]
    q, r = _factored(node, a, m if node["mode"] == "complete" else _smaller(m, n))
    return [node.full(node.shape, 0, node.dtype) if node["mode"] == "r" else q, r]


def _rotated(node: Node, a: Any, descending: bool) -> tuple[Any, Any, Any]:
    """Orthogonal rows, the rotation that makes them of `a`, and their squares' sums, by the size of these."""
    *both, squares = _called(node, topi.linalg.orthogonal_rows, a)
    order = node.op("argsort", squares, axis=-1, descending=descending, dtype="int64")
    order = node.reshape(order, [*node.dims(order), 1])
    rows, turn = (
        node.op("gather_elements", x, node.expand(order, node.dims(x)), axis=len(x.ty.shape) - 2) for x in both
    )
    return rows, turn, node.op("gather_elements", squares, node.reshape(order, node.dims(squares)), axis=-1)


def _singular(node: Node, a: Any, full: bool) -> tuple[Any, Any, Any]:
    """U, the singular values, and V transposed: what one-sided rotations make orthogonal, Householder's completes."""
    m, n = node.dims(a)[-2:]
    count = _smaller(m, n)
    rows, turn, squares = _rotated(node, _turned(node, a), True)
    u, r = _factored(node, _turned(node, rows), m if full else count)
    low = node.op("less", _diagonal(node, r), node.scalar(0, _EXACT))
    sign = node.op("where", low, node.scalar(-1, _EXACT), node.scalar(1, _EXACT))
    u = node.op("multiply", u, node.reshape(sign, [*node.dims(sign)[:-1], 1, node.dims(sign)[-1]]))
    return u, node.op("sqrt", _cut(node, squares, 1, count)), turn if full else _cut(node, turn, 2, count)


@aten("linalg_svd", "_linalg_svd", "linalg_svdvals")
def _svd(node: Node) -> Any:
    found = _singular(node, node.astype(node["A"], _EXACT), bool(node.get("full_matrices")))
    return found[1] if "svdvals" in node.name else list(found)


@aten("linalg_pinv.atol_rtol_tensor", "linalg_pinv.atol_rtol_float", "linalg_pinv")
def _pseudoinverse(node: Node) -> Any:
    a = node.astype(node.get("self", node.args.get("A")), _EXACT)
    m, n = node.dims(a)[-2:]
    a = _mirrored(node, a) if node.get("hermitian") else a
    u, s, v = _singular(node, a, False)
    least = node.op("max", s, axis=(-1,), keepdims=True)
    atol, rtol = node.get("atol"), node.get("rtol", node.get("rcond"))
    if rtol is None:
        size = node.tensor(ir.Max(as_expr(m), as_expr(n)), _EXACT)
        eps = node.op("multiply", size, node.scalar(np.finfo(ir.numpy_dtype(node.dtype)).eps, _EXACT))
        positive = None if atol is None else node.op("greater", node.tensor(atol, _EXACT), node.scalar(0, _EXACT))
        rtol = eps if positive is None else node.op("where", positive, node.scalar(0, _EXACT), eps)
    least = node.op("multiply", least, node.tensor(rtol, _EXACT))
    least = least if atol is None else node.op("maximum", least, node.tensor(atol, _EXACT))
    inverse = node.op(
        "where", node.op("greater", s, least), node.op("divide", node.scalar(1, _EXACT), s), node.scalar(0, _EXACT)
    )
    v = node.op("multiply", v, node.reshape(inverse, [*node.dims(s), 1]))
    return node.op("matmul", _turned(node, v), _turned(node, u))


def _mirrored(node: Node, a: ir.Expr) -> Any:
    """Symmetric matrices of which the half below the diagonal is read."""
    return node.op("add", node.op("tril", a), _turned(node, node.op("tril", a, k=-1)))


@aten("linalg_eigh", "_linalg_eigh", "linalg_eigvalsh")
def _symmetric(node: Node) -> Any:
    """Eigenvectors are singular vectors of what a multiple of the unit matrix makes positive; values are quotients."""
    a = node.astype(node.get("A", node.args.get("self")), _EXACT)
    a = _turned(node, a) if str(node["UPLO"]).upper() == "U" else a
    rank, size = len(a.ty.shape), node.dims(a)[-1]
    a = _mirrored(node, a)
    shift = node.op("max", node.op("sum", node.op("abs", a), axis=(rank - 1,)), axis=(rank - 2,), keepdims=True)
    unit = _on_diagonal(node, size, size)
    shift = node.op("multiply", node.astype(unit, _EXACT), node.reshape(shift, [*node.dims(shift), 1]))
    _, turn, _ = _rotated(node, node.op("add", a, shift), False)
    values = node.op("sum", node.op("multiply", turn, node.op("matmul", turn, a)), axis=(rank - 1,))
    return values if "eigvalsh" in node.name else [values, _turned(node, turn)]


# --- what the host's LAPACK factors -----------------------------------------------------------------------------------


def _factors(node: Node, routine: str, *operands: Any, made: Any = None, **options: Any) -> list[Any]:
    """A routine's results, which have the types of the call's, or of `made`: shape, dtype, whether complex."""
    whole = node.value if isinstance(node.value, (tuple, list)) else [node.value]
    made = made or [([node.symbols.dim(d) for d in v.shape], dtype_name(v.dtype), v.dtype.is_complex) for v in whole]
    return call_lapack(node, routine, operands, made, len(node.dims(operands[0])) - 2, **options)


@aten("geqrf", "linalg_householder_product", "ormqr")
def _reflections(node: Node) -> Any:
    if "geqrf" in node.name:
        return _factors(node, "geqrf", node["self"])
    if "ormqr" not in node.name:
        return _factors(node, "orgqr", node["input"], node["tau"])[0]
    turned = ("C" if isinstance(node["self"], Complex) else "T") if node["transpose"] else "N"
    side = "L" if node["left"] else "R"
    return _factors(node, "ormqr", node["self"], node["input2"], node["input3"], side=side, trans=turned)[0]


@aten("linalg_eig", "_linalg_eigvals", "linalg_eigvals")
def _eigen(node: Node) -> Any:
    a = node.get("self", node.args.get("A"))
    dims, dtype, both = node.dims(a), str(a.ty.dtype), isinstance(node.value, (tuple, list))
    values = (dims[:-1], dtype, isinstance(a, Complex))
    made = [*[values] * (1 if isinstance(a, Complex) else 2), *[(dims, dtype, True)] * 2, (dims[:-2], "int32", False)]
    *w, _, right, _ = _factors(node, "geev", a, made=made, compute_left="N", compute_right="V" if both else "N")
    found = w[0] if isinstance(a, Complex) else Complex(*w)
    return [found, right] if both else found


def _packed(node: Node) -> list[Any]:
    """Both factors in one matrix, the exchanges of rows, and which element of the diagonal is zero."""
    a, refusal = node.get("A", node.args.get("self")), SINGULAR if _checked(node) and "factor" in node.name else ""
    dims, dtype = node.dims(a), str(a.ty.dtype)
    if not node.get("pivot", True):
        node.error("factors without exchanges of rows")
    made = [(dims, dtype, False), ([*dims[:-2], _smaller(*dims[-2:])], "int32", False), (dims[:-2], "int32", False)]
    return _factors(node, "getrf", a, made=made, refusal=refusal)


@aten("linalg_lu_factor_ex", "linalg_lu_factor")
def _packed_factors(node: Node) -> Any:
    return _packed(node)[: len(node.value)]


@aten("lu_unpack", "linalg_lu")
def _unpacked(node: Node) -> list[Any]:
    """P, L and U of packed factors: P has the exchanges of rows of a unit matrix, the last first."""
    node.read.update(("unpack_data", "unpack_pivots"))  # what is not unpacked is empty, and nothing reads it
    packed, pivots = _packed(node)[:2] if "A" in node.args else (node["LU_data"], node["LU_pivots"])
    *lead, m, n = node.dims(packed)
    small, dtype = _smaller(m, n), str(packed.ty.dtype)
    eye = node.expand(node.astype(_on_diagonal(node, m, m), dtype), [*lead, m, m])
    p = _factors(node, "laswp", eye, pivots, made=[([*lead, m, m], dtype, False)], first=1, step=-1)[0]
    low, unit = node.op("tril", _cut(node, packed, 1, small), k=-1), node.astype(_on_diagonal(node, m, small), dtype)
    return [p, node.op("add", low, unit), node.op("triu", _cut(node, packed, 2, small))]


@aten("linalg_lu_solve")
def _factored_solution(node: Node) -> Any:
    """Solve with the packed factors of a matrix; from the right it is the transposed one's solution."""
    packed, pivots, b, dims, left = node["LU"], node["pivots"], node["B"], node.shape, node["left"]
    packed = node.expand(packed, [*dims[:-2], *node.dims(packed)[-2:]])
    pivots = node.expand(pivots, [*dims[:-2], node.dims(pivots)[-1]])
    b = node.expand(b, dims) if left else _turned(node, node.expand(b, dims))
    made, trans = [(node.dims(b), str(b.ty.dtype), False)], "N" if left != node["adjoint"] else "T"
    x = _factors(node, "getrs", packed, pivots, b, made=made, trans=trans)[0]
    return x if left else _turned(node, x)
