"""Where elements lie: reshapes, slices, padding, gathers; what is made of nothing; order."""

from itertools import zip_longest
from typing import Any

import numpy as np

from weft import ir
from weft.frontend.building import objects
from weft.frontend.tflite.importer import CONVERTERS, ON_SIZES, Node


@CONVERTERS.on("RESHAPE", "SQUEEZE", "EXPAND_DIMS")
def _reshape(node: Node) -> Any:
    """The model says which shape; given input shapes decide it where one dimension follows from the others."""
    (x,) = node.moved(0)
    if not (node.reader.given_shapes or node.outputs[0].is_open):
        return node.reader.reshape(x, node.outputs[0].shape)
    own = node.dims(x)
    if node.name == "EXPAND_DIMS":
        axis = node.ints(1)[0] % (len(own) + 1)
        return node.reader.reshape(x, [*own[:axis], 1, *own[axis:]])
    if node.name == "SQUEEZE":
        gone = [int(a) % len(own) for a in node.option("SqueezeOptions", "SqueezeDimsAsNumpy", [])]
        return node.reader.reshape(x, [n for i, n in enumerate(own) if (i not in gone if gone else n != 1)])
    target = node.ints(1) if node.has(1) else node.outputs[0].signature or node.outputs[0].shape
    rest = node.reader.quotient(own, [n for n in target if n != -1])
    return node.reader.reshape(x, [rest if n == -1 else n for n in target])


@CONVERTERS.on("TRANSPOSE")
def _transpose(node: Node) -> Any:
    return node.reader.permute(node.moved(0)[0], node.ints(1))


@CONVERTERS.on("CONCATENATION")
def _concatenate(node: Node) -> Any:
    parts = node.moved(*range(len(node.inputs)))
    axis = node.option("ConcatenationOptions", "Axis") % len(node.dims(parts[0]))
    return node.activated(node.reader.concat(parts, axis), "ConcatenationOptions")


@CONVERTERS.on("PACK")
def _pack(node: Node) -> Any:
    parts = node.moved(*range(len(node.inputs)))
    rank = len(node.dims(parts[0]))
    axis = node.option("PackOptions", "Axis") % (rank + 1)
    shape = [*node.dims(parts[0])[:axis], 1, *node.dims(parts[0])[axis:]]
    return node.reader.concat([node.reader.reshape(p, shape) for p in parts], axis)


@CONVERTERS.on("UNPACK")
def _unpack(node: Node) -> Any:
    (x,) = node.moved(0)
    dims = node.dims(x)
    axis = node.option("UnpackOptions", "Axis") % len(dims)
    rest = [n for i, n in enumerate(dims) if i != axis]
    return [node.reader.reshape(node.reader.narrow(x, axis, i, 1), rest) for i in range(dims[axis])]


