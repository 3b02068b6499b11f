"""Sums of many kinds: reductions, windows, products, convolutions; sorting.

A reduction that is no plain sum, product, least or greatest is a tree: the region combines both halves of a dimension,
element by element, until one is left. The specification leaves the order open.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import ir
from weft.frontend import complex_arithmetic as numbers
from weft.frontend.complex_arithmetic import Complex
from weft.frontend.stablehlo.elementwise import comparison
from weft.frontend.stablehlo.importer import CONVERTERS, Node
from weft.frontend.stablehlo.text import Region

_REDUCERS = {
    "add": ("sum", 0),
    "multiply": ("prod", 1),
    "maximum": ("max", -math.inf),
    "minimum": ("min", math.inf),
    "or": ("max", False),
    "and": ("min", True),
}
_ON_TRUTH = {n: f"logical_{'and' if n in ('and', 'minimum', 'multiply') else 'or'}" for n in _REDUCERS}
_ON_BITS = {name: f"bitwise_{name}" for name in ("and", "or", "xor")}
Combine = Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]


def _combiner(node: Node, own: Region | None = None) -> tuple[str, Combine]:
    """The name of an operation of two elements, empty for others, and how it combines tensors."""
    if "applies" in node.source.words:
        full = node.source.words[node.source.words.index("applies") + 1]
        name = full.removeprefix("stablehlo.")

        def combine(a: Sequence[Any], b: Sequence[Any]) -> Sequence[Any]:
            forms = _ON_TRUTH if a[0].ty.dtype == "bool" else _ON_BITS
            return [node.op(forms.get(name, name), a[0], b[0])]

        return name, combine
    own = own or node.source.regions[0]
    only, last = own.body[0], own.body[-1]
    plain = len(own.body) == 2 and set(only.operands) == {n for n, _ in own.params} and len(own.params) == 2
    name = only.name.removeprefix("stablehlo.") if plain and last.operands == only.results else ""
    return name, lambda a, b: node.graph.run(own, [*a, *b], node.values, True)


def _is_identity(start: Any, name: str) -> bool:
    """Whether a reduction's initial value changes nothing."""
    dtype = ir.DataType(start.ty.dtype)
    if not isinstance(start, ir.Constant) or name not in _REDUCERS:
        return False
    value = start.data.numpy().item()
    identity: Any = _REDUCERS[name][1]
    if name in ("maximum", "minimum") and not dtype.is_float:
        if dtype == "bool":
            return value == (name == "minimum")
        info = np.iinfo(ir.numpy_dtype(str(dtype)))
        identity = info.min if name == "maximum" else info.max
    return value == identity and (name not in ("or", "and") or dtype == "bool")


@CONVERTERS.on("stablehlo.reduce")
def _reduce(node: Node) -> Any:
    count = len(node.operands) // 2
    # "(a init: b), (c init: d)" stands in pairs, the generic form has all operands first
    paired = "init" in node.source.words
    given = node.operands
    xs, starts = (given[0::2], given[1::2]) if paired else (given[:count], given[count:])
    axes = sorted(node.attr("dimensions"))
    name, combine = _combiner(node)
    dtype = str(xs[0].ty.dtype)
    plain = name == "add" or not isinstance(xs[0], Complex)
    if plain and name in _REDUCERS and (dtype == "bool") == (name in ("or", "and")):
        x = node.graph.astype(xs[0], "uint8") if dtype == "bool" else xs[0]
        found = node.op(_REDUCERS[name][0], x, axis=tuple(axes), keepdims=False) if axes else x
        found = node.graph.astype(found, dtype)
        return found if _is_identity(starts[0], name) else combine([starts[0]], [found])
    if any(isinstance(node.dims(xs[0])[a], ir.PrimExpr) for a in axes):
        return _one_by_one(node, xs, starts, axes, combine)
    for axis in reversed(axes):
        xs = _tree(node, xs, starts, axis, combine)
    return combine(starts, xs)


def _one_by_one(node: Node, xs: list[Any], starts: list[Any], axes: list[int], combine: Combine) -> list[Any]:
    """Combine elements in their order, where it is open how many there are."""
    graph, dims = node.graph, node.dims(xs[0])
    kept = [i for i in range(len(dims)) if i not in axes]
    rest, size = [dims[i] for i in kept], math.prod(dims[i] for i in axes)
    parts = [graph.reshape(graph.permute(x, [*axes, *kept]), [size, *rest]) for x in xs]
    end = graph.sized(graph.simplified(size), "int64")

    def step(state: list[Any]) -> list[Any]:
        at, *found = state
        here = [node.op("take", x, at, axis=0, mode="clip") for x in parts]
        return [node.op("add", at, graph.scalar(1, "int64")), *combine(found, here)]

    begin = [graph.scalar(0, "int64"), *(graph.expand(x, rest) for x in starts)]
    return graph.loop(begin, lambda state: node.op("less", state[0], end), step)[1:]


