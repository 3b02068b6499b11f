"""Steps of scheduling, as log files have them: ``["SP", stage, loop, extent, lengths, inner_to_outer]`` and the like.

``AN`` annotates, ``FU`` fuses, ``PR`` adds a pragma, ``RE`` reorders, ``SP``, ``FSP`` and ``FFSP`` split, ``SA``
aligns, ``CA``, ``CI`` and ``CR`` say where a stage is computed, ``CHR`` and ``CHW`` add caches, ``RF`` reduces in
parts. Stages and loops are numbers as they are when the step is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from weft import error, ir, registry, te

ANNOTATIONS = tuple(
    (
        "none unroll vectorize parallel vthread blockIdx.x threadIdx.x blockIdx.y threadIdx.y blockIdx.z threadIdx.z "
        "tensorize"
    ).split()
)

_STEPS: registry.Registry[Callable[..., Any]] = registry.Registry()


def apply_step(state: Any, step: Sequence[Any]) -> Any:
    """Apply a step to the schedule and the loops of a state."""
    if step[0] not in _STEPS:
        raise error.InvalidArgument(f"unknown step '{step[0]}'", expected=", ".join(_STEPS))
    return _STEPS[step[0]](state, *step[1:])


def followed_lengths(steps: Sequence[Any], step: Sequence[Any]) -> list[int]:
    """Return the lengths of a split that follows another: as many as are asked for, the last holds the rest."""
    _, _, _, source, count = step
    lengths = list(steps[source][4])
    return [*lengths[: count - 1], math.prod(lengths[count - 1 :])]


def fused_length(steps: Sequence[Any], step: Sequence[Any]) -> int:
    """Return the length that splits have together at a level."""
    _, _, _, sources, level, _ = step
    return math.prod(steps[s][4][level] for s in sources)


@_STEPS.on("AN")
def _annotate(state: Any, stage_id: int, at: int, annotation: int) -> Any:
    stage = state.stages[stage_id]
    word, var = ANNOTATIONS[annotation], stage.vars[at]
    if word == "vthread" or "Idx" in word:
        stage.te_stage.bind(var, te.thread_axis(word))
    elif word != "none":
        getattr(stage.te_stage, word)(var)
    stage.iters[at] = replace(stage.iters[at], annotation=annotation)
    return stage.iters[at]


@_STEPS.on("FU")
def _fuse(state: Any, stage_id: int, fused: list[int]) -> Any:
    stage = state.stages[stage_id]
    first, iters = fused[0], [stage.iters[i] for i in fused]
    if fused != list(range(first, first + len(fused))):
        raise error.InvalidArgument("only loops one inside another are fused", found=str(fused))
    extents = [i.extent for i in iters]
    size = None if None in extents else ir.Range.from_min_extent(0, ir.const(math.prod(extents), "int32"))
    var = stage.te_stage.fuse(*[stage.vars[i] for i in fused])
    new = replace(
        iters[0],
        name="".join(f"{i.name}@" for i in iters),
        range=size,
        annotation=0,
        is_reduce=any(i.is_reduce for i in iters),
    )
    stage.iters[first : first + len(fused)], stage.vars[first : first + len(fused)] = [new], [var]
    for other in state.stages:  # what was computed at the innermost of them is computed at them all
        if other.attached == (stage.te_stage, iters[-1].name):
            other.attached = (stage.te_stage, new.name)
            other.te_stage.compute_at(stage.te_stage, var)
    return new


@_STEPS.on("PR")
def _pragma(state: Any, stage_id: int, at: int, pragma: str) -> None:
    stage = state.stages[stage_id]
    name, _, value = pragma.partition("$")
    if name == "auto_unroll_max_step":
        stage.te_stage.pragma(stage.vars[at], name, int(value))
        stage.te_stage.pragma(stage.vars[at], "unroll_explicit", True)
        stage.pragmas["pragma auto_unroll_max_step"] = value
    else:
        stage.te_stage.pragma(stage.vars[at], name, *([int(value)] if value else []))


@_STEPS.on("RE")
def _reorder(state: Any, stage_id: int, order: list[int]) -> None:
    stage = state.stages[stage_id]
    if sorted(order) != list(range(len(stage.iters))):
        raise error.InvalidArgument("reorder takes all loops of a stage, each once", found=str(order))
    stage.iters, stage.vars = [stage.iters[i] for i in order], [stage.vars[i] for i in order]
    stage.te_stage.reorder(*stage.vars)


@_STEPS.on("SP")
def _split(state: Any, stage_id: int, at: int, extent: int | None, lengths: list[Any], inner_to_outer: Any) -> Any:
    stage = state.stages[stage_id]
    it, var, made = stage.iters[at], stage.vars[at], []
    if None in lengths:
        raise error.InvalidArgument("a split waits for its lengths", found=str(lengths))
    for size in reversed(lengths) if inner_to_outer else lengths:
        how = {"factor": size} if inner_to_outer else {"nparts": size}
        outer, inner = stage.te_stage.split(var, **how)
        made.append(inner if inner_to_outer else outer)
        var = outer if inner_to_outer else inner
    variables = [var, *reversed(made)] if inner_to_outer else [*made, var]
    rest = None if it.extent is None else -(-it.extent // math.prod(lengths))
    sizes = [rest, *lengths] if inner_to_outer else [*lengths, rest]
    ranges = [None if s is None else ir.Range.from_min_extent(0, ir.const(int(s), "int32")) for s in sizes]
    new = [replace(it, name=f"{it.name}.{i}", range=r, annotation=0) for i, r in enumerate(ranges)]
    stage.iters[at : at + 1], stage.vars[at : at + 1] = new, variables
    return new


@_STEPS.on("FSP")
def _follow_split(state: Any, stage_id: int, at: int, source: int, count: int) -> Any:
    lengths = followed_lengths(state.transform_steps, ["FSP", stage_id, at, source, count])
    return _split(state, stage_id, at, None, lengths, True)


@_STEPS.on("FFSP")
def _follow_fused_split(state: Any, stage_id: int, at: int, sources: list[int], level: int, factor: Any) -> Any:
    length = fused_length(state.transform_steps, ["FFSP", stage_id, at, sources, level, factor])
    return _split(state, stage_id, at, None, [length], bool(factor))


@_STEPS.on("SA")
def _storage_align(state: Any, stage_id: int, at: int, factor: int, offset: int) -> None:
    stage = state.stages[stage_id]
    if not stage.te_stage.is_output:  # which lies as the caller has it
        stage.te_stage.storage_align(stage.vars[at], factor, offset)


@_STEPS.on("TS")
def _tensorize(state: Any, stage_id: int, at: int, intrinsic: Any) -> Any:
    stage = state.stages[stage_id]
    stage.te_stage.tensorize(stage.vars[at], intrinsic() if callable(intrinsic) else intrinsic)
    stage.iters[at] = replace(stage.iters[at], annotation=ANNOTATIONS.index("tensorize"))
    return stage.iters[at]


@_STEPS.on("CA")
def _compute_at(state: Any, stage_id: int, target_id: int, target_at: int) -> None:
    stage, target = state.stages[stage_id], state.stages[target_id]
    stage.te_stage.compute_at(target.te_stage, target.vars[target_at])
    stage.compute_at, stage.attached = 2, (target.te_stage, target.iters[target_at].name)
    stage.iters = [replace(i, range=None) for i in stage.iters]


@_STEPS.on("CI")
def _compute_inline(state: Any, stage_id: int) -> None:
    stage = state.stages[stage_id]
    stage.te_stage.compute_inline()
    stage.compute_at, stage.attached = 1, None


@_STEPS.on("CR")
def _compute_root(state: Any, stage_id: int) -> None:
    stage = state.stages[stage_id]
    stage.te_stage.compute_root()
    stage.compute_at, stage.attached = 0, None
    stage.iters = [replace(i, range=None) for i in stage.iters]


def _added(state: Any, made: type[Any]) -> int:
    """Take up a stage that the schedule has got."""
    known = {id(s.te_stage) for s in state.stages}
    at = next(i for i, s in enumerate(state.schedule.stages) if id(s) not in known)
    state.stages.insert(at, made(state.schedule.stages[at]))
    return at


@_STEPS.on("CHR")
def _cache_read(state: Any, stage_id: int, scope: str, readers: list[int]) -> Any:
    stage = state.stages[stage_id]
    state.schedule.cache_read(stage.op.output(0), scope, [state.stages[r].op for r in readers])
    at = _added(state, type(stage))
    return state.stages[at].op


@_STEPS.on("CHW")
def _cache_write(state: Any, stage_id: int, scope: str) -> Any:
    stage = state.stages[stage_id]
    outputs = [stage.op.output(i) for i in range(stage.op.num_outputs)]
    state.schedule.cache_write(outputs, scope)
    stage.reset()
    return state.stages[_added(state, type(stage))].op


@_STEPS.on("RF")
def _rfactor(state: Any, stage_id: int, at: int, factor_axis: int) -> Any:
    stage = state.stages[stage_id]
    state.schedule.rfactor(stage.op.output(0), stage.vars[at], factor_axis)
    stage.reset()
    return state.stages[_added(state, type(stage))].op


# --- as Python ---


def _names(iters: Sequence[Any], op: str) -> list[str]:
    return [f"{op}_{i.name}".replace(".", "_o_").replace("@", "_") for i in iters]


def _op_name(stage: Any) -> str:
    return str(stage.op.name).replace(".", "_")


def python_lines(before: Any, after: Any, step: Sequence[Any]) -> list[str]:
    """Say a step as statements on a schedule ``s``, given the state before and after it."""
    code, stage_id = step[0], step[1]
    stage = before.stages[stage_id]
    op = _op_name(stage)
    names = _names(stage.iters, op)
    it = names[step[2]] if code in ("AN", "SP", "FSP", "FFSP", "PR", "SA", "RF", "TS") else ""
    if code in ("SP", "FSP", "FFSP"):
        lengths, inner_first = before.lengths_of(list(step)), step[-1] if code != "FSP" else 1
        new = _names(after.stages[stage_id].iters[step[2] : step[2] + len(lengths) + 1], op)
        return _python_split(op, it, new, lengths, bool(inner_first))
    if code == "AN":
        word = ANNOTATIONS[step[3]]
        thread = word == "vthread" or "Idx" in word
        return [f's[{op}].bind({it}, te.thread_axis("{word}"))' if thread else f"s[{op}].{word}({it})"]
    if code == "FU":
        fused = _names([after.stages[stage_id].iters[step[2][0]]], op)[0]
        return [f"{fused} = s[{op}].fuse({', '.join(names[i] for i in step[2])})"]
    if code == "PR":
        name, _, value = step[3].partition("$")
        explicit = [f's[{op}].pragma({it}, "unroll_explicit", True)'] if name == "auto_unroll_max_step" else []
        return [f's[{op}].pragma({it}, "{name}"{", " + value if value else ""})', *explicit]
    if code == "RE":
        return [f"s[{op}].reorder({', '.join(names[i] for i in step[2])})"]
    if code == "CA":
        target = before.stages[step[2]]
        other = _op_name(target)
        return [f"s[{op}].compute_at(s[{other}], {_names(target.iters, other)[step[3]]})"]
    if code in ("CI", "CR"):
        return [f"s[{op}].compute_{'inline' if code == 'CI' else 'root'}()"]
    return _python_new_stage(before, after, step, op, it)


def _python_split(op: str, it: str, new: list[str], lengths: Sequence[Any], inner_first: bool) -> list[str]:
    lines, left = [], it
    for i, size in enumerate(reversed(lengths) if inner_first else lengths):
        if inner_first:
            outer, inner = new[0] if i == len(lengths) - 1 else f"{it}_{i}", new[len(lengths) - i]
            lines.append(f"{outer}, {inner} = s[{op}].split({left}, factor={size})")
            left = outer
        else:
            outer, inner = new[i], new[-1] if i == len(lengths) - 1 else f"{it}_{i}"
            lines.append(f"{outer}, {inner} = s[{op}].split({left}, nparts={size})")
            left = inner
    return lines


def _python_new_stage(before: Any, after: Any, step: Sequence[Any], op: str, it: str) -> list[str]:
    if step[0] == "SA":
        return [f"s[{op}].storage_align({it}, {step[3]}, {step[4]})"]
    known = {s.op for s in before.stages}
    added = [s for s in after.stages if s.op not in known]
    if not added:
        return [f"s[{op}].tensorize({it}, ...)"]
    new = _op_name(added[0])
    axes = _names(added[0].iters, new)
    taken = [f"{', '.join(axes)}, = tuple(s[{new}].op.axis) + tuple(s[{new}].op.reduce_axis)"] if axes else []
    if step[0] == "CHR":
        readers = ", ".join(_op_name(before.stages[r]) for r in step[3])
        return [f'{new} = s.cache_read({op}, "{step[2]}", [{readers}])', *taken]
    call = f'cache_write([{op}], "{step[2]}")' if step[0] == "CHW" else f"rfactor({op}, {it}, {step[3]})"
    alone = "," if step[0] == "CHW" else ""
    return [f"{new}{alone} = s.{call}", *taken]
