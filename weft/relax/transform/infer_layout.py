"""Which layouts an operator's operands need and its result has, from those that the operands have: by its declaration.

A layout is the letters of a tensor's dimensions in the order in which they lie: A is the first of the program's own
order. ``ABCD4b`` has blocks of four of B last, which convolutions, pools and element-wise operators know. A tuple has
a tuple of layouts; None is what has none, such as a shape or a tensor of unknown rank.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from string import ascii_uppercase as LETTERS
from typing import Any, NamedTuple

from weft import ir
from weft.error import InvalidArgument
from weft.op import Layout, OpDef, get_op_def, in_places, list_ops

Layouts = str | None | tuple["Layouts", ...]
"""Of a value: of a tensor, of what has none, of a tuple's fields."""


class Inferred(NamedTuple):
    """What the operands of a call are brought into, what its result has then, and the attributes that say so."""

    inputs: Sequence[Any]
    output: Any
    attrs: ir.Attrs


class _Case(NamedTuple):
    call: Any
    definition: OpDef
    attrs: ir.Attrs
    have: Sequence[Any]
    wanted: Sequence[str] | None

    @property
    def own(self) -> list[Any]:
        """The layouts that the operands had in the program."""
        return [initial_layout(a.ty) for a in self.call.args]

    def placed(self, layout: str, *more: Any) -> Inferred:
        """All in one layout but `more`, and the dimensions that attributes name where it has them."""
        letters = [p for p, _ in layout_parts(layout)]
        places = [letters.index(c) for c in sorted(letters) if c.isupper()]
        attrs = in_places(self.definition.attrs, self.attrs, places, len(letters))
        return Inferred([layout, *more, *self.own[1 + len(more) :]], layout, attrs)


def initial_layout(ty: ir.Type | None) -> Any:
    """Return the layout in which a program has what is of a type."""
    if isinstance(ty, ir.TupleType):
        return tuple(initial_layout(f) for f in ty.fields)
    return LETTERS[: ty.ndim] if isinstance(ty, ir.TensorType) and ty.ndim >= 0 else None


def _renamed(layout: str, old: str, new: str) -> str:
    """Return a layout of what is called `old` where the same dimensions are called `new`."""
    return layout.translate(str.maketrans(old + old.lower(), new + new.lower()))


def _from_named(have: str, wanted: str) -> str:
    """Return the layout of a tensor that lies as `wanted`, where the program has it as `have`: of NHWC, ACDB."""
    parts = layout_parts(wanted)
    plain = [p for p, size in parts if size is None]
    if sorted(plain) != sorted(have) or not {p.upper() for p, _ in parts} <= set(have) or len(set(parts)) < len(parts):
        raise InvalidArgument(
            f"ConvertLayout: '{wanted}' is no order of {have}", expected=f"the letters of {have}, and blocks such as 4c"
        )
    return _renamed(wanted, have, LETTERS[: len(have)])


def layout_parts(layout: str) -> list[tuple[str, int | None]]:
    """List the dimensions of a layout: letters, and the sizes of those that are blocks."""
    return [(name, int(size) if size else None) for size, name in re.findall(r"(\d*)([A-Za-z])", layout)]


def has_blocks(layout: Layouts) -> bool:
    """Whether one dimension, or one of a tuple's fields, is in blocks."""
    return any(map(has_blocks, layout)) if isinstance(layout, tuple) else bool(layout) and not layout.isalpha()


def _fits(ty: Any, layout: Any) -> bool:
    """Whether blocks divide the dimensions of tensors, which are known then."""
    if isinstance(layout, tuple):
        return all(map(_fits, ty.fields, layout))
    sizes = [(LETTERS.index(p.upper()), n) for p, n in layout_parts(layout or "") if n is not None]
    return not sizes or (ty.shape is not None and all((ir.as_int(ty.shape[i]) or 1) % n == 0 for i, n in sizes))


