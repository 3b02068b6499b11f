"""Primitives that change how a loop runs or note something on a loop or block.

Parallel, vectorize, unroll, bind, annotate.
"""

from __future__ import annotations

from weft.arith import Analyzer
from weft.ir import Attrs, IntImm, IterVar, Range, Var, const, is_const_int
from weft.tir.analysis.apart import accumulates, instances_apart, tied_iterations, writes_apart
from weft.tir.analysis.structure import blocks_in, child_realizes, path_to, replace_node, statements, used_vars
from weft.tir.schedule.state import ScheduleState, refuse
from weft.tir.stmt import Block, BlockRealize, For, ForKind


def parallel(state: ScheduleState, var: Var) -> None:
    """Run the iterations of a loop on the thread pool."""
    _set_kind(state, var, ForKind.PARALLEL)


def vectorize(state: ScheduleState, var: Var) -> None:
    """Run the iterations of a loop as lanes of vectors."""
    loop = state.loop(var)
    if not isinstance(loop.extent, IntImm):
        raise refuse(f"the extent {loop.extent} is not a constant", loops=loop, help="split a constant factor off")
    _set_kind(state, var, ForKind.VECTORIZED)


def unroll(state: ScheduleState, var: Var) -> None:
    """Write the iterations of a loop out one after another."""
    loop = state.loop(var)
    state.replace(loop, replace_node(loop, kind=ForKind.UNROLLED, thread_binding=None))


def bind(state: ScheduleState, var: Var, thread_tag: str) -> None:
    """Run each iteration of a loop on its own GPU thread or block."""
    if not thread_tag.startswith(("threadIdx.", "blockIdx.", "vthread")):
        raise refuse(f"unknown thread axis '{thread_tag}'", help="threadIdx.x/y/z, blockIdx.x/y/z or vthread")
    path, loop = state.path_to_loop(var), state.loop(var)
    check_data_parallel(loop, state.analyzer_at(path, inside=True), allow_reduce=thread_tag.startswith("threadIdx."))
    for other in (*path[:-1], *statements(loop.body)):
        if isinstance(other, For) and other.thread_binding is not None:
            outer, inner = (other, loop) if other in path else (loop, other)
            if (
                other.thread_binding.thread_tag == thread_tag
                and not thread_tag.startswith("vthread")
                and not _for_threads_together(outer, inner)
            ):
                raise refuse(
                    f"a loop of the same nest runs on {thread_tag} already",
                    loops=[other, loop],
                    help="bind one of the two to another axis, or fuse the two loops and bind the result",
                )
    axis = IterVar(
        Range.from_min_extent(const(0, var.dtype), loop.extent), Var(thread_tag, var.dtype), "thread", thread_tag
    )
    state.replace(loop, replace_node(loop, kind=ForKind.THREAD_BINDING, thread_binding=axis))


def _for_threads_together(threads: For, work: For) -> bool:
    """Whether a loop in a loop over threads makes what all of them use: each of them does one iteration of it."""
    blocks = blocks_in(work)
    shared = bool(blocks) and all(w.buffer.scope.startswith("shared") for b in blocks for w in b.writes)
    return shared and threads.loop_var not in used_vars(work)


def _set_kind(state: ScheduleState, var: Var, kind: ForKind) -> None:
    path, loop = state.path_to_loop(var), state.loop(var)
    check_data_parallel(loop, state.analyzer_at(path, inside=True))
    state.replace(loop, replace_node(loop, kind=kind, thread_binding=None))


def check_data_parallel(loop: For, analyzer: Analyzer, allow_reduce: bool = False) -> None:
    """Refuse unless each iteration writes other elements, and uses none that another one makes."""
    allowed = ("data_par", "reduce") if allow_reduce else ("data_par",)
    for r in child_realizes(loop.body):
        if not is_const_int(loop.extent, 1) and loop.loop_var not in used_vars(r.iter_values) and accumulates(r.block):
            raise refuse(
                f"each iteration of the loop runs '{r.block.name_hint}' again on what it wrote before",
                loops=loop,
                block=r.block.name_hint,
                help="apply it to a loop that the block's variables depend on",
            )
        for iv, value in zip(r.block.iter_vars, r.iter_values, strict=True):
            if loop.loop_var in used_vars(value) and iv.iter_type not in allowed:
                raise refuse(
                    f"the loop feeds '{iv.var.name}', a {iv.iter_type} variable: its iterations write the same "
                    "elements",
                    loops=loop,
                    block=r.block.name_hint,
                    help="use rfactor, or apply it to a spatial loop",
                )
        _check_apart(loop, r)
    tied = None if is_const_int(loop.extent, 1) else tied_iterations(loop.body, [loop], analyzer)
    if tied is not None:
        raise refuse(
            f"'{tied[1]}' uses elements of '{tied[0].name}' that other iterations may write",
            loops=loop,
            block=tied[1],
            help="each iteration has to make what it uses",
        )


def _check_apart(loop: For, realize: BlockRealize) -> None:
    """Refuse a block that writes elements of another iteration of the loop."""
    block = realize.block
    if is_const_int(loop.extent, 1) or not block.writes:
        return
    reducing = {iv.var for iv in block.iter_vars if iv.iter_type != "data_par"}
    moved = [r for w in block.writes for r in w.region if not used_vars(r.min, r.extent).isdisjoint(reducing)]
    inner = [s for s in path_to(loop, lambda s: s is realize) or () if isinstance(s, For)]
    if moved or not writes_apart(block) or (accumulates(block) and not instances_apart(inner, realize)):
        raise refuse(
            "the iterations are not known to write elements of their own",
            loops=loop,
            block=block.name_hint,
            help="the block's data-parallel variables have to decide what it writes, and the loop their values",
        )


def annotate(state: ScheduleState, target: Var | str, key: str, value: object) -> None:
    """Note ``key: value`` on a loop (its variable) or a block (its name)."""
    node = _target(state, target)
    state.replace(node, replace_node(node, annotations=Attrs.of(node.annotations, **{key: value})))


def unannotate(state: ScheduleState, target: Var | str, key: str) -> None:
    """Remove a note."""
    node = _target(state, target)
    if key not in node.annotations:
        raise refuse(f"no annotation '{key}'", help="there are: " + (", ".join(node.annotations.keys()) or "none"))
    state.replace(node, replace_node(node, annotations=node.annotations.without(key)))


def _target(state: ScheduleState, target: Var | str) -> For | Block:
    if isinstance(target, str):
        realize: BlockRealize = state.realize(target)
        return realize.block
    return state.loop(target)
