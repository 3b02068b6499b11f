"""Schedules of tensor expressions: the stages of a graph, and the primitives that add stages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.error import ScheduleError
from weft.ir import IterVar, Range, Var, load_json, operands_first, rewrite, save_json, substitute
from weft.spelling import unused_name
from weft.te.relayout import relaid_out
from weft.te.rfactor import factor_reduction
from weft.te.saved import restore_groups, restore_stages, saved_groups, saved_stages
from weft.te.stage import AttachType, Stage, StageGraph, StageGroup, check_scope
from weft.te.tensor import ComputeOp, Operation, PlaceholderOp, ScanOp, Tensor, producers
from weft.tir import Buffer, ProducerLoad, decl_buffer


class Schedule(StageGraph):
    """The stages of a tensor-expression graph, producers first. Index it by a tensor or an operation."""

    def __init__(self, outputs: Sequence[Operation]) -> None:
        super().__init__(outputs)
        self._buffers: dict[Tensor, Buffer] = {}
        for op in operands_first(self.outputs, producers):
            stage = Stage(self, op)
            self.stages.append(stage)
            self.stage_map[op] = stage
        for op in self.outputs:
            self.stage_map[op].is_output = True
        self._states: dict[Tensor, Tensor] = {}  # the output of a scan whose memory a tensor shares
        for stage in list(self.stages):
            if isinstance(stage.origin_op, ScanOp):
                self._lay_out_scan(stage, stage.origin_op)

    __saved_fields__ = ("saved_outputs", "saved_stages", "saved_groups")

    @property
    def saved_outputs(self) -> tuple[Operation, ...]:
        """The operations that the schedule was made for."""
        return tuple(self.outputs)

    @property
    def saved_stages(self) -> tuple[Any, ...]:
        """The stages, as they are saved."""
        return saved_stages(self)

    @property
    def saved_groups(self) -> tuple[Any, ...]:
        """The groups, as they are saved."""
        return saved_groups(self)

    @staticmethod
    def from_saved(saved_outputs: Any, saved_stages: Any, saved_groups: Any) -> Schedule:
        """Return the schedule that was saved."""
        made = Schedule(saved_outputs)
        restore_stages(made, saved_stages)
        restore_groups(made, saved_groups, saved_stages)
        return made

    def __reduce__(self) -> Any:
        return load_json, (save_json(self),)

    def _lay_out_scan(self, scan: Stage, op: ScanOp) -> None:
        """Let states, first rows and updates share the memory of a scan; what one step computes runs in its loop."""
        for i, (state, init, update) in enumerate(zip(op.state_placeholder, op.init, op.update, strict=True)):
            out = op.output(i)
            self._states[state] = self._states[update] = out
            first = self[init]
            alone = isinstance(init.op, ComputeOp) and not first.is_output and self.consumers(first) == [scan]
            if alone and init.op.num_outputs == 1:
                self._states[init] = out
        self._place_steps(scan, op)

    def _place_steps(self, scan: Stage, op: ScanOp) -> None:
        """Put what is placed nowhere and computes an update from the state into the loop of the steps.

        Raises
        ------
        ScheduleError
            When such a stage is placed elsewhere, where the state has not this step's rows.
        """
        states, updates = [self[t] for t in op.state_placeholder], [self[t] for t in op.update]
        if any(self[t].placement[1] is scan for t in op.init):
            raise ScheduleError(f"compute_at: the first rows of scan '{scan.name}' are computed before its steps")
        for stage in self.stages:
            step = any(stage is u for u in updates)
            if not step and not (
                any(self.depends(u, stage) for u in updates) and any(self.depends(stage, x) for x in states)
            ):
                continue
            if stage.placement[0] == AttachType.GROUP_ROOT:
                stage._attach(AttachType.SCOPE, scan, op.scan_axis)
            place = stage.placement
            while place[1] is not None and place[1] is not scan:
                place = place[1].placement
            if stage.is_attached and place[1:] != (scan, scan.leaf_iter_vars[-1]):
                raise ScheduleError(
                    f"compute_at: '{stage.name}' computes a step of scan '{scan.name}' outside of it",
                    expected=f"a place in the innermost loop of '{scan.name}'",
                )

    def state_of(self, tensor: Tensor) -> Tensor | None:
        """Return the output of a scan that a tensor is a part of (its state, first rows or update), else None."""
        return self._states.get(tensor)

    def __getitem__(self, key: Any) -> Stage:
        op = key.op if isinstance(key, Tensor) else key
        stage = self.stage_map.get(op)
        if stage is None:
            raise ScheduleError(
                f"the schedule has no stage for '{getattr(op, 'name', op)}'",
                expected=", ".join(s.name for s in self.stages),
            )
        return stage

    def producer(self, tensor: Tensor) -> Stage:
        """Return the stage that computes a tensor."""
        return self[tensor]

    def buffer(self, tensor: Tensor) -> Buffer:
        """Return the buffer of a tensor in the statements of this schedule."""
        tensor = self._states.get(tensor, tensor)
        known = self._buffers.get(tensor)
        if known is None:
            name = unused_name(tensor.name, {b.name for b in self._buffers.values()})
            # an input that nothing reads has no stage, but may be an argument
            read = tensor.op in self.stage_map or not isinstance(tensor.op, PlaceholderOp)
            scope = self[tensor].scope if read else "global"
            known = self._buffers[tensor] = decl_buffer(tensor.shape, tensor.dtype, name, scope=scope)
        return known

    def set_buffer(self, tensor: Tensor, buffer: Buffer) -> None:
        """Use `buffer` for a tensor in the statements of this schedule."""
        self._buffers[tensor] = buffer

    def consumers(self, stage: Stage) -> list[Stage]:
        """List the stages that read what `stage` computes."""
        return [s for s in self.stages if any(t.op is stage.origin_op for t in s.reads())]

    def normalize(self) -> Schedule:
        """Substitute inlined stages into their consumers; returns the schedule itself."""
        for stage in self.stages:
            stage.check_place()
        for stage in self.stages:
            if isinstance(stage.origin_op, ScanOp):  # caches and parts of reductions were added since
                self._place_steps(stage, stage.origin_op)
        for stage in self.stages:
            if stage.attach_type == AttachType.INLINE:
                self._inline(stage)
        return self

    def create_group(self, outputs: Any, inputs: Any, include_inputs: bool = False) -> StageGroup:
        """Place stages together: those on the ways from `inputs` to `outputs`.

        Parameters
        ----------
        outputs, inputs : Tensor, Operation or list of them
            The ends of the ways.
        include_inputs : bool
            Whether the stages of the inputs belong to the group.

        Returns
        -------
        StageGroup
            What ``compute_at`` and ``compute_root`` place. Groups that lie in it as a whole become its members.
        """
        first, last = ([self[x] for x in (g if isinstance(g, (list, tuple)) else [g])] for g in (inputs, outputs))
        inside = [
            s
            for s in self.stages
            if (s in last or any(self.depends(o, s) for o in last))
            and (s not in first or include_inputs)
            and (s in first or any(self.depends(s, i) for i in first))
        ]
        group = StageGroup(self, f"{'_'.join(s.name for s in last)}_group")
        for stage in inside:
            member: Stage | StageGroup = stage
            while member.group is not None and member.group is not group:
                member = member.group
            if isinstance(member, StageGroup):
                left_out = [s.name for s in self.stages if s not in inside and self._is_in(s, member)]
                if left_out:
                    raise ScheduleError(
                        f"create_group: '{stage.name}' belongs to a group with '{left_out[0]}', which would be left out"
                    )
            if member is not group:
                member.group = group
        self.groups.append(group)
        return group

    def _is_in(self, stage: Stage, group: StageGroup) -> bool:
        around = stage.group
        while around is not None and around is not group:
            around = around.group
        return around is group

    def _inline(self, stage: Stage) -> None:
        axis = [iv.var for iv in stage.axis]

        def replace(node: Any) -> Any:
            if isinstance(node, ProducerLoad) and node.producer.op is stage.origin_op:
                return substitute(stage.body[node.producer.value_index], dict(zip(axis, node.indices, strict=True)))
            return node

        for consumer in self.consumers(stage):
            if not isinstance(consumer.origin_op, ComputeOp):
                raise ScheduleError(
                    f"compute_inline: '{consumer.name}' reads '{stage.name}' as memory, so it cannot be inlined"
                )
            consumer.body = rewrite(consumer.body, replace)

    # --- caches ---

    def cache_read(self, tensor: Tensor, scope: str, readers: Any) -> Tensor:
        """Copy a tensor to `scope` before `readers` (stages' operations or tensors) read it; returns the copy."""
        check_scope(scope, "cache_read")
        stages = [self[r] for r in (readers if isinstance(readers, (list, tuple)) else [readers])]
        if not stages:
            raise ScheduleError(f"cache_read of '{tensor.name}' needs readers", help="pass the tensors that read it")
        for stage in stages:
            if not any(t is tensor for t in stage.reads()):
                raise ScheduleError(f"cache_read: stage '{stage.name}' does not read '{tensor.name}'")
            if not isinstance(stage.origin_op, ComputeOp):
                raise ScheduleError(f"cache_read: '{stage.name}' is no compute operation")
        axis = tuple(IterVar(Range(d), Var(f"ax{i}", d.dtype)) for i, d in enumerate(tensor.shape))
        op = ComputeOp(f"{tensor.name}_{scope}", axis=axis, body=(ProducerLoad(tensor, tuple(iv.var for iv in axis)),))
        copy = op.output(0)
        for stage in stages:
            stage.body = rewrite(
                stage.body,
                lambda n: ProducerLoad(copy, n.indices) if isinstance(n, ProducerLoad) and n.producer is tensor else n,
            )
        self._insert(op, scope, self.stages.index(self[tensor]) + 1)
        return copy

    def cache_write(self, tensor: Any, scope: str) -> Any:
        """Compute a tensor in `scope` first and copy it to its place.

        Where loops of the tensor were split, fused or reordered, what is computed first lies in their order.

        Parameters
        ----------
        tensor : Tensor or list of Tensor
            All outputs of one compute operation.

        Returns
        -------
        Tensor or list of Tensor
            What is computed in `scope`; a list where a list was given.
        """
        check_scope(scope, "cache_write")
        given = list(tensor) if isinstance(tensor, (list, tuple)) else [tensor]
        if not given or any(not isinstance(t, Tensor) or t.op is not given[0].op for t in given):
            raise ScheduleError("cache_write takes a tensor, or the outputs of one operation", found=repr(tensor))
        stage, name = self[given[0]], given[0].op.name
        if not isinstance(stage.origin_op, ComputeOp):
            raise ScheduleError(f"cache_write: '{name}' is no compute operation")
        if sorted(t.value_index for t in given) != list(range(stage.origin_op.num_outputs)):
            raise ScheduleError(
                f"cache_write: '{name}' computes {stage.origin_op.num_outputs} outputs together",
                found=str(len(given)),
                help="pass a list of all of them",
            )
        axis, body, at = relaid_out(stage)
        op = ComputeOp(f"{name}_{scope}", axis=axis, body=body)
        stage.body = tuple(ProducerLoad(op.output(i), at) for i in range(op.num_outputs))
        stage.reset_loops()
        self._insert(op, scope, self.stages.index(stage))
        cached = [op.output(t.value_index) for t in given]
        return cached if isinstance(tensor, (list, tuple)) else cached[0]

    def _insert(self, op: Operation, scope: str, at: int) -> None:
        stage = Stage(self, op)
        stage.given_scope = scope
        self.stages.insert(at, stage)
        self.stage_map[op] = stage

    def rfactor(self, tensor: Any, axis: IterVar, factor_axis: int = 0) -> Any:
        """Compute a reduction in parts, one for each value of `axis`; the tensor then reduces the parts.

        Parameters
        ----------
        tensor : Tensor or list of Tensor
            A reduction; all outputs of its operation are reduced in parts.
        axis : IterVar
            A reduction loop of its stage (an axis, or what ``split`` made of one).
        factor_axis : int
            Where the new dimension of the partial results goes; below zero, from the end.

        Returns
        -------
        Tensor or list of Tensor
            The partial results; a list where the operation has several outputs.
        """
        several = isinstance(tensor, (list, tuple))
        outputs = list(tensor) if several else [tensor]
        if not outputs or any(not isinstance(t, Tensor) or t.op is not outputs[0].op for t in outputs):
            raise ScheduleError("rfactor takes a tensor, or the outputs of one operation", found=repr(tensor))
        stage = self[outputs[0]]
        op = factor_reduction(stage, outputs[0].name, axis, factor_axis)
        self.stage_map[stage.op] = stage
        self._insert(op, "", self.stages.index(stage))
        partial = [op.output(i) for i in range(op.num_outputs)]
        return partial if several or len(partial) > 1 else partial[0]


def create_schedule(ops: Tensor | Operation | Sequence[Tensor | Operation]) -> Schedule:
    """Make a schedule for operations (or tensors) and all that they depend on."""
    given = [ops] if isinstance(ops, (Tensor, Operation)) else ops if isinstance(ops, (list, tuple)) else [ops]
    listed: list[Any] = [o.op if isinstance(o, Tensor) else o for o in given]
    wrong = [o for o in listed if not isinstance(o, Operation)]
    if wrong or not listed:
        raise ScheduleError("create_schedule takes operations or tensors", found=repr(wrong[0]) if wrong else "nothing")
    return Schedule(listed)
