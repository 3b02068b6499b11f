"""ConvertLayout: channels last through the whole graph, with weights packed for the target's register tiles.

Each image or volume (4-D, 5-D) may have a channels-last twin. Convolutions, pooling and resizing make one; element-wise
operations, concatenation, reductions and padding carry it on; whatever else needs the value asks for the original
order, and a transpose is emitted then, once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from weft import ir
from weft.machine import UNKNOWN, Machine
from weft.op import Layout, OpDef, get_op_def, in_places, make_call, simplify
from weft.registry import Registry
from weft.relax.core_ops import CORE_OPS
from weft.relax.expr import MatchCast
from weft.relax.expr import Var as RelaxVar
from weft.relax.rewriter import all_bindings, rewrite_bindings
from weft.relax.transform import panels, phases
from weft.relax.transform.desired_layouts import converted
from weft.relax.transform.few_channels import FEW_CHANNELS, MOST_GROUPS, channels_first, has_odd_groups
from weft.runtime import aligned
from weft.tir.transform import DOT_GROUPS
from weft.topi import winograd_tile, winograd_weight
from weft.tune import Tuned

if TYPE_CHECKING:
    from weft.relax.block_builder import BlockBuilder
    from weft.relax.expr import Binding

_RANKS = (4, 5)
"""Of what may have a twin: images and volumes."""


def _to_last(ndim: int) -> tuple[int, ...]:
    return (0, *range(2, ndim), 1)


def _to_first(ndim: int) -> tuple[int, ...]:
    """Return the way back, which also says where each dimension of channels first lies in channels last."""
    return (0, ndim - 1, *range(1, ndim - 1))


def _letters(ndim: int) -> str:
    """Return the spatial letters of a layout's name."""
    return "DHW"[5 - ndim :]


@ir.function_pass(kind=ir.Function, opt_level=2)
def convert_layout(
    func: ir.Function,
    mod: ir.IRModule,
    desired_layouts: Mapping[str, Sequence[str]] | None = None,
    layout_cb: Callable[[ir.Call], Mapping[str, Sequence[str]]] | None = None,
    *,
    machine: Machine = UNKNOWN,
    panel: int | None = None,
    winograd: bool = True,
    dot_forms: Sequence[tuple[str, str, str, int]] | None = None,
    tuned: Tuned | None = None,
) -> ir.Function:
    """Carry 4-D and 5-D activations channels-last and pack constant weights into panels of `panel` output channels.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized``; convolutions of images and volumes are channels-last with packed kernels; matmuls
        with a constant 2-D right operand are ``nn.matmul_packed``.
    With ``panel=2``, before::

        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                y = R.matmul(x, R.const([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "float32"))
                R.output(y)
            return y

    After::

        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                y = R.nn.matmul_packed(x, R.const([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]], "float32"), n=2)
                R.output(y)
            return y

    Options:
        ``desired_layouts``: the layouts of an operator's data, kernel and, where it is another, result, such as
        ``{"relax.nn.conv2d": ["NHWC", "OHWI"]}``. Operators of dataflow blocks get those and nothing else is done;
        ``layout_cb(call)`` returns such a mapping for one call, instead. What leaves a block has its own order.
        ``machine``: what decides where nothing else does: widths of panels, sizes that stay in caches.
        ``panel``: output channels of a panel, by default those that fit the machine.
        ``winograd``: whether 3x3 convolutions may become ``nn.conv2d_winograd``.
        ``dot_forms``: dot products of narrow numbers, by default the machine's; weights are packed in groups for them.
        ``tuned``: decides the algorithm of convolutions where a tuning database has records of them.
    Cost: Linear, plus one pass over the weights.
    Source: TVM's ``ConvertLayout``; panels as in Goto and van de Geijn, 2008.
    """
    if desired_layouts is not None:
        return converted(func, mod, desired_layouts, layout_cb)
    if func.attrs.get("Primitive"):  # a group that a program made is one kernel as it stands
        return func
    forms = machine.dot_forms if dot_forms is None else dot_forms
    state = _Layouts(machine, panel or machine.panel_columns, winograd, frozenset(f[:3] for f in forms), tuned)
    state.near = panels.weights_bytes(func) <= machine.near_model_bytes
    state.convolved = _convolved(func)
    return rewrite_bindings(func, mod, state.rule)