def _tree(node: Node, xs: Sequence[Any], starts: Sequence[Any], axis: int, combine: Combine) -> list[Any]:
    """Combine halves of a dimension until it is gone."""
    graph, size = node.graph, node.dims(xs[0])[axis]
    rest = [n for i, n in enumerate(node.dims(xs[0])) if i != axis]
    if size == 0:
        return [graph.expand(s, rest) for s in starts]
    while size > 1:
        half = size // 2
        low, middle, end = (
            [graph.narrow(x, axis, b, n) for x in xs] for b, n in ((0, half), (half, half), (2 * half, size - 2 * half))
        )
        xs = combine(low, middle)
        if size % 2:
            xs = [graph.concat([x, e], axis) for x, e in zip(xs, end, strict=True)]
        size = half + size % 2
    return [graph.reshape(x, rest) for x in xs]


@CONVERTERS.on("stablehlo.reduce_window")
def _reduce_window(node: Node) -> Any:
    count, rank = len(node.operands) // 2, len(node.dims(node.x))
    steps = [node.ints(k, rank, 1) for k in ("window_strides", "base_dilations", "window_dilations")]
    padding = node.attr("padding", [[0, 0]] * rank)
    return _windowed(node, count, [node.attr("window_dimensions"), *steps, padding], *_combiner(node))


@CONVERTERS.on("stablehlo.custom_call @stablehlo.dynamic_reduce_window")
def _dynamic_reduce_window(node: Node) -> Any:
    """Windows whose sizes are operands; the reducer is a function of the program."""
    count = (len(node.operands) - 5) // 2
    *sizes, flat = (node.sizes(2 * count + i) for i in range(5))
    reducer = node.graph.funcs[node.attr("called_computations")[0].lstrip("@")]
    padding = [flat[i : i + 2] for i in range(0, len(flat), 2)]
    return _windowed(node, count, [*sizes, padding], *_combiner(node, reducer.region))


def _windowed(node: Node, count: int, sizes: Sequence[Sequence[Any]], name: str, combine: Combine) -> Any:
    """Windows, one dimension after another; those of twice the size combine two of the size before."""
    graph, xs, starts = node.graph, node.operands[:count], node.operands[count : 2 * count]
    window, stride, base, dilation, padding = map(list, sizes)
    for axis, size in enumerate(window):
        if isinstance(size, ir.PrimExpr):
            plain = stride[axis] == base[axis] == dilation[axis] == 1 and _is_identity(starts[0], name)
            xs = [_running(node, xs[0], axis, size, padding[axis], name if plain else "")]
            window[axis], padding[axis] = 1, [0, 0]
    low, high = ([p[i] for p in padding] for i in (0, 1))
    xs = [graph.pad(x, s, low, high, [b - 1 for b in base]) for x, s in zip(xs, starts, strict=True)]
    for axis, size in enumerate(window):
        xs = _windows(node, xs, axis, size, dilation[axis], combine)
        steps = [stride[axis] if i == axis else 1 for i in range(len(window))]
        xs = [graph.slice(x, [0] * len(window), node.dims(x), steps) for x in xs]
    return combine([graph.expand(s, node.dims(x)) for s, x in zip(starts, xs, strict=True)], xs)


def _running(node: Node, x: Any, axis: int, size: Any, sides: Sequence[Any], name: str) -> Any:
    """Windows as long as an open dimension, which begin or end at each element: running sums or products."""
    same = node.graph.simplified
    apart = [same(n - size + 1) for n in sides]
    op = {"add": "cumsum", "multiply": "cumprod"}.get(name)
    if op is None or same(node.dims(x)[axis] - size) != 0 or 0 not in apart or 0 not in [same(n) for n in sides]:
        node.unsupported("a window of open size", expected="running sums and products")
    for step in (op,) if apart[0] == 0 else ("flip", op, "flip"):
        x = node.op(step, x, axis=axis)
    return x