def infer_layouts(call: ir.Call, have: Sequence[Any], wanted: Mapping[str, Sequence[str]]) -> Inferred | None:
    """Return the layouts of a call; None where it needs the order that the program has.

    Parameters
    ----------
    call : Call
        Of anything.
    have : sequence of layout
        The layouts that its arguments have.
    wanted : mapping of str to list of str
        The layouts that operators are to have, by ``"relax.nn.conv2d"``, in their own letters.

    Raises
    ------
    InvalidArgument
        When a wanted layout has other dimensions.
    """
    name = call.op.name.removeprefix("relax.") if isinstance(call.op, ir.Op) else ""
    unknown = any(v is None and not isinstance(a.ty, ir.PrimType) for a, v in zip(call.args, have, strict=True))
    if unknown or not isinstance(call.op, ir.Op) or name not in list_ops():
        return None
    definition = get_op_def(call.op)
    rule = _RULES.get(name)
    if rule is None and definition.layout is not Layout.OWN:
        rule = _named if definition.layout is Layout.NAMED else _along_axes
    elif rule is None and "keepdims" in definition.attrs and isinstance(call.ty, ir.TensorType):
        rule = _reduced if definition.attrs["axis"].names_axes == "some" else None
    attrs = ir.Attrs.of({**definition.defaults, **dict(call.attrs.items)})
    case = _Case(call, definition, attrs, have, wanted.get(call.op.name))
    if has_blocks(tuple(have)) and rule not in (_named, _convolution, _reduced):
        if rule is not _along_axes:
            return None
        if not definition.names_axes(attrs) and not any(isinstance(v, tuple) for v in have):
            return _in_blocks(case)
        if not _keeps_blocks(case):
            return None
    found = rule and rule(case)
    if found is None or not has_blocks((*found.inputs, found.output)):
        return found
    ends = zip((*call.args, call), (*found.inputs, found.output), strict=True)
    return found if all(_fits(a.ty, v) for a, v in ends) else None