def _convolved(func: ir.Function) -> set[ir.Node]:
    """Variables that convolutions are computed from, whatever is between."""
    found: set[ir.Node] = set()
    for binding in reversed(all_bindings(func)):
        value = binding.value
        op = value.op if isinstance(value, ir.Call) else None
        if binding.var in found or (isinstance(op, ir.Op) and op.name.startswith("relax.nn.conv")):
            found.update(ir.find(value, RelaxVar))
    return found


class _Layouts:
    """Which values have a channels-last twin, and which of them exist only as that twin."""

    def __init__(
        self, machine: Machine, panel: int, winograd: bool, dots: frozenset[tuple[str, str, str]], tuned: Tuned | None
    ) -> None:
        self.machine = machine
        self.panel, self.winograd, self.dots, self.tuned = panel, winograd, dots, tuned
        self.near = False  # whether all weights stay in the last cache
        self.convolved: set[ir.Node] = set()
        self.ends_here = False  # whether no convolution is computed from what is bound
        self.last: dict[ir.Expr, ir.Expr] = {}
        self.phased: dict[ir.Expr, phases.Phased] = {}
        self.parts: dict[ir.Expr, ir.Expr] = {}
        self.padded: dict[ir.Expr, tuple[ir.Expr, list[int]]] = {}

    def rule(self, binding: Binding, value: ir.Expr, bb: BlockBuilder) -> ir.Expr | None:
        """Rewrite one binding.

        Values that exist only channels-last are bound to a transpose that dead-code removal drops.
        """
        self.ends_here = binding.var not in self.convolved
        if isinstance(binding, MatchCast):
            return self.match_cast(binding, value, bb)
        if isinstance(value, ir.TupleGetItem) and value.tuple_value in self.parts:
            twins = self.parts[value.tuple_value]
            return self.bind_last(bb.emit(ir.TupleGetItem(twins, value.index)), binding, bb)
        if not isinstance(value, ir.Call) or not isinstance(value.op, ir.Op):
            return None
        name = value.op.name.removeprefix("relax.")
        if name in CORE_OPS:
            return None
        new = _RULES[name](self, value, bb) if name in _RULES else self.by_declaration(value, bb)
        if new is None:
            return None
        if isinstance(value.ty, ir.TupleType):
            self.parts[binding.var] = bb.emit(new)
            return None
        if isinstance(new, ir.ExprVar) or getattr(new, "layout_kept", False):
            return new
        bound = self.bind_last(bb.emit(new), binding, bb)
        if name == "nn.pad":
            self.note_padding(value, bound)
        return bound

    def dot_group(self, call: ir.Call) -> int:
        """How many products an instruction of the target adds up in a convolution or matrix product, else 1."""
        data, weight, out = (str(getattr(e.ty, "dtype", "")) for e in (*call.args[:2], call))  # type: ignore[attr-defined]
        factors = ("int16", data) if data.endswith("int8") else (data,)
        keys = [(f, weight, "float32" if out == "bfloat16" else out) for f in factors]  # what is summed in
        return next((DOT_GROUPS[key] for key in keys if key in self.dots), 1)

    def factor(self, data: ir.Expr, group: int, bb: BlockBuilder) -> ir.Expr:
        """Return the first operand of a product as its instruction takes it: bytes of pairs are widened."""
        pairs = group == 2 and str(data.ty.dtype).endswith("int8")  # type: ignore[attr-defined]
        return bb.emit(make_call("astype")(data, dtype="int16")) if pairs else data

    def note_padding(self, call: ir.Call, bound: ir.Expr) -> None:
        """Remember what lies in a frame of zeros, so that convolutions of it pad by themselves."""
        width = call.attrs.get("pad_width", ())
        plain = call.attrs.get("pad_mode", "constant") == "constant" and not call.attrs.get("pad_value", 0)
        known = all(isinstance(w, int) and w >= 0 for w in width)
        if plain and len(width) >= 8 and known and not any(width[:4]):
            self.padded[bound] = (call.args[0], [*width[4::2], *width[5::2]])

    def bind_last(self, twin: ir.Expr, binding: Any, bb: BlockBuilder) -> ir.Expr:
        """Record that the value of `binding` is the transpose of `twin`."""
        original = bb.emit(panels.permute(twin, _to_first(twin.ty.ndim)))
        self.last[original] = twin
        return original

    def bind_phased(self, made: phases.Phased, bb: BlockBuilder) -> ir.Expr:
        """Record a value by its phases; return it in its own order, which is dropped where nobody needs it."""
        original = self.bind_last(made.image(bb), made, bb)
        self.phased[original] = made
        return original

    def _phases(self, call: ir.Call, bb: BlockBuilder) -> ir.Expr | None:
        """Compute an element-wise operation on phases, where all operands have the same ones or are constants."""
        found = [self.phased[a] for a in call.args if a in self.phased]
        if not found:
            return None
        one, args = found[0], []
        for a in call.args:
            mine = self.phased.get(a)
            if mine is not None and mine.alike(one):
                args.append(mine.value)
            elif isinstance(a, ir.Constant):
                args.append(one.broadcast(a))
            elif isinstance(a.ty, ir.TensorType) and a.ty.ndim == 0:  # type: ignore[attr-defined]
                args.append(a)
            else:
                return None
        if any(a is None for a in args) or not _same_shape(call, found):
            return None
        value = bb.emit(ir.Call(call.op, tuple(args), call.attrs, span=call.span))
        return self.bind_phased(replace(one, value=value), bb)

    def match_cast(self, binding: MatchCast, value: ir.Expr, bb: BlockBuilder) -> ir.Expr | None:
        """Check the twin's type instead, where there is a twin."""
        ty = binding.ty
        if value not in self.last or not isinstance(ty, ir.TensorType) or ty.shape is None or ty.ndim not in _RANKS:
            return None
        shape = tuple(ty.shape[d] for d in _to_last(ty.ndim))
        cast = bb.match_cast(self.last[value], ir.TensorType(shape, ty.dtype, ty.ndim, ty.vdevice))
        return self.bind_last(cast, binding, bb)

    def to_last(self, expr: ir.Expr, bb: BlockBuilder) -> ir.Expr:
        """Return the channels-last twin of a value, emitting a transpose where there is none."""
        if expr in self.last:
            return self.last[expr]
        if isinstance(expr, ir.Constant):
            return ir.constant(aligned(expr.data.numpy().transpose(_to_last(expr.data.numpy().ndim))))
        twin = bb.emit(panels.permute(expr, _to_last(expr.ty.ndim)))
        self.last[expr] = twin
        return twin

    def by_declaration(self, call: ir.Call, bb: BlockBuilder) -> ir.Expr | None:
        """Carry the layout as the operator's declaration says, if any operand has it."""
        assert isinstance(call.op, ir.Op)
        definition = get_op_def(call.op)
        if definition.layout is Layout.AXES:
            return self._along_axes(call, definition, bb)
        layouts = [name for name, kind in definition.attrs.items() if kind.is_layout]
        if definition.layout is Layout.OWN or call.args[0] not in self.last:
            return None
        sizes = _letters(call.args[0].ty.ndim)  # type: ignore[union-attr]
        if any(call.attrs.get(name) not in (None, "", f"NC{sizes}") for name in layouts):
            return None
        attrs = call.attrs.with_(**dict.fromkeys(layouts, f"N{sizes}C"))
        return ir.Call(call.op, (self.to_last(call.args[0], bb), *call.args[1:]), attrs, span=call.span)

    def _along_axes(self, call: ir.Call, definition: OpDef, bb: BlockBuilder) -> ir.Expr | None:
        """Compute on twins; vectors of an operator that names an axis lie along it, wherever it is."""
        operands = [f for a in call.args for f in (a.fields if isinstance(a, ir.Tuple) else (a,))]
        ndim = max((f.ty.ndim for f in operands if f in self.last), default=0)
        if not ndim or getattr(call.ty, "ndim", ndim) != ndim:
            return None
        names = definition.names_axes(call.attrs)
        vectors = names and any(getattr(f.ty, "ndim", -1) == 1 for f in operands)  # type: ignore[attr-defined]
        if not names and (phased := self._phases(call, bb)) is not None:
            return phased
        args = tuple(self._operand(a, bb, vectors, ndim) for a in call.args)
        attrs = in_places(definition.attrs, call.attrs, _to_first(ndim), ndim)
        return None if any(a is None for a in args) else ir.Call(call.op, args, attrs, span=call.span)  # type: ignore[arg-type]

    def _operand(self, arg: ir.Expr, bb: BlockBuilder, vectors: bool, ndim: int) -> ir.Expr | None:
        if isinstance(arg, ir.Tuple):
            fields = tuple(self._operand(f, bb, vectors, ndim) for f in arg.fields)
            return None if any(f is None for f in fields) else ir.Tuple(fields)  # type: ignore[arg-type]
        ty = arg.ty
        if not isinstance(ty, ir.TensorType) or ty.ndim == 0 or (ty.ndim == 1 and vectors):
            return arg
        if ty.ndim == ndim:
            return self.to_last(arg, bb)
        if isinstance(arg, ir.Constant):
            data = arg.data.numpy()
            return ir.constant(aligned(data.reshape((1,) * (ndim - data.ndim) + data.shape).transpose(_to_last(ndim))))
        return None


