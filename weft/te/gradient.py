"""te.gradient: tensors that hold the derivatives of a tensor, by reverse-mode differentiation.

What a stage contributes to the adjoint of one of its inputs is a sum over all elements of the stage and over its
reduction. The equations "this read is of element p" are solved for the variables that they hold linearly, so that the
sum runs only over those that stay free: the gradient of a matrix product is a matrix product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import arith, error, ir, tir
from weft.te.compute import comm_reducer, compute, reduce_axis
from weft.te.compute import sum as te_sum
from weft.te.derivative import derivative
from weft.te.tensor import ComputeOp, Operation, Tensor, producers
from weft.tir.analysis.structure import used_vars


def gradient(output: Tensor, inputs: Tensor | Sequence[Tensor], head: Tensor | None = None) -> list[Tensor]:
    """Differentiate `output` with respect to each of `inputs`.

    Parameters
    ----------
    output : Tensor
        Floating-point, made of te.compute.
    inputs : Tensor or list of Tensor
        Tensors that it is computed from; the gradient of one that it does not depend on is zero.
    head : Tensor, optional
        The adjoint of the output, of shape ``prefix + output.shape``; by default the identity, which gives Jacobians.

    Returns
    -------
    list of Tensor
        One for each input, of shape ``prefix + input.shape``.

    Raises
    ------
    InvalidArgument
        Where the head has another shape.
    UnsupportedForm
        Where a stage in between is no te.compute, reduces to several values, or calls a function without derivative.
    """
    wanted: list[Tensor] = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    head = _identity(output) if head is None else head
    rank = len(head.shape) - len(output.shape)
    an = arith.Analyzer()
    if rank < 0 or not all(an.can_prove_equal(a, b) for a, b in zip(head.shape[rank:], output.shape, strict=True)):
        raise error.InvalidArgument(
            "te.gradient: the head has another shape", expected=f"a prefix and {output.shape}", found=str(head.shape)
        )
    adjoints: dict[Tensor, list[Tensor]] = {output: [head]}
    for op in reversed(_between(output, wanted)):
        for i in range(op.num_outputs):
            parts = adjoints.get(op.output(i))
            if not parts:
                continue
            adjoint = _added(parts)
            adjoints[op.output(i)] = [adjoint]
            for read in _reads_of(op, i, wanted):
                adjoints.setdefault(read, []).extend(_contributions(op, i, read, adjoint, rank))
    prefix = head.shape[:rank]
    return [_added(adjoints[t]) if adjoints.get(t) else _zeros((*prefix, *t.shape), t.dtype) for t in wanted]


def _identity(output: Tensor) -> Tensor:
    n = len(output.shape)

    def element(*i: Any) -> Any:
        same = ir.all_of(*[a.equal(b) for a, b in zip(i[:n], i[n:], strict=True)]) if n else ir.TRUE
        return ir.select(same, ir.const(1, output.dtype), ir.const(0, output.dtype))

    return compute((*output.shape, *output.shape), element, name="identity")


def _zeros(shape: tuple[Any, ...], dtype: str) -> Tensor:
    return compute(shape, lambda *i: ir.const(0, dtype), name="zeros")


def _added(parts: list[Tensor]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = compute(part.shape, lambda *i, a=total, b=part: a(*i) + b(*i), name="adjoint")
    return total


def _between(output: Tensor, wanted: list[Tensor]) -> list[Operation]:
    """List the operations on the ways from the inputs to the output, producers first."""
    depends: dict[Operation, bool] = {}
    for op in ir.operands_first((output.op,), lambda op: producers(op)[::-1]):
        depends[op] = any(t in wanted or depends[t.op] for t in op.input_tensors)
    order = [op for op, does in depends.items() if does]
    for op in order:
        if not isinstance(op, ComputeOp) or (isinstance(op.body[0], tir.Reduce) and len(op.body) > 1):
            raise error.UnsupportedForm(
                f"te.gradient: '{op.name}' is no te.compute of one value an element",
                found=type(op).__name__,
                help="write the stage as te.compute",
            )
    return order


def _reads_of(op: Any, output: int, wanted: list[Tensor]) -> list[Tensor]:
    """List the tensors behind the floating-point value of an output through which an input is reached."""
    body = op.body[output]
    source = (*body.source, *body.init) if isinstance(body, tir.Reduce) else (body,)
    found = dict.fromkeys(n.producer for n in ir.find(source, tir.ProducerLoad))
    return [t for t in found if t in wanted or _reaches(t, wanted)]


def _reaches(tensor: Tensor, wanted: list[Tensor]) -> bool:
    return any(t in wanted for op in ir.reached((tensor.op,), producers) for t in op.input_tensors)


def _distinct_loads(expr: Any, tensor: Tensor) -> list[tir.ProducerLoad]:
    found: list[tir.ProducerLoad] = []
    for n in ir.walk(expr):
        if isinstance(n, tir.ProducerLoad) and n.producer is tensor:
            if not any(ir.structural_equal(n, m) for m in found):
                found.append(n)
    return found


_Term = tuple[Any, list[ir.IterVar], Any, Any]
"""A value, the axes that it is summed over, where it counts, and its factor, None for one."""


def _contributions(op: Any, output: int, tensor: Tensor, adjoint: Tensor, rank: int) -> list[Tensor]:
    """Return what each of the reads of a tensor by a stage adds to its adjoint."""
    body, axes = op.body[output], list(op.axis)
    at = tuple(iv.var for iv in axes)
    made: list[Tensor] = []
    terms: list[_Term] = []
    if isinstance(body, tir.Reduce):
        for start in body.init:
            terms.append((start, axes, ir.TRUE, None))
        terms.append(_reduced(op, body, at))
    else:
        terms.append((body, axes, ir.TRUE, None))
    for value, over, where, factor in terms:
        for load in _distinct_loads(value, tensor):
            slope = derivative(value, load)
            if slope is not None:
                slope = slope if factor is None else factor * slope
                made.append(_Scatter(tensor, adjoint, rank, at, over).tensor(load, slope, where, op.name))
    return made


def _reduced(op: Any, body: tir.Reduce, at: tuple[Any, ...]) -> _Term:
    """Return the value whose sum over all axes has the derivative of a reduction, where it counts, and how often."""
    axes = [*op.axis, *body.axis]
    combiner, (source,) = body.combiner, body.source
    (result,), (lhs,), (rhs,) = combiner.result, combiner.lhs, combiner.rhs
    if isinstance(result, ir.Add) and {result.a, result.b} == {lhs, rhs}:
        return source, axes, body.condition, None
    if isinstance(result, (ir.Max, ir.Min)) and {result.a, result.b} == {lhs, rhs}:
        place = _flat(body.axis)
        chosen = _place_of_extremum(op, body, isinstance(result, ir.Max))
        return source, axes, ir.all_of(body.condition, tir.ProducerLoad(chosen, at).equal(place)), None
    return source, axes, body.condition, _slope_of_fold(op, body)


def _flat(axes: Sequence[ir.IterVar]) -> Any:
    """Number the steps of a reduction."""
    place: Any = ir.const(0, "int64")
    for iv in axes:
        assert iv.dom is not None
        place = place * ir.cast("int64", iv.dom.extent) + ir.cast("int64", iv.var - iv.dom.min)
    return place


def _fresh(axes: Sequence[ir.IterVar]) -> tuple[list[ir.IterVar], dict[Any, Any]]:
    env: dict[Any, Any] = {}
    fresh: list[ir.IterVar] = []
    for iv in axes:
        assert iv.dom is not None
        dom = ir.substitute(iv.dom, env)
        fresh.append(reduce_axis((dom.min, dom.min + dom.extent), iv.var.name))
        env[iv.var] = ir.cast(iv.var.dtype, fresh[-1].var)
    return fresh, env


def _over_axes(op: Any, i: Sequence[Any]) -> dict[Any, Any]:
    return {iv.var: ir.cast(iv.var.dtype, v) for iv, v in zip(op.axis, i, strict=True)}


def _place_of_extremum(op: Any, body: tir.Reduce, largest: bool) -> Tensor:
    """Compute the number of the first step that has the extreme value."""

    def better(a: Any, b: Any) -> Any:
        first = ir.any_of(a[1] > b[1] if largest else a[1] < b[1], ir.all_of(a[1].equal(b[1]), a[0] < b[0]))
        return ir.select(first, a[0], b[0]), ir.select(first, a[1], b[1])

    def start(place: str, value: str) -> Any:
        return tir.max_value("int64"), tir.min_value(value) if largest else tir.max_value(value)

    reducer = comm_reducer(better, start, name="place")

    def element(*i: Any) -> Any:
        fresh, env = _fresh(body.axis)
        env |= _over_axes(op, i)
        pair = ir.substitute((_flat(body.axis), body.source[0], body.condition), env)
        return reducer(pair[:2], axis=fresh, where=pair[2])

    return compute(op.output(0).shape, element, name=f"{op.name}_place")[0]


def _slope_of_fold(op: Any, body: tir.Reduce) -> Any:
    """Compute how a reduction by any combiner changes with each of its steps, by folding pairs (value, derivative)."""
    combiner, (source,) = body.combiner, body.source
    (result,), (lhs,), (rhs,) = combiner.result, combiner.lhs, combiner.rhs
    zero = ir.const(0, source.dtype)
    slopes = [derivative(result, v) for v in (lhs, rhs)]
    left, right = (zero if d is None else d for d in slopes)

    def dual(a: Any, b: Any) -> Any:
        env = {lhs: a[0], rhs: b[0]}
        value, by_a, by_b = ir.substitute((result, left, right), env)
        return value, by_a * a[1] + by_b * b[1]

    reducer = comm_reducer(dual, lambda *_: (combiner.identity_element[0], zero), name="dual")
    rank, extents = len(op.axis), [iv.dom.extent for iv in body.axis if iv.dom is not None]

    def element(*i: Any) -> Any:
        fresh, env = _fresh(body.axis)
        env |= _over_axes(op, i[:rank])
        here = [iv.var.equal(iv.dom.min + ir.cast(iv.var.dtype, v)) for iv, v in zip(fresh, i[rank:], strict=True)]  # type: ignore[union-attr]
        varied = ir.select(ir.all_of(*here), ir.const(1, source.dtype), zero)
        value, where = ir.substitute((source, body.condition), env)
        return reducer((value, varied), axis=fresh, where=where)

    slope = compute((*op.output(0).shape, *extents), element, name=f"{op.name}_slope")[1]
    at = (*(iv.var for iv in op.axis), *(iv.var - iv.dom.min for iv in body.axis))  # type: ignore[union-attr]
    return tir.ProducerLoad(slope, at)


class _Scatter:
    """The sum, for each element of a tensor, of a stage's values that are read from there."""

    def __init__(
        self, tensor: Tensor, adjoint: Tensor, rank: int, at: Sequence[ir.Var], over: Sequence[ir.IterVar]
    ) -> None:
        self.tensor_read, self.adjoint, self.rank, self.at, self.over = tensor, adjoint, rank, at, over

    def tensor(self, load: tir.ProducerLoad, slope: Any, where: Any, name: str) -> Tensor:
        """Compute it for one read of the tensor, whose value counts `slope` times."""
        shape = (*self.adjoint.shape[: self.rank], *self.tensor_read.shape)

        def element(*i: Any) -> Any:
            prefix, place = i[: self.rank], i[self.rank :]
            known, conditions, free = self._solve(load.indices, place)
            fresh, env = _fresh(free)
            known = {**{k: ir.substitute(v, env) for k, v in known.items()}, **env}
            held = ir.substitute((*conditions, where), known)
            value = tir.ProducerLoad(self.adjoint, (*prefix, *self.at)) * slope
            an = arith.Analyzer()
            for v, d in zip(i, shape, strict=True):
                an.bind(v, ir.Range.from_min_extent(ir.const(0, v.dtype), d))
            for iv in fresh:
                an.bind(iv.var, iv.dom)
            total = [an.simplify(c) for c in held]
            value = ir.substitute(value, known)
            if any(not (isinstance(c, ir.IntImm) and c.value) for c in total):
                value = ir.if_then_else(ir.all_of(*total), value, ir.const(0, value.dtype))
            return te_sum(value, axis=fresh) if fresh else value

        return compute(shape, element, name=f"{name}_{self.tensor_read.op.name}_grad")

    def _solve(
        self, indices: Sequence[Any], place: Sequence[Any]
    ) -> tuple[dict[Any, Any], list[Any], list[ir.IterVar]]:
        """Solve ``indices == place`` for axes; return their values, the conditions that remain, and the free axes."""
        known: dict[Any, Any] = {}
        conditions: list[Any] = []
        free = list(self.over)
        for index, target in zip(indices, place, strict=True):
            index, target = ir.substitute(index, known), ir.cast(index.dtype, target)
            solved = _isolate(index, target, free)
            if solved is None:
                conditions.append(index.equal(target))
                continue
            axis, value, divides = solved
            assert axis.dom is not None
            value = ir.cast(axis.var.dtype, value)
            new = {axis.var: value}
            conditions = [ir.substitute(c, new) for c in conditions]
            conditions += [*divides, value >= axis.dom.min, value < axis.dom.min + axis.dom.extent]
            known = {**{k: ir.substitute(v, new) for k, v in known.items()}, **new}
            free = [iv for iv in free if iv is not axis]
        return known, [ir.substitute(c, known) for c in conditions], free