def _windows(node: Node, xs: Sequence[Any], axis: int, size: int, step: int, combine: Combine) -> Sequence[Any]:
    """Combine all runs of `size` elements, a step apart."""
    total = node.dims(xs[0])[axis]
    kept = node.graph.simplified(ir.max_(total - (size - 1) * step, 0))
    powers, width = {1: list(xs)}, 1
    while 2 * width <= size:  # elements i and i + width of runs of `width` make runs twice as long
        left = node.graph.simplified(ir.max_(total - (2 * width - 1) * step, 0))
        a, b = ([node.graph.narrow(x, axis, at, left) for x in powers[width]] for at in (0, width * step))
        width *= 2
        powers[width] = list(combine(a, b))
    found, done = None, 0
    for width in sorted(powers, reverse=True):
        if size - done < width:
            continue
        part = [node.graph.narrow(x, axis, done * step, kept) for x in powers[width]]
        found, done = part if found is None else list(combine(found, part)), done + width
    return found or list(xs)


@CONVERTERS.on("stablehlo.select_and_scatter")
def _select_and_scatter(node: Node) -> Any:
    """Add each of the sources to the element that its window selects, as a maximum's gradient does."""
    graph, (x, source, start), rank = node.graph, node.operands, len(node.dims(node.x))
    size, stride = (node.ints(k, rank, 1) for k in ("window_dimensions", "window_strides"))
    low, high = ([p[i] for p in node.attr("padding", [[0, 0]] * rank)] for i in (0, 1))
    out, whole = node.dims(source), [a + n + b for a, n, b in zip(low, node.dims(x), high, strict=True)]
    padded = graph.pad(x, graph.scalar(0, str(x.ty.dtype)), low, high)
    inside = graph.pad(graph.expand(graph.scalar(1, "int8"), node.dims(x)), graph.scalar(0, "int8"), low, high)
    found, held, place = None, None, graph.expand(graph.scalar(-1, "int32"), out)
    places = list(np.ndindex(*size))
    for k, at in enumerate(places):
        ends = [a + (n - 1) * s + 1 for a, n, s in zip(at, out, stride, strict=True)]
        here, own = graph.slice(padded, at, ends, stride), graph.astype(graph.slice(inside, at, ends, stride), "bool")
        if found is None:
            taken = own
        else:
            keeps = node.op("logical_and", held, node.inlined(0, [found, here])[0])
            taken = node.op("logical_and", own, node.op("logical_not", keeps))
        found = here if found is None else node.op("where", taken, here, found)
        held = own if held is None else node.op("logical_or", held, own)
        place = node.op("where", taken, graph.scalar(k, "int32"), place)
    made = graph.expand(start, whole)
    for k, at in enumerate(places):  # of one place in the windows, no two are the same element
        behind = [w - a - max((n - 1) * s + 1, 0) for w, a, n, s in zip(whole, at, out, stride, strict=True)]
        gaps = [s - 1 for s in stride]
        hit = graph.astype(node.op("equal", place, graph.scalar(k, "int32")), "int8")
        hit = graph.astype(graph.pad(hit, graph.scalar(0, "int8"), at, behind, gaps), "bool")
        given = graph.pad(source, graph.scalar(0, str(source.ty.dtype)), at, behind, gaps)
        made = node.op("where", hit, node.inlined(1, [made, given])[0], made)
    return graph.slice(made, low, [n + a for n, a in zip(node.dims(x), low, strict=True)])


# --- sorting ----------------------------------------------------------------------------------------------------------


@CONVERTERS.on("stablehlo.sort")
def _sort(node: Node) -> Any:
    """Sort by some of the operands, from the last one to the first; what is equal keeps its order."""
    axis = node.attr("dimension", -1) % max(len(node.dims(node.x)), 1)
    order = None
    for key, descending in reversed(_sort_keys(node, node.source.regions[0].body[-1].operands[0])):
        x = node.operands[key]
        x = x if order is None else node.op("gather_elements", x, order, axis=axis)
        found = node.op("argsort", x, axis=axis, descending=descending, dtype="int64")
        order = found if order is None else node.op("gather_elements", order, found, axis=axis)
    return [node.op("gather_elements", x, order, axis=axis) for x in node.operands]