def _same_shape(call: ir.Call, found: Sequence[phases.Phased]) -> bool:
    """Whether phased operands lie on the same pixels, and the result has their channels."""
    first = [str(d) for d in found[0].base]
    channels = call.ty.shape[1] if isinstance(call.ty, ir.TensorType) and call.ty.shape is not None else None
    return all([str(d) for d in p.base] == first for p in found) and ir.as_int(channels) == found[0].channels


_RULES: Registry[Callable[[_Layouts, ir.Call, Any], Any]] = Registry()


@_RULES.on("nn.conv2d", "nn.conv3d")
def _convolution(s: _Layouts, call: ir.Call, bb: BlockBuilder) -> ir.Expr | None:
    weight, attrs = call.args[1], call.attrs
    shape = panels.known_shape(weight)
    sizes = _letters(len(shape)) if shape else ""
    if not shape or any(
        attrs.get(name) not in (None, "", first + sizes)
        for name, first in (("data_layout", "NC"), ("out_layout", "NC"), ("kernel_layout", "OI"))
    ):
        return None
    groups, channels = attrs.get("groups", 1), shape[0]
    call, attrs = _with_padding(s, call)
    group, panel = s.dot_group(call), _panel(s, channels)
    tile = _winograd_tile(s, call, weight.data.numpy()) if isinstance(weight, ir.Constant) else 0
    has_last = call.args[0] in s.last
    alone = s.ends_here and not (has_last or s.machine.masks_freely)  # no neighbour has channels last
    if group == 1 and (made := channels_first(s.machine, call, has_last, alone, not tile, bb)) is not None:
        return _Kept(made.op, made.args, made.attrs, span=call.span)
    if tile and groups > 1:
        return _each_image(s, call, bb)
    if tile and isinstance(weight, ir.Constant):
        padding = np.resize(attrs.get("padding", 0), 2 * len(sizes)).reshape(2, -1)[:, -2:]
        new = ir.Attrs.of(padding=tuple(padding.ravel().tolist()), tile=tile, channels=channels)
        moved = ir.constant(winograd_weight(weight.data.numpy().reshape(channels, -1, 3, 3), tile, _panel(s, channels)))
        return ir.Call(ir.Op.get("relax.nn.conv2d_winograd"), (s.to_last(call.args[0], bb), moved), new, span=call.span)
    if not isinstance(weight, ir.Constant) and group > 1:
        return None
    strides = np.broadcast_to(attrs.get("strides", 1), (len(sizes),))
    apart = all(k <= d for k, d in zip(shape[2:], strides, strict=True))
    whole = channels // groups % panel == 0
    if isinstance(weight, ir.Constant) and (
        (group > 1 and whole and 1 < groups <= _MOST_GROUPS_OF_BYTES)
        or (group == 1 and has_odd_groups(s.machine, _panel(s, channels // groups), shape, groups, apart))
    ):
        return _each_group(s, call, group, bb)
    if groups > 1:  # instructions add up products of neighbours in one group, which panels of several do not have
        group = 1
    if groups == 1 or whole:
        packed = panels.weight_panels(weight, panel, group, bb)
        layout = f"O{sizes}I{panel}o" + (f"{group}i" if group > 1 else "")
    elif shape[1] == 1 and groups == channels:
        packed = panels.moved_weight(weight, (channels, *shape[2:]), (*range(1, len(shape) - 1), 0), bb)
        layout = f"{sizes}C"
    else:
        packed, layout = panels.moved_weight(weight, shape, (*range(2, len(shape)), 1, 0), bb), f"{sizes}IO"
    data, found = call.args[0], f"NC{sizes}"
    if groups > 1 or shape[1] > FEW_CHANNELS or group > 1 or data in s.last:
        data, found = s.to_last(data, bb), f"N{sizes}C"
    new_attrs = attrs.with_(data_layout=found, out_layout=f"N{sizes}C", kernel_layout=layout, channels=channels)
    return ir.Call(call.op, (s.factor(data, group, bb), packed), new_attrs, span=call.span)


_MOST_GROUPS_OF_BYTES = 64
"""Groups of bytes that may be convolutions of their own: each is a call."""


def _each_image(s: _Layouts, call: ir.Call, bb: BlockBuilder) -> ir.Call:
    """Compute each group as the convolution of an image of its own."""
    rank = len(panels.known_shape(call.args[1]))

    def convolved(own: ir.Expr, kernel: np.ndarray) -> ir.Expr:
        data = bb.emit(panels.permute(own, _to_first(rank)))
        s.last[data] = own
        alone = bb.normalize(panels.group_alone(call, data, kernel, len(kernel)))
        made = _convolution(s, alone, bb)  # type: ignore[arg-type]
        return s.to_last(bb.emit(made), bb) if isinstance(made, _Kept) else made

    return panels.each_group(call, s.to_last(call.args[0], bb), rank - 1, convolved, bb)


def _each_group(s: _Layouts, call: ir.Call, group: int, bb: BlockBuilder) -> ir.Call:
    """Compute each group of a convolution by itself, channels last."""
    rank = len(panels.known_shape(call.args[1]))
    sizes, data = _letters(rank), s.factor(s.to_last(call.args[0], bb), group, bb)

    def convolved(own: ir.Expr, kernel: np.ndarray) -> ir.Expr:
        panel = _panel(s, len(kernel))
        form = f"O{sizes}I{panel}o" + (f"{group}i" if group > 1 else "")
        layouts = {"data_layout": f"N{sizes}C", "out_layout": f"N{sizes}C", "kernel_layout": form}
        return panels.group_alone(call, own, panels.pack_conv_weight(kernel, panel, group), len(kernel), **layouts)

    return panels.each_group(call, data, rank - 1, convolved, bb)


def _with_padding(s: _Layouts, call: ir.Call) -> tuple[ir.Call, ir.Attrs]:
    """Return a convolution of padded data as one of the data that pads more."""
    data, attrs = call.args[0], call.attrs
    if data not in s.padded or attrs.get("pad_value", 0):
        return call, attrs
    source, width = s.padded[data]
    attrs = attrs.with_(padding=tuple((np.resize(attrs.get("padding", 0), len(width)) + width).tolist()))
    return ir.Call(call.op, (source, *call.args[1:]), attrs, span=call.span, ty=call.ty), attrs


@_RULES.on("nn.conv2d_transpose", "nn.conv3d_transpose")
def _conv_transpose(s: _Layouts, call: ir.Call, bb: Any) -> ir.Expr | None:
    """Compute phases of the output as channels of one convolution, or one by one; blocks apart are a product."""
    data, weight = call.args[:2]
    attrs, shape, outs = call.attrs, panels.shape_of(data), panels.shape_of(call)
    kernel = panels.known_shape(weight)
    if not kernel or shape is None or outs is None:
        return None
    sizes = _letters(len(shape))
    if any(attrs.get(name) not in (None, "", f"NC{sizes}") for name in ("data_layout", "out_layout")):
        return None
    groups, one_channel = attrs.get("groups", 1), prod(kernel[2:])
    depthwise = 1 < groups == kernel[0] and kernel[1] == 1
    plan = phases.phases_of(attrs, kernel[2:], shape[2:], outs[2:])
    block = plan.block
    lone = s.ends_here and data not in s.last and max(plan.taps) == 1  # and each output has one tap at most
    if depthwise and one_channel <= _WRITTEN_OUT and lone:
        return None
    s.ends_here &= prod(block) == 1 or bool(panels.known_shape(call))  # planes of unknown size are slow to interleave
    plain = weight.ty.dtype == "float32" and attrs.get("out_dtype") in (None, "", "float32")  # type: ignore[union-attr]
    rows = kernel[1] * block[-1] * 2 >= s.panel and plain and groups == 1 and len(block) == 2
    if rows and kernel[2:] == block and plan.crop is None:
        base = (shape[0], shape[2], shape[3])
        return s.bind_phased(phases.product_of_blocks(s.to_last(data, bb), base, weight, bb), bb)
    name = call.op.name.removeprefix("relax.").removesuffix("_transpose")  # type: ignore[union-attr]

    def convolve(weight: ir.Expr, padding: Sequence[int], dilation: Sequence[int]) -> ir.Call:
        window = {"padding": padding, "dilation": dilation, "out_dtype": attrs.get("out_dtype", "")}
        made = _convolution(s, bb.normalize(make_call(name)(data, weight, groups=groups, **window)), bb)
        assert made is not None
        return made

    own = plain and (groups == 1 or depthwise) and isinstance(weight, ir.Constant)
    if parts := plan.parts(attrs, shape, kernel, 0 if depthwise else s.panel) if own else []:
        s.to_last(data, bb)  # which all of them read, so that none keeps its own layout
        taps: Any = weight if depthwise else panels.moved_weight(weight, kernel, (1, 0, *range(2, len(kernel))), bb)
        each = [bb.emit(convolve(*phases.phase_of(taps, axes))) for axes in product(*parts)]
        return s.bind_phased(phases.placed(each, parts, outs[2:], bb), bb)
    if depthwise and one_channel <= _WRITTEN_OUT:
        return None  # one channel by itself has no products to share: its taps are written out for neighbouring pixels
    taps = phases.phase_weights(weight, plan, groups, bb)
    base = (shape[0], *(simplify(n + ir.int64(e)) for n, e in zip(shape[2:], plan.more, strict=True)))
    made = convolve(taps, plan.padding, plan.dilation)
    if plan.crop is None and all(n == 1 for n in block):
        return made
    value, channels = bb.emit(made), kernel[1] * groups
    if plan.is_sparse and channels <= FEW_CHANNELS and not isinstance(made, _Kept):
        value, made = bb.emit(panels.permute(value, _to_first(len(shape)))), _Kept(made.op, made.args)
    if isinstance(made, _Kept):
        image = phases.image_of_planes(value, base, plan, kernel[1], groups, bb)
        return _Kept(image.op, image.args, image.attrs, span=call.span)
    value = plan.filled(value, (*base, groups), (kernel[1],), bb)
    return s.bind_phased(phases.Phased(value, base, block, channels, True, groups, plan.crop), bb)


_WRITTEN_OUT = 25
"""Elements up to which the kernel of one channel is better written out."""


def _winograd_tile(s: _Layouts, call: ir.Call, kernel: np.ndarray) -> int:
    """Choose the tile of Winograd's algorithm, or 0 where the convolution is none for it, as of images or frames."""
    attrs, ty, (o, c, *taps) = call.attrs, call.ty, kernel.shape
    groups = attrs.get("groups", 1)
    padding = np.resize(attrs.get("padding", 0), (2, len(taps)))
    if taps[-2:] != [3, 3] or any(n != 1 for n in taps[:-2]) or padding[:, :-2].any():
        return 0
    plain = all(np.all(np.ravel(attrs.get(name, 1)) == 1) for name in ("strides", "dilation"))
    if not s.winograd or not plain or groups > MOST_GROUPS or c % 16:
        return 0
    if kernel.dtype != np.float32 or not isinstance(ty, ir.TensorType) or ty.shape is None or ty.dtype != "float32":
        return 0
    n, _, *frames = (panels.likely(d, 1) for d in ty.shape[:-2])
    h, w = (panels.likely(d, panels.LIKELY_SIZE) for d in ty.shape[-2:])
    o //= groups
    channels = (c, panels.round_up(o, _panel(s, o)))
    near = s.near and all(ir.as_int(d) is not None for d in ty.shape[1:])
    best = winograd_tile((n * prod(frames), h, w), channels, near, s.machine)
    if s.tuned is None:
        return best
    about = {"convolution": [n * prod(frames), h, w], "channels": [c, o], "padding": padding[:, -2:].ravel().tolist()}
    return s.tuned.choose(json.dumps({**about, "panel": s.panel}), (0, 2, 4), best)


def _panel(s: _Layouts, channels: int) -> int:
    """Choose the width of panels: no wider than the output's channels need."""
    return min(s.panel, panels.round_up(channels, 16))


@_RULES.on("matmul")
def _matmul(s: _Layouts, call: ir.Call, bb: BlockBuilder) -> ir.Expr | None:
    weight, data = call.args[1], call.args[0]
    if isinstance(weight, RelaxVar):
        return _transposed_product(call, weight, bb)
    if not isinstance(weight, ir.Constant) or weight.ty.ndim != 2:  # type: ignore[union-attr]
        return None
    if not isinstance(data.ty, ir.TensorType) or data.ty.ndim < 2:
        return None
    group = s.dot_group(call)
    plain = str(weight.ty.dtype).startswith("float") and not call.attrs.get("out_dtype")  # type: ignore[union-attr]
    array = weight.data.numpy()
    n = array.shape[1]
    if group == 1 and (not plain or n == 1):  # one column lies as dot products read it
        return None
    panel = s.panel if n >= s.panel else panels.round_up(n, 16)
    attrs = ir.Attrs.of(n=n, group=group, out_dtype=(call.attrs.get("out_dtype", "") or "") if group > 1 else "")
    lone = data.ty.shape is not None and all(ir.as_int(d) == 1 for d in data.ty.shape[:-1])
    step = 1 if lone or group == 1 else s.machine.rows_together(str(weight.ty.dtype), len(array))  # type: ignore[union-attr]
    packed = ir.constant(panels.pack_matmul_weight(array, panel, group, step))
    return _Kept(ir.Op.get("relax.nn.matmul_packed"), (s.factor(data, group, bb), packed), attrs, span=call.span)


def _transposed_product(call: ir.Call, weight: RelaxVar, bb: BlockBuilder) -> ir.Expr | None:
    """Read a transposed matrix as it lies where rows are known: few are dot products, for more it is packed anyway."""
    made, shape, dtype = bb.lookup_binding(weight), panels.shape_of(call.args[0]), getattr(call.ty, "dtype", "")
    if (
        not isinstance(made, ir.Call)
        or made.op is not ir.Op.get("relax.permute_dims")
        or len(panels.known_shape(weight)) != 2
    ):
        return None
    if [a % 2 for a in made.attrs.get("axes") or (1, 0)] != [1, 0] or call.attrs.get("out_dtype"):
        return None
    if shape is None or len(shape) != 2 or ir.as_int(shape[0]) is None or str(dtype) != "float32":
        return None
    return _Kept(ir.Op.get("relax.linear"), (call.args[0], made.args[0]), ir.Attrs.of(out_dtype=""), span=call.span)


class _Kept(ir.Call):
    """A replacement that keeps the value's own layout."""

    layout_kept = True


@_RULES.on("image.resize")
def _resize_all(s: _Layouts, call: ir.Call, bb: BlockBuilder) -> ir.Expr | None:
    """Resize the twin: sizes, scales and regions of all axes change places."""
    size = call.args[1]
    if call.args[0] not in s.last or not isinstance(size, ir.ShapeExpr) or len(size.values) != 4:
        return None
    order = {"scales": _to_last(4), "roi": [half + d for half in (0, 4) for d in _to_last(4)]}
    moved = {name: tuple(v[d] for d in at) for name, at in order.items() if (v := call.attrs.get(name)) is not None}
    places = ir.shape_expr([size.values[d] for d in _to_last(4)])
    attrs = call.attrs.with_(**moved)
    return ir.Call(call.op, (s.to_last(call.args[0], bb), places), attrs, span=call.span)


@_RULES.on("image.grid_sample")
def _grid_sample(s: _Layouts, call: ir.Call, bb: BlockBuilder) -> ir.Expr | None:
    """Sample the twin, where all channels of a point lie side by side, if they fill a vector and points are many."""
    shape, points = map(panels.shape_of, call.args)
    if shape is None or points is None or call.attrs["layout"] not in ("NCHW", "NCDHW"):
        return None
    read, moved = (prod(panels.likely(d, panels.LIKELY_SIZE) for d in sizes[2:]) for sizes in (points, shape))
    worth = call.attrs["method"] != "nearest" and _AS_MANY_MOVED * read >= moved
    if (ir.as_int(shape[1]) or 0) < s.machine.lanes(32) or not (worth or call.args[0] in s.last):
        return None
    layout = f"N{_letters(len(shape))}C"
    return ir.Call(
        call.op, (s.to_last(call.args[0], bb), call.args[1]), call.attrs.with_(layout=layout), span=call.span
    )


_AS_MANY_MOVED = 8
"""Elements that are brought into another order in the time in which one is sampled out of its order."""


@_RULES.on("broadcast_to")
def _broadcast_to(s: _Layouts, call: ir.Call, bb: BlockBuilder) -> ir.Expr | None:
    """Repeat the twin: the sizes change places as the dimensions do."""
    data, shape = call.args
    if data not in s.last or not isinstance(shape, ir.ShapeExpr) or len(shape.values) != 4:
        return None
    places = ir.shape_expr([shape.values[d] for d in _to_last(4)])
    return ir.Call(call.op, (s.to_last(data, bb), places), span=call.span)


@_RULES.on("sum", "mean", "max", "min")
def _reduce(s: _Layouts, call: ir.Call, bb: BlockBuilder) -> ir.Expr | None:
    data, axis = call.args[0], call.attrs.get("axis")
    if data not in s.last or axis is None:
        return None
    ndim = data.ty.ndim  # type: ignore[union-attr]
    attrs = in_places(get_op_def(call.op).attrs, call.attrs, _to_first(ndim), ndim)  # type: ignore[arg-type]
    if call.attrs.get("keepdims", False):
        return ir.Call(call.op, (s.to_last(data, bb),), attrs, span=call.span)
    if attrs["axis"] == tuple(range(1, ndim - 1)):
        return _Kept(call.op, (s.to_last(data, bb),), attrs, span=call.span)
    return None


@_RULES.on("permute_dims")
def _permute_rule(s: _Layouts, call: ir.Call, bb: BlockBuilder) -> ir.Expr | None:
    """A transpose of a value that has a twin reads the twin; a transpose to channels-last is the twin."""
    data = call.args[0]
    axes = call.attrs.get("axes")
    if data not in s.last or axes is None:
        return None
    last = _to_last(len(axes))
    composed = tuple(last.index(a % len(axes)) for a in axes)
    twin = s.to_last(data, bb)
    if composed == tuple(range(len(axes))):
        return twin
    return _Kept(call.op, (twin,), call.attrs.with_(axes=composed), span=call.span)
