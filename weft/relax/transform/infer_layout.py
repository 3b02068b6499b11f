"""Which layouts an operator's operands need and its result has, from those that the operands have: by its declaration.

A layout is the letters of a tensor's dimensions in the order in which they lie: A is the first of the program's own
order. Blocks have sizes: ``ABCD4b`` has the channels in fours behind the rest. A tuple has a tuple of layouts; None is
what has none, such as a shape or a tensor of unknown rank.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from string import ascii_uppercase
from typing import Any, NamedTuple

from weft import ir
from weft.error import InvalidArgument
from weft.op import Layout, OpDef, get_op_def, in_places, list_ops

__all__ = ["Inferred", "axes_of", "from_named", "infer_layouts", "initial_layout", "is_blocked"]


class Inferred(NamedTuple):
    """What the operands of a call are brought into, what its result has then, and the attributes that say so."""

    inputs: Sequence[Any]
    output: Any
    attrs: ir.Attrs


class _Case(NamedTuple):
    call: Any
    definition: OpDef
    have: Sequence[Any]
    wanted: Sequence[str] | None

    @property
    def attrs(self) -> ir.Attrs:
        """The attributes with their defaults."""
        return ir.Attrs.of({**self.definition.defaults, **dict(self.call.attrs.items)})

    @property
    def first(self) -> str:
        """The layout that the first operand has; its own where that has blocks."""
        return self.have[0] if not is_blocked(self.have[0]) else self.own(0)

    def own(self, index: int) -> Any:
        """The layout that an operand had in the program."""
        return initial_layout(self.call.args[index].ty)

    def along(self, layout: str, axis: int) -> ir.Attrs:
        """The attributes with the one dimension that they name where `layout` has it, or its blocks."""
        letters = [c for c, _ in axes_of(layout)]
        return self.attrs.with_(axis=letters.index(ascii_uppercase[axis % sum(c.isupper() for c in letters)]))

    def placed(self, layout: str, **attrs: Any) -> ir.Attrs:
        """The attributes with the dimensions that they name where `layout` has them."""
        places = [layout.index(c) for c in sorted(layout)]
        return in_places(self.definition.attrs, self.attrs, places, len(layout)).with_(**attrs)


def initial_layout(ty: Any) -> Any:
    """Return the layout in which a program has what is of a type."""
    if isinstance(ty, ir.TupleType):
        return tuple(initial_layout(f) for f in ty.fields)
    return ascii_uppercase[: ty.ndim] if isinstance(ty, ir.TensorType) and ty.ndim >= 0 else None


def axes_of(layout: str) -> list[tuple[str, int]]:
    """List the letters of a layout, each with the size of its block, which is 0 where it is none."""
    return [(c, int(size or 0)) for size, c in re.findall(r"(\d*)([A-Za-z])", layout)]


def is_blocked(layout: Any) -> bool:
    """Whether dimensions of a tensor are split into blocks."""
    return isinstance(layout, str) and any(size for _, size in axes_of(layout))


def from_named(have: str, wanted: str) -> str:
    """Return the layout of a tensor that lies as `wanted`, where the program has it as `have`: of NHWC, ACDB.

    Raises
    ------
    InvalidArgument
        When the two name different dimensions.
    """
    letters = [c.upper() for c, _ in axes_of(wanted)]
    if set(letters) != set(have) or len(letters) - len(set(letters)) != sum(size > 0 for _, size in axes_of(wanted)):
        raise InvalidArgument(f"'{wanted}' is no layout of what is {have}", expected=f"the letters of {have}")
    named = dict(zip(have, ascii_uppercase, strict=False))
    return "".join(c if c.isdigit() else named[c] if c.isupper() else named[c.upper()].lower() for c in wanted)


def _to_named(have: str, layout: str) -> str:
    """Return the name of a layout where the program's own is called `have`."""
    named = dict(zip(ascii_uppercase, have, strict=False))
    return "".join(c if c.isdigit() else named[c] if c.isupper() else named[c.upper()].lower() for c in layout)


