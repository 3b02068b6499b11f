"""Where elements lie: reshapes, slices, padding, gathers and scatters."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import ir, relax
from weft.frontend.building import objects
from weft.frontend.common import pairs
from weft.frontend.stablehlo.elementwise import COMPARISONS, comparison
from weft.frontend.stablehlo.importer import CONVERTERS, ON_SIZES, Node


@CONVERTERS.on("stablehlo.reshape")
def _reshape(node: Node) -> Any:
    return node.graph.reshape(node.x, node.shape)


@CONVERTERS.on("stablehlo.dynamic_reshape")
def _dynamic_reshape(node: Node) -> Any:
    return node.graph.reshape(node.x, node.sizes(1))


def _spread(node: Node, own: Sequence[Any], rank: int) -> tuple[list[int], list[Any]]:
    """Return the order of an operand's axes in the result, and its shape there."""
    axes, spread = list(node.attr("dims", node.attr("broadcast_dimensions", []))), [1] * rank
    for n, axis in zip(own, axes, strict=True):
        spread[axis] = n
    return np.argsort(axes).tolist(), spread


@CONVERTERS.on("stablehlo.broadcast_in_dim", "chlo.broadcast_in_dim", "stablehlo.dynamic_broadcast_in_dim")
def _broadcast(node: Node) -> Any:
    own, shape = node.dims(node.x), node.sizes(1) if node.name.startswith("dynamic") else node.shape
    order, spread = _spread(node, own, len(shape))
    return node.graph.expand(node.graph.reshape(node.graph.permute(node.x, order), spread), shape)


@CONVERTERS.on("stablehlo.transpose")
def _transpose(node: Node) -> Any:
    return node.graph.permute(node.x, node.attr("dims", node.attr("permutation")))


@CONVERTERS.on("stablehlo.reverse")
def _reverse(node: Node) -> Any:
    x = node.x
    for axis in node.attr("dims", node.attr("dimensions")):
        x = node.op("flip", x, axis=axis)
    return x


@CONVERTERS.on("stablehlo.concatenate")
def _concatenate(node: Node) -> Any:
    return node.graph.concat(node.operands, node.attr("dim", node.attr("dimension")))


@CONVERTERS.on("stablehlo.slice")
def _slice(node: Node) -> Any:
    ranges = node.attr("ranges")
    if ranges is None:
        begin, end, step = (node.attr(k) for k in ("start_indices", "limit_indices", "strides"))
    else:
        begin, end, step = ([r[i] if i < len(r) else 1 for r in ranges] for i in range(3))
    return node.graph.slice(node.x, begin, end, step)


@CONVERTERS.on("stablehlo.real_dynamic_slice")
def _real_dynamic_slice(node: Node) -> Any:
    x, start, end, _ = node.operands
    length = _length_of_part(node, start, end)
    if length is not None and all(n == 1 for n in node.sizes(3)):
        starts = [node.graph.slice(start, [i], [i + 1]) for i in range(len(length))]
        return _part(node, x, starts, length)
    begin, end = ([node.graph.simplified(ir.max_(n, 0)) for n in node.sizes(i)] for i in (1, 2))
    bounds = {"begin": tuple(begin), "end": tuple(end), "strides": tuple(node.sizes(3))}
    return node.op("strided_slice", x, axes=tuple(range(len(begin))), **bounds, assume_inbound=False)


def _length_of_part(node: Node, start: ir.Expr, end: ir.Expr) -> list[Any] | None:
    """The sizes that were added to a start that is data, such as a loop's, to get an end; None for other ends."""
    added = node.graph.bb.lookup_binding(end) if isinstance(end, relax.Var) else None
    if not isinstance(added, ir.Call) or getattr(added.op, "name", "") != "relax.add" or start not in added.args:
        return None
    found = node.graph.sizes_of([x for x in added.args if x is not start], True)
    return found[0].tolist() if found and node.graph.sizes_of([start], True) is None else None


@CONVERTERS.on("stablehlo.dynamic_pad")
def _dynamic_pad(node: Node) -> Any:
    return node.graph.pad(node.x, node.operands[1], *(node.sizes(i) for i in (2, 3, 4)))


