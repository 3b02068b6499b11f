"""FoldScaleAxis: factors of channels go into the weights of convolutions and layers.

A convolution is linear in each channel, so a factor that its data (forward) or its result (backward) has in each
channel may be a factor of its weight, which is often known. Between the factor and the convolution may stand
rectifiers, where factors are positive, and sums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from weft import ir
from weft.relay.expr import Call, Constant, Function
from weft.relay.op.registry import op_call
from weft.relay.transform.fold_constant import fold_constant
from weft.relay.transform.simplify_inference import expand_to_axis
from weft.relay.transform.typed_pass import over_typed_functions, with_types
from weft.relay.walk import map_parts, operator_name, parts, subexpressions


class _Axes(NamedTuple):
    """The axes along which a factor may vary, and whether it must be positive."""

    axes: tuple[int, ...]
    positive: bool = False


class _Scale(NamedTuple):
    """A factor, as a tensor of the axes alone."""

    value: Any
    axes: tuple[int, ...]


_RECTIFIERS = ("nn.relu", "nn.leaky_relu")
_SUMS = ("add", "subtract")
_CONVOLUTIONS = ("nn.conv2d", "nn.conv3d")
_MAY_RESHAPE = ("expand_dims", "reshape", "transpose", "squeeze", "repeat")


def FoldScaleAxis() -> ir.Pass:
    """Make the pass that moves factors of channels into weights, backward, then forward, and folds constants.

    Source: TVM's ``FoldScaleAxis``.
    """
    return ir.Sequential([BackwardFoldScaleAxis(), ForwardFoldScaleAxis(), fold_constant()], name="FoldScaleAxis")


@with_types
def ForwardFoldScaleAxis() -> ir.Pass:
    """Make the pass that moves factors of a convolution's data into its weight.

    Source: TVM's ``ForwardFoldScaleAxis``.
    """
    return _pass(ForwardFoldScaleAxis, _Forward)


@with_types
def BackwardFoldScaleAxis() -> ir.Pass:
    """Make the pass that moves factors of a convolution's result into its weight.

    Source: TVM's ``BackwardFoldScaleAxis``.
    """
    return _pass(BackwardFoldScaleAxis, _Backward)


def _pass(face: Any, folder: Any) -> ir.Pass:
    def fold(func: Function) -> Function:
        """Move the factors of one function."""
        return func.replace(body=folder(func.body).run())

    return ir.Pass(face.__name__, over_typed_functions(fold), 3, face.__doc__)


# --- what operators allow ---------------------------------------------------------------------------------------------


def _shape(e: Any) -> tuple[int, ...] | None:
    """Return a tensor's shape where it is known."""
    ty = e.ty
    dims = tuple(map(ir.as_int, ty.shape)) if isinstance(ty, ir.TensorType) and ty.shape is not None else (None,)
    return None if None in dims else dims  # type: ignore[return-value]


