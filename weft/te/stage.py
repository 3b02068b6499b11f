"""Stages of schedules: the loops of one operation, and the primitives that shape them.

A stage starts with one loop per axis of its operation. ``split`` and ``fuse`` record relations between loops;
``compute_at`` says inside which loop of another stage this one runs. Nothing is computed here: ``bound`` finds how far
each loop goes, ``schedule_ops`` writes the loops. Operations are immutable; what inlining and caches change is the
stage's own copy of the body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from functools import reduce
from typing import Any

from weft.error import InvalidArgument, ScheduleError
from weft.ir import IterVar, PrimExpr, Range, Var, as_expr, as_int, const, find, walk
from weft.te.iter_attr import IterAttr
from weft.te.relations import Fuse, Relation, Relayout, Singleton, Split, ends
from weft.te.tensor import BaseComputeOp, ComputeOp, Operation, PlaceholderOp, ScanOp, Tensor
from weft.te.tensor_intrin import TensorIntrin
from weft.tir import IntrinCall, ProducerLoad, Reduce
from weft.tir.schedule.index_map import IndexMap

_SCOPES = ("global", "shared", "local", "warp", "wmma", "texture")
_THREADS = ("blockIdx", "threadIdx", "vthread", "cthread")


def check_scope(scope: object, what: str) -> None:
    """Raise where a memory scope is unknown (``shared.dyn``, ``local.x``: what follows the point is free)."""
    if not isinstance(scope, str) or scope.split(".")[0] not in _SCOPES:
        raise ScheduleError(f"{what}: unknown memory scope {scope!r}", expected=", ".join(_SCOPES))


class AttachType(IntEnum):
    """Where a stage runs, by TVM's numbers."""

    GROUP_ROOT = 1
    INLINE = 2
    INLINED_ALREADY = 3
    SCOPE = 4
    SCAN_UPDATE = 5


class _Placed:
    """What may run inside a loop of another stage: a stage, or a group of stages."""

    schedule: StageGraph
    name: str

    def __init__(self) -> None:
        self.attach_type = AttachType.GROUP_ROOT
        self.attach_stage: Stage | None = None
        self._attach_ivar: IterVar | None = None
        self.group: StageGroup | None = None

    def _attach(self, kind: AttachType, stage: Stage | None = None, at: IterVar | None = None) -> None:
        self.attach_type, self.attach_stage, self._attach_ivar = kind, stage, at

    @property
    def attach_ivar(self) -> IterVar | None:
        """The loop that this runs inside; where that loop was split or fused since, what became of it."""
        at, stage = self._attach_ivar, self.attach_stage
        if at is None or stage is None:
            return at
        for r in stage.relations:  # in order: later relations are of what earlier ones made
            before, after = ends(r)
            at = after[-1] if at in before and not isinstance(r, Relayout) else at
        return at

    def compute_at(self, parent: Any, scope: IterVar) -> None:
        """Compute, inside loop `scope` of `parent`, just what its iterations need."""
        if not isinstance(parent, Stage):
            raise ScheduleError("compute_at takes a stage", found=repr(parent), help="s[B].compute_at(s[C], i)")
        parent._position(scope, f"compute_at in stage '{parent.name}'")
        self._attach(AttachType.SCOPE, parent, scope)

    def compute_root(self) -> None:
        """Compute the whole tensor before its consumers."""
        self._attach(AttachType.GROUP_ROOT)


class StageGroup(_Placed):
    """Stages that are placed together: where the group runs, those of its members run that are placed nowhere else."""

    def __init__(self, schedule: StageGraph, name: str) -> None:
        super().__init__()
        self.schedule, self.name = schedule, name

    @property
    def num_child_stages(self) -> int:
        """How many stages and groups belong to the group itself."""
        return sum(member.group is self for member in (*self.schedule.stages, *self.schedule.groups))

    def __repr__(self) -> str:
        return f"StageGroup({self.name}, attach={self.attach_type.name.lower()})"