@CONVERTERS.on("stablehlo.pad")
def _pad(node: Node) -> Any:
    low, high, interior = (
        node.attr(k, node.attr(f"edge_padding_{k}", node.attr(f"{k}_padding"))) for k in ("low", "high", "interior")
    )
    return node.graph.pad(node.x, node.operands[1], low, high, interior)


@CONVERTERS.on("stablehlo.dynamic_slice")
def _dynamic_slice(node: Node) -> Any:
    x, *starts = node.operands
    return _part(node, x, starts, node.attr("sizes", node.attr("slice_sizes")))


def _part(node: Node, x: ir.Expr, starts: Sequence[ir.Expr], sizes: Sequence[Any]) -> ir.Expr:
    """A part of some sizes, moved inside where it would leave."""
    for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        most = node.graph.simplified(node.dims(x)[axis] - size)
        if isinstance(most, ir.PrimExpr) or most > 0:
            places = node.op("add", node.graph.start_inside(start, most), node.graph.arange(size))
            x = node.op("take", x, places, axis=axis, mode="clip")
    return x


@CONVERTERS.on("stablehlo.dynamic_update_slice")
def _dynamic_update(node: Node) -> Any:
    x, update, *starts = node.operands
    return node.graph.updated(x, update, starts)


# --- gather and scatter -----------------------------------------------------------------------------------------------


def _numbers(node: Node, group: str, names: str) -> list[list[int]]:
    """Lists of dimensions out of the attribute that describes a gather or scatter."""
    numbers = node.attr(group) or {}  # none of them reads as an empty list
    return [list(numbers.get(name, [])) for name in names.split()]


def _places(
    node: Node, starts: Any, vector: int, mapped: list[int], batched: tuple[list[int], list[int]], sizes: Sequence[int]
) -> tuple[list[int], Any, list[int], list[int]]:
    """Where windows begin and what lies in them, of the dimensions that are indexed.

    Returns
    -------
    (axes, indices, batch, windows)
        The operand's indexed dimensions; indices (*batch, *windows, axes) int64; the sizes of `batch` and `windows`.
    """
    graph, starts = node.graph, node.graph.astype(starts, "int64")
    dims = node.dims(starts)
    if vector == len(dims):
        starts, dims = graph.reshape(starts, [*dims, 1]), [*dims, 1]
    starts = graph.permute(starts, [*(i for i in range(len(dims)) if i != vector), vector])
    batch = [n for i, n in enumerate(dims) if i != vector]
    axes = [*batched[0], *mapped]
    windows = [sizes[a] for a in axes]
    parts = []
    for i, axis in enumerate(axes):
        if i < len(batched[0]):  # the place in a dimension of the batch
            at = batched[1][i] - (batched[1][i] > vector)
            line: Any = graph.reshape(graph.arange(batch[at]), [n if k == at else 1 for k, n in enumerate(batch)])
        else:
            line = graph.reshape(graph.narrow(starts, len(batch), i - len(batched[0]), 1), batch)
        line = graph.reshape(line, [*node.dims(line), *[1] * len(windows)])
        inner = [1] * len(batch) + [n if k == i else 1 for k, n in enumerate(windows)]
        line = node.op("add", line, graph.reshape(graph.arange(sizes[axis]), inner))
        parts.append(graph.reshape(graph.expand(line, [*batch, *windows]), [*batch, *windows, 1]))
    return axes, graph.concat(parts, len(batch) + len(windows)), batch, windows


