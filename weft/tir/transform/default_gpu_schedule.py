"""DefaultGPUSchedule: kernels for a GPU that nobody scheduled become threads, one for each element."""

from math import prod
from typing import Any

from weft import ir
from weft.tir.analysis.structure import child_realizes, replace_node
from weft.tir.function import PrimFunc
from weft.tir.schedule.instruction import BlockRV
from weft.tir.schedule.schedule import Schedule
from weft.tir.stmt import Block, For, ForKind
from weft.tir.transform.kernels_of_loops import kernels_of_loops


@ir.function_pass(kind=PrimFunc, name="DefaultGPUSchedule", opt_level=0)
def default_gpu_schedule(
    func: PrimFunc, mod: ir.IRModule, *, max_threads: int = 1024, max_blocks: int = 256
) -> PrimFunc:
    """Bind the spatial loops of each block to blocks of threads, where the function's target is a GPU.

    Requires: Functions of blocks. The target is that of the function, or the current one; functions without any, for
        another one, scheduled ones and those with threads of their own stay as they are.
    Ensures: The same; the loops of a block that are no reductions are one, split between ``blockIdx.x`` and
        ``threadIdx.x``; what is longer, or not known, is repeated by each thread.
    Before::

        @T.prim_func
        def main(A: T.Buffer((4, 3), "float32"), B: T.Buffer((4, 3), "float32")):
            T.func_attr({"target": T.target({"kind": "cuda"})})
            for i, j in T.grid(4, 3):
                with T.sblock("b"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] + T.float32(1)

    After::

        @T.prim_func
        def main(A: T.Buffer((4, 3), "float32"), B: T.Buffer((4, 3), "float32")):
            T.func_attr({"target": T.target({"kind": "cuda"}), "tir.is_scheduled": True})
            for b in T.thread_binding(1, thread="blockIdx.x"):
                for t in T.thread_binding(12, thread="threadIdx.x"):
                    with T.sblock("b"):
                        vi = T.axis.spatial(4, (b * 12 + t) // 3)
                        vj = T.axis.spatial(3, (b * 12 + t) % 3)
                        B[vi, vj] = A[vi, vj] + T.float32(1)

    Options:
        ``max_threads``: of a block of threads, at most.
        ``max_blocks``: of threads, where one of each element would be more.
    Cost: Linear.
    Source: TVM's ``DefaultGPUSchedule``.
    """
    kind = getattr(func.attrs.get("target") or ir.Ambient.current_of("Target"), "kind", None)
    has_threads = any(isinstance(n, For) and n.kind == ForKind.THREAD_BINDING for n in ir.walk(func.body))
    if "gpu" not in getattr(kind, "keys", ()) or func.attrs.get("tir.is_scheduled") or has_threads:
        return func
    sch = Schedule(func)
    for outermost in child_realizes(sch.state.body):
        for name in _leaves(sch, outermost.block.name_hint):
            _bind(sch, BlockRV(name), max_threads, max_blocks)
    return sch.func.replace(attrs=func.attrs).with_attr("tir.is_scheduled", True)


def _leaves(sch: Any, name: str) -> list[str]:
    """Name the blocks that have none inside."""
    inner = [r.block.name_hint for r in child_realizes(sch.state.realize(name).block)]
    return [leaf for n in inner for leaf in _leaves(sch, n)] if inner else [name]


def _bind(sch: Schedule, block: BlockRV, max_threads: int, max_blocks: int) -> None:
    loops: list[Any] = sch.get_loops(block)
    node: Block = sch.get(block)
    if not node.iter_vars and node.init is None:  # code that somebody wrote
        sch.state.replace(node, replace_node(node, body=kernels_of_loops(node.body)))
        return
    if not loops:
        loops = [sch.add_unit_loop(block)]
    kinds = [v.iter_type for v in node.iter_vars]
    spatial = [loop for loop, kind in zip(loops, kinds, strict=False) if kind == "data_par"] or loops[:0]
    if len(kinds) != len(loops) or not spatial:
        spatial = [sch.add_unit_loop(loops[0])]
    else:
        sch.reorder(*spatial, *(loop for loop in loops if loop not in spatial))
    extents = [ir.as_int(sch.get(loop).extent) for loop in spatial]
    fused = sch.fuse(*spatial) if len(spatial) > 1 else spatial[0]
    known = None if None in extents else prod(e for e in extents if e is not None)
    if known is not None and known <= max_threads * max_blocks:
        threads = sch.split(fused, [None, min(known, max_threads)])
    else:
        again, *threads = sch.split(fused, [None, max_blocks, max_threads])
        sch.reorder(*threads, again)
    for loop, axis in zip(threads, ("blockIdx.x", "threadIdx.x"), strict=True):
        sch.bind(loop, axis)
