"""From a schedule and its bounds to statements: loops, stores, allocations, guards where a loop overshoots."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from weft import ir, tir
from weft.arith import Analyzer
from weft.error import InvalidArgument, ScheduleError
from weft.te.bound import Bounds, InferBound, enclosing_loops, loop_values, root_values
from weft.te.realize import realize_buffers
from weft.te.relations import ends
from weft.te.relayout import moved_elements
from weft.te.stage import AttachType, Split, Stage
from weft.te.stages import Schedule
from weft.te.tensor import ComputeOp, ExternOp, PlaceholderOp, ScanOp, Tensor
from weft.te.tensor_intrin import TensorIntrin, call_intrin, matched
from weft.tir.transform import ROLLING_MARK, rolled

_KINDS = {
    "serial": tir.ForKind.SERIAL,
    "parallel": tir.ForKind.PARALLEL,
    "vectorized": tir.ForKind.VECTORIZED,
    "unrolled": tir.ForKind.UNROLLED,
}
_PRAGMAS = frozenset(  # that a pass here reads, and those of TVM whose absence changes no result
    """auto_unroll_max_step unroll_explicit loop_partition_hint transpose prefetch prefetch_panel grain stream
    import_llvm debug_skip_region parallel_launch_point parallel_stride_pattern parallel_barrier_when_finish
    tensor_core""".split()
)


def ScheduleOps(sch: Schedule, bounds: Bounds, debug_keep_trivial_loop: bool = False) -> tir.Stmt:
    """Write the loop nests of a schedule.

    Parameters
    ----------
    sch : Schedule
        The schedule.
    bounds : Bounds
        What :func:`InferBound` gave.
    debug_keep_trivial_loop : bool
        Whether loops over one value stay.

    Returns
    -------
    Stmt
        Loops over stores into the buffers of the tensors (``sch.buffer(tensor)``); intermediate tensors stand in
        :class:`~weft.tir.BufferRealize`, and indices are those of the whole tensor.
    """
    return _Writer(sch, bounds, debug_keep_trivial_loop).program()


class _Writer:
    """Writes the stages of one schedule."""

    def __init__(
        self, sch: Schedule, bounds: Bounds, keep_trivial: bool = False, given: set[tir.Buffer] | None = None
    ) -> None:
        self.sch, self.bounds, self.keep_trivial, self.given = sch, bounds, keep_trivial, given
        self.attached: dict[tuple[Stage | None, ir.IterVar | None], list[Stage]] = {}
        for stage in sch.stages:
            if stage.is_attached:
                enclosing_loops(stage)  # raises where the place is gone
                self.attached.setdefault(stage.placement[1:], []).append(stage)

    def program(self) -> tir.Stmt:
        """Write all root stages, producers first, each intermediate alive from its computation on."""
        computed = [s for s in self.sch.stages if not isinstance(s.origin_op, PlaceholderOp)]
        roots = [s for s in computed if s.placement[0] == AttachType.GROUP_ROOT]
        return self._loaded(self._sequence(roots, None))  # regions may start where a tensor's element says

    def _sequence(self, stages: Sequence[Stage], rest: tir.Stmt | None) -> tir.Stmt:
        """Write stages one after another before `rest`."""
        result = rest
        for stage in reversed(stages):
            result = tir.seq(self.stage(stage), result) if result is not None else self.stage(stage)
            result = self._realize(stage, result)
        assert result is not None
        return result

    def _realize(self, stage: Stage, body: tir.Stmt) -> tir.Stmt:
        for i in range(stage.origin_op.num_outputs):
            tensor = stage.origin_op.output(i)
            if self._is_given(stage, tensor):
                continue
            if isinstance(stage.origin_op, ScanOp) and self.sch.state_of(stage.origin_op.init[i]) is not None:
                continue  # alive since its first rows
            dims = tuple(self.bounds[iv] for iv in stage.axis)
            scan = self.sch.state_of(tensor)
            if scan is not None:
                if stage.placement[1] is self.sch[scan] or self._is_given(self.sch[scan], scan):
                    continue
                dims = ()
                tensor = scan
            dims = dims or tuple(ir.Range(d) for d in tensor.shape)
            buffer = self.sch.buffer(tensor)
            if stage.rolls:
                body = tir.AttrStmt(buffer, ROLLING_MARK, ir.as_expr(1), body)
            body = tir.BufferRealize(buffer, dims, ir.TRUE, body)
            if stage.double_buffered:
                body = tir.AttrStmt(buffer, "double_buffer_scope", ir.as_expr(1), body)
            for axis, factor, offset in stage.alignments:
                where = next(n for n, iv in enumerate(stage.axis) if iv is axis)
                body = tir.AttrStmt(buffer, "buffer_dim_align", ir.StringImm(f"{where},{factor},{offset}"), body)
        return body

    def _is_given(self, stage: Stage, tensor: Tensor) -> bool:
        """Whether an output of a stage is memory of the caller's; others of the stage may be memory of the function."""
        return stage.is_output and (self.given is None or self.sch.buffer(tensor) in self.given)

    # --- one stage ---

    def stage(self, stage: Stage) -> tir.Stmt:
        """Write the loops of one stage, with those computed inside them."""
        if isinstance(stage.origin_op, ExternOp):
            return self._extern(stage.origin_op)
        if isinstance(stage.origin_op, ScanOp):
            return self._scan(stage, stage.origin_op)
        assert isinstance(stage.origin_op, ComputeOp)
        values = root_values(stage, self.bounds)
        analyzer = self._analyzer(stage)
        if stage.tensorized is not None:
            return self._tensorized(stage, *stage.tensorized, values, analyzer)
        if isinstance(stage.body[0], tir.IntrinCall):
            return self._intrin_call(stage, stage.body[0], values, analyzer)
        if isinstance(stage.body[0], tir.Reduce):
            return self._reduction(stage, values, analyzer)
        if ir.find(stage.body, tir.Reduce):
            what = f"'{stage.name}': a reduction must be the whole body of a compute"
            raise ScheduleError(what, help="compute the reduction as a tensor of its own")
        indices = tuple(analyzer.simplify(values[iv]) for iv in stage.axis)
        env = {iv.var: e for iv, e in zip(stage.axis, indices, strict=True)}
        scalars = [self._scalar(b, env, analyzer) for b in stage.body]
        stores = tir.seq(*[self._store(stage, i, x, indices) for i, x in enumerate(scalars)])
        body = _guard([*self._conditions(stage, stage.axis, values, analyzer), *self._store_predicate(stage)], stores)
        return self._loops(stage, stage.leaf_iter_vars, body)

    def _store(self, stage: Stage, output: int, value: ir.PrimExpr, indices: tuple[ir.PrimExpr, ...]) -> tir.Stmt:
        buffer = self.sch.buffer(stage.origin_op.output(output))
        return tir.BufferStore(buffer, ir.cast(buffer.dtype, value), indices)

    def _scalar(self, expr: ir.PrimExpr, env: Mapping[Any, Any], an: Analyzer) -> ir.PrimExpr:
        """Substitute index values and turn reads of tensors into reads of buffers."""
        return an.simplify(self._loaded(ir.substitute(expr, env)))

    def _loaded(self, node: Any) -> Any:
        """Turn reads of tensors into reads of buffers."""
        buffer = self.sch.buffer
        return ir.rewrite(
            node, lambda n: tir.BufferLoad(buffer(n.producer), n.indices) if isinstance(n, tir.ProducerLoad) else n
        )

    def _reduction(self, stage: Stage, values: dict[ir.IterVar, ir.PrimExpr], an: Analyzer) -> tir.Stmt:
        reduce: Any = stage.body[0]
        leaves = stage.leaf_iter_vars
        first = next((i for i, iv in enumerate(leaves) if iv.iter_type == "reduce"), len(leaves))
        indices = tuple(an.simplify(values[iv]) for iv in stage.axis)
        env = {iv.var: an.simplify(values[iv]) for iv in (*stage.axis, *stage.reduce_axis)}
        spatial = self._conditions(stage, stage.axis, values, an)
        update = self._update(stage, reduce, indices, env, an)
        checks = [*spatial, *self._conditions(stage, stage.reduce_axis, values, an), *self._once(stage, an)]
        if not any(iv.iter_type == "reduce" and stage.attr(iv).bind_thread is not None for iv in leaves):
            checks += self._store_predicate(stage)  # of a reduction by threads, only the first one stores
        condition = an.simplify(self._scalar(reduce.condition, env, an))
        if not (isinstance(condition, ir.IntImm) and condition.value):
            checks.append(condition)
        update = self._loops(stage, leaves[first:], _guard(checks, update))
        return self._loops(stage, leaves[:first], tir.seq(self._start(stage, reduce, leaves[first:], an), update))

    def _start(self, stage: Stage, reduce: tir.Reduce, leaves: Sequence[ir.IterVar], an: Analyzer) -> tir.Stmt:
        """Store what a reduction starts with, in loops apart from those of the reduced axes, which may be empty."""
        spatial, reduced = _made_of(stage, stage.axis), _made_of(stage, stage.reduce_axis)
        steps, both = map(ends, stage.relations), spatial & reduced
        apart = [iv for was, now in steps if not both.isdisjoint(now) for iv in was if iv in spatial - reduced]
        for iv in apart:
            an.bind(iv.var, ir.Range.from_min_extent(ir.const(0, iv.var.dtype), self.bounds[iv].extent))
        values = root_values(stage, self.bounds, {iv: iv.var for iv in apart})
        env = {iv.var: an.simplify(values[iv]) for iv in stage.axis}
        starts = enumerate(reduce.init or reduce.combiner.identity_element)
        stores = [self._store(stage, i, self._scalar(e, env, an), tuple(env.values())) for i, e in starts]
        init = _guard(self._conditions(stage, stage.axis, values, an), tir.seq(*stores))
        return self._init_loops(stage, [*apart, *(iv for iv in leaves if iv not in reduced)], init)

    def _init_loops(self, stage: Stage, leaves: Sequence[ir.IterVar], init: tir.Stmt) -> tir.Stmt:
        """Run the init of a reduction over what loops around its update say of the element, in loops of its own."""
        spatial = _made_of(stage, stage.axis)
        inner = [iv for iv in leaves if iv in spatial]
        fresh = {iv.var: ir.Var(iv.var.name + "_init", iv.var.dtype) for iv in inner}
        init = ir.substitute(init, fresh)
        for iv in reversed(inner):
            init = self._loop(stage, iv, fresh[iv.var], init)
        return init

    def _update(
        self, stage: Stage, reduce: Any, indices: tuple[ir.PrimExpr, ...], env: Mapping[Any, Any], an: Analyzer
    ) -> tir.Stmt:
        buffers = [self.sch.buffer(stage.origin_op.output(i)) for i in range(len(stage.body))]
        loads = [tir.BufferLoad(b, indices) for b in buffers]
        mapping: dict[Any, Any] = dict(zip(reduce.combiner.lhs, loads, strict=True))
        for v, source in zip(reduce.combiner.rhs, reduce.source, strict=True):
            mapping[v] = self._scalar(source, env, an)
        results = [ir.substitute(r, mapping) for r in reduce.combiner.result]
        if len(buffers) == 1:
            return tir.BufferStore(buffers[0], ir.cast(buffers[0].dtype, results[0]), indices)
        # all components are computed before any is stored
        temps = [ir.Var(f"{b.name}_new", b.dtype) for b in buffers]
        body: tir.Stmt = tir.seq(*[tir.BufferStore(b, t, indices) for b, t in zip(buffers, temps, strict=True)])
        for t, r in reversed(list(zip(temps, results, strict=True))):
            body = tir.LetStmt(t, r, body)
        return body

    def _tensorized(
        self, stage: Stage, at: ir.IterVar, intrin: TensorIntrin, values: dict[ir.IterVar, ir.PrimExpr], an: Analyzer
    ) -> tir.Stmt:
        """Write the loops outside of a tensorized one around the intrinsic's statements."""
        name, leaves = stage.name, stage.leaf_iter_vars
        place = next(i for i, iv in enumerate(leaves) if iv is at)
        outer, inner = leaves[:place], leaves[place:]
        if self._conditions(stage, (*stage.axis, *stage.reduce_axis), values, an) or self._once(stage, an):
            raise ScheduleError(
                f"tensorize: the loops of '{name}' overshoot its shape", help="split by factors that divide it"
            )
        running = {iv.var: ir.Range.from_min_extent(ir.const(0, iv.var.dtype), self.bounds[iv].extent) for iv in inner}
        axes = [(iv, self._covered(values[iv], running, an)) for iv in stage.axis]
        reduced = [(iv, self._covered(values[iv], running, an)) for iv in stage.reduce_axis]
        env = {iv.var: values[iv] for iv in (*stage.axis, *stage.reduce_axis)}
        regions: dict[Any, tuple[ir.Range, ...]] = {}
        for load in ir.find(stage.body, tir.ProducerLoad):
            regions[load.producer] = tuple(self._covered(ir.substitute(i, env), running, an) for i in load.indices)
        inputs = matched(intrin, name, axes, reduced, stage.body, regions, an)
        tensors = [inputs[t] for t in intrin.inputs]
        places = [(self.sch.buffer(t), regions[t]) for t in tensors]
        out = tuple(r for _, r in axes)
        places += [(self.sch.buffer(stage.origin_op.output(i)), out) for i in range(stage.origin_op.num_outputs)]
        first = next((i for i, iv in enumerate(outer) if iv.iter_type == "reduce"), None)
        if first is None:
            if intrin.body is None:
                raise ScheduleError(f"tensorize: '{intrin.name}' has no body for a whole reduction")
            return self._loops(stage, outer, call_intrin(intrin, intrin.body, places))
        if intrin.reduce_init is None or intrin.reduce_update is None:
            raise ScheduleError(
                f"tensorize: a reduction of '{name}' runs outside, and '{intrin.name}' has no update",
                help="let its function return body, reduce_init and reduce_update",
            )
        init = call_intrin(intrin, intrin.reduce_init, places)
        update = self._loops(stage, outer[first:], call_intrin(intrin, intrin.reduce_update, places))
        return self._loops(stage, outer[:first], tir.seq(self._init_loops(stage, outer[first:], init), update))

    def _intrin_call(
        self, stage: Stage, call: tir.IntrinCall, values: dict[ir.IterVar, ir.PrimExpr], an: Analyzer
    ) -> tir.Stmt:
        """Write the loops around an intrinsic that a compute function called; its own axes have none."""
        intrin = call.intrin
        scheduled, own = stage.axis[: len(stage.axis) - call.own_axes], stage.axis[len(stage.axis) - call.own_axes :]
        inside = _made_of(stage, own)
        leaves = [iv for iv in stage.leaf_iter_vars if iv not in inside]
        env = {iv.var: an.simplify(values[iv]) for iv in (*scheduled, *stage.reduce_axis)}
        places: list[tuple[tir.Buffer, tuple[ir.Range, ...]]] = []
        for read in call.reads:
            mins = [an.simplify(ir.substitute(i, env)) for i in read.load.indices]
            sizes = [an.simplify(ir.substitute(e, env)) for e in read.extents]
            places.append((self.sch.buffer(read.load.producer), tuple(map(ir.Range.from_min_extent, mins, sizes))))
        out = (
            *(ir.Range.from_min_extent(env[iv.var], ir.const(1, iv.var.dtype)) for iv in scheduled),
            *(iv.dom for iv in own if iv.dom is not None),
        )
        places += [(self.sch.buffer(stage.origin_op.output(i)), out) for i in range(stage.origin_op.num_outputs)]
        scalars = [self._scalar(x, env, an) for x in call.scalars]

        def part(body: tir.Stmt) -> tir.Stmt:
            return call_intrin(intrin, body, places, scalars)

        checks = self._conditions(stage, scheduled, values, an)
        first = next((i for i, iv in enumerate(leaves) if iv.iter_type == "reduce"), None)
        if first is None:
            if intrin.body is None:
                raise ScheduleError(f"'{intrin.name}' has no body, which '{stage.name}' calls")
            return self._loops(stage, leaves, _guard(checks, part(intrin.body)))
        if intrin.reduce_update is None:
            raise ScheduleError(
                f"'{intrin.name}' has no update for the reduction of '{stage.name}'",
                help="let its function return body, reduce_init and reduce_update",
            )
        reduced = [*self._conditions(stage, stage.reduce_axis, values, an), *self._once(stage, an)]
        update = self._loops(stage, leaves[first:], _guard([*checks, *reduced], part(intrin.reduce_update)))
        if intrin.reduce_init is None:
            return self._loops(stage, leaves[:first], update)
        init = self._init_loops(stage, leaves[first:], _guard(checks, part(intrin.reduce_init)))
        return self._loops(stage, leaves[:first], tir.seq(init, update))

    def _covered(self, index: ir.PrimExpr, running: Mapping[ir.Var, ir.Range], an: Analyzer) -> ir.Range:
        """Return the range of an index while some loops run."""
        box = an.int_set(index, running)
        if not box.has_lower_bound or not box.has_upper_bound:
            raise ScheduleError(f"the index {index} has no range")
        low = an.simplify(box.min_value)
        return ir.Range.from_min_extent(low, an.simplify(box.max_value - low + 1))

    def _prefetches(self, stage: Stage, iv: ir.IterVar) -> list[tir.Stmt]:
        """Write what a loop asks for in advance."""
        wanted = [(t, offset) for t, var, offset in stage.prefetches if var is iv]
        if not wanted:
            return []
        place = next(i for i, leaf in enumerate(stage.leaf_iter_vars) if leaf is iv)
        inner = stage.leaf_iter_vars[place + 1 :]
        running = {x.var: ir.Range.from_min_extent(ir.const(0, x.var.dtype), self.bounds[x].extent) for x in inner}
        an = self._analyzer(stage)
        out: list[tir.Stmt] = []
        for tensor, offset in wanted:
            if any(loop is iv for _, loop in enclosing_loops(self.sch[tensor])):
                raise ScheduleError(
                    f"prefetch: '{tensor.name}' is computed inside of loop '{iv.var.name}' of "
                    f"'{stage.name}', so it is not there ahead of it"
                )
            values = root_values(stage, self.bounds, {iv: iv.var + ir.cast(iv.var.dtype, offset)})
            env = {x.var: values[x] for x in (*stage.axis, *stage.reduce_axis)}
            for load in ir.walk(stage.body):
                if isinstance(load, tir.ProducerLoad) and load.producer is tensor:
                    later = [ir.substitute(i, env) for i in load.indices]
                    out.append(
                        tir.Prefetch(self.sch.buffer(tensor), tuple(self._covered(i, running, an) for i in later))
                    )
        return out

    def _scan(self, stage: Stage, op: ScanOp) -> tir.Stmt:
        """Write the first rows where they are not there yet, then the loop of the steps."""
        assert op.scan_axis is not None
        copies: list[tir.Stmt] = []
        for i, init in enumerate(op.init):
            if self.sch.state_of(init) is None:
                loops = [ir.Var(f"i{n}", d.dtype) for n, d in enumerate(init.shape)]
                source, target = self.sch.buffer(init), self.sch.buffer(op.output(i))
                body: tir.Stmt = tir.BufferStore(target, tir.BufferLoad(source, tuple(loops)), tuple(loops))
                for v, d in reversed(list(zip(loops, init.shape, strict=True))):
                    body = tir.For(v, ir.const(0, v.dtype), d, tir.ForKind.SERIAL, body)
                copies.append(body)
        return tir.seq(*copies, self._loops(stage, stage.leaf_iter_vars, tir.seq(())))

    def _extern(self, op: ExternOp) -> tir.Stmt:
        mapping: dict[Any, Any] = {}
        real = [self.sch.buffer(t) for t in op.inputs] + [self.sch.buffer(op.output(i)) for i in range(op.num_outputs)]
        for declared, buffer in zip((*op.input_placeholders, *op.output_placeholders), real, strict=True):
            mapping[declared], mapping[declared.data] = buffer, buffer.data
        return ir.substitute(op.body, mapping)  # type: ignore[type-var]

    # --- guards ---

    def _store_predicate(self, stage: Stage) -> list[ir.PrimExpr]:
        """Return the condition that was set for the stores, in terms of the loops that are bound to its threads."""
        if stage.store_predicate is None:
            return []
        around = [*((stage, iv) for iv in stage.leaf_iter_vars), *enclosing_loops(stage)]
        threads: dict[Any, Any] = {}
        for parent, iv in reversed(around):
            thread = parent.attr(iv).bind_thread
            if thread is not None:
                threads[thread.var] = ir.cast(thread.var.dtype, iv.var)
        return [ir.substitute(stage.store_predicate, threads)]

    def _analyzer(self, stage: Stage) -> Analyzer:
        """Return an analyzer that knows the ranges of all loops around the stores of a stage."""
        an = Analyzer()
        for iv in (*[iv for _, iv in reversed(enclosing_loops(stage))], *stage.leaf_iter_vars):
            dom = self.bounds[iv]
            an.bind(iv.var, ir.Range.from_min_extent(ir.const(0, iv.var.dtype), dom.extent), allow_override=True)
        return an

    def _conditions(
        self, stage: Stage, axes: Sequence[ir.IterVar], values: Mapping[ir.IterVar, ir.PrimExpr], an: Analyzer
    ) -> list[ir.PrimExpr]:
        """List what must hold for a point to be inside the tensor and inside the region that is computed."""
        result: list[ir.PrimExpr] = []
        for iv in axes:
            value, whole, part = values[iv], iv.dom, self.bounds[iv]
            assert whole is not None
            checks = [value < whole.min + whole.extent, value >= whole.min]
            if part is not whole:
                checks.append(value < part.min + part.extent)
            for check in checks:
                simple = an.simplify(check)
                if not (isinstance(simple, ir.IntImm) and simple.value):
                    result.append(simple)
        return result

    def _once(self, stage: Stage, an: Analyzer) -> list[ir.PrimExpr]:
        """List what must hold for each point to be visited once, which a reduction needs.

        The inner loop of a split that was split or fused again may overshoot into the outer one's next iteration.
        """
        values, leaves = loop_values(stage, self.bounds), set(stage.leaf_iter_vars)
        again = [r.inner for r in stage.relations if isinstance(r, Split) and r.inner not in leaves]
        checks = [an.simplify(values[iv] < self.bounds[iv].extent) for iv in again]
        return [c for c in checks if not (isinstance(c, ir.IntImm) and c.value)]

    # --- loops ---

    def _loops(self, stage: Stage, leaves: Sequence[ir.IterVar], body: tir.Stmt) -> tir.Stmt:
        """Wrap `body` in loops, each holding the stages that are computed at it."""
        for iv in reversed(leaves):
            inside = self.attached.get((stage, iv))
            if inside:
                body = self._sequence(inside, body)
            body = tir.seq(*self._prefetches(stage, iv), body)
            body = self._loop(stage, iv, iv.var, body)
        return body

    def _loop(self, stage: Stage, iv: ir.IterVar, var: ir.Var, body: tir.Stmt) -> tir.Stmt:
        attr = stage.attr(iv)
        extent = self.bounds[iv].extent
        loose = {k: v for k, v in attr.pragmas}
        if (unread := loose.keys() - _PRAGMAS) and not ir.PassContext.current().config.get("tir.add_lower_pass"):
            name = min(unread)
            what = f"nothing reads the pragma '{name}' of loop '{var.name}' in stage '{stage.name}'"
            warnings.warn(f"{what}, unless a pass of yours does; {ir.near_names(name, _PRAGMAS)}", stacklevel=2)
        zero, notes = ir.const(0, var.dtype), ir.Attrs.of({f"pragma_{k}": v for k, v in loose.items()})
        if attr.bind_thread is not None:
            domain = ir.Range.from_min_extent(zero, extent)
            thread = ir.IterVar(domain, attr.bind_thread.var, "thread", attr.bind_thread.thread_tag)
            return tir.For(var, zero, extent, tir.ForKind.THREAD_BINDING, body, thread, notes)
        if getattr(extent, "value", None) == 1 and not self.keep_trivial and not loose:
            return ir.substitute(body, {var: zero})
        return tir.For(var, zero, extent, _KINDS[attr.kind], body, None, notes)


