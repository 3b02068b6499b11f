"""Convolutions of any rank and transposed convolutions."""

from typing import Any

from weft import ir
from weft.error import ShapeMismatch
from weft.ir import as_int, floordiv
from weft.op import simplify, tensor_arg
from weft.relay.op.construct import constructor, constructs
from weft.relay.op.layouts import blocks, plain, relaid
from weft.relay.op.registry import declare, shared
from weft.relay.op.shapes import dims
from weft.relay.types import TensorType
from weft.relay.typing import Value

_DATA = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
_KERNEL = {1: "OIW", 2: "OIHW", 3: "OIDHW"}
_TRANSPOSED = {1: "IOW", 2: "IOHW", 3: "IODHW"}


def _checked(op: str, weight: ir.Expr, layout: str, rank: int, channels: Any, kernel_size: Any, out: Any) -> None:
    """Refuse `channels` and `kernel_size` that are not the weight's."""
    shape = tensor_arg(op, "weight", weight, ndim=rank + 2).shape
    spatial = [shape[layout.index(c)] for c in _DATA[rank][2:]]  # type: ignore[index]
    given = (kernel_size if isinstance(kernel_size, tuple) else (kernel_size,) * rank) if kernel_size else ()
    for k, d in zip(given, spatial, strict=False):
        if None not in (as_int(k), as_int(d)) and as_int(k) != as_int(d):
            raise ShapeMismatch(
                f"{op}: 'kernel_size' is not the weight's", expected=str(d), found=str(k), where=weight.span
            )
    if None not in (as_int(channels), as_int(out)) and as_int(channels) != as_int(out):
        raise ShapeMismatch(
            f"{op}: 'channels' is not the weight's number of outputs",
            expected=str(out),
            found=str(channels),
            where=weight.span,
        )


def _as_data(data: ir.Expr, weight: ir.Expr) -> ir.Expr:
    """Return a weight of another floating-point type in that of the data."""
    dtypes = {t.ty.dtype for t in (data, weight)}
    floats = len(dtypes) == 2 and all(ir.DataType(d).is_float for d in dtypes)
    return shared("astype", weight, dtype=data.ty.dtype) if floats else weight


def _conv(rank: int, transposed: bool = False) -> Any:
    op = f"nn.conv{rank}d" + "_transpose" * transposed

    def expand(
        data: ir.Expr,
        weight: ir.Expr,
        groups: int,
        channels: Any,
        kernel_size: Any,
        data_layout: str,
        kernel_layout: str,
        out_layout: str,
        **attrs: Any,
    ) -> ir.Expr:
        spatial = _DATA[rank][2:]
        layout, kernel = plain(op, data_layout, "NC" + spatial), plain(op, kernel_layout, "OI" + spatial)
        x, w = relaid(data, data_layout, layout), relaid(weight, kernel_layout, kernel)
        tensor_arg(op, "data", x, ndim=rank + 2)
        shape = tensor_arg(op, "weight", w, ndim=rank + 2).shape or ()
        outputs, per_group = shape[kernel.index("O")], shape[kernel.index("I")]
        wanted = kernel if kernel == spatial + "IO" else "OI" + spatial
        if transposed:
            each, wanted = as_int(outputs), "IO" + spatial
            outputs = None if each is None else each * groups
        else:
            w = _as_data(x, w)
            of_each = kernel == spatial + "OI" or (as_int(outputs) == groups and as_int(per_group) not in (1, None))
            if groups > 1 and of_each and as_int(dims(x)[layout.index("C")]) in (groups, None):
                outputs = simplify(outputs * per_group)  # depthwise: the last axes are channels and outputs of each
                w = relaid(w, kernel, "OI" + spatial)
                w, kernel = shared("reshape", w, ir.shape_expr((outputs, 1, *dims(w)[2:]))), "OI" + spatial
                wanted = kernel
        _checked(op, w, kernel, rank, channels, kernel_size, outputs)
        first = layout if layout == "N" + spatial + "C" else "NC" + spatial
        x, w = relaid(x, layout, first), relaid(w, kernel, wanted)
        out = shared(op, x, w, groups=groups, data_layout=first, kernel_layout=wanted, **attrs)
        return relaid(out, first, out_layout or data_layout)

    return expand


