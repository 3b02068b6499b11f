"""Structures of loops: what is inlined, tiled and computed where; numbers are drawn afterwards.

A reduction that reads its inputs again and again is tiled as ``SSRSRS``: its spatial loops in four parts, its reduction
loops in two. What is computed of its elements afterwards is tiled alike outside and computes the tile inside.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from weft import error, ir, te, tir
from weft.auto_scheduler.loop_state import State
from weft.ir import IntImm, find, walk

_STRUCTURE = "SSRSRS"


def sketches_of(policy: Any) -> list[State]:
    """List the structures of a policy's task."""
    dag = policy.search_task.compute_dag
    done: list[State] = []
    waiting = [(dag.init_state, len(dag.init_state.stages) - 1)]
    while waiting:
        state, stage_id = waiting.pop()
        if stage_id < 0:
            done.append(state)
            continue
        skip, made = _custom(policy, state, stage_id)
        waiting += [(s, n) for s, n in made if n >= 0]
        done += [s for s, n in made if n < 0]
        if not skip:
            waiting += _own(state, stage_id)
    return done or [dag.init_state]


def _custom(policy: Any, state: State, stage_id: int) -> tuple[bool, list[tuple[State, int]]]:
    """Ask the user's rules; whether they are the last word, and what they make."""
    for rule in policy.custom_rules:
        answer = rule.meet_condition_func(policy, state, stage_id)
        if answer != rule.PASS:
            made = [(State(s, policy.search_task.compute_dag), n) for s, n in rule.apply_func(policy, state, stage_id)]
            return answer == rule.APPLY_AND_SKIP_REST, made
    return False, []


def _own(state: State, stage_id: int) -> list[tuple[State, int]]:
    op = state.stages[stage_id].op
    if not isinstance(op, te.ComputeOp) or state.stages[stage_id].compute_at:
        return [(state, stage_id - 1)]
    if is_inlined(state, stage_id):
        inlined = state.copy()
        try:
            inlined.compute_inline(stage_id)
        except error.WeftError:
            return [(state, stage_id - 1)]
        return [(inlined, stage_id - 1)]
    if not _reuses(op):
        return [(state, stage_id - 1)]
    found = []
    for make in (_tiled, _tiled_with_consumer, _tiled_with_cache):
        try:
            made = make(state.copy(), stage_id)
        except error.WeftError:
            continue
        if made is not None:
            found.append((made, stage_id - 1))
    return found if len(found) < 2 else found[1:]  # with what follows, or with a cache, where that can be


def is_inlined(state: State, stage_id: int) -> bool:
    """Whether a stage is no output and only picks and combines elements."""
    stage = state.stages[stage_id]
    outputs = {t.op for t in state.compute_dag.outputs}
    return isinstance(stage.op, te.ComputeOp) and stage.op not in outputs and not stage.op.reduce_axis


def _reuses(op: te.ComputeOp) -> bool:
    """Whether each element of an input is read for several of the result: an axis is missing where it is read."""
    if not op.reduce_axis:
        return False
    axes = {a.var for a in op.axis}
    loads = [n for b in op.body for n in find(b, tir.ProducerLoad)]
    return any(axes - {v for i in load.indices for v in walk(i) if v in axes} for load in loads)


def _consumers(state: State, stage_id: int) -> list[int]:
    op = state.stages[stage_id].op
    schedule = state.schedule
    found = schedule.consumers(state.stages[stage_id].te_stage)
    inlined = [s for s in state.stages if s.compute_at == 1 and any(s.te_stage is f for f in found)]
    if inlined:
        return [i for i, s in enumerate(state.stages) if op in _reads(state, s) and s.compute_at != 1]
    return [i for i, s in enumerate(state.stages) if any(s.te_stage is f for f in found)]


def _reads(state: State, stage: Any) -> set[Any]:
    """The operations that a stage reads, through what is inlined."""
    inlined = {s.op for s in state.stages if s.compute_at == 1}

    def read(op: Any) -> list[Any]:
        return [t.op for t in op.input_tensors_tuple] if op in inlined else []

    return set(ir.reached((t.op for t in stage.te_stage.reads()), read))


def _tile(state: State, stage_id: int) -> list[list[Any]]:
    """Tile a stage; returns for each spatial loop its parts."""
    iters = list(state.stages[stage_id].iters)
    parts = [(it, state.split(stage_id, it, [1, 1, 1] if not it.is_reduce else [1])) for it in iters]
    spatial = [p for it, p in parts if not it.is_reduce]
    reduce = [p for it, p in parts if it.is_reduce]
    levels, taken = [], {"S": 0, "R": 0}
    for kind in _STRUCTURE:
        level = taken[kind]
        levels += [p[level] for p in (spatial if kind == "S" else reduce)]
        taken[kind] += 1
    state.reorder(stage_id, levels)
    return spatial