@CONVERTERS.on("stablehlo.gather", "stablehlo.dynamic_gather")
def _gather(node: Node) -> Any:
    """Gathers: starts are clamped, so that each slice lies inside."""
    x, starts, *_ = node.operands
    names = "offset_dims collapsed_slice_dims start_index_map operand_batching_dims start_indices_batching_dims"
    offset, collapsed, mapped, batched, of_starts = _numbers(node, "dimension_numbers", names)
    vector = (node.attr("dimension_numbers") or {}).get("index_vector_dim", 0)
    sizes, whole, graph = node.sizes(2) if node.name != "gather" else node.attr("slice_sizes"), node.dims(x), node.graph
    dims = node.dims(starts)
    spread = [len(mapped) if i == vector else 1 for i in range(len(dims))] if vector < len(dims) else []
    most = graph.sized(objects([whole[a] - sizes[a] for a in mapped], spread), "int64")
    starts = node.op("maximum", graph.astype(starts, "int64"), graph.scalar(0, "int64"))
    starts = node.op("minimum", starts, most)
    axes, places, batch, windows = _places(node, starts, vector, mapped, (batched, of_starts), sizes)
    rest = [a for a in range(len(whole)) if a not in axes]
    x = graph.slice(x, [0] * len(whole), [whole[a] if a in axes else sizes[a] for a in range(len(whole))])
    if len(axes) == 1 and windows == [1]:
        found = node.op("take", x, graph.reshape(places, batch), axis=axes[0], mode="clip")
        end = axes[0] + len(batch)
        order = [*range(axes[0], end), *range(axes[0]), *range(end, len(node.dims(found)))]
        found = graph.reshape(graph.permute(found, order), [*batch, 1, *(sizes[a] for a in rest)])
    elif axes:
        found = node.op("gather_nd", graph.permute(x, [*axes, *rest]), places)
    else:
        found = graph.expand(graph.reshape(x, [*[1] * len(batch), *node.dims(x)]), [*batch, *node.dims(x)])
    standing = [*axes, *rest]
    order = [len(batch) + standing.index(a) for a in range(len(whole))]
    found = graph.permute(found, [*range(len(batch)), *order])
    kept = [sizes[a] for a in range(len(whole)) if a not in collapsed and a not in batched]
    found = graph.reshape(found, [*batch, *kept])
    outer = iter(range(len(batch)))
    inner = iter(range(len(batch), len(batch) + len(kept)))
    return graph.permute(found, [next(inner) if i in offset else next(outer) for i in range(len(batch) + len(kept))])


_UPDATES = {"add": "add", "multiply": "mul", "maximum": "max", "minimum": "min", "subtract": "sub"}


