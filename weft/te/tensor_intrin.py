"""Tensor intrinsics of schedules: a computation and the statements that stand for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft import arith, error, ir, tir
from weft.te.tensor import ComputeOp, Operation, Tensor, TensorSlice


class TensorIntrin:
    """What ``decl_tensor_intrin`` makes. Called in a compute function, on regions of tensors, it computes its part.

    Attributes
    ----------
    op : ComputeOp
        The computation.
    buffers : tuple of Buffer
        Those of the inputs, then those of the outputs, that the statements use.
    body, reduce_init, reduce_update : Stmt or None
        The whole computation; and, where a reduction continues, its start and one step.
    scalar_params : tuple of Var
        The scalars that calls give.
    """

    def __init__(
        self,
        name: str,
        op: ComputeOp,
        inputs: Sequence[Tensor],
        buffers: Sequence[tir.Buffer],
        parts: Sequence[tir.Stmt | None],
        scalar_params: Sequence[ir.Var] = (),
    ) -> None:
        self.name, self.op, self.inputs, self.buffers = name, op, tuple(inputs), tuple(buffers)
        self.scalar_params = tuple(scalar_params)
        self.body, self.reduce_init, self.reduce_update = parts

    __saved_fields__ = ("name", "op", "inputs", "buffers", "parts", "scalar_params")

    @property
    def parts(self) -> tuple[Any, ...]:
        """The three statements."""
        return (self.body, self.reduce_init, self.reduce_update)

    @staticmethod
    def from_saved(**fields: Any) -> TensorIntrin:
        """Return the intrinsic that was saved."""
        return TensorIntrin(**fields)

    def __repr__(self) -> str:
        return f"TensorIntrin({self.name})"

    def __call__(self, *args: Any, reduce_axis: Any = ()) -> tuple[tir.IntrinCall, ...]:
        """Call the intrinsic in the function of a compute.

        Parameters
        ----------
        *args : TensorSlice, Tensor, or scalar
            A region of a tensor for each input, ``A[i, k, 0:16]``, and scalars for the `scalar_params`.
        reduce_axis : IterVar or list of IterVar
            What is reduced over around the intrinsic.
        """
        reads = tuple(_region(a) for a in args if _is_region(a))
        scalars = tuple(ir.as_expr(a) for a in args if not _is_region(a))
        for what, wanted, given in (("tensors", self.inputs, reads), ("scalars", self.scalar_params, scalars)):
            if len(wanted) != len(given):
                raise error.InvalidArgument(
                    f"'{self.name}' takes another number of {what}", expected=str(len(wanted)), found=str(len(given))
                )
        axis = tuple(reduce_axis) if isinstance(reduce_axis, (list, tuple)) else (reduce_axis,)
        return tuple(tir.IntrinCall(self, reads, scalars, axis, 0, i) for i in range(self.op.num_outputs))


def _is_region(value: Any) -> bool:
    return isinstance(value, (Tensor, TensorSlice, tir.ProducerLoad))


def _region(value: Any) -> tir.RegionRead:
    """Return the region that a slice names: numbers are one element, what it leaves out the whole dimension."""
    if isinstance(value, Tensor):
        tensor, indices = value, ()
    elif isinstance(value, TensorSlice):
        tensor, indices = value.tensor, value.indices
    else:
        tensor, indices = value.producer, value.indices
    mins: list[ir.PrimExpr] = []
    extents: list[ir.PrimExpr] = []
    for n, dim in enumerate(tensor.shape):
        given = indices[n] if n < len(indices) else slice(None)
        if not isinstance(given, slice):
            given = slice(ir.as_expr(given), ir.as_expr(given) + 1)
        low = ir.as_expr(0 if given.start is None else given.start)
        high = dim if given.stop is None else ir.as_expr(given.stop)
        mins.append(low)
        extents.append(arith.Analyzer().simplify(high - low))
    return tir.RegionRead(tir.ProducerLoad(tensor, tuple(mins)), tuple(extents))


def decl_tensor_intrin(
    op: Operation,
    fcompute: Callable[..., Any],
    name: str = "tensor_intrin",
    binds: Mapping[Tensor, tir.Buffer] | None = None,
    scalar_params: Sequence[ir.Var] | None = None,
    default_buffer_params: Mapping[str, Any] | None = None,
) -> TensorIntrin:
    """Declare an intrinsic that computes what `op` describes.

    Parameters
    ----------
    op : ComputeOp
        The computation over placeholders.
    fcompute : callable
        ``fcompute(inputs, outputs)`` from lists of buffers to a statement (or a call), or to three of them: the whole,
        the init of a reduction, and its update.
    binds : mapping of Tensor to Buffer, optional
        Buffers to declare, for instance with strides that are variables.
    scalar_params : list of Var, optional
        Scalars of the computation; `fcompute` gets them as a third argument.
    default_buffer_params : mapping, optional
        What other buffers are declared with, as for ``decl_buffer``.
    """
    if not isinstance(op, ComputeOp):
        raise error.InvalidArgument("a tensor intrinsic describes a compute operation", found=type(op).__name__)
    inputs = op.input_tensors
    options: dict[str, Any] = {"offset_factor": 1, **(default_buffer_params or {})}
    given = binds or {}

    def declared(tensor: Tensor) -> tir.Buffer:
        return given.get(tensor) or tir.decl_buffer(tensor.shape, tensor.dtype, tensor.name, **options)

    ins = [declared(t) for t in inputs]
    outs = [declared(op.output(i)) for i in range(op.num_outputs)]
    scalars = list(scalar_params or [])
    made = fcompute(ins, outs, scalars) if scalars else fcompute(ins, outs)
    parts = list(made) if isinstance(made, (list, tuple)) else [made, None, None]
    parts = [tir.Evaluate(p) if isinstance(p, ir.PrimExpr) else p for p in [*parts, None, None][:3]]
    return TensorIntrin(name, op, inputs, [*ins, *outs], parts, scalars)


def matched(
    intrin: TensorIntrin,
    name: str,
    axes: Sequence[tuple[ir.IterVar, ir.Range]],
    reduce_axes: Sequence[tuple[ir.IterVar, ir.Range]],
    bodies: Sequence[ir.PrimExpr],
    regions: Mapping[Tensor, tuple[ir.Range, ...]],
    an: arith.Analyzer,
) -> dict[Tensor, Tensor]:
    """Check that a region of a stage is what an intrinsic describes; return the tensor behind each of its inputs.

    Parameters
    ----------
    axes, reduce_axes : sequence of (IterVar, Range)
        The stage's axes, and which part of each the tensorized loops cover.
    regions : mapping of Tensor to ranges
        What they read of each input.
    """
    values: dict[Any, ir.PrimExpr] = {}
    for ours, theirs, kind in ((axes, intrin.op.axis, "axes"), (reduce_axes, intrin.op.reduce_axis, "reduction axes")):
        lead = len(ours) - len(theirs)
        sizes = [an.simplify(r.extent) for _, r in ours]
        wanted = [iv.dom.extent for iv in theirs if iv.dom is not None]
        if (
            lead < 0
            or not all(ir.is_const_int(s, 1) for s in sizes[: max(lead, 0)])
            or not all(an.can_prove_equal(s, w) for s, w in zip(sizes[max(lead, 0) :], wanted, strict=True))
        ):
            raise error.ScheduleError(
                f"tensorize: the loops of '{name}' do not cover what '{intrin.name}' describes",
                expected=f"{kind} of {[str(w) for w in wanted]}",
                found=str([str(s) for s in sizes]),
                help="split by the sizes of the intrinsic and tensorize the outermost inner loop",
            )
        for i, (iv, r) in enumerate(ours):
            values[iv.var] = r.min if i < lead else r.min + theirs[i - lead].var
    tensors: dict[Any, Any] = {}
    order = iter(intrin.inputs)

    def rule(node: Any) -> Any:
        if not isinstance(node, tir.ProducerLoad):
            return node
        described = next((d for d in intrin.inputs if tensors.get(d) is node.producer), None) or next(order, None)
        if described is None:
            return node
        tensors[described] = node.producer
        ranges = regions[node.producer]
        lead = len(ranges) - len(described.shape)
        local = [an.simplify(i - r.min) for i, r in zip(node.indices, ranges, strict=True)]
        return tir.ProducerLoad(described, tuple(local[lead:]))

    def simple(node: Any) -> Any:
        return ir.rewrite(node, lambda n: _narrow(an.simplify(n)) if isinstance(n, ir.PrimExpr) and _is_index(n) else n)

    for ours, theirs in zip(bodies, intrin.op.body, strict=True):
        pairs = [(ours, theirs)]
        if isinstance(theirs, tir.Reduce):
            if not isinstance(ours, tir.Reduce) or not ir.structural_equal(ours.combiner, theirs.combiner):
                pairs = []
            else:
                pairs = list(zip((*ours.source, ours.condition), (*theirs.source, theirs.condition), strict=True))
        if not pairs or not all(
            ir.structural_equal(simple(ir.rewrite(ir.substitute(a, values), rule)), simple(b)) for a, b in pairs
        ):
            raise error.ScheduleError(
                f"tensorize: '{name}' does not compute what '{intrin.name}' describes",
                expected=str(theirs),
                found=str(ours),
            )
    return tensors


def _narrow(index: Any) -> Any:
    """Write an index, which is compared only, in int32: shapes of either width describe one computation."""

    def narrow(node: Any) -> Any:
        if isinstance(node, ir.Cast) and node.dtype == "int64" and node.value.dtype == "int32":
            return node.value
        return ir.IntImm("int32", node.value) if isinstance(node, ir.IntImm) and node.dtype == "int64" else node

    return ir.rewrite(index, narrow)


def _is_index(expr: ir.PrimExpr) -> bool:
    return expr.dtype.startswith("int") and not ir.find(expr, tir.ProducerLoad)


def call_intrin(
    intrin: TensorIntrin,
    part: tir.Stmt,
    places: Sequence[tuple[tir.Buffer, tuple[ir.Range, ...]]],
    scalars: Sequence[ir.PrimExpr] = (),
) -> tir.Stmt:
    """Write one use: a block in which the intrinsic's buffers name regions of real ones."""
    fresh: dict[Any, Any] = {n: ir.Var(n.name, n.dtype) for b in intrin.buffers for n in ir.find(b, ir.Var)}
    fresh.update(zip(intrin.scalar_params, scalars, strict=True) if scalars else ())
    copies = [ir.substitute(b, fresh) for b in intrin.buffers]
    fresh.update(zip(intrin.buffers, copies, strict=True))
    body = ir.substitute(part, fresh)
    used = set(ir.walk(body))
    matches = [
        tir.MatchBufferRegion(copy, tir.BufferRegion(buffer, ranges))
        for copy, (buffer, ranges) in zip(copies, places, strict=True)
        if copy in used or copy.data in used
    ]
    outputs = set(copies[len(intrin.inputs) :])
    block = tir.Block(
        (),
        tuple(m.source for m in matches if m.buffer not in outputs),
        tuple(m.source for m in matches if m.buffer in outputs),
        intrin.name,
        body,
        match_buffers=tuple(matches),
    )
    return tir.BlockRealize((), ir.TRUE, block)
