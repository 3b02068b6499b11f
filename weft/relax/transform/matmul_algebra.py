"""Products reordered: of three factors, of sums, of selected columns; and transposes behind what is concatenated.

Where weights are ``W + matmul(A, B)``, a model's own and an adapter's, each part is multiplied by in the cheaper order;
where programs choose among adapters, products are computed before the choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any

from weft import ir
from weft.op import broadcast_dims, dims_of, equal_dims, make_call
from weft.relax.analysis.variables import computable_at_compile_time
from weft.relax.block_builder import BlockBuilder
from weft.relax.core_ops import is_op
from weft.relax.dpl import pattern as form
from weft.relax.dpl.rewrite import rewrite_call
from weft.relax.effects import is_mergeable, mutable_variables
from weft.relax.rewriter import Rule, all_bindings, use_counts
from weft.relax.transform.block_pass import over_bindings, over_functions
from weft.relax.transform.legalize_ops.legalize import known_shapes
from weft.relax.transform.static_plan import KnownSizes
from weft.topi.matmul import matmul

_matmul, _permute_dims = make_call("matmul"), make_call("permute_dims")
_product, _permuted = form.is_op("matmul"), form.is_op("permute_dims")


def AdjustMatmulOrder() -> ir.Pass:
    """Make the pass that computes products of three factors in the order that takes fewer multiplications.

    Two factors that are known at compile time are multiplied first; else the order changes where that is provably
    cheaper for all sizes, which ``tir_var_upper_bound`` limits, and nothing else needs the inner product.
    """
    return over_functions(AdjustMatmulOrder, _adjusted, 1)


def _adjusted(func: ir.Function, mod: ir.IRModule) -> ir.Function:
    a, b, c = form.wildcard(), form.wildcard(), form.wildcard()
    left, right = _product(a, b), _product(b, c)
    turned_left, turned_right = _permuted(_product(b, a)), _permuted(_product(c, b))
    pattern = _product(left, c) | _product(a, right) | _product(turned_left, c) | _product(a, turned_right)
    known, sizes, uses = _all_known(func), KnownSizes(func), use_counts(func)

    def rule(call: Any, found: Any) -> ir.Expr | None:
        factors, turned = [found[a], found[b], found[c]], found.get(turned_left) or found.get(turned_right)
        is_left = left in found or turned_left in found
        shapes: list[Any] = [dims_of(f) for f in factors]
        inner = [call.args[0 if is_left else 1], *(turned.args if turned is not None else ())]
        if None in shapes or len({f.ty.dtype for f in (*factors, call)}) > 1 or any(uses.get(v, 1) > 1 for v in inner):
            return None
        if turned is not None:
            both = slice(0, 2) if is_left else slice(1, 3)
            if _axes(turned) != _swapped(turned.ty.ndim) or min(len(s) for s in shapes[both]) < 2:
                return None
            axes = [None if len(s) == 2 else _swapped(len(s)) for s in shapes[both]]
            factors[both] = [_permute_dims(f, axes=a) for f, a in zip(factors[both], axes, strict=True)]
            shapes[both] = [(*s[:-2], s[-1], s[-2]) for s in shapes[both]]
        x, y, z = factors
        ranks = [len(s) for s in shapes]
        if ranks[1] < 2 or (min(ranks) < 2 and max(ranks) > 2):
            return None  # a vector does not broadcast as a matrix does
        to_left = known((found[a], found[b])) or (
            not known((found[b], found[c])) and _is_left_cheaper(shapes, sizes, is_left)
        )
        if to_left == is_left or known((found[a], found[b], found[c])):
            return None
        return _matmul(_matmul(x, y), z) if to_left else _matmul(x, _matmul(y, z))

    return rewrite_call(pattern, rule, func, mod)


def _is_left_cheaper(shapes: list[Any], sizes: KnownSizes, unless_known: bool) -> bool:
    """Whether ``(a b) c`` takes fewer multiplications than ``a (b c)``; `unless_known` where neither can be proved."""
    one, (a, b, c) = ir.int64(1), shapes
    a, c = (one, *a)[-max(len(a), 2) :], (*c, one)[: max(len(c), 2)]
    (n, k), (m, q) = a[-2:], c[-2:]
    ab, bc = broadcast_dims("matmul", a[:-2], b[:-2]), broadcast_dims("matmul", b[:-2], c[:-2])
    outer = prod(broadcast_dims("matmul", ab, c[:-2]), start=one)
    left = prod(ab) * n * k * m + outer * n * m * q
    right = prod(bc) * k * m * q + outer * n * k * q
    with sizes.analyzer.constraint_scope(ir.all_of(*(d > 0 for s in shapes for d in s))):
        return sizes.analyzer.can_prove(left < right) or (unless_known and not sizes.analyzer.can_prove(right < left))


def ExpandMatmulOfSum() -> ir.Pass:
    """Make the pass that multiplies by each part of a sum of equal shapes, unless these are known at compile time."""
    return over_functions(ExpandMatmulOfSum, _expanded, 1)


def _expanded(func: ir.Function, mod: ir.IRModule) -> ir.Function:
    x, a, b, known = form.wildcard(), form.wildcard(), form.wildcard(), _all_known(func)
    total = form.is_op("add")(a, b)
    turned = _permuted(total)

    def rule(call: Any, found: Any) -> ir.Expr | None:
        parts: Any = [found[a], found[b]]
        shapes: list[Any] = [dims_of(p) for p in parts]
        if None in shapes or len(shapes[0]) != len(shapes[1]) or not all(map(equal_dims, *shapes)) or known(parts):
            return None
        if turned in found:
            parts = [ir.Call(found[turned].op, (p,), found[turned].attrs) for p in parts]
        return make_call("add")(*(ir.Call(call.op, (found[x], p), call.attrs) for p in parts))

    return rewrite_call(_product(x, total | turned), rule, func, mod)


def ReorderTakeAfterMatmul() -> ir.Pass:
    """Make the pass that multiplies by a whole table and selects from the product.

    Where columns of a right factor are selected, or one matrix for each batch of the left factor.
    """
    return over_functions(ReorderTakeAfterMatmul, _taken_after, 1)


def _taken_after(func: ir.Function, mod: ir.IRModule) -> ir.Function:
    x, table, indices = form.wildcard(), form.wildcard(), form.wildcard()
    selected = form.is_op("take")(table, indices)

    def rule(call: Any, found: Any) -> ir.Expr | None:
        data, take, axis = found[x], found[selected], found[selected].attrs.get("axis")
        ranks = [getattr(e.ty, "ndim", -1) for e in (data, found[table], found[indices])]
        if axis is None or min(ranks) < 1 or ranks[1] < 2 or ranks[2] != 1:
            return None

        def select(values: ir.Expr, where: int) -> ir.Expr:
            return ir.Call(take.op, (values, found[indices]), take.attrs.with_(axis=where))

        if axis % ranks[1] == ranks[1] - 1:
            return select(ir.Call(call.op, (data, found[table]), call.attrs), call.ty.ndim - 1)
        rows, count, outer = dims_of(found[table]), dims_of(found[indices]), dims_of(data)
        if (axis % 3, *ranks) != (0, 3, 3, 1) or rows is None or count is None or outer is None:
            return None
        if not equal_dims(outer[0], count[0]):
            return None  # one of them broadcasts
        flat = make_call("reshape")(_permute_dims(found[table], axes=(1, 0, 2)), (rows[1], rows[0] * rows[2]))
        every = make_call("reshape")(ir.Call(call.op, (data, flat), call.attrs), (*outer[:2], rows[0], rows[2]))
        return make_call("einsum")((select(every, 2),), subscripts="ijik->ijk")

    return rewrite_call(_product(x, selected), rule, func, mod)


def ReorderPermuteDimsAfterConcat() -> ir.Pass:
    """Make the pass that permutes what is concatenated, where all parts would have the same permutation."""
    return over_functions(ReorderPermuteDimsAfterConcat, _permuted_after, 1)


def _permuted_after(func: ir.Function, mod: ir.IRModule) -> ir.Function:
    tuples = [b.value.args[0].ty for b in all_bindings(func) if is_op(b.value, "concat")]

    def rewritten(func: ir.Function, count: int) -> ir.Function:
        parts = tuple(_permuted(form.wildcard()) for _ in range(count))

        def rule(call: Any, found: Any) -> ir.Expr | None:
            first, *rest = (found[p] for p in parts)
            axes = _axes(first)
            if axes is None or any(_axes(r) != axes for r in rest):
                return None
            joined = make_call("concat")([p.args[0] for p in (first, *rest)], axis=axes[call.attrs["axis"] % len(axes)])
            return ir.Call(first.op, (joined,), first.attrs)

        return rewrite_call(form.is_op("concat")(form.TuplePattern(parts)), rule, func, mod)

    for count in {len(t.fields) for t in tuples if isinstance(t, ir.TupleType)} - {1}:
        func = rewritten(func, count)
    return func


def FuseTransposeMatmul() -> ir.Pass:
    """Make the pass that multiplies by matrices as they lie where they are transposed only for that, in one kernel."""
    return over_bindings(FuseTransposeMatmul, _untransposed)


def _untransposed(func: ir.Function, mod: ir.IRModule) -> Rule:
    mutable = mutable_variables(func, mod)

    def rule(_binding: object, value: Any, bb: BlockBuilder) -> ir.Expr | None:
        turned: Any = bb.lookup_binding(value.args[1]) if is_op(value, "matmul") else None
        if not is_op(turned, "permute_dims") or not all(known_shapes(a.ty) for a in (value, *value.args)):
            return None
        w, ndim = value.args[1], value.args[1].ty.ndim
        if ndim < 2 or _axes(turned) != _swapped(ndim) or not is_mergeable(turned, w, mutable, mod):
            return None
        more: Any = {"transposed": True, "name": "NT_matmul", "primfunc_name_hint": "NT_matmul"}
        return bb.call_te(matmul, value.args[0], turned.args[0], str(value.ty.dtype), **more)

    return rule


def _all_known(func: ir.Function) -> Callable[[Iterable[Any]], bool]:
    """Make the test whether values are known at compile time."""
    known = set(computable_at_compile_time(func))
    return lambda values: all(isinstance(v, ir.Constant) or v in known for v in values)


def _swapped(ndim: int) -> tuple[int, ...]:
    return (*range(ndim - 2), ndim - 1, ndim - 2)


def _axes(permute: Any) -> tuple[int, ...] | None:
    """The axes of a permutation, or None where the rank is unknown."""
    axes, ndim = permute.attrs.get("axes"), permute.args[0].ty.ndim
    return None if ndim < 0 else tuple(int(i) % ndim for i in (range(ndim)[::-1] if axes is None else axes))
