"""What several primitives do together: the loops of a block tiled as an instruction wants them."""

from __future__ import annotations

from weft import ir
from weft.tir.schedule.analysis import get_tensorize_loop_mapping
from weft.tir.schedule.instruction import BlockRV, LoopRV
from weft.tir.schedule.schedule import Schedule
from weft.tir.schedule.tensorize import TensorIntrin
from weft.tir.stmt import For


def tile_with_tensor_intrin(
    sch: Schedule, block: BlockRV, intrin_name: str, allow_padding: bool = False
) -> LoopRV | None:
    """Split the loops of a block by those of an intrinsic's description, and put the inner parts innermost.

    Parameters
    ----------
    sch : Schedule
    block : BlockRV
    intrin_name : str
        What :meth:`TensorIntrin.register` was told.
    allow_padding : bool
        Whether sizes that do not divide are rounded up, by ``pad_einsum``.

    Returns
    -------
    LoopRV or None
        The outermost of the inner loops, which :meth:`Schedule.tensorize` takes; None where the loops do not fit.

    Raises
    ------
    InvalidArgument
        When no intrinsic has the name.
    """
    intrin = TensorIntrin.get(intrin_name)
    assert intrin is not None
    found = get_tensorize_loop_mapping(sch, block, intrin.desc, allow_padding)
    if found is not None and found.block_iter_paddings is not None:
        sch.pad_einsum(block, found.block_iter_paddings)
        found = get_tensorize_loop_mapping(sch, block, intrin.desc)
    if found is None:
        return None
    steps = {sch.get(sref).loop_var: loop for sref, loop in found.loop_map.items()}
    inner: dict[For, LoopRV] = {}
    outer: list[LoopRV] = []
    for loop in sch.get_loops(block):
        step = steps.get(loop.var)
        if step is not None:
            loop, inner[step] = sch.split(loop, [None, ir.as_int(step.extent)])
        outer += [loop] if inner else []
    tiled = [inner[step] for step in ir.find(intrin.desc.root.body, For) if step in inner]
    sch.reorder(*outer, *tiled)
    return tiled[0]