def _divides(ty: Any, layout: str) -> bool:
    """Whether the blocks of a layout divide a tensor's dimensions, which are known."""
    if ty.shape is None:
        return False
    sizes = [(ir.as_int(ty.shape[ascii_uppercase.index(c.upper())]), n) for c, n in axes_of(layout) if n]
    return all(d is not None and d % n == 0 for d, n in sizes)


def infer_layouts(call: Any, have: Sequence[Any], wanted: Mapping[str, Sequence[str]]) -> Inferred | None:
    """Return the layouts of a call; None where it needs the order that the program has.

    Parameters
    ----------
    call : Call
        Of anything.
    have : sequence of layout
        The layouts that its arguments have.
    wanted : mapping of str to list of str
        The layouts that operators are to have, by ``"relax.nn.conv2d"``, in their own letters.
    """
    name = call.op.name.removeprefix("relax.") if isinstance(call.op, ir.Op) else ""
    if name not in list_ops() or any(
        have is None and isinstance(a.ty, ir.TensorType) for a, have in zip(call.args, have, strict=True)
    ):
        return None
    definition = get_op_def(call.op)
    rule = _RULES.get(name)
    if rule is None and definition.layout is not Layout.OWN:
        rule = _named if definition.layout is Layout.NAMED else _along_axes
    elif rule is None and "keepdims" in definition.attrs and isinstance(call.ty, ir.TensorType):
        rule = _reduced if definition.attrs["axis"].names_axes == "some" else None
    return rule and rule(_Case(call, definition, have, wanted.get(call.op.name)))


# --- layouts that attributes name -------------------------------------------------------------------------------------


def _named(case: _Case) -> Inferred:
    """An operator whose attribute says how its data lie, and its result with them."""
    names = [n for n, kind in case.definition.attrs.items() if kind.is_layout]
    own = case.attrs[names[0]]
    layout = from_named(own, case.wanted[0]) if case.wanted else case.first
    inputs = [layout, *[case.own(i) for i in range(1, len(case.have))]]
    return Inferred(inputs, layout, case.attrs.with_(**dict.fromkeys(names, _to_named(own, layout))))


def _convolution(case: _Case) -> Inferred | None:
    attrs = case.attrs
    own = (attrs["data_layout"], attrs["kernel_layout"], attrs["out_layout"] or attrs["data_layout"])
    if case.wanted:
        wanted = (*case.wanted[:2], case.wanted[2 if len(case.wanted) > 2 else 0])
        found = [from_named(a, b) for a, b in zip(own, wanted, strict=True)]
        if any(
            is_blocked(v) and not _divides(e.ty, v)
            for e, v in zip((*case.call.args[:2], case.call), found, strict=True)
        ):
            return None
    else:
        data, kernel = case.have[:2]
        if is_blocked(data) or is_blocked(kernel):
            return None
        found = [data, kernel, data]
    names = [_to_named(a, v) for a, v in zip(own, found, strict=True)]
    new = dict(zip(("data_layout", "kernel_layout", "out_layout"), names, strict=True))
    return Inferred([*found[:2], *[case.own(i) for i in range(2, len(case.have))]], found[2], attrs.with_(**new))


# --- attributes that name axes ----------------------------------------------------------------------------------------


def _along_axes(case: _Case) -> Inferred | None:
    if isinstance(case.have[0], tuple):
        return _joined(case)
    if not case.definition.names_axes(case.attrs):
        return _elementwise(case)
    layout, made = case.first, case.call.ty
    if isinstance(made, ir.TupleType):
        if is_blocked(case.have[0]) and all(_divides(f, case.have[0]) for f in made.fields):
            layout = case.have[0]
        return Inferred([layout], (layout,) * len(made.fields), case.along(layout, case.attrs["axis"]))
    return Inferred([layout, *[case.own(i) for i in range(1, len(case.have))]], layout, case.placed(layout))