def _sort_keys(node: Node, result: str) -> list[tuple[int, bool]]:
    """The operands that a comparison of pairs of elements compares, the first one first, and which are descending."""
    region = node.source.regions[0]
    made = {r: op for op in region.body for r in op.results}
    names = [n for n, _ in region.params]

    def sides(test: Any, *directions: str) -> tuple[int, bool] | None:
        """The operand that is compared with itself in a direction, and whether from behind."""
        if test is None or test.name != "stablehlo.compare" or comparison(test) not in directions:
            return None
        a, b = (names.index(n) if n in names else -1 for n in (_origin(node, made, name) for name in test.operands))
        return (a // 2, a > b) if a ^ 1 == b else None

    test = made.get(result)
    if test is not None and (found := sides(test, "LT", "GT", "LE", "GE")) is not None:
        return [(found[0], (comparison(test)[0] == "G") != found[1])]
    if test is not None and test.name == "stablehlo.or":  # of the first, or of the others where that is equal
        for first, other in (test.operands, test.operands[::-1]):
            rest, key = made.get(other), sides(made.get(first), "LT", "GT")
            if key is None or rest is None or rest.name != "stablehlo.and":
                continue
            for name, further in (rest.operands, rest.operands[::-1]):
                if (equal := sides(made.get(name), "EQ")) is not None and equal[0] == key[0]:
                    return [*_sort_keys(node, first), *_sort_keys(node, further)]
    return node.unsupported("an order of this kind", expected="a comparison of operands' elements, one after another")


def _origin(node: Node, made: dict[str, Any], name: str) -> str:
    """The element behind the forms that make all zeros, and all NaNs, one."""
    while (op := made.get(name)) is not None and op.name == "stablehlo.select":
        test, value, other = made.get(op.operands[0]), _known(node, made, op.operands[1]), op.operands[2]
        if test is None or value is None or test.name != "stablehlo.compare":
            break
        sides = [_origin(node, made, n) for n in test.operands]
        zero = comparison(test) == "EQ" and value == 0 and _known(node, made, test.operands[1]) == 0
        nan = comparison(test) == "NE" and np.isnan(value) and sides[0] == sides[1]
        if not (zero or nan) or sides[0] != _origin(node, made, other):
            break
        name = other
    return name


def _known(node: Node, made: dict[str, Any], name: str) -> Any:
    """A constant of one element, of the region or from outside of it."""
    if name not in made:
        x = node.values.get(name)
        return x.data.numpy() if isinstance(x, ir.Constant) and not x.data.shape else None
    return made[name].attrs.get("value")


@CONVERTERS.on("chlo.top_k")
def _top_k(node: Node) -> Any:
    found = node.op("topk", node.x, k=node.attr("k"), axis=-1, ret_type="both", largest=True, dtype="int32")
    return node.graph.fields(found)


@CONVERTERS.on("stablehlo.custom_call @ApproxTopK")
def _nearly_top_k(node: Node) -> Any:
    """All of the largest or smallest, in order, with what lies beside them."""
    x, beside, *_ = node.operands
    options, order = node.attr("mhlo.backend_config", {}), node.graph.funcs[node.attr("called_computations")[0][1:]]
    axis, way = int(options["reduction_dim"]), comparison(order.region.body[0])
    if len(node.operands) != 4 or len(order.region.body) != 2 or way not in ("GT", "LT"):
        node.unsupported("another order than that of one operand's numbers", found=way)
    found = node.op("topk", x, k=node.shape[axis], axis=axis, ret_type="both", largest=way == "GT", dtype="int32")
    values, places = node.graph.fields(found)
    return [values, node.op("gather_elements", beside, places, axis=axis)]


# --- products ---------------------------------------------------------------------------------------------------------


@CONVERTERS.on("stablehlo.dot_general", "stablehlo.dot")
def _dot(node: Node) -> Any:
    sides, graph = node.operands, node.graph
    ranks = [len(node.dims(x)) for x in sides]
    numbers = node.attr("dot_dimension_numbers", {})
    if node.name == "dot":
        batch, contracted = [[], []], [[ranks[0] - 1], [0]]
    else:
        batch, contracted = (
            node.attr(k) or [numbers.get(f"{side}_{name}", []) for side in ("lhs", "rhs")]
            for k, name in (("batching_dims", "batching_dimensions"), ("contracting_dims", "contracting_dimensions"))
        )
    free = [[a for a in range(r) if a not in batch[i] and a not in contracted[i]] for i, r in enumerate(ranks)]
    sizes = [[math.prod(node.dims(x)[a] for a in g[i]) for g in (free, contracted)] for i, x in enumerate(sides)]
    outer = [node.dims(sides[0])[a] for a in batch[0]]
    a = graph.permute(sides[0], [*batch[0], *free[0], *contracted[0]])
    b = graph.permute(sides[1], [*batch[1], *contracted[1], *free[1]])
    whole = [math.prod(outer)] if outer else []
    a, b = graph.reshape(a, [*whole, *sizes[0]]), graph.reshape(b, [*whole, *sizes[1][::-1]])
    wide = node.dtype if node.dtype != a.ty.dtype else None
    if wide and ir.DataType(wide).is_float:
        a, b = graph.astype(a, wide), graph.astype(b, wide)
        wide = None
    found = node.op("matmul", a, b, **({"out_dtype": wide} if wide else {}))
    return graph.reshape(found, [*outer, *(node.dims(x)[a] for x, own in zip(sides, free, strict=True) for a in own)])


@CONVERTERS.on("stablehlo.fft")
def _fft(node: Node) -> Any:
    """Transforms of the last axes; of real numbers the last one is halved, or made whole again."""
    kind = str(node.attr("type", node.attr("fft_type"))).split()[-1]
    lengths, rank = node.attr("length", node.attr("fft_length")), len(node.dims(node.x))
    form, size = {"RFFT": ("r2c", lengths[-1] // 2 + 1), "IRFFT": ("c2r", lengths[-1])}.get(kind, ("c2c", None))
    axes = range(rank - len(lengths), rank)
    x = numbers.fourier(node.graph, node.x, axes, form, kind.startswith("I"), size)
    if kind.startswith("I"):
        x = numbers.scaled(node.graph, x, node.graph.scalar(1 / math.prod(lengths), str(x.ty.dtype)))
    return x.re if kind == "IRFFT" else x


_LAYOUTS = {1: ("NCW", "OIW"), 2: ("NCHW", "OIHW"), 3: ("NCDHW", "OIDHW")}


@CONVERTERS.on("stablehlo.convolution", "stablehlo.dynamic_conv")
def _convolution(node: Node) -> Any:
    x, kernel, *widths = node.operands
    inputs, weights, outputs = _conv_numbers(node)
    space = len(inputs) - 2
    batches = node.attr("batch_group_count", 1)
    if space not in _LAYOUTS:
        node.unsupported("one to three dimensions of space are supported", found=f"{space} dimensions")
    window = node.attr("window", {})

    def each(pretty: str, generic: str, default: Any) -> list[Any]:
        return window.get(pretty) or node.attr(generic) or [default] * space

    stride, pad = each("stride", "window_strides", 1), each("pad", "padding", [0, 0])
    if widths:
        pad = [node.sizes(2)[2 * i : 2 * i + 2] for i in range(space)]
    spread, dilation = each("lhs_dilate", "lhs_dilation", 1), each("rhs_dilate", "rhs_dilation", 1)
    graph = node.graph
    x, kernel = graph.astype(x, node.dtype), graph.astype(kernel, node.dtype)  # sums are not rounded before the end
    x = graph.permute(x, [inputs.index(d) for d in ("b", "f", *range(space))])
    kernel = graph.permute(kernel, [weights.index(d) for d in ("o", "i", *range(space))])
    for axis, turned in enumerate(each("reverse", "window_reversal", False)):
        kernel = node.op("flip", kernel, axis=axis + 2) if turned else kernel
    if any(n != 1 for n in spread) or any(isinstance(n, ir.PrimExpr) or n < 0 for p in pad for n in p):
        low, high = ([0, 0, *(p[i] for p in pad)] for i in (0, 1))
        x = graph.pad(x, graph.scalar(0, str(x.ty.dtype)), low, high, [0, 0, *(n - 1 for n in spread)])
        pad = [[0, 0]] * space
    sides = tuple(p[i] for i in (0, 1) for p in pad)
    if batches > 1:  # groups of batches are groups of features
        count, features, *rest = node.dims(x)
        x = graph.reshape(x, [batches, count // batches, features, *rest])
        x = graph.permute(x, [1, 0, *range(2, space + 3)])
        x = graph.reshape(x, [count // batches, batches * features, *rest])
    found = node.op(
        f"nn.conv{space}d",
        x,
        kernel,
        strides=tuple(stride),
        padding=sides,
        dilation=tuple(dilation),
        groups=node.attr("feature_group_count", 1) * batches,
    )
    return graph.permute(found, [["b", "f", *range(space)].index(d) for d in outputs])


def _conv_numbers(node: Node) -> list[list[Any]]:
    """The dimensions of input, kernel and output: ``b``, ``f``, ``o``, ``i`` or a number of space."""
    found = node.attr("dim_numbers", node.attr("dimension_numbers"))
    if not isinstance(found, list) or len(found) != 3:
        node.error("dimension numbers do not read as input, kernel and output", found=str(found))
    return found