def _made_of(stage: Stage, axes: Sequence[ir.IterVar]) -> set[ir.IterVar]:
    """Return the loops that some of the given axes were made into."""
    made = set(axes)
    for r in stage.relations:
        before, after = ends(r)
        made |= set() if made.isdisjoint(before) else set(after)
    return made


def _guard(conditions: Sequence[ir.PrimExpr], body: tir.Stmt) -> tir.Stmt:
    unique: list[ir.PrimExpr] = []
    for c in conditions:
        if not any(c is u for u in unique):
            unique.append(c)
    return tir.IfThenElse(ir.all_of(*map(tir.likely, unique)), body) if unique else body


def schedule_to_prim_func(
    sch: Schedule,
    args: Sequence[Any],
    name: str = "main",
    binds: Mapping[Tensor, tir.Buffer] | None = None,
    *,
    to_read: bool = False,
) -> tir.PrimFunc:
    """Make the TIR function that computes a schedule.

    Parameters
    ----------
    args : sequence of Tensor, Var or Buffer
        The parameters in order: every input and output tensor, and scalars.
    name : str
        The function's global symbol.
    binds : mapping of Tensor to Buffer, optional
        Buffers to use for tensors, for instance with strides.
    to_read : bool
        The text is what is wanted: outputs that are no arguments are memory of the function, as intermediates are.
    """
    sch = sch.normalize()
    for tensor, buffer in (binds or {}).items():
        if buffer.dtype != tensor.dtype or not _same_shape(buffer, tensor):
            raise InvalidArgument(
                f"the buffer '{buffer.name}' does not fit '{tensor.name}'",
                expected=f"{tensor.dtype}, ({', '.join(map(str, tensor.shape))})",
                found=f"{buffer.dtype}, ({', '.join(map(str, buffer.shape))})",
            )
        sch.set_buffer(tensor, buffer)
    params: list[ir.Var] = []
    buffer_map: list[tuple[ir.Var, tir.Buffer]] = []
    given: set[tir.Buffer] = set()
    for arg in args:
        if isinstance(arg, ir.Var):
            params.append(arg)
            continue
        if not isinstance(arg, (Tensor, tir.Buffer)):
            raise InvalidArgument("a scheduled function takes tensors, buffers and variables", found=repr(arg))
        buffer = _unread(arg, sch) or (sch.buffer(arg) if isinstance(arg, Tensor) else arg)
        if buffer in given:
            raise InvalidArgument(f"'{buffer.name}' is an argument twice")
        handle = ir.Var(f"{buffer.name}_handle", "handle")
        params.append(handle)
        buffer_map.append((handle, buffer))
        given.add(buffer)
        if isinstance(arg, Tensor) and arg.op in sch.stage_map:
            sch[arg].is_output = True
    _check_arguments(sch, given, to_read)
    laid_out = [s for s in sch.stages if s.layout is not None]
    layouts = {sch.buffer(s.origin_op.output(i)): s for s in laid_out for i in range(s.origin_op.num_outputs)}
    body, moved = moved_elements(rolled(_Writer(sch, InferBound(sch), given=given).program()), layouts)
    body, buffer_map = realize_buffers(body), [(v, moved.get(b, b)) for v, b in buffer_map]
    noalias = ir.PassContext.current().config.get("tir.noalias", True)
    attrs = ir.Attrs.of({"global_symbol": name, "tir.noalias": noalias})
    return tir.PrimFunc(tuple(params), body, None, tuple(buffer_map), attrs)


