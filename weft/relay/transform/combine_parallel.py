"""CombineParallelDense, CombineParallelConv2D and CombineParallelBatchMatmul: one product for those of one operand."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weft import ir
from weft.relay.expr import Call, Constant, Function, Tuple, TupleGetItem
from weft.relay.op.pattern import OpPattern
from weft.relay.op.registry import op_call
from weft.relay.transform.typed_pass import over_typed_functions
from weft.relay.types import TensorType
from weft.relay.walk import operator_name, parts, rewrite, subexpressions


@dataclass(frozen=True)
class _Joint:
    """How products become one: the product, what joins their operands behind it, and what takes results apart.

    ``beside(operands, calls)`` returns None where operands that belong to results of `calls` cannot be joined.
    """

    whole: Callable[[Sequence[Call]], Any]
    beside: Callable[[list[Any], Sequence[Call]], Any]
    parts: Callable[[Any, Sequence[Call]], list[Any]]


def CombineParallelDense(min_num_branches: int = 3, to_batch: bool = True) -> ir.Pass:
    """Make the pass that computes several ``nn.dense`` of the same data at once.

    Weights are constants or parameters. With `to_batch` they have one shape, and a ``nn.batch_matmul`` multiplies the
    data, repeated, with all; otherwise one ``nn.dense`` has the rows of all. Elementwise operators behind all of them
    are joined, too.
    """
    how, key = (_BATCH, _all_sizes) if to_batch else (_concatenated(0, 0, "units"), _rank_two)
    return _pass("CombineParallelDense", "nn.dense", min_num_branches, key, lambda _: how, CombineParallelDense.__doc__)


def CombineParallelConv2D(min_num_branches: int = 3) -> ir.Pass:
    """Make the pass that computes several ``nn.conv2d`` of the same image at once.

    They differ in nothing but the number of output channels, have one group, and data in NCHW or NHWC.
    """
    doc = CombineParallelConv2D.__doc__
    return _pass("CombineParallelConv2D", "nn.conv2d", min_num_branches, _convolution, _by_channels, doc)


def CombineParallelBatchMatmul(min_num_branches: int = 3) -> ir.Pass:
    """Make the pass that computes several ``nn.batch_matmul`` of the same left operand at once."""
    return _pass(
        "CombineParallelBatchMatmul",
        "nn.batch_matmul",
        min_num_branches,
        _batched,
        lambda _: _concatenated(1, 0, "", last=-1),
        CombineParallelBatchMatmul.__doc__,
    )


def _pass(
    name: str, op: str, least: int, key: Callable[[Call], Any], how: Callable[[Call], _Joint], doc: str | None
) -> ir.Pass:
    def combine(func: Function) -> Function:
        while True:
            groups: dict[Any, list[Call]] = {}
            outside = set(func.params)
            for e in subexpressions(func.body):
                if operator_name(e) == op:
                    movable = isinstance(e.args[1], Constant) or e.args[1] in outside
                    what = key(e) if movable and _sizes(e.args[1]) else None
                    if what is not None:
                        groups.setdefault((e.args[0], what), []).append(e)
            found = next((g for g in groups.values() if len(g) >= max(least, 2)), None)
            if found is None:
                return func
            instead = _combined(func, found, how(found[0]))
            func = rewrite(func, lambda e, instead=instead: e, pre=instead.get)

    return ir.Pass(name, over_typed_functions(combine), 4, doc)


def _combined(func: Function, found: Sequence[Call], how: _Joint) -> Mapping[Any, Any]:
    """Return what stands for the last calls behind the products that all of these have alike."""
    users: dict[Any, list[Any]] = {}
    for e in subexpressions(func):
        for p in parts(e):
            users.setdefault(p, []).append(e)
    row, whole = found, how.whole(found)
    while (above := _behind(row, users)) is not None:
        at = above[0].args.index(row[0])
        args = [
            whole if i == at else _beside([c.args[i] for c in above], row, found, how)
            for i in range(len(above[0].args))
        ]
        if any(a is None for a in args):
            break
        row, whole = above, Call(above[0].op, tuple(args), above[0].attrs)
    return dict(zip(row, how.parts(whole, row), strict=True))


def _behind(row: Sequence[Call], users: Mapping[Any, list[Any]]) -> list[Call] | None:
    """Return the only users of some calls, if they are calls of one elementwise operator that read these alike."""
    above = [users[c][0] for c in row if len(users.get(c, ())) == 1]
    if len(set(above)) != len(row) or any(type(u) is not Call or not isinstance(u.op, ir.Op) for u in above):
        return None
    alike = {
        (u.op, len(u.args), u.args.index(c) if c in u.args else -1, _without(u))
        for u, c in zip(above, row, strict=True)
    }
    pattern = above[0].op.get_attr("TOpPattern")
    simple = pattern is not None and pattern <= OpPattern.BROADCAST and row[0] in above[0].args
    return above if len(alike) == 1 and simple else None


def _beside(operands: list[Any], row: Sequence[Call], found: Sequence[Call], how: _Joint) -> Any:
    """Join operands that are known before the products are."""
    types = [o.ty for o in operands]
    if any(not isinstance(t, TensorType) or t.dtype != types[0].dtype or t.ndim != types[0].ndim for t in types):
        return None
    later = any(e in found for o in operands for e in subexpressions(o))
    return None if later or any(_sizes(o) == () != o.ty.shape for o in operands) else how.beside(operands, row)


def _sizes(e: ir.Expr) -> tuple[int, ...]:
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


def _as_batch(calls: Sequence[Call]) -> Call:
    data = op_call("stack", Tuple((calls[0].args[0],) * len(calls)), axis=0)
    weight = op_call("stack", Tuple(tuple(c.args[1] for c in calls)), axis=0)
    return op_call("nn.batch_matmul", data, weight, out_dtype=calls[0].attrs.get("out_dtype"))


def _stacked(operands: list[Any], calls: Sequence[Call]) -> Any:
    ndim = len(_sizes(operands[0]))
    if len(set(map(_sizes, operands))) > 1 or ndim > 2:
        return None
    if ndim < 2:
        operands = [op_call("expand_dims", o, axis=0, num_newaxis=2 - ndim) for o in operands]
    return op_call("stack", Tuple(tuple(operands)), axis=0)


def _of_batch(whole: Any, calls: Sequence[Call]) -> list[Any]:
    split = op_call("split", whole, indices_or_sections=len(calls), axis=0)
    return [op_call("squeeze", TupleGetItem(split, i), axis=[0]) for i in range(len(calls))]


_BATCH = _Joint(_as_batch, _stacked, _of_batch)


def _by_channels(call: Call) -> _Joint:
    return _concatenated(call.attrs["kernel_layout"].index("O"), 3 - (_channels_of(call) or 0), "channels")


def _concatenated(weight_axis: int, behind: int, counted: str, last: int | None = None) -> _Joint:
    """Compute with the weights side by side; the results have `behind` axes behind the joined one.

    `last` is what the joined axis of operands is called, where that is not its number.
    """

    def whole(calls: Sequence[Call]) -> Call:
        first: Any = calls[0]
        count = sum(_sizes(c.args[1])[weight_axis] for c in calls)
        weight = op_call("concatenate", Tuple(tuple(c.args[1] for c in calls)), axis=weight_axis)
        return op_call(
            first.op.name,
            first.args[0],
            weight,
            **dict(first.attrs.items) | {counted: count} if counted else dict(first.attrs.items),
        )

    def beside(operands: list[Any], calls: Sequence[Call]) -> Any:
        joined = []
        for o, c in zip(operands, calls, strict=True):
            shape, size = list(_sizes(o)), _sizes(c)[-1 - behind]
            if not shape and not behind:
                o, shape = op_call("expand_dims", o, axis=-1), [1]
            if len(shape) <= behind:
                return None
            at = len(shape) - 1 - behind
            if shape[at] == 1 != size:
                o = op_call("repeat", o, repeats=size, axis=at)
            elif shape[at] != size:
                return None
            joined.append((o, at, shape[:at] + shape[at + 1 :]))
        if any(j[2] != joined[0][2] for j in joined):
            return None
        return op_call("concatenate", Tuple(tuple(j[0] for j in joined)), axis=joined[0][1] if last is None else last)

    def parts(whole: Any, calls: Sequence[Call]) -> list[Any]:
        axis = len(_sizes(calls[0])) - 1 - behind
        ends = [0, *itertools.accumulate(_sizes(c)[axis] for c in calls)]
        return [_slice(whole, axis, b, e - b) for b, e in itertools.pairwise(ends)]

    return _Joint(whole, beside, parts)


def _slice(whole: Call, axis: int, begin: int, size: int) -> Call:
    attrs = {"begin": [0] * axis + [begin], "end": [-1] * axis + [size], "strides": [1] * (axis + 1)}
    return op_call("strided_slice", whole, **attrs, slice_mode="size")
