"""CombineParallelDense, CombineParallelConv2D and CombineParallelBatchMatmul: one product for those of one operand."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from weft import ir
from weft.relay.expr import Call, Constant, Function, Tuple, TupleGetItem
from weft.relay.op.registry import op_call
from weft.relay.transform.typed_pass import over_typed_functions
from weft.relay.walk import rewrite, subexpressions

Emit = Callable[[Sequence[Call]], list[Any]]


def CombineParallelDense(min_num_branches: int = 3, to_batch: bool = True) -> ir.Pass:
    """Make the pass that computes several ``nn.dense`` of the same data at once.

    Weights are constants or parameters. With `to_batch` they have one shape, and a ``nn.batch_matmul`` multiplies the
    data, repeated, with all; otherwise one ``nn.dense`` has the rows of all.
    """
    emit, key = (_as_batch, _all_sizes) if to_batch else (_concatenated(0, 1, "units"), _rank_two)
    return _pass("CombineParallelDense", "nn.dense", min_num_branches, key, emit, CombineParallelDense.__doc__)


def CombineParallelConv2D(min_num_branches: int = 3) -> ir.Pass:
    """Make the pass that computes several ``nn.conv2d`` of the same image at once.

    They differ in nothing but the number of output channels, have one group, and data in NCHW or NHWC.
    """
    return _pass("CombineParallelConv2D", "nn.conv2d", min_num_branches, _convolution, _convolutions,
                 CombineParallelConv2D.__doc__)  # fmt: skip


def CombineParallelBatchMatmul(min_num_branches: int = 3) -> ir.Pass:
    """Make the pass that computes several ``nn.batch_matmul`` of the same left operand at once."""
    return _pass("CombineParallelBatchMatmul", "nn.batch_matmul", min_num_branches, _batched,
                 _concatenated(1, 2, ""), CombineParallelBatchMatmul.__doc__)  # fmt: skip


def _pass(name: str, op: str, least: int, key: Callable[[Call], Any], emit: Emit, doc: str | None) -> ir.Pass:
    def combine(func: Function) -> Function:
        while True:
            groups: dict[Any, list[Call]] = {}
            outside = set(func.params)
            for e in subexpressions(func.body):
                if type(e) is Call and isinstance(e.op, ir.Op) and e.op.name == op:
                    movable = isinstance(e.args[1], Constant) or e.args[1] in outside
                    what = key(e) if movable and _sizes(e.args[1]) else None
                    if what is not None:
                        groups.setdefault((e.args[0], what), []).append(e)
            found = next((g for g in groups.values() if len(g) >= max(least, 2)), None)
            if found is None:
                return func
            instead = dict(zip(found, emit(found), strict=True))
            func = rewrite(func, lambda e, instead=instead: e, pre=instead.get)

    return ir.Pass(name, over_typed_functions(combine), 4, doc)


def _sizes(e: Any) -> tuple[int, ...]:
    """The constant sizes of a weight; empty where they are not known."""
    known = [ir.as_int(d) for d in getattr(e.ty, "shape", None) or ()]
    return tuple(d for d in known if d is not None) if None not in known else ()


def _dtype(call: Call) -> str:
    return getattr(call.args[1].ty, "dtype", "")


def _without(call: Call, *names: str) -> tuple[Any, ...]:
    return tuple((k, str(v)) for k, v in call.attrs.items if k not in names)


def _all_sizes(call: Call) -> Any:
    two = _rank_two(call)
    return None if two is None else (_sizes(call.args[1]), two[1], _without(call))


def _rank_two(call: Call) -> Any:
    two = getattr(call.ty, "ndim", None) == 2
    return (_sizes(call.args[1])[1], _dtype(call), _without(call, "units")) if two else None


def _batched(call: Call) -> Any:
    plain = call.attrs.get("transpose_b", True) and not call.attrs.get("transpose_a", False)
    b, _, k = _sizes(call.args[1])
    return (b, k, _dtype(call), _without(call)) if plain else None


def _convolution(call: Call) -> Any:
    axis = _channels_of(call)
    if axis is None or int(call.attrs["groups"]) != 1 or call.attrs.get("out_layout"):
        return None
    sizes = list(_sizes(call.args[1]))
    del sizes[call.attrs["kernel_layout"].index("O")]
    return tuple(sizes), _dtype(call), _without(call, "channels")


def _channels_of(call: Call) -> int | None:
    return {"NCHW": 1, "NHWC": 3}.get(call.attrs["data_layout"]) if len(call.attrs["kernel_layout"]) == 4 else None


def _as_batch(calls: Sequence[Call]) -> list[Any]:
    n = len(calls)
    data = op_call("stack", Tuple((calls[0].args[0],) * n), axis=0)
    weight = op_call("stack", Tuple(tuple(c.args[1] for c in calls)), axis=0)
    product = op_call("nn.batch_matmul", data, weight, out_dtype=calls[0].attrs.get("out_dtype"))
    parts = op_call("split", product, indices_or_sections=n, axis=0)
    return [op_call("squeeze", TupleGetItem(parts, i), axis=[0]) for i in range(n)]


def _convolutions(calls: Sequence[Call]) -> list[Any]:
    axis = calls[0].attrs["kernel_layout"].index("O")
    return _concatenated(axis, _channels_of(calls[0]) or 0, "channels")(calls)


def _concatenated(weight_axis: int, axis: int, counted: str) -> Emit:
    """Compute with the weights side by side, and take the results apart."""

    def emit(calls: Sequence[Call]) -> list[Any]:
        first: Any = calls[0]
        ends = [0]
        for c in calls:
            ends.append(ends[-1] + _sizes(c.args[1])[weight_axis])
        weight = op_call("concatenate", Tuple(tuple(c.args[1] for c in calls)), axis=weight_axis)
        attrs = dict(first.attrs.items) | ({counted: ends[-1]} if counted else {})
        whole = op_call(first.op.name, first.args[0], weight, **attrs)
        return [_slice(whole, axis, b, e - b) for b, e in itertools.pairwise(ends)]

    return emit


def _slice(whole: Call, axis: int, begin: int, size: int) -> Call:
    attrs = {"begin": [0] * axis + [begin], "end": [-1] * axis + [size], "strides": [1] * (axis + 1)}
    return op_call("strided_slice", whole, **attrs, slice_mode="size")
