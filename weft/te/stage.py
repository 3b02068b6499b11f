"""Schedules of tensor expressions: one stage per operation, and the primitives that shape its loops.

A stage starts with one loop per axis of its operation. ``split`` and ``fuse`` record relations between loops;
``compute_at`` says inside which loop of another stage this one runs. Nothing is computed here: ``bound`` finds how far
each loop goes, ``schedule_ops`` writes the loops. Operations are immutable; what inlining and caches change is the
stage's own copy of the body.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weft.error import ScheduleError
from weft.ir import IterVar, PrimExpr, Range, Var, as_expr, const, floordiv, if_then_else, rewrite, substitute, walk
from weft.te.tensor import BaseComputeOp, ComputeOp, Operation, ScanOp, Tensor
from weft.tir import Buffer, ProducerLoad, Reduce, decl_buffer

__all__ = ["Fuse", "IterAttr", "Schedule", "Split", "Stage", "create_schedule"]


class Split:
    """``parent`` runs as ``outer * factor + inner``; one of `factor` and `nparts` is given."""

    __slots__ = ("factor", "inner", "nparts", "outer", "parent")

    def __init__(
        self, parent: IterVar, outer: IterVar, inner: IterVar, factor: PrimExpr | None, nparts: PrimExpr | None
    ) -> None:
        self.parent, self.outer, self.inner, self.factor, self.nparts = parent, outer, inner, factor, nparts


class Fuse:
    """``fused`` runs over all pairs of ``outer`` and ``inner``."""

    __slots__ = ("fused", "inner", "outer")

    def __init__(self, outer: IterVar, inner: IterVar, fused: IterVar) -> None:
        self.outer, self.inner, self.fused = outer, inner, fused


class IterAttr:
    """How a loop runs: its kind, the hardware thread it is bound to, and pragmas."""

    __slots__ = ("bind_thread", "kind", "pragmas")

    def __init__(self) -> None:
        self.kind = "serial"
        self.bind_thread: IterVar | None = None
        self.pragmas: list[tuple[str, Any]] = []

    @property
    def iter_type(self) -> int:
        """The kind as one of ``IterVar.Vectorized``, ``Unrolled``, ``Parallelized``, ``Tensorized``, ``DataPar``."""
        return getattr(IterVar, self.kind.capitalize().replace("Parallel", "Parallelized"), IterVar.DataPar)


class Stage:
    """One operation and the loops that compute it.

    Attributes
    ----------
    op : Operation
        What the stage computes.
    body : tuple of PrimExpr
        What each element is now (for compute operations), after inlining and caching.
    leaf_iter_vars, all_iter_vars : list of IterVar
        The loops from outermost to innermost; and all that ever were, the operation's own first.
    attach_type : str
        ``"root"``, ``"inline"`` or ``"scope"`` (inside loop `attach_ivar` of `attach_stage`).
    """

    def __init__(self, schedule: Schedule, op: Operation) -> None:
        self.schedule, self.op = schedule, op
        self.body: tuple[PrimExpr, ...] = op.body if isinstance(op, ComputeOp) else ()
        self.is_output = False
        self.given_scope = ""
        self.attach_type = "root"
        self.attach_stage: Stage | None = None
        self.attach_ivar: IterVar | None = None
        self.double_buffered = False
        self.prefetches: list[tuple[Tensor, IterVar, PrimExpr]] = []
        self.tensorized: tuple[IterVar, Any] | None = None
        self.alignments: list[tuple[IterVar, int, int]] = []
        self.reset_loops()

    def reset_loops(self) -> None:
        """Return to one loop per axis."""
        self.relations: list[Split | Fuse] = []
        self.iter_attrs: dict[int, IterAttr] = {}
        self.all_iter_vars: list[IterVar] = [*self.axis, *self.reduce_axis]
        if isinstance(self.op, ScanOp) and self.op.scan_axis is not None:
            self.all_iter_vars = [self.op.scan_axis]
        self.leaf_iter_vars: list[IterVar] = list(self.all_iter_vars)

    def __repr__(self) -> str:
        loops = ", ".join(iv.var.name for iv in self.leaf_iter_vars)
        return f"Stage({self.op.name}, loops=[{loops}], attach={self.attach_type})"

    @property
    def axis(self) -> tuple[IterVar, ...]:
        """The data-parallel axes of the operation."""
        return self.op.axis if isinstance(self.op, BaseComputeOp) else ()

    @property
    def reduce_axis(self) -> tuple[IterVar, ...]:
        """The reduction axes of the body as it is now."""
        first = self.body[0] if self.body else None
        return first.axis if isinstance(first, Reduce) else ()

    @property
    def scope(self) -> str:
        """Where the output lies: what was said, else what the threads around the stage share."""
        if self.given_scope:
            return self.given_scope
        stage, tags = self, []
        while stage.attach_type == "scope":
            parent, at = stage.attach_stage, stage.attach_ivar
            assert parent is not None
            for iv in parent.leaf_iter_vars:
                thread = parent.iter_attrs[id(iv)].bind_thread if id(iv) in parent.iter_attrs else None
                tags.append(thread.thread_tag if thread is not None else "")
                if iv is at:
                    break
            stage = parent
        if any(t.startswith("threadIdx") for t in tags):
            return "local"
        return "shared" if any(t.startswith("blockIdx") for t in tags) else "global"

    def reads(self) -> list[Tensor]:
        """List the tensors that the stage reads, each once."""
        if not isinstance(self.op, ComputeOp):
            return self.op.input_tensors()
        found: dict[int, Tensor] = {}
        for node in walk(self.body):
            if isinstance(node, ProducerLoad):
                found.setdefault(id(node.producer), node.producer)
        return list(found.values())

    @property
    def iter_var_attrs(self) -> dict[IterVar, IterAttr]:
        """How each loop runs, of those that something was said about."""
        return {iv: self.iter_attrs[id(iv)] for iv in self.all_iter_vars if id(iv) in self.iter_attrs}

    def attr(self, iv: IterVar) -> IterAttr:
        """Return (making it) how a loop runs."""
        return self.iter_attrs.setdefault(id(iv), IterAttr())

    # --- loops ---

    def _position(self, iv: Any, what: str) -> int:
        for i, leaf in enumerate(self.leaf_iter_vars):
            if leaf is iv:
                return i
        names = ", ".join(v.var.name for v in self.leaf_iter_vars)
        name = iv.var.name if isinstance(iv, IterVar) else repr(iv)
        known = any(v is iv for v in self.all_iter_vars)
        raise ScheduleError(
            f"{what}: '{name}' is not a loop of stage '{self.op.name}'" + (" any more" if known else ""),
            expected=f"one of {names}",
            help="it was split or fused; use the loops that gave" if known else None,
        )

    def split(
        self, parent: IterVar, factor: Any = None, nparts: Any = None, disable_predication: bool = False
    ) -> tuple[IterVar, IterVar]:
        """Split a loop in two.

        Parameters
        ----------
        parent : IterVar
            The loop.
        factor : int or PrimExpr, optional
            The extent of the inner loop.
        nparts : int or PrimExpr, optional
            The extent of the outer loop; exactly one of the two is given.

        Returns
        -------
        (outer, inner) : tuple of IterVar
        """
        if (factor is None) == (nparts is None):
            raise ScheduleError(
                f"split of '{parent.var.name}' takes either factor or nparts",
                found="both" if factor is not None else "neither",
            )
        position = self._position(parent, "split")
        amount = as_expr(nparts if factor is None else factor, parent.var.dtype)
        if getattr(amount, "value", 1) <= 0:
            raise ScheduleError(
                f"split of '{parent.var.name}' by a size that is not positive",
                found=str(getattr(amount, "value", amount)),
            )
        outer = IterVar(None, Var(parent.var.name + "_outer", parent.var.dtype), parent.iter_type)
        inner = IterVar(None, Var(parent.var.name + "_inner", parent.var.dtype), parent.iter_type)
        self.relations.append(
            Split(parent, outer, inner, amount if factor is not None else None, amount if nparts is not None else None)
        )
        self.all_iter_vars += [outer, inner]
        self.leaf_iter_vars[position : position + 1] = [outer, inner]
        return outer, inner

    def fuse(self, *args: IterVar) -> IterVar:
        """Fuse adjacent loops, outermost first, into one."""
        loops = list(args[0]) if len(args) == 1 and isinstance(args[0], (list, tuple)) else list(args)
        if not loops:
            raise ScheduleError(f"fuse in stage '{self.op.name}' needs at least one loop")
        fused = loops[0]
        for iv in loops[1:]:
            fused = self._fuse_pair(fused, iv)
        return fused

    def _fuse_pair(self, outer: IterVar, inner: IterVar) -> IterVar:
        i, j = self._position(outer, "fuse"), self._position(inner, "fuse")
        if j != i + 1:
            raise ScheduleError(
                f"fuse: loops '{outer.var.name}' and '{inner.var.name}' are not adjacent in this order",
                found="the order " + ", ".join(v.var.name for v in self.leaf_iter_vars),
                help="reorder them first",
            )
        if "ordered" in (outer.iter_type, inner.iter_type):
            raise ScheduleError(f"fuse: the scan axis of '{self.op.name}' cannot be fused")
        kind = "reduce" if "reduce" in (outer.iter_type, inner.iter_type) else outer.iter_type
        if outer.iter_type != inner.iter_type and kind == "reduce":
            raise ScheduleError(
                f"fuse: '{outer.var.name}' and '{inner.var.name}' are a reduction and a data-parallel loop"
            )
        dtype = "int64" if "int64" in (outer.var.dtype, inner.var.dtype) else outer.var.dtype
        fused = IterVar(None, Var(f"{outer.var.name}_{inner.var.name}_fused", dtype), kind)
        self.relations.append(Fuse(outer, inner, fused))
        self.all_iter_vars.append(fused)
        self.leaf_iter_vars[i : j + 1] = [fused]
        return fused

    def tile(
        self, x_parent: IterVar, y_parent: IterVar, x_factor: Any, y_factor: Any
    ) -> tuple[IterVar, IterVar, IterVar, IterVar]:
        """Split two loops and order the four ``x_outer, y_outer, x_inner, y_inner``."""
        x_outer, x_inner = self.split(x_parent, factor=x_factor)
        y_outer, y_inner = self.split(y_parent, factor=y_factor)
        self.reorder(x_outer, y_outer, x_inner, y_inner)
        return x_outer, y_outer, x_inner, y_inner

    def reorder(self, *args: IterVar) -> None:
        """Put loops in the given order, in the places that they hold together."""
        positions = [self._position(iv, "reorder") for iv in args]
        if len(set(positions)) != len(positions):
            raise ScheduleError(f"reorder in stage '{self.op.name}' names a loop twice")
        if any(iv.iter_type == "ordered" for iv in args):
            raise ScheduleError(f"reorder: the scan axis of '{self.op.name}' cannot move")
        for place, iv in zip(sorted(positions), args, strict=True):
            self.leaf_iter_vars[place] = iv

    def _set_kind(self, iv: IterVar, kind: str, what: str) -> None:
        self._position(iv, what)
        if kind in ("vectorized", "parallel") and iv.iter_type in ("reduce", "ordered"):
            raise ScheduleError(
                f"{what}: '{iv.var.name}' of stage '{self.op.name}' is a reduction: iterations depend on each other",
                help="use rfactor to make part of the reduction data-parallel",
            )
        self.attr(iv).kind = kind

    def vectorize(self, var: IterVar) -> None:
        """Run a loop as vector instructions."""
        self._set_kind(var, "vectorized", "vectorize")

    def unroll(self, var: IterVar) -> None:
        """Write out the iterations of a loop."""
        self._set_kind(var, "unrolled", "unroll")

    def parallel(self, var: IterVar) -> None:
        """Spread the iterations of a loop over threads."""
        self._set_kind(var, "parallel", "parallel")

    def bind(self, ivar: IterVar, thread_ivar: IterVar) -> None:
        """Bind a loop to a hardware thread index made by ``te.thread_axis``."""
        self._position(ivar, "bind")
        if not thread_ivar.thread_tag:
            raise ScheduleError(f"bind: '{thread_ivar.var.name}' is no thread axis", help="make it with te.thread_axis")
        self.attr(ivar).bind_thread = thread_ivar

    def pragma(self, var: IterVar, pragma_type: str, pragma_value: Any = None) -> None:
        """Attach a hint such as ``("auto_unroll_max_step", 16)`` to a loop."""
        self._position(var, "pragma")
        self.attr(var).pragmas.append((pragma_type, pragma_value))

    # --- where the stage runs ---

    def prefetch(self, tensor: Tensor, var: IterVar, offset: Any = 1) -> None:
        """Ask, in each iteration of `var`, for what the iteration `offset` later reads of a tensor."""
        self._position(var, "prefetch")
        if not any(t is tensor for t in self.reads()):
            raise ScheduleError(f"prefetch: '{self.op.name}' does not read '{tensor.name}'",
                                expected=", ".join(t.name for t in self.reads()) or None)  # fmt: skip
        self.prefetches.append((tensor, var, as_expr(offset, var.var.dtype)))

    def tensorize(self, var: IterVar, tensor_intrin: Any) -> None:
        """Compute the loop `var` and all inside it by an intrinsic made by :func:`~weft.te.decl_tensor_intrin`."""
        self._position(var, "tensorize")
        self.attr(var).kind = "tensorized"
        self.tensorized = (var, tensor_intrin)

    def compute_at(self, parent: Stage, scope: IterVar) -> None:
        """Compute, inside loop `scope` of `parent`, just what its iterations need."""
        if self.is_output:
            raise ScheduleError(f"compute_at: '{self.op.name}' is an output", help="only intermediate stages can move")
        if parent is self:
            raise ScheduleError(f"compute_at: stage '{self.op.name}' cannot run inside itself")
        parent._position(scope, f"compute_at in stage '{parent.op.name}'")
        if not parent.schedule.depends(parent, self):
            raise ScheduleError(f"compute_at: stage '{parent.op.name}' does not use '{self.op.name}'")
        self.attach_type, self.attach_stage, self.attach_ivar = "scope", parent, scope

    def compute_inline(self) -> None:
        """Substitute the body wherever the tensor is read."""
        if self.is_output:
            raise ScheduleError(f"compute_inline: '{self.op.name}' is an output")
        if not isinstance(self.op, ComputeOp):
            raise ScheduleError(f"compute_inline: '{self.op.name}' has no expression to substitute")
        if self.reduce_axis:
            raise ScheduleError(f"compute_inline: '{self.op.name}' is a reduction")
        self.attach_type, self.attach_stage, self.attach_ivar = "inline", None, None

    def compute_root(self) -> None:
        """Compute the whole tensor before its consumers."""
        self.attach_type, self.attach_stage, self.attach_ivar = "root", None, None

    def set_scope(self, scope: str) -> None:
        """Set the memory scope of the output: ``global``, ``local``, ``shared``."""
        self.given_scope = scope

    def double_buffer(self) -> None:
        """Ask for two copies of the output, so that the next tile is filled while this one is read."""
        self.double_buffered = True

    def storage_align(self, axis: IterVar, factor: int, offset: int) -> None:
        """Ask that the stride of an axis is ``factor * k + offset`` elements."""
        self.alignments.append((axis, factor, offset))


class Schedule:
    """The stages of a tensor-expression graph, producers first. Index it by a tensor or an operation."""

    def __init__(self, outputs: Sequence[Operation]) -> None:
        self.outputs = list(outputs)
        self.stages: list[Stage] = []
        self.stage_map: dict[int, Stage] = {}
        self._buffers: dict[int, Buffer] = {}
        for op in _operations(self.outputs):
            stage = Stage(self, op)
            self.stages.append(stage)
            self.stage_map[id(op)] = stage
        for op in self.outputs:
            self.stage_map[id(op)].is_output = True
        self._states: dict[int, Tensor] = {}  # by tensor: the output of a scan whose memory it shares
        for stage in list(self.stages):
            if isinstance(stage.op, ScanOp):
                self._lay_out_scan(stage, stage.op)

    def _lay_out_scan(self, scan: Stage, op: ScanOp) -> None:
        """Let states, first rows and updates share the memory of a scan; what one step computes runs in its loop."""
        for i, (state, init, update) in enumerate(zip(op.state_placeholder, op.init, op.update, strict=True)):
            out = op.output(i)
            self._states[id(state)] = self._states[id(update)] = out
            first = self[init]
            alone = isinstance(init.op, ComputeOp) and not first.is_output and self.consumers(first) == [scan]
            if alone and init.op.num_outputs == 1:
                self._states[id(init)] = out
        states = [self[t] for t in op.state_placeholder]
        updates = [self[t] for t in op.update]
        for stage in self.stages:
            step = any(stage is u for u in updates)
            if step or (any(self.depends(u, stage) for u in updates) and any(self.depends(stage, x) for x in states)):
                stage.attach_type, stage.attach_stage, stage.attach_ivar = "scope", scan, op.scan_axis

    def state_of(self, tensor: Tensor) -> Tensor | None:
        """Return the output of a scan that a tensor is a part of (its state, first rows or update), else None."""
        return self._states.get(id(tensor))

    def __getitem__(self, key: Any) -> Stage:
        op = key.op if isinstance(key, Tensor) else key
        stage = self.stage_map.get(id(op))
        if stage is None:
            raise ScheduleError(
                f"the schedule has no stage for '{getattr(op, 'name', op)}'",
                expected=", ".join(s.op.name for s in self.stages),
            )
        return stage

    def producer(self, tensor: Tensor) -> Stage:
        """Return the stage that computes a tensor."""
        return self[tensor]

    def buffer(self, tensor: Tensor) -> Buffer:
        """Return the buffer of a tensor in the statements of this schedule."""
        tensor = self._states.get(id(tensor), tensor)
        known = self._buffers.get(id(tensor))
        if known is None:
            taken = {b.name for b in self._buffers.values()}
            name, n = tensor.name, 0
            while name in taken:
                n += 1
                name = f"{tensor.name}_{n}"
            known = self._buffers[id(tensor)] = decl_buffer(tensor.shape, tensor.dtype, name, scope=self[tensor].scope)
        return known

    def set_buffer(self, tensor: Tensor, buffer: Buffer) -> None:
        """Use `buffer` for a tensor in the statements of this schedule."""
        self._buffers[id(tensor)] = buffer

    def depends(self, consumer: Stage, producer: Stage) -> bool:
        """Whether a stage reads another one, directly or through others."""
        seen: set[int] = set()
        stack = [consumer]
        while stack:
            stage = stack.pop()
            for t in stage.reads():
                other = self.stage_map.get(id(t.op))
                if other is producer:
                    return True
                if other is not None and id(other) not in seen:
                    seen.add(id(other))
                    stack.append(other)
        return False

    def consumers(self, stage: Stage) -> list[Stage]:
        """List the stages that read what `stage` computes."""
        return [s for s in self.stages if any(t.op is stage.op for t in s.reads())]

    def normalize(self) -> Schedule:
        """Substitute inlined stages into their consumers; returns the schedule itself."""
        for stage in self.stages:
            if stage.attach_type == "inline":
                self._inline(stage)
        return self

    def _inline(self, stage: Stage) -> None:
        axis = [iv.var for iv in stage.axis]

        def replace(node: Any) -> Any:
            if isinstance(node, ProducerLoad) and node.producer.op is stage.op:
                return substitute(stage.body[node.producer.value_index], dict(zip(axis, node.indices, strict=True)))
            return node

        for consumer in self.consumers(stage):
            if not isinstance(consumer.op, ComputeOp):
                raise ScheduleError(
                    f"compute_inline: '{consumer.op.name}' reads '{stage.op.name}' as memory, so it cannot be inlined"
                )
            consumer.body = rewrite(consumer.body, replace)

    # --- caches ---

    def cache_read(self, tensor: Tensor, scope: str, readers: Any) -> Tensor:
        """Copy a tensor to `scope` before `readers` (stages' operations or tensors) read it; returns the copy."""
        stages = [self[r] for r in (readers if isinstance(readers, (list, tuple)) else [readers])]
        axis = tuple(IterVar(Range(const(0, d.dtype), d), Var(f"ax{i}", d.dtype)) for i, d in enumerate(tensor.shape))
        op = ComputeOp(f"{tensor.name}_{scope}", axis=axis, body=(ProducerLoad(tensor, tuple(iv.var for iv in axis)),))
        copy = op.output(0)
        for stage in stages:
            if not any(t is tensor for t in stage.reads()):
                raise ScheduleError(f"cache_read: stage '{stage.op.name}' does not read '{tensor.name}'")
            if not isinstance(stage.op, ComputeOp):
                raise ScheduleError(f"cache_read: '{stage.op.name}' is no compute operation")
            stage.body = rewrite(
                stage.body,
                lambda n: ProducerLoad(copy, n.indices) if isinstance(n, ProducerLoad) and n.producer is tensor else n,
            )
        self._insert(op, scope, after=self[tensor])
        return copy

    def cache_write(self, tensor: Any, scope: str) -> Tensor:
        """Compute a tensor in `scope` first and copy it to its place; returns the tensor that is computed."""
        if isinstance(tensor, (list, tuple)):
            if len(tensor) != 1:
                raise ScheduleError("cache_write takes one output at a time")
            tensor = tensor[0]
        stage = self[tensor]
        if not isinstance(stage.op, ComputeOp) or len(stage.body) != 1:
            raise ScheduleError(f"cache_write: '{tensor.name}' is not the only output of a compute operation")
        if stage.relations:
            raise ScheduleError(
                f"cache_write: the loops of '{tensor.name}' are scheduled already",
                help="call cache_write before split, fuse and tile",
            )
        axis = tuple(IterVar(iv.dom, Var(f"{iv.var.name}_c", iv.var.dtype)) for iv in stage.axis)
        mapping = {iv.var: new.var for iv, new in zip(stage.axis, axis, strict=True)}
        op = ComputeOp(f"{stage.op.name}_{scope}", axis=axis, body=substitute(stage.body, mapping))
        cached = op.output(0)
        before = self.stages[self.stages.index(stage) - 1] if self.stages.index(stage) else None
        stage.body = (ProducerLoad(cached, tuple(iv.var for iv in stage.axis)),)
        stage.reset_loops()
        self._insert(op, scope, after=before)
        return cached

    def _insert(self, op: Operation, scope: str, after: Stage | None) -> Stage:
        stage = Stage(self, op)
        stage.given_scope = scope
        self.stages.insert(0 if after is None else self.stages.index(after) + 1, stage)
        self.stage_map[id(op)] = stage
        return stage

    def rfactor(self, tensor: Tensor, axis: IterVar, factor_axis: int = 0) -> Tensor:
        """Compute a reduction in parts, one for each value of `axis`; the tensor then reduces the parts.

        Parameters
        ----------
        tensor : Tensor
            A reduction.
        axis : IterVar
            A reduction loop of its stage (an axis, or what ``split`` made of one).
        factor_axis : int
            Where the new dimension of the partial results goes.

        Returns
        -------
        Tensor
            The partial results.
        """
        return factor_reduction(self, tensor, axis, factor_axis)


def _operations(outputs: Iterable[Operation]) -> list[Operation]:
    """List all operations, producers first (iterative: graphs may be deep)."""
    done: set[int] = set()
    order: list[Operation] = []
    stack: list[tuple[Operation, bool]] = [(op, False) for op in reversed(list(outputs))]
    while stack:
        op, ready = stack.pop()
        if ready:
            order.append(op)
        elif id(op) not in done:
            done.add(id(op))
            stack.append((op, True))
            stack.extend((t.op, False) for t in reversed(op.input_tensors()))
    return order


def create_schedule(ops: Any) -> Schedule:
    """Make a schedule for operations (or tensors) and all that they depend on."""
    listed = list(ops) if isinstance(ops, (list, tuple)) else [ops]
    return Schedule([o.op if isinstance(o, Tensor) else o for o in listed])


def factor_reduction(schedule: Schedule, tensor: Tensor, axis: IterVar, factor_axis: int) -> Tensor:
    """Carry out :meth:`Schedule.rfactor`."""
    stage = schedule[tensor]
    if not stage.reduce_axis or len(stage.body) != 1:
        raise ScheduleError(f"rfactor: '{tensor.name}' is not a reduction with one output")
    stage._position(axis, "rfactor")
    if axis.iter_type != "reduce":
        raise ScheduleError(f"rfactor: '{axis.var.name}' is no reduction loop")
    reduce: Any = stage.body[0]
    values, extents, guards = _reduce_loops(stage)
    leaves = [iv for iv in stage.leaf_iter_vars if iv.iter_type == "reduce"]
    part = IterVar(Range(const(0, axis.var.dtype), extents[id(axis)]), Var(axis.var.name + "_rf", axis.var.dtype))
    inner = {
        id(iv): IterVar(Range(const(0, iv.var.dtype), extents[id(iv)]), Var(iv.var.name, iv.var.dtype), "reduce")
        for iv in leaves
        if iv is not axis
    }
    spatial = [IterVar(iv.dom, Var(iv.var.name + "_rf", iv.var.dtype)) for iv in stage.axis]
    rename: dict[Any, Any] = {iv.var: new.var for iv, new in zip(stage.axis, spatial, strict=True)}
    to_leaf = {axis.var: part.var, **{iv.var: inner[id(iv)].var for iv in leaves if iv is not axis}}
    rename |= {iv.var: substitute(values[id(iv)], to_leaf) for iv in stage.reduce_axis}
    condition = substitute(reduce.condition, rename)
    for guard in guards:
        condition = condition & substitute(guard, to_leaf)
    axes = tuple(inner[id(iv)] for iv in leaves if iv is not axis)
    source = tuple(substitute(x, rename) for x in reduce.source)
    if axes:
        part_body: PrimExpr = Reduce(reduce.combiner, source, axes, condition)
    else:
        part_body = (
            source[0]
            if getattr(condition, "value", 0)
            else if_then_else(condition, source[0], reduce.combiner.identity_element[0])
        )
    position = factor_axis if factor_axis >= 0 else len(spatial) + 1 + factor_axis
    part_axis = (*spatial[:position], part, *spatial[position:])
    op = ComputeOp(f"{stage.op.name}_rf", axis=part_axis, body=(part_body,))
    partial = op.output(0)
    outer = IterVar(part.dom, Var(axis.var.name + "_v", axis.var.dtype), "reduce")
    at = [iv.var for iv in stage.axis]
    indices = (*at[:position], outer.var, *at[position:])
    before = schedule.stages[schedule.stages.index(stage) - 1] if schedule.stages.index(stage) else None
    stage.body = (Reduce(reduce.combiner, (ProducerLoad(partial, indices),), (outer,), init=reduce.init),)
    stage.reset_loops()
    schedule._insert(op, "global", after=before)
    return partial


def _reduce_loops(stage: Stage) -> tuple[dict[int, PrimExpr], dict[int, PrimExpr], list[PrimExpr]]:
    """Return the values of reduction loops in terms of the leaves, all extents, and what must hold of the axes."""
    extents: dict[int, PrimExpr] = {id(iv): iv.dom.extent for iv in stage.reduce_axis}  # type: ignore[union-attr]
    values: dict[int, PrimExpr] = {id(iv): iv.var for iv in stage.leaf_iter_vars}
    for r in stage.relations:
        if isinstance(r, Split) and id(r.parent) in extents:
            whole = extents[id(r.parent)]
            amount = r.factor if r.factor is not None else r.nparts
            rest = floordiv(whole + amount - 1, amount)
            extents[id(r.inner)], extents[id(r.outer)] = (amount, rest) if r.factor is not None else (rest, amount)  # type: ignore[assignment]
        elif isinstance(r, Fuse) and id(r.outer) in extents:
            extents[id(r.fused)] = extents[id(r.outer)] * extents[id(r.inner)]
    for r in reversed(stage.relations):
        if isinstance(r, Split):
            values[id(r.parent)] = (
                values[id(r.outer)] * extents[id(r.inner)] + values[id(r.inner)]
                if id(r.inner) in extents
                else r.parent.var
            )
        else:
            fused = values[id(r.fused)]
            if id(r.inner) in extents:
                values[id(r.outer)] = floordiv(fused, extents[id(r.inner)])
                values[id(r.inner)] = fused % extents[id(r.inner)]
    guards = [values[id(iv)] < iv.dom.extent for iv in stage.reduce_axis]  # type: ignore[union-attr]
    shifted = {id(iv): values[id(iv)] + iv.dom.min for iv in stage.reduce_axis}  # type: ignore[union-attr]
    return {**values, **shifted}, extents, guards