def _joined(case: _Case) -> Inferred | None:
    """Tensors side by side, all in one layout: one with blocks if it suits all, or the first."""
    fields = case.call.args[0].ty.fields
    blocked = next((v for v in case.have[0] if is_blocked(v)), None)
    if blocked is not None and not all(_divides(f, blocked) for f in fields):
        blocked = next((v for v in case.have[0] if not is_blocked(v)), initial_layout(fields[0]))
    layout = blocked or case.have[0][0]
    return Inferred([(layout,) * len(fields)], layout, case.along(layout, case.attrs["axis"] or 0))


def _normalized(case: _Case) -> Inferred | None:
    """A norm over axes in the order in which its vectors have them; statistics beside it are vectors."""
    layout, given = case.first, case.attrs.get("axes", case.attrs.get("axis"))
    named = [ascii_uppercase[int(a) % len(layout)] for a in (given if isinstance(given, tuple) else (given,))]
    if sorted(named, key=layout.index) != sorted(named):
        return None
    rest = [case.own(i) for i in range(1, len(case.have))]
    output = (layout, *initial_layout(case.call.ty)[1:]) if isinstance(case.call.ty, ir.TupleType) else layout
    return Inferred([layout, *rest], output, case.placed(layout))


def _elementwise(case: _Case) -> Inferred | None:
    """Operands in one layout: that of the smaller of two; that which the last two of three agree about."""
    tensors = [i for i, v in enumerate(case.have) if isinstance(v, str) and case.own(i)]
    ranks = [len(case.own(i)) for i in tensors]
    if not ranks or getattr(case.call.ty, "ndim", -1) != max(ranks):
        return None
    known = [case.have[i] for i in tensors]
    layout = known[-1] if len(known) > 2 and known[-1] == known[-2] else known[ranks.index(min(ranks))]
    inputs = [initial_layout(a.ty) for a in case.call.args]
    blocked = [v for v in known if is_blocked(v)]
    if blocked and min(ranks) == max(ranks) and all(_divides(case.call.args[i].ty, blocked[0]) for i in tensors):
        layout = blocked[0]
    elif blocked:
        layout = ascii_uppercase[: len(case.own(tensors[known.index(layout)]))]
    if min(ranks) != max(ranks) and len(ranks) > 2:
        return None
    for i, rank in zip(tensors, ranks, strict=True):
        inputs[i] = _follow(layout, rank)
    return Inferred(inputs, _follow(layout, max(ranks)), case.call.attrs)


def _follow(layout: str, rank: int) -> str:
    """Return the layout of a tensor of as many or more dimensions, of which the last are those of `layout`."""
    more = rank - sum(size == 0 for _, size in axes_of(layout))
    shifted = "".join(ascii_uppercase[ascii_uppercase.index(c) + more] for c in layout) if more else layout
    return ascii_uppercase[:more] + shifted


def _reduced(case: _Case) -> Inferred:
    axis, layout = case.attrs["axis"], case.have[0]
    own = case.own(0)
    gone = {
        own[int(a) % len(own)]
        for a in (range(len(own)) if axis is None else axis if isinstance(axis, tuple) else (axis,))
    }
    if is_blocked(layout) and case.attrs["keepdims"] and any(c.upper() in gone for c, n in axes_of(layout) if n):
        layout = own
    kept = dict(zip([c for c in own if c not in gone], ascii_uppercase, strict=False))
    places = tuple(i for i, (c, _) in enumerate(axes_of(layout)) if c.upper() in gone)
    left = [(c, n) for c, n in axes_of(layout) if c.upper() not in gone]
    rest = "".join(kept[c] if not n else f"{n}{kept[c.upper()].lower()}" for c, n in left)
    return Inferred([layout], layout if case.attrs["keepdims"] else rest, case.attrs.with_(axis=places))


def _letters(own: str, axis: Any) -> set[str]:
    """Return the dimensions that an attribute names."""
    return {own[int(a) % len(own)] for a in (axis if isinstance(axis, tuple) else (axis,))}