def _keeps_blocks(case: _Case) -> bool:
    """Whether nothing happens along a dimension in blocks but that tensors of whole blocks are joined or split."""
    if isinstance(case.have[0], tuple) or isinstance(case.attrs.get("indices_or_sections"), int):
        return True
    touched: set[str] = set()
    for name, kind in case.definition.attrs.items():
        value = case.attrs[name] if kind.names_axes else None
        if kind.names_axes == "pairs":
            value = tuple(i // 2 for i, n in enumerate(value or ()) if ir.as_int(n) != 0)
        touched |= set() if value is None else _letters(case.own[0], value)
    return not any(size and p.upper() in touched for p, size in layout_parts(case.have[0]))


def _in_blocks(case: _Case) -> Inferred | None:
    """Element-wise, of scalars and tensors of one rank in the layout of the first with blocks; ones are broadcast."""
    layout, whole = next(v for v in case.have if has_blocks(v)), getattr(case.call.ty, "shape", None)
    shapes: list[Any] = [a.ty.shape for a in case.call.args if isinstance(a.ty, ir.TensorType)]
    if whole is None or any(s is None or len(s) not in (0, len(whole)) for s in shapes):
        return None
    pairs = [pair for s in shapes for pair in zip(s, whole, strict=False)]
    alike = all(ir.as_int(d) == 1 or ir.structural_equal(d, w) for d, w in pairs)
    return Inferred([v and layout for v in case.own], layout, case.call.attrs) if alike else None


def _named(case: _Case) -> Inferred | None:
    """An operator whose attribute says how its data lie, and its result with them."""
    names = [n for n, kind in case.definition.attrs.items() if kind.is_layout]
    own = case.attrs[names[0]]
    if not own.isalpha():
        return None
    layout = _from_named(own, case.wanted[0]) if case.wanted else case.have[0]
    new = dict.fromkeys(names, _renamed(layout, LETTERS[: len(own)], own))
    try:
        case.definition.attrs[names[0]].of(new[names[0]], names[0])
    except InvalidArgument:
        if case.wanted:
            raise
        return None  # it knows no blocks
    return Inferred([layout, *case.own[1:]], layout, case.attrs.with_(**new))


def _convolution(case: _Case) -> Inferred | None:
    own = [case.attrs[k] for k in ("data_layout", "kernel_layout")]
    own.append(case.attrs["out_layout"] or own[0])
    if not all(map(str.isalpha, own)):
        return None  # the kernel is packed already
    found = [*case.have[:2], case.have[0]]
    if case.wanted:
        wanted = (*case.wanted[:2], case.wanted[2 if len(case.wanted) > 2 else 0])
        found = [_from_named(a, b) for a, b in zip(own, wanted, strict=True)]
    data, kernel, out = (_renamed(v, LETTERS[: len(a)], a) for a, v in zip(own, found, strict=True))
    new = case.attrs.with_(data_layout=data, kernel_layout=kernel, out_layout=out)
    return Inferred([*found[:2], *case.own[2:]], found[2], new)


def _along_axes(case: _Case) -> Inferred | None:
    """An operator on dimensions that its attributes name, or on elements; a tuple's fields have one layout."""
    layout, made = case.have[0], case.call.ty
    if isinstance(layout, tuple):
        joined = case.placed(layout[0])
        return joined._replace(inputs=[(layout[0],) * len(layout)])
    if not case.definition.names_axes(case.attrs):
        return _elementwise(case)
    placed = case.placed(layout)
    return placed._replace(output=(layout,) * len(made.fields)) if isinstance(made, ir.TupleType) else placed


def _normalized(case: _Case) -> Inferred | None:
    """A norm over axes in the order in which its vectors have them; statistics beside it are vectors."""
    layout, given = case.have[0], case.attrs.get("axes", case.attrs.get("axis"))
    named = [LETTERS[int(a) % len(layout)] for a in (given if isinstance(given, tuple) else (given,))]
    if sorted(named, key=layout.index) != sorted(named):
        return None
    made, whole = case.placed(layout), initial_layout(case.call.ty)
    return made._replace(output=(layout, *whole[1:])) if isinstance(whole, tuple) else made


def _elementwise(case: _Case) -> Inferred | None:
    """Operands in one layout: that of the smaller of two; that which the last two of three agree about."""
    own = case.own
    tensors = [i for i, v in enumerate(case.have) if isinstance(v, str) and own[i]]
    ranks = [len(own[i]) for i in tensors]
    if not ranks or getattr(case.call.ty, "ndim", -1) != max(ranks) or (len(ranks) > 2 and min(ranks) != max(ranks)):
        return None
    known = [case.have[i] for i in tensors]
    layout = known[-1] if len(known) > 2 and known[-1] == known[-2] else known[ranks.index(min(ranks))]
    for i, rank in zip(tensors, ranks, strict=True):
        own[i] = _follow(layout, rank)
    return Inferred(own, _follow(layout, max(ranks)), case.call.attrs)


def _follow(layout: str, rank: int) -> str:
    """Return the layout of a tensor of as many or more dimensions, of which the last are those of `layout`."""
    more = rank - len(layout)
    return LETTERS[:more] + _renamed(layout, LETTERS[: len(layout)], LETTERS[more:rank])


def _letters(own: str, axis: Any) -> set[str]:
    return {own[int(a) % len(own)] for a in (axis if isinstance(axis, tuple) else (axis,))}


def _reduced(case: _Case) -> Inferred | None:
    axis, layout, own = case.attrs["axis"], case.have[0], case.own[0]
    gone, parts = set(own) if axis is None else _letters(own, axis), layout_parts(layout)
    if case.attrs["keepdims"] and any(size and p.upper() in gone for p, size in parts):
        return None
    output = layout if case.attrs["keepdims"] else _without(layout, gone)
    places = tuple(i for i, (p, _) in enumerate(parts) if p.upper() in gone)
    return Inferred([layout], output, case.attrs.with_(axis=places))


def _without(layout: str, gone: set[str]) -> str:
    """Return a layout of what is left."""
    parts = [(p, size) for p, size in layout_parts(layout) if p.upper() not in gone]
    kept = "".join(sorted(p for p, _ in parts if p.isupper()))
    return _renamed("".join(f"{size or ''}{p}" for p, size in parts), kept, LETTERS[: len(kept)])


def _permuted(case: _Case) -> Inferred:
    layout, own, order = case.have[0], case.own[0], case.attrs["axes"]
    order = range(len(own))[::-1] if order is None else [int(a) % len(own) for a in order]
    return Inferred([layout], own, case.attrs.with_(axes=tuple(layout.index(own[a]) for a in order)))


def _expanded(case: _Case) -> Inferred:
    """New dimensions stay at their places, the others between them in their order."""
    made = initial_layout(case.call.ty)
    added = _letters(made, case.attrs["axis"])
    moved = iter(_renamed(case.have[0], case.own[0], "".join(c for c in made if c not in added)))
    return Inferred([case.have[0]], "".join(c if c in added else next(moved) for c in made), case.attrs)


def _squeezed(case: _Case) -> Inferred | None:
    layout, own, shape, axis = case.have[0], case.own[0], case.call.args[0].ty.shape, case.attrs["axis"]
    if shape is None:
        return None
    ones = tuple(i for i, d in enumerate(shape) if ir.as_int(d) == 1)
    gone = _letters(own, ones if axis is None else axis)
    places = tuple(i for i, c in enumerate(layout) if c in gone)
    return Inferred([layout], _without(layout, gone), case.attrs.with_(axis=places))


def _repeated(case: _Case) -> Inferred:
    """Along an axis in any layout; without one, the elements in the program's order."""
    return Inferred(case.own, "A", case.attrs) if case.attrs["axis"] is None else case.placed(case.have[0])


def _tiled(case: _Case) -> Inferred:
    layout, given = case.have[0], tuple(case.attrs["repeats"])
    repeats = (1,) * (len(layout) - len(given)) + given
    front = len(repeats) - len(layout)
    new = (*repeats[:front], *[repeats[front + LETTERS.index(c)] for c in layout])
    return Inferred([layout], _follow(layout, len(repeats)), case.attrs.with_(repeats=new))


def _scattered(case: _Case) -> Inferred:
    """Data, indices and updates in one layout: the others' where they agree, or where the data have their own."""
    data, *others = case.have
    agree = others[0] == others[-1] and (len(others) > 1 or data == case.own[0])
    layout = others[0] if agree else data
    return case.placed(layout, *[layout] * len(others))


def _scattered_nd(case: _Case) -> Inferred | None:
    """Dimensions that index tuples count stay in front; those of updates behind theirs lie as the data's do."""
    layout, shape = case.have[0], case.call.args[1].ty.shape
    depth = ir.as_int(shape[-1]) if shape else None
    if depth is None or layout[:depth] != case.own[0][:depth]:
        return None
    count = len(shape) - 1
    behind = "".join(LETTERS[LETTERS.index(c) + count - depth] for c in layout[depth:])
    return Inferred([layout, case.own[1], LETTERS[:count] + behind], layout, case.attrs)


_RULES: dict[str, Callable[[_Case], Inferred | None]] = {
    **dict.fromkeys([f"nn.conv{n}d{t}" for n in (1, 2, 3) for t in ("", "_transpose")], _convolution),
    **dict.fromkeys([f"nn.{k}_norm" for k in ("batch", "group", "instance", "layer", "rms")], _normalized),
    "permute_dims": _permuted,
    "expand_dims": _expanded,
    "squeeze": _squeezed,
    "repeat": _repeated,
    "tile": _tiled,
    "flip": _along_axes,
    "gather_elements": _scattered,
    "scatter_elements": _scattered,
    "scatter_nd": _scattered_nd,
}