def _tiled(state: State, stage_id: int) -> State:
    _tile(state, stage_id)
    return state


def _tiled_with_cache(state: State, stage_id: int) -> State:
    """Compute the tiles in a buffer of their own, and write them back a tile at a time."""
    original = state.stages[stage_id].op
    state.cache_write(stage_id, "local")
    cache, copy = stage_id, state.stage_id(original)
    return _attached(state, cache, copy)


def _tiled_with_consumer(state: State, stage_id: int) -> State | None:
    consumers = _consumers(state, stage_id)
    if len(consumers) != 1:
        return None
    consumer = state.stages[consumers[0]]
    made, used = state.stages[stage_id].op, consumer.op
    if not isinstance(made, te.ComputeOp) or not isinstance(used, te.ComputeOp) or used.reduce_axis:
        return None
    if _extents(made) != _extents(used) or consumer.iters[0].name != used.axis[0].var.name:
        return None
    return _attached(state, stage_id, consumers[0])


def _extents(op: te.ComputeOp) -> list[int | None]:
    extents = [a.dom.extent if a.dom is not None else None for a in op.axis]
    return [e.value if isinstance(e, IntImm) else None for e in extents]


def _attached(state: State, tiled: int, outer: int) -> State:
    """Tile a stage inside the tiles of another."""
    first = len(state.transform_steps)
    _tile(state, tiled)
    steps = [first + i for i in range(len(state.stages[outer].iters))]
    parts = [state.follow_split(outer, it, steps[i], 2) for i, it in enumerate(list(state.stages[outer].iters))]
    state.reorder(outer, [p[level] for level in range(3) for p in parts])
    at = parts[-1][1]
    state.compute_at(tiled, outer, at)
    return state


# --- numbers ---


def fill(sketch: State, task: Any, params: dict[str, Any], source: random.Random) -> State:
    """Draw the lengths of all tiles, and say which loops are parallel, vectors and unrolled."""
    steps = [list(s) for s in sketch.transform_steps]
    for step in steps:
        if step[0] == "SP" and step[3]:
            step[4] = _factors(step[3], len(step[4]), params["max_innermost_split_factor"], source)
    state = State(task.compute_dag, steps)
    vector = params["max_vectorize_size"]
    cores = max(1, task.hardware_params.num_cores)
    for number, stage in enumerate(state.stages):
        if stage.op_type == "placeholder" or stage.compute_at == 1 or not stage.iters:
            continue
        if stage.compute_at == 0:
            _parallel(state, number, cores)
        _vectorize(state, number, vector, source)
        if getattr(stage.op, "reduce_axis", ()):
            state.pragma(number, 0, f"auto_unroll_max_step${source.choice((0, 16, 64, 512))}")
    return state


def _factors(extent: int, count: int, limit: int, source: random.Random) -> list[int]:
    """Draw lengths whose product divides an extent, the last of them first: vectors want the long one inside."""
    found: list[int] = []
    for _ in range(count):
        most = limit if not found else extent
        options = [f for f in range(1, min(extent, most) + 1) if extent % f == 0]
        found.append(source.choice(options[-4:] if not found else options))
        extent //= found[-1]
    return found[::-1]


def _parallel(state: State, number: int, cores: int) -> None:
    """Fuse outer loops until there is work for every core."""
    stage = state.stages[number]
    count, size = 0, 1
    attached = {s.attached[1] for s in state.stages if s.attached is not None and s.attached[0] is stage.te_stage}
    for it in stage.iters:
        if (
            it.is_reduce
            or it.extent is None
            or size > 16 * cores
            or (count and stage.iters[count - 1].name in attached)
        ):
            break
        count, size = count + 1, size * it.extent
    if count == 0 or size == 1:
        return
    loop = state.fuse(number, list(range(count))) if count > 1 else stage.iters[0]
    state.parallel(number, loop)


def _vectorize(state: State, number: int, limit: int, source: random.Random) -> None:
    stage = state.stages[number]
    last = stage.iters[-1]
    bounded = last if last.extent is not None else state.with_bounds().stages[number].iters[-1]
    if last.is_reduce or last.annotation or bounded.extent is None or bounded.extent < 2:
        return
    if bounded.extent <= limit:
        state.vectorize(number, last)
        return
    fitting: Sequence[int] = [f for f in (limit, limit // 2, limit // 4) if f > 1 and bounded.extent % f == 0]
    if fitting:
        state.vectorize(number, state.split(number, last, [source.choice(fitting)])[-1])
