"""Which layouts an operator's tensors have: from what its attributes say, and from the layouts of its arguments.

A layout is text: letters of axes, and blocks with their sizes (``NCHW16c``). None is a layout that nothing says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from weft import ir
from weft.relay.expr import Call
from weft.relay.op.layouts import blocks
from weft.relay.op.pattern import OpPattern, pattern_of
from weft.relay.op.registry import get

__all__ = ["InferCorrectLayoutOutput", "index_of", "infer_layouts", "primal"]

Layout = str | None


@dataclass(frozen=True)
class InferCorrectLayoutOutput:
    """The layouts of the inputs (fields of tuples one by one) and of the outputs, and the attributes that fit them."""

    input_layouts: Sequence[Layout]
    output_layouts: Sequence[Layout]
    new_attrs: ir.Attrs


Rule = Callable[[dict[str, Any], "list[Layout] | None", "list[Layout]", Sequence[Any]], Any]


def infer_layouts(
    call: Call, new: list[Layout] | None, old: list[Layout], types: Sequence[Any]
) -> InferCorrectLayoutOutput | None:
    """Return the layouts of a call; None where one of them is not known.

    Parameters
    ----------
    call : Call
        Of an operator.
    new : list of layout, optional
        The layouts that the arguments have now; without them, it is those that they had that are inferred.
    old : list of layout
        The layouts that the arguments had, as far as they are known.
    types : sequence of Type
        The types that the arguments had.
    """
    assert isinstance(call.op, ir.Op)
    registered = call.op.get_attr("FInferCorrectLayout")
    if registered is not None:
        made = registered(call.attrs, new, old, list(types))
        undefined = any(v is None for v in (*made.input_layouts, *made.output_layouts))
        return (
            None
            if undefined
            else InferCorrectLayoutOutput(
                [str(v) for v in made.input_layouts], [str(v) for v in made.output_layouts], made.new_attrs
            )
        )
    rule = _rule_of(call.op)
    if rule is None:
        return None
    attrs = {**get(call.op).attrs, **dict(call.attrs.items)}
    found = rule(attrs, new, old, types)
    if found is None or None in (*found[0], *found[1]):
        return None
    return InferCorrectLayoutOutput(tuple(found[0]), tuple(found[1]), ir.Attrs.of(attrs))


def primal(layout: str) -> str:
    """Return the axes of a layout without blocks."""
    return "".join(c for c, _ in blocks(layout) if c.isupper())


def index_of(layout: str, letter: str) -> int:
    """Return the place of an axis; -1 where there is none."""
    return next((i for i, (c, _) in enumerate(blocks(layout)) if c == letter), -1)


def _rule_of(op: Any) -> Rule | None:
    if op.name in _RULES:
        return _RULES[op.name]
    names = [i.name for i in get(op).inputs]
    if names == ["lhs", "rhs"]:
        return _broadcast
    return _elementwise if pattern_of(op) == OpPattern.ELEMWISE else None


def _known(new: list[Layout] | None, old: list[Layout]) -> list[Any]:
    return list(old if new is None else new)


# --- element by element -----------------------------------------------------------------------------------------------


def _elementwise(attrs: Any, new: Any, old: Any, types: Any) -> Any:
    found = next((v for v in _known(new, old) if v is not None), None)
    return [found] * len(old), [found]


def _broadcast(attrs: Any, new: Any, old: Any, types: Any) -> Any:
    layouts = _known(new, old)
    if layouts.count(None) == 2:
        return None
    ranks = [t.ndim for t in types]
    if None in layouts:
        known = 0 if layouts[0] is not None else 1
        if ranks[known] < ranks[1 - known]:
            return None
        layouts[1 - known] = _behind(layouts[known], types[1 - known])
        return None if layouts[1 - known] is None else (layouts, [layouts[known]])
    if "" in layouts:  # one number, of any number of axes
        number = layouts.index("")
        fits = ranks[number] <= len(blocks(layouts[1 - number]))
        return (layouts, [layouts[1 - number]]) if fits else None
    large = 0 if len(primal(layouts[0])) >= len(primal(layouts[1])) else 1
    wanted = layouts[large]
    small = _repeated(types[1 - large], old[1 - large], wanted)
    if small is None:
        return None
    return [small, wanted] if large else [wanted, small], [wanted]


def _behind(layout: str, ty: Any) -> Layout:
    """Return the layout of a tensor with the last axes of another: empty for one number, None for a part of a block."""
    if all(ir.as_int(d) == 1 for d in ty.shape):
        return ""
    axes = blocks(layout)
    own = axes[len(axes) - ty.ndim :]
    if any(size and (c.upper(), 0) not in own for c, size in own):
        return None
    sizes = [ir.as_int(d) if size else 0 for (_, size), d in zip(own, ty.shape, strict=True)]
    return "".join(f"{size or ''}{c}" for (c, _), size in zip(own, sizes, strict=True))


def _repeated(ty: Any, layout: Layout, wanted: str) -> Layout:
    """Return `wanted` with blocks of one where a tensor is repeated along an axis; None where blocks do not fit."""
    extents: dict[str, int | None] = {}
    for (c, _), d in zip(blocks(layout or ""), ty.shape, strict=False):
        size = ir.as_int(d)
        before = extents.get(c.upper(), 1)
        extents[c.upper()] = None if size is None or before is None else before * size
    made = ""
    for c, size in blocks(wanted):
        extent = extents.get(c.upper(), 1)
        if size and extent != 1 and (extent is None or extent % size):
            return None
        made += f"{(1 if extent == 1 else size) if size else ''}{c}"
    return made


def _quantized_pair(attrs: Any, new: Any, old: Any, types: Any) -> Any:
    """Two operands with their scales and zero points, which are numbers."""
    if any(t.ndim for t in types[2:]):
        return None
    found = _broadcast(attrs, None if new is None else new[:2], old[:2], types[:2])
    return found and ([*found[0], *[""] * (len(types) - 2)], found[1])


# --- layouts that attributes name -------------------------------------------------------------------------------------


def _convolution(attrs: Any, new: Any, old: Any, types: Any) -> Any:
    data, kernel = attrs["data_layout"], attrs["kernel_layout"]
    return [data, kernel, *["C"] * (len(old) - 2)], [attrs["out_layout"] or data]


def _windows(attrs: Any, new: Any, old: Any, types: Any) -> Any:
    if new is not None and not attrs.get("out_layout") and new[0] is not None:
        axes = primal(new[0])
        spatial = [c for c in primal(attrs["layout"]) if c not in "NC"]
        if any(size for c, size in blocks(new[0]) if c.upper() in spatial) or sorted(axes) != sorted(
            primal(attrs["layout"])
        ):
            return None
        attrs["layout"] = new[0]
    return [attrs["layout"]], [attrs.get("out_layout") or attrs["layout"]]


def _resized(attrs: Any, new: Any, old: Any, types: Any) -> Any:
    """A layout without blocks whose spatial axes stand where they stood suits as it is."""
    if new is not None and new[0] is not None:
        have, wanted = attrs["layout"], new[0]
        spatial = [c for c in primal(have) if c not in "NC"]
        if _plain(wanted) and all(index_of(wanted, c) == index_of(have, c) for c in spatial):
            attrs["layout"] = wanted
    return [attrs["layout"]], [attrs["layout"]]


# --- attributes that name axes ----------------------------------------------------------------------------------------


def _moved(axis: int, old: str, new: str) -> int | None:
    """Return the place that an axis has in another layout; None where it is split there."""
    letter = blocks(old)[axis % len(blocks(old))][0]
    at = index_of(new, letter)
    return None if at < 0 or index_of(new, letter.lower()) >= 0 else at


def _along_axis(rest: str = "", outputs: int = 1) -> Rule:
    """Make the rule of an operator whose attribute ``axis`` is an axis of the data; vectors beside it are ``rest``."""

    def rule(attrs: Any, new: Any, old: Any, types: Any) -> Any:
        first = next((v for v in old if v is not None), None)
        if first is None:
            return None
        wanted = first
        if new is not None:
            wanted = next(v for v in new if v is not None)
            at = _moved(int(attrs["axis"]), first, wanted)
            if at is None:
                return None
            attrs["axis"] = at
        if rest:
            return [wanted, *[rest] * (len(old) - 1)], [wanted, *[rest] * (outputs - 1)]
        return [wanted] * len(old), [wanted] * outputs

    return rule


def _concatenated(attrs: Any, new: Any, old: Any, types: Any) -> Any:
    """Concatenate along an axis or along its blocks, of which each operand has whole ones."""
    first = next((v for v in old if v is not None), None)
    if first is None or (new is None and any(size for _, size in blocks(first))):
        return None
    wanted = first if new is None else next(v for v in new if v is not None)
    if new is not None:
        attrs["axis"] = index_of(wanted, blocks(first)[int(attrs["axis"]) % len(blocks(first))][0])
    return [wanted] * len(old), [wanted]


def _split(attrs: Any, new: Any, old: Any, types: Any) -> Any:
    parts = attrs["indices_or_sections"]
    return _along_axis(outputs=parts if isinstance(parts, int) else len(parts) + 1)(attrs, new, old, types)


def _reduced(attrs: Any, new: Any, old: Any, types: Any) -> Any:
    first = old[0]
    if first is None:
        return None
    given, names = attrs["axis"], [c for c, _ in blocks(first)]
    letters = {names[a] for a in _axes(given, len(names)) or range(len(names))}
    if attrs.get("exclude"):
        letters = set(names) - letters
    if any((c.upper() in letters) != (c in letters) for c, size in blocks(first) if size):
        return None  # an axis without its blocks
    letters = {c.upper() for c in letters}
    wanted = first if new is None else new[0]
    places = [i for i, (c, _) in enumerate(blocks(wanted)) if c.upper() in letters]
    if new is not None and _axes(given, len(names)):
        attrs["axis"] = tuple(i for i in range(len(blocks(wanted))) if (i in places) != bool(attrs.get("exclude")))
    kept = (
        (c, 1 if size and c.upper() in letters else size)
        for c, size in blocks(wanted)
        if attrs["keepdims"] or c.upper() not in letters
    )
    return [wanted], ["".join(f"{size or ''}{c}" for c, size in kept)]


def _varied(attrs: Any, new: Any, old: Any, types: Any) -> Any:
    """The variance: beside the data is its mean, whose reduced axes are of size 1."""
    found = _reduced(attrs, new and new[:1], old[:1], types)
    mean = found and _reduced({**attrs, "keepdims": True}, None, found[0], types)
    return found and mean and ([*found[0], *mean[1]], found[1])


def _axes(given: Any, ndim: int) -> list[int]:
    """Return the axes that an attribute names, counted from the front; none where it names none."""
    if given is None:
        return []
    return [int(a) % ndim for a in (given if isinstance(given, (tuple, list)) else (given,))]


def _plain(layout: Layout) -> bool:
    """Whether a layout is known and has no blocks."""
    return layout is not None and not any(size for _, size in blocks(layout))


def _squeezed(attrs: Any, new: Any, old: Any, types: Any) -> Any:
    first = old[0]
    if not _plain(first) or (new is not None and not _plain(new[0])):
        return None
    ones = [i for i, d in enumerate(types[0].shape) if ir.as_int(d) == 1]
    gone = {first[a] for a in (ones if attrs["axis"] is None else _axes(attrs["axis"], len(first)))}
    wanted = first if new is None else new[0]
    if new is not None:
        attrs["axis"] = tuple(i for i, c in enumerate(wanted) if c in gone)
    return [wanted], ["".join(c for c in wanted if c not in gone)]


def _transposed(attrs: Any, new: Any, old: Any, types: Any) -> Any:
    """A transposition takes its data as it is, and makes what it made."""
    first = old[0]
    if not _plain(first) or (new is not None and not _plain(new[0])):
        return None
    order = _axes(attrs["axes"], len(first)) or range(len(first))[::-1]
    made, wanted = "".join(first[a] for a in order), first if new is None else new[0]
    if new is not None:
        attrs["axes"] = tuple(wanted.index(c) for c in made)
    return [wanted], [made]


def _sliced(attrs: Any, new: Any, old: Any, types: Any) -> Any:
    first, axes = old[0], attrs["axes"]
    given = [attrs[name] or () for name in ("begin", "end", "strides")]
    count = len(given[0]) if axes is not None else max(map(len, given))
    if first is None or (axes is None and count > len(blocks(first))):
        return None
    wanted = first if new is None else new[0]
    if new is None or wanted == first:
        return [first], [first]
    if not _plain(first) or sorted(primal(wanted)) != sorted(first) or attrs.get("slice_mode", "end") != "end":
        return None
    named = list(first[:count] if axes is None else (first[a] for a in _axes(axes, len(first))))
    extents = dict(zip(first, map(ir.as_int, types[0].shape), strict=True))
    given[2] = given[2] * count if len(given[2]) == 1 else given[2]
    rows: dict[str, tuple[int, ...]] = {}
    for i, c in enumerate(named):  # what is missing is the whole axis
        whole = (0, extents[c] or 2**31 - 1, 1)
        bounds = tuple(d if i >= len(v) or v[i] is None else int(v[i]) for v, d in zip(given, whole, strict=True))
        row = _sliced_blocks(bounds, extents[c], dict(blocks(wanted)).get(c.lower(), 0))
        if row is None:
            return None
        rows[c] = row
    order = [c for c, _ in blocks(wanted)]
    if axes is None:  # axes behind the last that is sliced are whole, those before it have to be written out
        order = order[: max((order.index(c) for c in rows), default=-1) + 1]
        rest = {c: extents.get(c) for c in order if c not in rows}
        if any(c.islower() or n is None for c, n in rest.items()):
            return None
        rows |= {c: (0, n or 0, 1) for c, n in rest.items()}
    else:
        order = named
        attrs["axes"] = tuple(index_of(wanted, c) for c in named)
    for k, name in enumerate(("begin", "end", "strides")):
        attrs[name] = tuple(rows[c][k] for c in order)
    return [wanted], [wanted]


def _sliced_blocks(bounds: tuple[int, ...], extent: int | None, size: int) -> tuple[int, ...] | None:
    """Return begin, end and stride of an axis that has become blocks of a size; None where a block would be cut."""
    if not size:
        return bounds
    if extent is None or bounds[2] != 1:
        return None
    begin, end, _ = slice(*bounds).indices(extent)
    return None if begin % size or end % size else (begin // size, end // size, 1)


def _pad(attrs: Any, new: Any, old: Any, types: Any) -> Any:
    first = old[0]
    if first is None:
        return None
    wanted = first if new is None else new[0]
    if new is not None:
        width = dict(zip(first, attrs["pad_width"], strict=True)) if first.isalpha() else None
        if width is None or any(any(map(int, width[c.upper()])) for c, size in blocks(wanted) if size):
            return None
        attrs["pad_width"] = tuple((0, 0) if size else width[c] for c, size in blocks(wanted))
    return [wanted, ""], [wanted]


_CONVOLUTIONS = [f"nn.conv{n}d{t}" for n in (1, 2, 3) for t in ("", "_transpose")]
_POOLS = [
    f"nn.{k}_pool{n}d"
    for k in ("max", "avg", "global_max", "global_avg", "adaptive_max", "adaptive_avg")
    for n in (1, 2, 3)
]
_RULES: dict[str, Rule] = {
    **dict.fromkeys([*_CONVOLUTIONS, "nn.contrib_conv2d_NCHWc", "qnn.conv2d", "qnn.conv2d_transpose"], _convolution),
    **dict.fromkeys([*_POOLS, "nn.upsampling"], _windows),
    **dict.fromkeys(["sum", "mean", "max", "min", "prod", "argmax", "argmin"], _reduced),
    "variance": _varied,
    **dict.fromkeys(["nn.softmax", "nn.log_softmax"], _along_axis()),
    "nn.batch_norm": _along_axis("C", 3),
    "qnn.requantize": _along_axis("C"),
    "qnn.quantize": _along_axis("C"),
    "qnn.dequantize": _along_axis("C"),
    **dict.fromkeys(["qnn.add", "qnn.subtract", "qnn.mul"], _quantized_pair),
    "image.resize2d": _resized,
    "concatenate": _concatenated,
    "split": _split,
    "nn.pad": _pad,
    "squeeze": _squeezed,
    "transpose": _transposed,
    "strided_slice": _sliced,
}