def _isolate(index: Any, target: Any, free: Sequence[ir.IterVar]) -> tuple[ir.IterVar, Any, list[Any]] | None:
    """Solve an equation for the axis that it holds with the smallest factor, the longest among those."""
    inside = used_vars(index)
    candidates = [iv for iv in free if iv.var in inside and not _bounds_another(iv, free)]
    found = arith.detect_linear_equation(index, [iv.var for iv in candidates]) if candidates else []
    options = []
    for iv, factor in zip(candidates, found[:-1], strict=False):
        c = ir.as_int(factor)
        if c:
            options.append((abs(c), -(ir.as_int(iv.dom.extent) or 1 << 40), len(options), iv, c))  # type: ignore[union-attr]
    if not options:
        return None
    _, _, _, axis, c = min(options, key=lambda o: o[:3])
    rest = ir.substitute(index, {axis.var: ir.const(0, axis.var.dtype)})
    gap = target - rest if c > 0 else rest - target
    if abs(c) == 1:
        return axis, gap, []
    step = ir.const(abs(c), index.dtype)
    return axis, ir.floordiv(gap, step), [ir.floormod(gap, step).equal(ir.const(0, index.dtype))]


def _bounds_another(axis: ir.IterVar, free: Sequence[ir.IterVar]) -> bool:
    """Whether the domain of another axis depends on this one, which then stays a loop."""
    return any(axis.var in used_vars(iv.dom) for iv in free if iv is not axis)