def _weight(rank: int, transposed: bool) -> Any:
    """The rule of a weight's type where `channels` and `kernel_size` are given."""

    def completes(
        data: TensorType, channels: Any, kernel_size: Any, groups: int, data_layout: str, kernel_layout: str, **_: Any
    ) -> tuple[TensorType | None]:
        if channels is None or kernel_size is None:
            return (None,)
        inputs: Any = None
        for (letter, _size), d in zip(blocks(data_layout), ir.as_shape(data.shape or ()), strict=False):
            if letter in "Cc":
                inputs = d if inputs is None else inputs * d
        if inputs is None:
            return (None,)
        sizes = kernel_size if isinstance(kernel_size, tuple) else (kernel_size,) * rank
        by_letter: dict[str, Any] = dict(zip(_DATA[rank][2:], sizes, strict=True))
        if transposed:
            by_letter |= {"I": inputs, "O": channels // groups}
        elif kernel_layout == _DATA[rank][2:] + "OI":
            by_letter |= {"O": inputs, "I": simplify(floordiv(ir.int64(channels), inputs))}
        else:
            by_letter |= {"O": channels, "I": simplify(floordiv(inputs, ir.int64(groups)))}
        axes = blocks(kernel_layout)
        for letter, size in axes:
            if size:
                outer = letter.upper()
                by_letter |= {letter: size, outer: simplify(floordiv(ir.as_shape((by_letter[outer],))[0], size))}
        return (TensorType(tuple(by_letter[c] for c, _ in axes), data.dtype),)

    return completes


def _attributes(rank: int, data_layout: str, kernel_layout: str, **more: Any) -> dict[str, Any]:
    """Return what convolutions of a rank take; `more` stands before the data type."""
    return {
        "strides": (1,) * rank,
        "padding": (0,) * rank,
        "dilation": (1,) * rank,
        "groups": 1,
        "channels": None,
        "kernel_size": None,
        "data_layout": data_layout,
        "kernel_layout": kernel_layout,
        "out_layout": "",
        **more,
        "out_dtype": "",
    }


for _rank in (1, 2, 3):
    declare(
        f"nn.conv{_rank}d",
        "data weight",
        _attributes(_rank, _DATA[_rank], _KERNEL[_rank]),
        expand=_conv(_rank),
        completes=_weight(_rank, False),
        doc=f"{_rank}-D convolution (cross-correlation). `padding` is all beginnings, then all ends.",
    )
    declare(
        f"nn.conv{_rank}d_transpose",
        "data weight",
        _attributes(_rank, _DATA[_rank], _TRANSPOSED[_rank], output_padding=(0,) * _rank),
        expand=_conv(_rank, transposed=True),
        completes=_weight(_rank, True),
        doc=f"{_rank}-D transposed convolution, weights (in, out / groups, ...).",
    )

declare(
    "nn.contrib_conv2d_NCHWc",
    "data kernel",
    _attributes(2, "NCHW8c", "OIHW8i8o"),
    expand=lambda data, kernel, kernel_layout, **attrs: _conv(2)(
        data, kernel, kernel_layout=_with_blocks(kernel, kernel_layout), **attrs
    ),
    doc="2-D convolution in layouts with blocks of channels.",
)


def _with_blocks(kernel: ir.Expr, layout: str) -> str:
    """Return the layout of a kernel of six axes; the sizes of its blocks are those that the kernel has."""
    shape = tensor_arg("nn.contrib_conv2d_NCHWc", "kernel", kernel).shape or ()
    outer, inner = ("".join(filter(kind, layout)) for kind in (str.isupper, str.islower))
    return f"{outer}{shape[4]}i{shape[5]}o" if len(shape) == 6 and inner in ("", "io") else layout


@constructs("nn.contrib_conv2d_nchwc")
def contrib_conv2d_nchwc(data: Value, kernel: Value, *args: Any, **kwargs: Any) -> ir.Expr:
    """Convolve in layouts with blocks of channels; the parameters are those of ``nn.conv2d``."""
    return constructor("nn.contrib_conv2d_NCHWc")(data, kernel, *args, **kwargs)