class Stage(_Placed):
    """One operation and the loops that compute it.

    Attributes
    ----------
    op : Operation
        What the stage computes now: after ``rfactor``, the reduction of the parts.
    origin_op : Operation
        What it was made for, which the schedule knows it by.
    body : tuple of PrimExpr
        What each element is now (for compute operations), after inlining and caching.
    leaf_iter_vars, all_iter_vars : list of IterVar
        The loops from outermost to innermost; and all that ever were, the operation's own first.
    attach_type : AttachType
        Where it runs; with ``SCOPE``, inside loop `attach_ivar` of `attach_stage`.
    group : StageGroup or None
        The group that places the stage where it is placed nowhere itself.
    """

    def __init__(self, schedule: StageGraph, op: Operation) -> None:
        super().__init__()
        self.schedule, self.origin_op, self.op = schedule, op, op
        self.body: tuple[PrimExpr, ...] = op.body if isinstance(op, ComputeOp) else ()
        self.is_output = False
        self.given_scope = ""
        self.store_predicate: PrimExpr | None = None
        self.double_buffered = self.rolls = False
        self.prefetches: list[tuple[Tensor, IterVar, PrimExpr]] = []
        self.tensorized: tuple[IterVar, Any] | None = None
        self.alignments: list[tuple[IterVar, int, int]] = []
        self.iter_attrs: dict[IterVar, IterAttr] = {}
        self.layout: IndexMap | None = None
        self.separators: tuple[int, ...] = ()
        self.reset_loops()

    def reset_loops(self) -> None:
        """Return to one loop per axis; what was said of a whole axis stays."""
        self.relations: list[Relation] = []
        whole = set(self.axis)
        self.iter_attrs = {key: attr for key, attr in self.iter_attrs.items() if key in whole}
        self.all_iter_vars: list[IterVar] = [*self.axis, *self.reduce_axis]
        if isinstance(self.origin_op, ScanOp) and self.origin_op.scan_axis is not None:
            self.all_iter_vars = [self.origin_op.scan_axis]
        self.leaf_iter_vars: list[IterVar] = list(self.all_iter_vars)

    def __repr__(self) -> str:
        loops = ", ".join(iv.var.name for iv in self.leaf_iter_vars)
        return f"Stage({self.name}, loops=[{loops}], attach={self.attach_type.name.lower()})"

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name of the operation."""
        return self.origin_op.name

    @property
    def placement(self) -> tuple[AttachType, Stage | None, IterVar | None]:
        """Where the stage runs: what was said of it, else of the groups around it."""
        placed: _Placed = self
        while placed.attach_type == AttachType.GROUP_ROOT and placed.group is not None:
            placed = placed.group
        return placed.attach_type, placed.attach_stage, placed.attach_ivar

    @property
    def is_attached(self) -> bool:
        """Whether the stage runs inside a loop of another one."""
        return self.placement[0] == AttachType.SCOPE

    @property
    def axis(self) -> tuple[IterVar, ...]:
        """The data-parallel axes of the operation."""
        return self.origin_op.axis if isinstance(self.origin_op, BaseComputeOp) else ()

    @property
    def reduce_axis(self) -> tuple[IterVar, ...]:
        """The reduction axes of the body as it is now."""
        first = self.body[0] if self.body else None
        return first.axis if isinstance(first, (Reduce, IntrinCall)) else ()

    @property
    def scope(self) -> str:
        """Where the output lies: what was said, else what the threads around the stage share."""
        if self.given_scope:
            return self.given_scope
        stage, tags = self, []
        while stage.is_attached:
            _, parent, at = stage.placement
            assert parent is not None
            for iv in parent.leaf_iter_vars:
                thread = parent.iter_attrs[iv].bind_thread if iv in parent.iter_attrs else None
                tags.append(thread.thread_tag if thread is not None else "")
                if iv is at:
                    break
            stage = parent
        if any(t.startswith("threadIdx") for t in tags):
            return "local"
        return "shared" if any(t.startswith("blockIdx") for t in tags) else "global"

    def reads(self) -> list[Tensor]:
        """List the tensors that the stage reads, each once."""
        if not isinstance(self.origin_op, ComputeOp):
            return self.origin_op.input_tensors
        return list(dict.fromkeys(n.producer for n in find(self.body, ProducerLoad)))

    @property
    def iter_var_attrs(self) -> dict[IterVar, IterAttr]:
        """How each loop runs, of those that something was said about."""
        return {iv: self.iter_attrs[iv] for iv in self.all_iter_vars if iv in self.iter_attrs}

    def attr(self, iv: IterVar) -> IterAttr:
        """Return (making it) how a loop runs."""
        return self.iter_attrs.setdefault(iv, IterAttr())

    # --- loops ---

    def _position(self, iv: Any, what: str) -> int:
        for i, leaf in enumerate(self.leaf_iter_vars):
            if leaf is iv:
                return i
        names = ", ".join(v.var.name for v in self.leaf_iter_vars)
        name = iv.var.name if isinstance(iv, IterVar) else repr(iv)
        known = any(v is iv for v in self.all_iter_vars)
        raise ScheduleError(
            f"{what}: '{name}' is not a loop of stage '{self.name}'" + (" any more" if known else ""),
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
                f"split of '{getattr(parent, 'var', parent)}' takes either factor or nparts",
                found="both" if factor is not None else "neither",
            )
        position = self._position(parent, "split")
        amount = self._size(parent, nparts if factor is None else factor)
        outer = IterVar(None, Var(parent.var.name + "_outer", parent.var.dtype), parent.iter_type)
        inner = IterVar(None, Var(parent.var.name + "_inner", parent.var.dtype), parent.iter_type)
        self.relations.append(
            Split(parent, outer, inner, amount if factor is not None else None, amount if nparts is not None else None)
        )
        self.all_iter_vars += [outer, inner]
        self.leaf_iter_vars[position : position + 1] = [outer, inner]
        return outer, inner

    def _size(self, parent: IterVar, given: Any) -> PrimExpr:
        """Return the factor or number of parts of a split."""
        wrong = ScheduleError(
            f"split of '{parent.var.name}' by a size that is not a positive integer",
            found=str(given),
            expected="an int, or an expression of parameters",
        )
        if isinstance(given, (float, str, bool)) or getattr(given, "dtype", "int32")[:3] not in ("int", "uin"):
            raise wrong
        amount = as_expr(given, parent.var.dtype)
        loops = {iv.var for stage in self.schedule.stages for iv in stage.all_iter_vars}
        known = as_int(amount)
        if (known is not None and known <= 0) or any(isinstance(n, ProducerLoad) or n in loops for n in walk(amount)):
            raise wrong
        return amount

    def fuse(self, *args: IterVar) -> IterVar:
        """Fuse adjacent loops, outermost first, into one."""
        loops = list(args[0]) if len(args) == 1 and isinstance(args[0], (list, tuple)) else list(args)
        if not loops:
            return self._once()
        reduce(self._next_to, loops)  # all of them first: what is refused changes nothing
        return reduce(self._fuse_pair, loops)

    def _once(self) -> IterVar:
        """Make a loop that runs once, around all others."""
        once = IterVar(Range.from_min_extent(const(0), const(1)), Var("singleton", "int32"))
        self.relations.append(Singleton(once))
        self.all_iter_vars.append(once)
        self.leaf_iter_vars.insert(0, once)
        return once

    def _next_to(self, outer: IterVar, inner: IterVar) -> IterVar:
        if self._position(inner, "fuse") != self._position(outer, "fuse") + 1:
            order = ", ".join(v.var.name for v in self.leaf_iter_vars)
            what = f"fuse: loops '{outer.var.name}' and '{inner.var.name}' are not adjacent in this order"
            raise ScheduleError(what, found=f"the order {order}", help="reorder them first")
        if "ordered" in (outer.iter_type, inner.iter_type):
            raise ScheduleError(f"fuse: the scan axis of '{self.name}' cannot be fused")
        return inner

    def _fuse_pair(self, outer: IterVar, inner: IterVar) -> IterVar:
        i = self._position(outer, "fuse")
        kind = "reduce" if "reduce" in (outer.iter_type, inner.iter_type) else outer.iter_type
        dtype = "int64" if "int64" in (outer.var.dtype, inner.var.dtype) else outer.var.dtype
        fused = IterVar(None, Var(f"{outer.var.name}_{inner.var.name}_fused", dtype), kind)
        self.relations.append(Fuse(outer, inner, fused))
        self.all_iter_vars.append(fused)
        self.leaf_iter_vars[i : i + 2] = [fused]
        return fused

    def tile(
        self, x_parent: IterVar, y_parent: IterVar, x_factor: Any, y_factor: Any
    ) -> tuple[IterVar, IterVar, IterVar, IterVar]:
        """Split two loops and order the four ``x_outer, y_outer, x_inner, y_inner``."""
        if self._position(x_parent, "tile") == self._position(y_parent, "tile"):
            raise ScheduleError(f"tile in stage '{self.name}' names a loop twice")
        y_factor = self._size(y_parent, y_factor)
        x_outer, x_inner = self.split(x_parent, factor=x_factor)
        y_outer, y_inner = self.split(y_parent, factor=y_factor)
        self.reorder(x_outer, y_outer, x_inner, y_inner)
        return x_outer, y_outer, x_inner, y_inner

    def reorder(self, *args: IterVar) -> None:
        """Put loops in the given order, in the places that they hold together."""
        positions = [self._position(iv, "reorder") for iv in args]
        if len(set(positions)) != len(positions):
            raise ScheduleError(f"reorder in stage '{self.name}' names a loop twice")
        if any(iv.iter_type == "ordered" for iv in args):
            raise ScheduleError(f"reorder: the scan axis of '{self.name}' cannot move")
        for place, iv in zip(sorted(positions), args, strict=True):
            self.leaf_iter_vars[place] = iv

    def _set_kind(self, iv: IterVar, kind: str, what: str) -> None:
        self._position(iv, what)
        if kind in ("vectorized", "parallel") and iv.iter_type in ("reduce", "ordered"):
            raise ScheduleError(
                f"{what}: '{iv.var.name}' of stage '{self.name}' is a reduction: iterations depend on each other",
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

    def bind(self, ivar: IterVar, thread_ivar: Any) -> None:
        """Bind a loop to a hardware thread index made by ``te.thread_axis``."""
        self._position(ivar, "bind")
        tag = getattr(thread_ivar, "thread_tag", "")
        if not tag:
            name = thread_ivar.var.name if isinstance(thread_ivar, IterVar) else repr(thread_ivar)
            raise ScheduleError(f"bind: '{name}' is no thread axis", help="make it with te.thread_axis")
        kind, _, dim = tag.partition(".")
        if kind not in _THREADS or (dim or "x") not in "xyz" or (not dim and "Idx" in kind):
            raise ScheduleError(
                f"bind: there are no threads '{tag}'", expected="blockIdx.x, threadIdx.x (.y, .z), vthread"
            )
        if ivar.iter_type in ("reduce", "ordered") and "Idx" not in kind:
            raise ScheduleError(
                f"bind: '{ivar.var.name}' of stage '{self.name}' is a reduction, whose iterations "
                "virtual threads cannot do apart",
                help="use rfactor",
            )
        self.attr(ivar).bind_thread = thread_ivar

    def env_threads(self, threads: Any) -> None:
        """Refuse: no kernel here keeps its threads from one step of a scan to the next."""
        raise ScheduleError(
            f"env_threads of '{self.name}': a scan's steps share no threads",
            help="bind loops of the stages inside the scan, s[update].bind(loop, thread)",
        )

    def pragma(self, var: IterVar, pragma_type: str, pragma_value: Any = None) -> None:
        """Attach a hint such as ``("auto_unroll_max_step", 16)`` to a loop."""
        if pragma_type in ("vectorize", "unroll"):
            return getattr(self, pragma_type)(var)
        self._position(var, "pragma")
        self.attr(var).pragmas.append((pragma_type, pragma_value))

    # --- where the stage runs ---

    def prefetch(self, tensor: Tensor, var: IterVar, offset: Any = 1) -> None:
        """Ask, in each iteration of `var`, for what the iteration `offset` later reads of a tensor."""
        self._position(var, "prefetch")
        if not any(t is tensor for t in self.reads()):
            raise ScheduleError(
                f"prefetch: '{self.name}' does not read '{tensor.name}'",
                expected=", ".join(t.name for t in self.reads()) or None,
            )
        self.prefetches.append((tensor, var, as_expr(offset, var.var.dtype)))

    def tensorize(self, var: IterVar, tensor_intrin: Any) -> None:
        """Compute the loop `var` and all inside it by an intrinsic made by :func:`~weft.te.decl_tensor_intrin`."""
        self._position(var, "tensorize")
        if not isinstance(tensor_intrin, TensorIntrin):
            raise ScheduleError(
                "tensorize takes a tensor intrinsic",
                found=repr(tensor_intrin),
                help="declare it with te.decl_tensor_intrin",
            )
        self.attr(var).kind, self.attr(var).tensor_intrin = "tensorized", tensor_intrin
        self.tensorized = (var, tensor_intrin)

    def check_place(self) -> None:
        """Refuse a place inside a loop that does not need the stage, or that runs inside of it."""
        kind, parent, _ = self.placement
        if kind != AttachType.SCOPE or parent is None:
            if self.rolls:
                raise ScheduleError(
                    f"rolling_buffer: stage '{self.name}' is computed as a whole",
                    help="compute_at puts it into a loop over tiles",
                )
            return
        output = any(op in (self.op, self.origin_op) for op in self.schedule.outputs)
        if output or isinstance(self.origin_op, PlaceholderOp):
            kind = "output" if output else "input"
            raise ScheduleError(f"compute_at: '{self.name}' is an {kind}", help="only intermediate stages can move")
        if parent is self:
            raise ScheduleError(f"compute_at: stage '{self.name}' cannot run inside itself")
        if isinstance(parent.origin_op, ScanOp) and any(t.op is self.origin_op for t in parent.origin_op.init):
            raise ScheduleError(
                f"compute_at: '{self.name}' is the first rows of scan '{parent.name}', before its steps"
            )
        if not self.schedule.depends(parent, self):
            raise ScheduleError(f"compute_at: stage '{parent.name}' does not use '{self.name}'")

    def compute_inline(self) -> None:
        """Substitute the body wherever the tensor is read."""
        if self.is_output:
            raise ScheduleError(f"compute_inline: '{self.name}' is an output")
        if not isinstance(self.origin_op, ComputeOp):
            raise ScheduleError(f"compute_inline: '{self.name}' has no expression to substitute")
        if self.reduce_axis:
            raise ScheduleError(f"compute_inline: '{self.name}' is a reduction")
        self._attach(AttachType.INLINE)

    def transform_layout(self, mapping_function: Callable[..., Any]) -> list[IterVar]:
        """Let elements lie where a function of their indices says; arguments of the function have that shape, too.

        Loops over the elements that the stage computes become loops over the places.

        Parameters
        ----------
        mapping_function : callable
            From indices to a list of indices, one to one. ``te.AXIS_SEPARATOR`` between them notes where memory of
            several dimensions divides them.

        Returns
        -------
        list of IterVar
            The loops over places, from the outside; none of an input.

        Raises
        ------
        ScheduleError
            When the function is not one to one, or the loops were split, fused or reordered before.
        """
        if any(
            t.op is self.origin_op
            for s in self.schedule.stages
            if isinstance(scan := s.origin_op, ScanOp)
            for t in (*scan.init, *scan.update, *scan.state_placeholder)
        ):
            raise ScheduleError(
                f"transform_layout of '{self.name}', which is memory of a scan", help="lay out the scan's own result"
            )
        shape = self.origin_op.output(0).shape
        before = self.layout
        now = shape if before is None else before.map_shape(shape)
        kind = now[0].dtype if now else "int32"
        layout, self.separators = IndexMap.from_func_with_separators(mapping_function, len(now), index_dtype=kind)
        try:
            back = layout.inverse(now)
        except InvalidArgument as e:
            raise ScheduleError(f"transform_layout of '{self.name}': {e.what}", help=e.help) from e
        places = tuple(
            IterVar(Range.from_min_extent(const(0, kind), d), v)
            for v, d in zip(back.initial_indices, layout.map_shape(now), strict=True)
        )
        if isinstance(self.origin_op, ComputeOp):
            last = self.relations[-1] if self.relations else None
            loops = last.places if isinstance(last, Relayout) else self.axis
            first, *others = [self._position(iv, "transform_layout") for iv in loops] or [0]
            if others != list(range(first + 1, first + len(loops))):
                raise ScheduleError(f"transform_layout of '{self.name}' after its loops were reordered")
            self.relations.append(Relayout(loops, places, back))
            self.all_iter_vars += places
            self.leaf_iter_vars[first : first + len(loops)] = places
        self.layout = (
            layout if before is None else IndexMap(before.initial_indices, layout.map_indices(before.final_indices))
        )
        return list(places) if isinstance(self.origin_op, ComputeOp) else []

    def set_scope(self, scope: str) -> None:
        """Set the memory scope of the output: ``global``, ``local``, ``shared``."""
        check_scope(scope, "set_scope")
        if scope != "global":
            self._intermediate("set_scope")
        self.given_scope = scope

    def set_store_predicate(self, predicate: Any) -> None:
        """Store only where a condition holds, such as ``thread_x.equal(0)``."""
        self.store_predicate = as_expr(predicate)

    def double_buffer(self) -> None:
        """Ask for two copies of the output, so that the next tile is filled while this one is read."""
        self._intermediate("double_buffer")
        self.double_buffered = True

    def rolling_buffer(self) -> None:
        """Keep what a tile shares with the one before it: of one dimension the memory is a ring as long as a tile."""
        self._intermediate("rolling_buffer")
        self.rolls = True

    def storage_align(self, axis: IterVar, factor: Any, offset: Any) -> None:
        """Ask that the stride of an axis is ``factor * k + offset`` elements.

        Parameters
        ----------
        axis : IterVar
            An axis of the operation.
        """
        self._intermediate("storage_align")
        if not any(iv is axis for iv in self.axis):
            raise ScheduleError(
                f"storage_align: this is no axis of '{self.name}'",
                found=repr(axis),
                expected=", ".join(iv.var.name for iv in self.axis),
            )
        if not (isinstance(factor, int) and isinstance(offset, int) and factor > 0 and 0 <= offset < factor):
            raise ScheduleError(
                "storage_align takes a positive factor, and an offset below it", found=f"{factor}, {offset}"
            )
        self.alignments.append((axis, factor, offset))

    def _intermediate(self, what: str) -> None:
        if self.is_output or isinstance(self.origin_op, PlaceholderOp):
            kind = "output" if self.is_output else "input"
            raise ScheduleError(
                f"{what}: '{self.name}' is an {kind}, memory of the caller",
                help="use cache_write or cache_read, and schedule the copy",
            )


class StageGraph:
    """The stages of a graph, producers first, and the groups that place some of them together."""

    def __init__(self, outputs: Iterable[Operation]) -> None:
        self.outputs = list(outputs)
        self.stages: list[Stage] = []
        self.stage_map: dict[Operation, Stage] = {}
        self.groups: list[StageGroup] = []

    def depends(self, consumer: Stage, producer: Stage) -> bool:
        """Whether a stage reads another one, directly or through others."""
        seen: set[Stage] = set()
        stack = [consumer]
        while stack:
            stage = stack.pop()
            for t in stage.reads():
                other = self.stage_map.get(t.op)
                if other is producer:
                    return True
                if other is not None and other not in seen:
                    seen.add(other)
                    stack.append(other)
        return False