def _permuted(case: _Case) -> Inferred:
    layout, own = case.first, case.own(0)
    order = case.attrs["axes"]
    order = range(len(own))[::-1] if order is None else [int(a) % len(own) for a in order]
    axes = tuple(layout.index(own[a]) for a in order)
    return Inferred([layout], initial_layout(case.call.ty), case.attrs.with_(axes=axes))


def _expanded(case: _Case) -> Inferred:
    """New dimensions stay at their places, the others between them in their order."""
    layout, ndim = case.first, case.call.ty.ndim
    axis = case.attrs["axis"]
    added = {int(a) % ndim for a in (axis if isinstance(axis, tuple) else (axis,))}
    old = [ascii_uppercase[i] for i in range(ndim) if i not in added]
    moved = iter([old[ascii_uppercase.index(c)] for c in layout])
    return Inferred(
        [layout], "".join(ascii_uppercase[i] if i in added else next(moved) for i in range(ndim)), case.attrs
    )


def _squeezed(case: _Case) -> Inferred | None:
    layout, own, shape, axis = case.first, case.own(0), case.call.args[0].ty.shape, case.attrs["axis"]
    if shape is None:
        return None
    ones = [i for i, d in enumerate(shape) if ir.as_int(d) == 1]
    gone = _letters(own, tuple(ones) if axis is None else axis)
    kept = dict(zip([c for c in own if c not in gone], ascii_uppercase, strict=False))
    places = tuple(i for i, c in enumerate(layout) if c in gone)
    return Inferred([layout], "".join(kept[c] for c in layout if c in kept), case.attrs.with_(axis=places))


def _repeated(case: _Case) -> Inferred:
    """Along an axis in any layout; without one the elements come in the program's order."""
    if case.attrs["axis"] is None:
        return Inferred([case.own(0)], "A", case.attrs)
    return Inferred([case.first], case.first, case.placed(case.first))


def _tiled(case: _Case) -> Inferred:
    layout, ndim = case.first, len(case.first)
    given = case.attrs["repeats"]
    repeats = (1,) * (ndim - len(given)) + tuple(given)
    front, back = repeats[: len(repeats) - ndim], repeats[len(repeats) - ndim :]
    new = (*front, *[back[ascii_uppercase.index(c)] for c in layout])
    return Inferred([layout], _follow(layout, len(repeats)), case.attrs.with_(repeats=new))


def _scattered(case: _Case) -> Inferred:
    """Data, indices and updates in one layout: the others' where they agree, or where the data have their own."""
    data, *others = case.have
    agree = others[0] == others[-1] and (len(others) > 1 or data == case.own(0))
    layout = others[0] if agree else data
    layout = case.own(0) if is_blocked(layout) else layout
    return Inferred([layout] * len(case.have), layout, case.placed(layout))


def _scattered_nd(case: _Case) -> Inferred | None:
    """Dimensions that index tuples count stay in front; those of updates behind theirs lie as the data's do."""
    layout, shape = case.first, case.call.args[1].ty.shape
    depth = None if not shape else ir.as_int(shape[-1])
    if depth is None or layout[:depth] != case.own(0)[:depth]:
        return None
    count = len(shape) - 1
    behind = "".join(ascii_uppercase[ascii_uppercase.index(c) + count - depth] for c in layout[depth:])
    return Inferred([layout, case.own(1), ascii_uppercase[:count] + behind], layout, case.call.attrs)


_RULES: dict[str, Callable[[_Case], Inferred | None]] = {
    **dict.fromkeys([f"nn.conv{n}d{t}" for n in (1, 2, 3) for t in ("", "_transpose")], _convolution),
    **dict.fromkeys([f"nn.{k}_norm" for k in ("batch", "group", "instance", "layer", "rms")], _normalized),
    "permute_dims": _permuted, "expand_dims": _expanded, "squeeze": _squeezed, "repeat": _repeated, "tile": _tiled,
    "flip": _along_axes, "gather_elements": _scattered, "scatter_elements": _scattered,
    "scatter_nd": _scattered_nd,
}  # fmt: skip