def _fits(left: Any, right: Any, axes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Whether `right` broadcasts to `left` and varies along `axes` alone: its other axes, to be squeezed; else None."""
    a, b = _shape(left), _shape(right)
    if a is None or b is None or len(a) < len(b):
        return None
    base, squeezed = len(a) - len(b), []
    for i, extent in enumerate(a):
        if i in axes:
            if i < base or b[i - base] != extent:
                return None
        elif i >= base:
            if b[i - base] != 1:
                return None
            squeezed.append(i - base)
    return tuple(squeezed)


def _factor(left: Any, right: Any, wanted: _Axes) -> Any:
    """Return `right` as a factor of `left` along the axes; None where it is none."""
    squeezed = _fits(left, right, wanted.axes)
    if squeezed is None:
        return None
    made = op_call("squeeze", right, axis=squeezed) if squeezed else right
    return made if not wanted.positive or _is_positive(right) else None


def _is_positive(e: Any) -> bool:
    while operator_name(e) in _MAY_RESHAPE:
        e = e.args[0]
    return isinstance(e, Constant) and bool((e.data.numpy() > 0).all())


def _beside(scale: Any, shape: Sequence[int], axes: tuple[int, ...]) -> Any:
    """Return a factor in the shape in which it stands beside axes of a tensor."""
    if len(axes) == 1:
        return expand_to_axis(scale, len(shape), axes[0])
    return op_call("reshape", scale, newshape=tuple(d if i in axes else 1 for i, d in enumerate(shape)))


class _Layouts:
    """Where a convolution's channels are; None as ``forward`` or ``backward`` where no factor goes in."""

    def __init__(self, call: Call) -> None:
        data, kernel = str(call.attrs["data_layout"]), str(call.attrs["kernel_layout"])
        out = str(call.attrs.get("out_layout") or data)
        self.weight = call.args[1]
        shape, groups = _shape(self.weight), int(call.attrs["groups"])
        marks = [m for m in "".join(c for c in kernel if c.isalpha())]
        totals = dict.fromkeys("OI", 1)
        for mark, extent in zip(marks, shape or (), strict=False):
            if mark.upper() in totals:
                totals[mark.upper()] *= extent
        self.depthwise = totals == {"O": groups, "I": 1}
        blocked = ["c" in data, "i" in kernel, "o" in kernel]
        known = shape is not None and (groups == 1 or self.depthwise) and (all(blocked) or not any(blocked))
        self.data_axes = _places(data, "Cc") if known else None
        self.out_axes = _places(out, "Cc") if known else None
        self.input_axes = _places(kernel, "Oo" if self.depthwise else "Ii")
        self.output_axes = _places(kernel, "Oo")

    def scaled(self, weight: Any, scale: Any, axes: tuple[int, ...]) -> Any:
        """Multiply the weight along some of its axes."""
        return op_call("multiply", weight, _beside(scale, _shape(self.weight) or (), axes))


def _places(layout: str, letters: str) -> tuple[int, ...]:
    """Return the axes of letters; numbers, which are sizes of blocks, are no axes."""
    axes = "".join(c for c in layout if c.isalpha())
    return tuple(i for i, c in enumerate(axes) if c in letters)


def _layer_axes(call: Call) -> tuple[int, ...] | None:
    """The axis of a layer's data that its weight has, too, and of its result."""
    ranks = [len(_shape(a) or ()) for a in call.args]
    return (1,) if ranks == [2, 2] else None


# --- forward ----------------------------------------------------------------------------------------------------------


class _Forward:
    """Takes factors off the data of convolutions: first who could take one, from users to what they use."""

    def __init__(self, body: Any) -> None:
        self.body = body
        self.wanted: dict[Any, _Axes | None] = {}
        self.scales: dict[Any, _Scale] = {}
        self.memo: dict[Any, Any] = {}

    def run(self) -> Any:
        self.ask(self.body, None)
        for e in reversed(ir.operands_first((self.body,), parts)):
            for part, axes in self.demands(e):
                self.ask(part, axes)
        return ir.with_deep_stack(lambda: self.made(self.body)) if any(self.wanted.values()) else self.body

    def ask(self, e: Any, axes: _Axes | None) -> None:
        """Note what a user allows; all users must allow the same."""
        if e in self.wanted:
            known = self.wanted[e]
            same = known is not None and axes is not None and known.axes == axes.axes
            axes = _Axes(axes.axes, known.positive or axes.positive) if same else None  # type: ignore[union-attr]
        self.wanted[e] = axes

    def demands(self, e: Any) -> list[tuple[Any, _Axes | None]]:
        """What an expression asks of its parts."""
        name, wanted = operator_name(e), self.wanted.get(e)
        if name in _RECTIFIERS:
            return [(e.args[0], wanted and _Axes(wanted.axes, True))]
        if name in _SUMS and wanted:
            a, b = e.args
            for x, y in ((a, b), (b, a)):
                if _fits(x, y, wanted.axes) is not None:
                    return [(x, wanted), (y, None)]
        if name in _CONVOLUTIONS:
            axes = _Layouts(e).data_axes
            return [(e.args[0], None if axes is None else _Axes(axes)), (e.args[1], None)]
        if name == "nn.dense":
            axes = _layer_axes(e)
            return [(e.args[0], None if axes is None else _Axes(axes)), (e.args[1], None)]
        return [(p, None) for p in parts(e)]

    def made(self, e: Any) -> Any:
        """Return the new expression; where it has a factor still to be taken, that is in ``scales``."""
        if e not in self.memo:
            self.memo[e] = self.rewritten(e)
        return self.memo[e]

    def rewritten(self, e: Any) -> Any:
        name, new = operator_name(e), map_parts(e, self.made)
        if name == "multiply" and self.wanted.get(e):
            return self.taken(e, new)
        scale = next((self.scales[p] for p in parts(e) if p in self.scales), None)
        if scale is None:
            return new
        if name in _RECTIFIERS:
            self.scales[e] = scale
            return new
        if name in _SUMS:
            self.scales[e] = scale
            other = 0 if e.args[1] in self.scales else 1
            beside = _beside(scale.value, _shape(e.args[1 - other]) or (), scale.axes)
            args = list(new.args)
            args[other] = op_call("divide", args[other], beside)
            return Call(new.op, tuple(args), new.attrs, span=new.span)
        if name == "nn.dense":
            weight = op_call("multiply", new.args[1], scale.value)
        else:
            at = _Layouts(e)
            weight = at.scaled(new.args[1], scale.value, at.input_axes)
        return Call(new.op, (new.args[0], weight), new.attrs, span=new.span)

    def taken(self, e: Any, new: Any) -> Any:
        """Take the factor of a product off, if the users allow it."""
        wanted: Any = self.wanted[e]
        for i in (0, 1):
            if _fits(e.args[i], e.args[1 - i], wanted.axes) is None:
                continue
            factor = _factor(e.args[i], e.args[1 - i], wanted)
            if factor is not None:
                self.scales[e] = _Scale(factor, wanted.axes)
                return new.args[i]
        return new


# --- backward ---------------------------------------------------------------------------------------------------------


class _Backward:
    """Brings factors of results to convolutions: first which expressions can take one, from operands to users."""

    def __init__(self, body: Any) -> None:
        self.body = body
        self.uses = Counter(p for e in subexpressions(body) for p in parts(e))
        self.takes: dict[Any, _Axes] = {}
        self.memo: dict[Any, Any] = {}

    def run(self) -> Any:
        for e in ir.operands_first((self.body,), parts):
            axes = self.offer(e) if self.uses[e] == 1 else None
            if axes:
                self.takes[e] = axes
        return ir.with_deep_stack(lambda: self.made(self.body)) if self.takes else self.body

    def offer(self, e: Any) -> _Axes | None:
        """Which factors an expression, which is used once, can take into itself."""
        name = operator_name(e)
        if name in _RECTIFIERS:
            inner = self.takes.get(e.args[0])
            return inner and _Axes(inner.axes, True)
        if name in _SUMS:
            return self.of_sum(e)
        if name == "nn.bias_add":
            inner = self.takes.get(e.args[0])
            ndim = len(_shape(e.args[0]) or ())
            return inner if inner and ndim and inner.axes == (int(e.attrs["axis"]) % ndim,) else None
        if name in _CONVOLUTIONS:
            axes = _Layouts(e).out_axes
            return None if axes is None else _Axes(axes)
        axes = _layer_axes(e) if name == "nn.dense" else None
        return None if axes is None else _Axes(axes)

    def of_sum(self, e: Any) -> _Axes | None:
        (a, b), (left, right) = e.args, (self.takes.get(x) for x in e.args)
        if left and _fits(a, b, left.axes) is not None:
            return left
        if right and _fits(b, a, right.axes) is not None:
            return right
        if left and right and left.axes == right.axes and _shape(a) == _shape(b):
            return _Axes(left.axes, left.positive or right.positive)
        return None

    def made(self, e: Any, scale: _Scale | None = None) -> Any:
        """Return the new expression, times a factor."""
        if scale is not None:
            return self.scaled(e, scale)
        if e not in self.memo:
            self.memo[e] = self.product(e) if operator_name(e) == "multiply" else map_parts(e, self.made)
        return self.memo[e]

    def product(self, e: Any) -> Any:
        """Bring the factor of a product into the other operand, where that takes it."""
        for x, y in (e.args, e.args[::-1]):
            wanted = self.takes.get(x)
            factor = _factor(x, y, wanted) if wanted else None
            if wanted and factor is not None:
                return self.made(x, _Scale(factor, wanted.axes))
        return map_parts(e, self.made)

    def scaled(self, e: Any, scale: _Scale) -> Any:
        name, args = operator_name(e), list(e.args)
        if name in _RECTIFIERS:
            args = [self.made(args[0], scale)]
        elif name == "nn.bias_add":
            args = [self.made(args[0], scale), op_call("multiply", self.made(args[1]), scale.value)]
        elif name in _SUMS:
            beside = [i for i in (0, 1) if args[i] not in self.takes or self.is_beside(e, i, scale)]
            shape = _shape(e) or ()
            args = [
                op_call("multiply", self.made(a), _beside(scale.value, shape, scale.axes))
                if i in beside
                else self.made(a, scale)
                for i, a in enumerate(args)
            ]
        elif name == "nn.dense":
            args = [self.made(args[0]), op_call("multiply", self.made(args[1]), expand_to_axis(scale.value, 2, 0))]
        else:
            at = _Layouts(e)
            args = [self.made(args[0]), at.scaled(self.made(args[1]), scale.value, at.output_axes)]
        return Call(e.op, tuple(args), e.attrs, span=e.span)

    def is_beside(self, e: Any, i: int, scale: _Scale) -> bool:
        """Whether an operand of a sum, which could take a factor, takes none of these axes."""
        return self.takes[e.args[i]].axes != scale.axes or _shape(e.args[i]) != _shape(e)