@CONVERTERS.on("SPLIT", "SPLIT_V")
def _split(node: Node) -> Any:
    data, axis_input = (1, 0) if node.name == "SPLIT" else (0, 2)
    (x,) = node.moved(data)
    dims = node.dims(x)
    axis, count = node.ints(axis_input)[0] % len(dims), len(node.outputs)
    sizes = [dims[axis] // count] * count if node.name == "SPLIT" else node.ints(1)
    sizes = [dims[axis] - sum(n for n in sizes if n != -1) if n == -1 else n for n in sizes]
    starts = np.cumsum([0, *sizes]).tolist()
    return [node.reader.narrow(x, axis, a, n) for a, n in zip(starts, sizes, strict=False)]


@CONVERTERS.on("SLICE")
def _slice(node: Node) -> Any:
    (x,) = node.moved(0)
    begin, sizes = node.ints(1), node.ints(2)
    ends = [
        d if isinstance(n, int) and n == -1 else node.reader.simplified(b + n)
        for b, n, d in zip(begin, sizes, node.dims(x), strict=True)
    ]
    for bounds in zip(begin, ends, node.dims(x), strict=True):
        node.reader.check_inside(*bounds)
    return node.reader.slice(x, begin, ends)


def _index(node: Node, rank: int) -> list[Any]:
    """A slice, a number or None (a new axis) for each place of what Python writes in brackets."""
    masks = {
        k: node.option("StridedSliceOptions", f"{k}Mask") for k in ("Begin", "End", "Ellipsis", "NewAxis", "ShrinkAxis")
    }
    index: list[Any] = []
    for i, (b, e, s) in enumerate(zip(*(node.ints(k) for k in (1, 2, 3)), strict=True)):
        bit = 1 << i
        if masks["Ellipsis"] & bit:
            index.append(Ellipsis)
        elif masks["NewAxis"] & bit:
            index.append(None)
        elif masks["ShrinkAxis"] & bit:
            index.append(b)
        else:
            index.append(slice(None if masks["Begin"] & bit else b, None if masks["End"] & bit else e, s))
    index += [] if Ellipsis in index else [Ellipsis]
    at = index.index(Ellipsis)
    index[at : at + 1] = [slice(None)] * (rank - sum(part is not None for part in index) + 1)
    return index


@CONVERTERS.on("STRIDED_SLICE")
def _strided_slice(node: Node) -> Any:
    """Python's slices of NumPy's arrays."""
    (x,) = node.moved(0)
    axis, shape = 0, []
    for part in _index(node, len(node.dims(x))):
        if part is None:
            shape.append(1)
            continue
        size = node.dims(x)[axis]
        ends = (part.start, part.stop) if isinstance(part, slice) else (part,)
        if any(isinstance(n, ir.PrimExpr) for n in (size, *ends)):
            begin, count = _bounds(node, part, size)
            x = node.reader.narrow(x, axis, begin, count)
        else:
            places = range(size)[part] if isinstance(part, slice) else range(size)[part : part + 1 or None]
            count = len(places)
            if places.step < 0:
                x = node.op("flip", x, axis=axis)
                places = range(size - 1 - places.start, size, -places.step)[:count]
            x = node.reader.narrow(x, axis, places.start, count, places.step)
        shape += [count] if isinstance(part, slice) else []
        axis += 1
    return node.reader.reshape(x, shape)


def _bounds(node: Node, part: Any, size: Any) -> tuple[Any, Any]:
    """Where a part of a dimension begins and how long it is, where one of these is open."""
    zero, whole = ir.const(0, "int64"), ir.as_expr(size, "int64")

    def place(n: Any, default: Any, most: ir.PrimExpr = whole) -> Any:
        if n is None or (isinstance(n, int) and n == 0):
            return default if n is None else 0
        n = ir.as_expr(n, "int64")
        if not node.reader.analyzer.can_prove_greater_equal(n, zero):
            n = ir.Max(n + whole if isinstance(n, ir.IntImm) else ir.Select(n < 0, n + whole, n), zero)
        return node.reader.simplified(ir.Min(n, most))

    if not isinstance(part, slice):
        return place(part, None, whole - 1), 1
    if part.step not in (None, 1):
        node.unsupported("steps along an open dimension", expected="1", found=str(part.step))
    begin, end = place(part.start, 0), place(part.stop, size)
    count = end if isinstance(begin, int) and begin == 0 else ir.Max(end - begin, zero)
    return begin, node.reader.simplified(count)


@CONVERTERS.on("PAD", "PADV2")
def _pad(node: Node) -> Any:
    (x,) = node.moved(0)
    pairs = node.const(1).tolist()
    if node.has(2):
        (value,) = node.moved(2)
        value = node.reader.reshape(value, [])
    else:
        zero = node.outputs[0].zero
        value = node.reader.scalar(0 if zero is None else zero.reshape(-1)[0], x.ty.dtype)
    return node.reader.pad(x, value, *([p[i] for p in pairs] for i in (0, 1)))


@CONVERTERS.on("MIRROR_PAD")
def _mirror_pad(node: Node) -> Any:
    (x,) = node.moved(0)
    for axis, (low, high) in enumerate(node.const(1).tolist()):
        size, edge = node.dims(x)[axis], node.option("MirrorPadOptions", "Mode")  # 0: without the edge, 1: with it
        if low or high:
            places = np.pad(np.arange(size), (low, high), mode="symmetric" if edge else "reflect")
            x = node.op("take", x, ir.constant(places), axis=axis, mode="clip")
    return x


@CONVERTERS.on("TILE")
def _tile(node: Node) -> Any:
    (x,), repeats = node.moved(0), node.ints(1)
    if all(isinstance(n, int) for n in repeats):
        return node.op("tile", x, repeats=tuple(repeats))
    dims = node.dims(x)
    x = node.reader.reshape(x, [n for d in dims for n in (1, d)])
    x = node.reader.expand(x, [n for pair in zip(repeats, dims, strict=True) for n in pair])
    return node.reader.reshape(x, [node.reader.simplified(r * d) for r, d in zip(repeats, dims, strict=True)])


@CONVERTERS.on("BROADCAST_TO")
def _broadcast(node: Node) -> Any:
    return node.reader.expand(node.moved(0)[0], node.ints(1))


@CONVERTERS.on("BROADCAST_ARGS")
def _broadcast_args(node: Node) -> Any:
    pairs = list(zip_longest(*(node.ints(i)[::-1] for i in (0, 1)), fillvalue=1))[::-1]
    return node.reader.sized(objects([b if a == 1 else a for a, b in pairs], (len(pairs),)), node.outputs[0].dtype)


@CONVERTERS.on("FILL")
def _fill(node: Node) -> Any:
    (value,) = node.moved(1)
    return node.reader.expand(node.reader.reshape(value, []), node.ints(0))


@CONVERTERS.on("REVERSE_V2")
def _reverse(node: Node) -> Any:
    (x,) = node.moved(0)
    for axis in node.ints(1):
        x = node.op("flip", x, axis=axis)
    return x


@CONVERTERS.on("SPACE_TO_DEPTH", "DEPTH_TO_SPACE")
def _blocks(node: Node) -> Any:
    (x,) = node.moved(0)
    batch, height, width, channels = node.dims(x)
    table = "SpaceToDepthOptions" if node.name == "SPACE_TO_DEPTH" else "DepthToSpaceOptions"
    b = node.option(table, "BlockSize")
    if node.name == "SPACE_TO_DEPTH":
        x = node.reader.reshape(x, [batch, height // b, b, width // b, b, channels])
        shape = [batch, height // b, width // b, b * b * channels]
    else:
        x = node.reader.reshape(x, [batch, height, width, b, b, channels // (b * b)])
        shape = [batch, height * b, width * b, channels // (b * b)]
    return node.reader.reshape(node.reader.permute(x, [0, 1, 3, 2, 4, 5]), shape)


@CONVERTERS.on("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND")
def _batches(node: Node) -> Any:
    """Blocks of space become elements of the batch, or the other way round."""
    (x,), sizes, pairs, reader = node.moved(0), node.ints(1), node.const(2).tolist(), node.reader
    m = len(sizes)
    if node.name == "SPACE_TO_BATCH_ND":
        rest = [[0, 0]] * (len(node.dims(x)) - 1 - m)
        zero = node.outputs[0].zero
        fill = reader.scalar(0 if zero is None else zero.reshape(-1)[0], x.ty.dtype)
        x = reader.pad(x, fill, *([p[i] for p in [[0, 0], *pairs, *rest]] for i in (0, 1)))
        dims = node.dims(x)
        apart = [n for d, s in zip(dims[1 : 1 + m], sizes, strict=True) for n in (d // s, s)]
        x = reader.reshape(x, [dims[0], *apart, *dims[1 + m :]])
        x = reader.permute(x, [*range(2, 2 * m + 1, 2), 0, *range(1, 2 * m, 2), *range(2 * m + 1, len(node.dims(x)))])
        space = [d // s for d, s in zip(dims[1 : 1 + m], sizes, strict=True)]
        return reader.reshape(x, [dims[0] * int(np.prod(sizes)), *space, *dims[1 + m :]])
    dims = node.dims(x)
    batch = dims[0] // int(np.prod(sizes))
    x = reader.reshape(x, [*sizes, batch, *dims[1:]])
    order = [m, *(k for i in range(m) for k in (m + 1 + i, i)), *range(2 * m + 1, len(dims) + m)]
    whole = [batch, *(d * s for d, s in zip(dims[1 : 1 + m], sizes, strict=True)), *dims[1 + m :]]
    x = reader.reshape(reader.permute(x, order), whole)
    begin = [0, *(p[0] for p in pairs), *[0] * (len(dims) - 1 - m)]
    ends = [whole[0], *(whole[1 + i] - p[1] for i, p in enumerate(pairs)), *whole[1 + m :]]
    return reader.slice(x, begin, ends)


# --- made of nothing --------------------------------------------------------------------------------------------------


@CONVERTERS.on("SHAPE")
def _shape(node: Node) -> Any:
    dims = node.dims(node.x())
    return node.reader.sized(objects(dims, [len(dims)]), node.outputs[0].dtype)


@CONVERTERS.on("RANK")
def _rank(node: Node) -> Any:
    return ir.constant(np.array(len(node.dims(node.x())), node.outputs[0].dtype))


@CONVERTERS.on("RANGE")
def _range(node: Node) -> Any:
    if any(node.x(i) in node.reader.sizes for i in range(3)):
        ends = (ir.as_expr(node.ints(i)[0], "int64") for i in range(3))
        return node.reader.astype(node.op("arange", *ends, dtype="int64"), node.outputs[0].dtype)
    start, limit, delta = (node.const(i).item() for i in range(3))
    return ir.constant(np.arange(start, limit, delta).astype(node.outputs[0].dtype))


def _elementwise(fn: Any) -> Any:
    return lambda node, *arrays: np.frompyfunc(fn, 2, 1)(*arrays)


def _of(kind: Any) -> Any:
    return lambda a, b: kind(ir.as_expr(a, "int64"), ir.as_expr(b, "int64"))


ON_SIZES.update(
    {
        "CAST": lambda node, x: x,
        "RESHAPE": lambda node, x, *_: x.reshape(node.outputs[0].shape),
        "SQUEEZE": lambda node, x: x.reshape(node.outputs[0].shape),
        "EXPAND_DIMS": lambda node, x, _: x.reshape(node.outputs[0].shape),
        "PACK": lambda node, *x: np.stack(x, node.option("PackOptions", "Axis")),
        "CONCATENATION": lambda node, *x: np.concatenate(x, node.option("ConcatenationOptions", "Axis")),
        "UNPACK": lambda node, x: list(np.moveaxis(x, node.option("UnpackOptions", "Axis"), 0)),
        "GATHER": lambda node, x, at: x.take(at.astype(int), node.option("GatherOptions", "Axis")),
        "SLICE": lambda node, x, begin, count: x[
            tuple(slice(b, None if n == -1 else b + n) for b, n in zip(begin, count, strict=True))
        ],
        "STRIDED_SLICE": lambda node, x, *_: x[tuple(_index(node, x.ndim))],
        "REDUCE_PROD": lambda node, x, axes: np.asarray(
            x.prod(tuple(axes.reshape(-1).tolist()), keepdims=bool(node.option("ReducerOptions", "KeepDims"))), object
        ),
        "ADD": _elementwise(lambda a, b: a + b),
        "SUB": _elementwise(lambda a, b: a - b),
        "MUL": _elementwise(lambda a, b: a * b),
        "FLOOR_DIV": _elementwise(lambda a, b: a // b),
        "DIV": _elementwise(lambda a, b: a // b),
        "MAXIMUM": _elementwise(_of(ir.Max)),
        "MINIMUM": _elementwise(_of(ir.Min)),
    }
)


# --- lookups and order ------------------------------------------------------------------------------------------------


@CONVERTERS.on("GATHER", "EMBEDDING_LOOKUP")
def _gather(node: Node) -> Any:
    if node.name == "EMBEDDING_LOOKUP":
        return node.result(node.op("take", node.real(1), node.x(0), axis=0, mode="clip"))
    (x,), indices = node.moved(0), node.x(1)
    batch = node.option("GatherOptions", "BatchDims")
    axis = node.option("GatherOptions", "Axis") % len(node.dims(x))
    if not batch:
        return node.op("take", x, indices, axis=axis, mode="clip")
    if axis != batch:
        node.unsupported("an axis behind those of the batch", expected=str(batch), found=str(axis))
    return node.op("gather_nd", x, node.reader.reshape(indices, [*node.dims(indices), 1]), batch_dims=batch)


@CONVERTERS.on("GATHER_ND")
def _gather_nd(node: Node) -> Any:
    return node.op("gather_nd", *node.moved(0), node.x(1))


@CONVERTERS.on("SCATTER_ND")
def _scatter_nd(node: Node) -> Any:
    """What is written to one place is added."""
    start = node.reader.expand(node.reader.scalar(0, node.x(1).ty.dtype), node.ints(2))
    return node.op("scatter_nd", start, node.x(0), node.x(1), reduction="add")


@CONVERTERS.on("WHERE")
def _where(node: Node) -> ir.Expr:
    """The places of what is true, a row each."""
    x, columns = node.x(), []
    rest = node.reader.places(x if x.ty.dtype == "bool" else node.op("not_equal", x, node.reader.scalar(0, x.ty.dtype)))
    for size in (node.reader.sized(d, "int64") for d in reversed(node.dims(x))):
        columns.append(node.op("floor_mod", rest, size))
        rest = node.op("floor_divide", rest, size)
    return node.op("stack", ir.Tuple(tuple(columns[::-1])), axis=1)


_SEGMENTS = {"SUM": "add", "PROD": "mul", "MAX": "max", "MIN": "min"}


@CONVERTERS.on(*(f"UNSORTED_SEGMENT_{name}" for name in _SEGMENTS))
def _segments(node: Node) -> ir.Expr:
    """Reduce what has one number; what has a negative one goes to a row behind the others."""
    x, numbers, count, reader = node.x(0), node.x(1), node.ints(2)[0], node.reader
    kind = ir.numpy_dtype(str(x.ty.dtype))
    limits = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)
    how = _SEGMENTS[node.name.rsplit("_", 1)[1]]
    start = {"add": 0, "mul": 1, "max": limits.min, "min": limits.max}[how]
    last = reader.sized(count, str(numbers.ty.dtype))
    numbers = node.op("where", node.op("less", numbers, reader.scalar(0, numbers.ty.dtype)), last, numbers)
    shape = [count, *node.dims(x)[len(node.dims(numbers)) :]]
    rows = reader.expand(reader.scalar(start, x.ty.dtype), [count + 1, *shape[1:]])
    places = reader.reshape(numbers, [*node.dims(numbers), 1])
    return reader.narrow(node.op("scatter_nd", rows, places, x, reduction=how), 0, 0, count)


@CONVERTERS.on("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
def _non_max_suppression(node: Node) -> list[ir.Expr]:
    """Choose boxes, and with V5 give their scores; zeros fill the results up to the greatest number of boxes."""
    if node.has(5) and node.const(5).any():
        node.unsupported("scores that overlaps lower", expected="a soft_nms_sigma of 0", found=str(node.const(5)))
    reader, size, most = node.reader, node.dims(node.x(1)), node.ints(2)[0]
    boxes, scores = reader.reshape(node.x(0), [1, *size, 4]), reader.reshape(node.x(1), [1, 1, *size])
    order = node.op("argsort", scores, axis=-1, descending=True, dtype="int64")
    limits = [reader.reshape(x, [1]) for x in (reader.astype(node.x(2), "int64"), node.x(3), node.x(4))]
    kept = reader.reshape(node.op("vision.suppressed", boxes, scores, order, *limits, center=False), size)
    places = reader.places(node.op("greater_equal", kept, reader.scalar(0, "int64")))
    found = node.op("take", kept, places, axis=0, mode="clip")
    count = node.dims(found)[0]
    results = [reader.astype(found, "int32"), node.op("take", node.x(1), found, axis=0, mode="clip")]
    filled = [reader.pad(x, reader.scalar(0, x.ty.dtype), [0], [most - count]) for x in results]
    return [*filled[: len(node.outputs) - 1], reader.sized(count, "int32")]


@CONVERTERS.on("ONE_HOT")
def _one_hot(node: Node) -> Any:
    depth, axis, indices = node.ints(1)[0], node.option("OneHotOptions", "Axis", -1), node.x(0)
    rank = len(node.dims(indices))
    axis = axis % (rank + 1)
    indices = node.reader.reshape(indices, [*node.dims(indices)[:axis], 1, *node.dims(indices)[axis:]])
    line = node.reader.arange(depth, str(indices.ty.dtype))
    line = node.reader.reshape(line, [depth if i == axis else 1 for i in range(rank + 1)])
    return node.op("where", node.op("equal", indices, line), node.x(2), node.x(3))


@CONVERTERS.on("DYNAMIC_UPDATE_SLICE")
def _dynamic_update(node: Node) -> Any:
    x, update = node.moved(0, 1)
    starts = [node.reader.narrow(node.x(2), 0, axis, 1) for axis in range(len(node.dims(x)))]
    return node.reader.updated(x, update, starts)


@CONVERTERS.on("ARG_MAX", "ARG_MIN")
def _arg(node: Node) -> Any:
    op = node.name.replace("_", "").lower()
    return node.op(op, node.x(), axis=node.ints(1)[0], keepdims=False, dtype=node.outputs[0].dtype)


@CONVERTERS.on("TOPK_V2")
def _top_k(node: Node) -> Any:
    return node.reader.fields(
        node.op("topk", node.x(), k=node.ints(1)[0], axis=-1, ret_type="both", largest=True, dtype="int32")
    )


@CONVERTERS.on("CUMSUM")
def _cumsum(node: Node) -> Any:
    exclusive, back = (bool(node.option("CumsumOptions", k)) for k in ("Exclusive", "Reverse"))
    return node.result(node.op("cumsum", node.real(), axis=node.ints(1)[0], exclusive=exclusive, reverse=back))


@CONVERTERS.on("REVERSE_SEQUENCE")
def _reverse_sequence(node: Node) -> Any:
    axes = {
        k: node.option("ReverseSequenceOptions", f"{n}Dim") for k, n in (("seq_axis", "Seq"), ("batch_axis", "Batch"))
    }
    return node.op("reverse_sequence", *node.moved(0), node.x(1), **axes)