def _same_shape(buffer: tir.Buffer, tensor: Tensor) -> bool:
    """Whether shapes agree where both are known; a dimension of the buffer that is a variable may be any."""
    pairs = zip(buffer.shape, tensor.shape, strict=True) if len(buffer.shape) == len(tensor.shape) else [(0, 1)]
    known = [(ir.as_int(a), ir.as_int(b)) for a, b in pairs]
    return all(a == b for a, b in known if a is not None and b is not None)


def _unread(arg: Any, sch: Schedule) -> tir.Buffer | None:
    """Return the buffer of an input that nothing of the schedule reads, as a parameter it may be all the same."""
    if isinstance(arg, Tensor) and isinstance(arg.op, PlaceholderOp) and arg.op not in sch.stage_map:
        return tir.decl_buffer(arg.shape, arg.dtype, arg.name)
    return None


def _check_arguments(sch: Schedule, given: set[tir.Buffer], to_read: bool) -> None:
    for stage in sch.stages:
        if isinstance(stage.origin_op, PlaceholderOp) or any(stage.origin_op is op for op in sch.outputs):
            outputs = [stage.origin_op.output(i) for i in range(stage.origin_op.num_outputs)]
            own = [t for t in outputs if sch.buffer(t) not in given and sch.state_of(t) is None]  # of its scan
            is_input = isinstance(stage.origin_op, PlaceholderOp)
            for tensor in own:
                if not is_input and (to_read or sch.consumers(stage)):
                    stage.is_output = len(own) < len(outputs)  # only others of the schedule read these, or a person
                elif is_input == bool(sch.consumers(stage)):
                    kind = "input" if is_input else "output"
                    raise InvalidArgument(f"{kind} '{tensor.name}' is not among the arguments", help="pass it in args")