@CONVERTERS.on("stablehlo.scatter")
def _scatter(node: Node) -> Any:
    """Scatters: an update outside of the operand changes a row behind it, which is cut off."""
    if len(node.operands) != 3:
        node.unsupported("several operands", expected="1", found=str(len(node.operands) // 2))
    x, starts, updates = node.operands
    kind = _update_of(node)
    if kind == "sub":
        updates, kind = node.op("negative", updates), "add"
    names = "update_window_dims inserted_window_dims scatter_dims_to_operand_dims"
    names += " input_batching_dims scatter_indices_batching_dims"
    window, inserted, mapped, batched, of_starts = _numbers(node, "scatter_dimension_numbers", names)
    vector = (node.attr("scatter_dimension_numbers") or {}).get("index_vector_dim", 0)
    whole, graph = node.dims(x), node.graph
    given = iter([node.dims(updates)[i] for i in window])
    sizes = [1 if a in inserted or a in batched else next(given) for a in range(len(whole))]
    if not whole:
        x, whole, sizes = graph.reshape(x, [1]), [1], [1]
    first = [a for a in range(len(whole)) if a not in (*batched, *mapped) and sizes[a] != whole[a]]
    first = first or ([] if mapped or batched else [0])
    if first:  # windows begin there with the first element
        dims = node.dims(starts)
        starts = graph.reshape(starts, [*dims, 1][: max(len(dims), vector + 1)])
        zeros = [len(first) if i == vector else n for i, n in enumerate(node.dims(starts))]
        starts = graph.concat([starts, graph.expand(graph.scalar(0, str(starts.ty.dtype)), zeros)], vector)
    axes, places, batch, windows = _places(node, starts, vector, mapped + first, (batched, of_starts), sizes)
    rest = [a for a in range(len(whole)) if a not in axes]
    # the update's dimensions: those of the batch, then the window's in the operand's order
    outer = [i for i in range(len(node.dims(updates))) if i not in window]
    updates = graph.permute(updates, [*outer, *window])
    updates = graph.reshape(updates, [*batch, *sizes])
    updates = graph.permute(updates, [*range(len(batch)), *(len(batch) + a for a in [*axes, *rest])])
    standing = graph.permute(x, [*axes, *rest])
    limits = graph.sized(objects([whole[a] for a in axes], (len(axes),)), "int64")
    # a window counts as a whole: where one of its elements lies outside, none is written
    first = graph.narrow(places, len(batch) + len(windows), 0, len(axes))
    below, above = node.op("less", first, graph.scalar(0, "int64")), node.op("greater_equal", first, limits)
    bad = node.op("logical_or", below, above)
    inner = tuple(range(len(batch), len(batch) + len(windows) + 1))
    worst = node.op("max", graph.astype(bad, "int32"), axis=inner, keepdims=True)
    bad = node.op("greater", worst, graph.scalar(0, "int32"))
    behind = graph.sized(objects([whole[axes[0]], *[0] * (len(axes) - 1)], (len(axes),)), "int64")
    places = node.op("where", bad, behind, places)
    row = node.op("full", ir.shape_expr([1, *node.dims(standing)[1:]]), graph.scalar(0, str(x.ty.dtype)))
    found = node.op("scatter_nd", graph.concat([standing, row], 0), places, updates, reduction=kind)
    found = graph.narrow(found, 0, 0, whole[axes[0]])
    return graph.reshape(graph.permute(found, np.argsort([*axes, *rest]).tolist()), node.dims(node.x))


def _update_of(node: Node) -> str:
    """What an update does to an element: takes its place, or is added to it and so on."""
    region = node.source.regions[0]
    last = region.body[-1]
    if len(region.body) == 1 and last.operands == [region.params[1][0]]:
        return "update"
    only = region.body[0]
    names = [name for name, _ in region.params]
    kind, given = _UPDATES.get(only.name.removeprefix("stablehlo.")), list(only.operands)
    right = given in (names, names[::-1]) if kind != "sub" else given == names
    if len(region.body) == 2 and kind and right and last.operands == only.results:
        return kind
    return node.unsupported("an update of this kind", expected=", ".join(["replacement", *_UPDATES]))


# --- open dimensions --------------------------------------------------------------------------------------------------


@CONVERTERS.on("stablehlo.get_dimension_size")
def _dimension_size(node: Node) -> Any:
    return node.graph.sized(node.dims(node.x)[node.attr("dim", node.attr("dimension"))], node.dtype)


@CONVERTERS.on("stablehlo.custom_call @shape_assertion")
def _assertion(node: Node) -> Any:
    """Make sizes that have to be equal one, which is checked when the program runs; others are not looked at."""
    graph = node.graph
    claim = graph.sizes[node.x].item() if node.x in graph.sizes else None
    if not isinstance(claim, ir.EQ):
        return []
    old, new = (claim.a, claim.b) if isinstance(claim.a, ir.Var) else (claim.b, claim.a)
    if not isinstance(old, ir.Var):
        graph.bb.match_cast(ir.shape_expr((old,)), ir.ShapeType((new,), 1), "check")
        return []
    for name, x in node.values.items():
        if any(d is old for d in node.dims(x)):
            dims = [new if d is old else d for d in node.dims(x)]
            node.values[name] = graph.bb.match_cast(x, ir.tensor_type(dims, x.ty.dtype))
    for x, sizes in graph.sizes.items():
        flat = [ir.substitute(n, {old: new}) if isinstance(n, ir.PrimExpr) else n for n in sizes.reshape(-1).tolist()]
        graph.sizes[x] = objects(flat, sizes.shape)
    return []


def _each(f: Callable[..., Any], operands: int = 2) -> Callable[..., Any]:
    of_arrays = np.frompyfunc(f, operands, 1)
    return lambda node, *sizes: of_arrays(*sizes)


def _broadcast_sizes(node: Node, sizes: Any) -> Any:
    order, spread = _spread(node, sizes.shape, len(node.shape))
    return np.broadcast_to(sizes.transpose(order).reshape(spread), node.shape)


_ARITHMETIC = "add:add subtract:sub multiply:mul maximum:max_ minimum:min_ divide:truncdiv remainder:truncmod"
ON_SIZES.update(
    {
        **{name: _each(getattr(ir, fn)) for name, fn in pairs(_ARITHMETIC).items()},
        "sign": _each(lambda a: ir.max_(ir.min_(a, 1), -1), 1),
        "and": _each(operator.and_),
        "or": _each(operator.or_),
        "select": _each(ir.select, 3),
        "compare": lambda node, *sizes: _each(getattr(ir, COMPARISONS[comparison(node.source)]))(node, *sizes),
        "convert": lambda node, a: a,
        "reshape": lambda node, a: a,
        "concatenate": lambda node, *parts: np.concatenate(parts, node.attr("dim", node.attr("dimension"))),
        "broadcast_in_dim": _broadcast_sizes,
    }
)
