"""Tasks of ``weft.autotvm`` from Relay programs; a build with what was found is in ``database``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from weft import ir, op, te
from weft.autotvm.task.kernels import anchor_of, register_kernel_template
from weft.autotvm.task.task import Task, args_to_workload, create
from weft.relay.auto_scheduler import kernels_with_sources
from weft.relay.build_module import as_target
from weft.target import TargetLike

_PRODUCTS = frozenset({"matmul", "nn.matmul_packed", "nn.matmul_nbits"})
_KERNELS_OF = {"nn.dense": _PRODUCTS, "nn.matmul": _PRODUCTS, "nn.batch_matmul": _PRODUCTS}
"""Which operators of kernels stand for one of Relay's of another name."""


def extract_from_program(
    mod: ir.IRModule | ir.BaseFunc,
    params: Mapping[str, Any] | None,
    target: TargetLike,
    target_host: TargetLike | None = None,
    ops: Sequence[ir.Op] | None = None,
) -> list[Task]:
    """List the tasks of a program's kernels, each once.

    Parameters
    ----------
    mod : IRModule or Function
        The program, with control flow or without.
    params : mapping of str to tensor, optional
        Values for parameters of ``main``, by name.
    target, target_host : Target or str
    ops : sequence of Op, optional
        Only kernels around one of these operators of Relay.

    Returns
    -------
    list of Task
        Named by operators, with what they are called with as arguments. Kernels of unknown sizes, or with other than
        one reduction, are none: a convolution for which Winograd's algorithm was chosen is none.
    """
    return extract_from_multiple_program([mod], [params], target, target_host, ops)


def extract_from_multiple_program(
    mods: Sequence[ir.IRModule | ir.BaseFunc],
    params: Sequence[Mapping[str, Any] | None],
    target: TargetLike,
    target_host: TargetLike | None = None,
    ops: Sequence[ir.Op] | None = None,
) -> list[Task]:
    """List the tasks of several programs as :func:`extract_from_program` does of one, each once."""
    made = as_target(target, target_host)
    wanted = None if ops is None else {n for o in ops for n in (o.name, *_KERNELS_OF.get(o.name, ()))}
    tasks: dict[Any, Task] = {}
    for mod, values in zip(mods, params, strict=True):
        for _, _, source in kernels_with_sources(mod, values, made):
            anchor = source.anchor() if anchor_of(source.args) is not None else None
            if anchor is None or (wanted is not None and anchor[0] not in wanted):
                continue
            name, *args = anchor
            register_kernel_template(name, partial(_compute, name))
            workload = args_to_workload(args, name)
            if workload not in tasks:
                tasks[workload] = create(name, args, made, target_host)
    return list(tasks.values())


def _compute(name: str, *args: Any) -> te.Tensor:
    """Make the tensor of an operator of kernels; the last argument are its attributes."""
    *tensors, attrs = args
    lower = op.get_op_def(f"relax.{name}").lower
    assert lower is not None
    return lower(*tensors, **dict(attrs))
