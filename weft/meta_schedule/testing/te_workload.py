"""Computations to tune: products, convolutions and reductions, with shapes of known networks.

``create_te_workload("C2D", 0)`` is the first convolution of ResNet-18. Each function returns its arguments, then its
result; activations are channels-last except where the name says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import te, tir, topi

_Tensors = tuple[Any, ...]


def _axes(names: Sequence[str], extents: Sequence[Any]) -> list[Any]:
    return [te.reduce_axis((0, extent), name=name) for name, extent in zip(names, extents, strict=True)]


def _conv(
    spatial: Sequence[int],
    names: str,
    n: int,
    ci: int,
    co: int,
    kernel_size: int,
    stride: int,
    padding: int,
    dilation: int,
    groups: int,
    dtypes: tuple[str, str],
    name: str,
) -> _Tensors:
    """Make a channels-last convolution over any number of dimensions, called `names`."""
    in_dtype, out_dtype = dtypes
    kernel = [kernel_size] * len(spatial)
    inputs = te.placeholder((n, *spatial, ci), name="inputs", dtype=in_dtype)
    weight = te.placeholder((*kernel, ci // groups, co), name="weight", dtype=in_dtype)
    out = [(size + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1 for size in spatial]
    padded = topi.nn.pad(inputs, [0, *[padding] * len(spatial), 0])
    if len(spatial) == 1:  # the channels come first where there is one dimension
        rc, *window = _axes(["rc", *(f"r{x}" for x in names)], [ci // groups, *kernel])
    else:
        *window, rc = _axes([*(f"r{x}" for x in names), "rc"], [*kernel, ci // groups])

    def value(i: Any, *rest: Any) -> Any:
        *places, c = rest
        at = [x * stride + r * dilation for x, r in zip(places, window, strict=True)]
        read = padded[(i, *at, c // (co // groups) * (ci // groups) + rc)].astype(out_dtype)
        return te.sum(read * weight[(*window, rc, c)].astype(out_dtype), axis=[*window, rc])

    return inputs, weight, te.compute((n, *out, co), _with_names(value, ["n", *names, "co"]), name=name)


def _with_names(fn: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
    """Give a function of any number of indices parameters, whose names loops get."""
    return eval(f"lambda {', '.join(names)}: fn({', '.join(names)})", {"fn": fn})


def conv1d_nlc(
    N: int,
    L: int,
    CI: int,
    CO: int,
    kernel_size: int,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    in_dtype: str = "float32",
    out_dtype: str = "float32",
) -> _Tensors:
    """Convolve (N, L, CI) by (kernel_size, CI / groups, CO)."""
    dtypes = in_dtype, out_dtype
    return _conv([L], "l", N, CI, CO, kernel_size, stride, padding, dilation, groups, dtypes, "conv1d_nlc")


def conv2d_nhwc(
    N: int,
    H: int,
    W: int,
    CI: int,
    CO: int,
    kernel_size: int,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    in_dtype: str = "float32",
    out_dtype: str = "float32",
) -> _Tensors:
    """Convolve (N, H, W, CI) by (kernel_size, kernel_size, CI / groups, CO)."""
    dtypes = in_dtype, out_dtype
    return _conv([H, W], "hw", N, CI, CO, kernel_size, stride, padding, dilation, groups, dtypes, "conv2d_nhwc")


def conv3d_ndhwc(
    N: int,
    D: int,
    H: int,
    W: int,
    CI: int,
    CO: int,
    kernel_size: int,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    in_dtype: str = "float32",
    out_dtype: str = "float32",
) -> _Tensors:
    """Convolve (N, D, H, W, CI) by (kernel_size, kernel_size, kernel_size, CI / groups, CO)."""
    dtypes = in_dtype, out_dtype
    return _conv([D, H, W], "dhw", N, CI, CO, kernel_size, stride, padding, dilation, groups, dtypes, "conv3d_ndhwc")


def depthwise_conv2d_nhwc(
    N: int,
    H: int,
    W: int,
    C: int,
    kernel_size: int,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    factor: int = 1,
    in_dtype: str = "float32",
    out_dtype: str = "float32",
) -> _Tensors:
    """Convolve each channel of (N, H, W, C) by its own window of (factor, kernel_size, kernel_size, C)."""
    inputs = te.placeholder((N, H, W, C), dtype=in_dtype)
    weight = te.placeholder((factor, kernel_size, kernel_size, C), dtype=in_dtype)
    out_h, out_w = ((x + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1 for x in (H, W))
    rh, rw = _axes(["rh", "rw"], [kernel_size] * 2)
    padded = topi.nn.pad(inputs, [0, padding, padding, 0])

    def value(n: Any, h: Any, w: Any, c: Any) -> Any:
        read = padded[n, h * stride + rh * dilation, w * stride + rw * dilation, c // factor].astype(out_dtype)
        return te.sum(read * weight[c % factor, rh, rw, c // factor].astype(out_dtype), axis=[rh, rw])

    return inputs, weight, te.compute((N, out_h, out_w, C * factor), value, name="depth_conv2d_nhwc")


def conv2d_transpose_nhwc(
    N: int,
    H: int,
    W: int,
    CI: int,
    CO: int,
    kernel_size: int,
    stride: int = 1,
    padding: int = 0,
    in_dtype: str = "float32",
    out_dtype: str = "float32",
) -> _Tensors:
    """Convolve (N, H, W, CI), spread out by `stride`, by the turned (kernel_size, kernel_size, CI, CO)."""
    inputs = te.placeholder((N, H, W, CI), name="inputs", dtype=in_dtype)
    weight = te.placeholder((kernel_size, kernel_size, CI, CO), name="weight", dtype=in_dtype)
    top = left = bottom = right = padding
    edges = [kernel_size - 1 - x for x in (top, left, bottom, right)]
    wide = [(x + stride - 1) // stride for x in edges]
    padded = topi.nn.pad(inputs, [0, wide[0], wide[1], 0], [0, wide[2], wide[3], 0])
    shift_h, shift_w = ((stride - x % stride) % stride for x in edges[:2])
    out_h, out_w = (H - 1) * stride - top - bottom + kernel_size, (W - 1) * stride - left - right + kernel_size
    rc, rh, rw = _axes(["rc", "rh", "rw"], [CI, kernel_size, kernel_size])

    def spread(n: Any, h: Any, w: Any, c: Any) -> Any:
        if stride == 1:
            return padded(n, h, w, c)
        there = te.all(te.indexmod(h, stride).equal(0), te.indexmod(w, stride).equal(0))
        read = padded(n, te.indexdiv(h, stride), te.indexdiv(w, stride), c)
        return te.if_then_else(there, read, tir.const(0.0, in_dtype))

    def value(n: Any, h: Any, w: Any, co: Any) -> Any:
        factor = weight[kernel_size - 1 - rh, kernel_size - 1 - rw, rc, co].astype(out_dtype)
        return te.sum(spread(n, h + rh + shift_h, w + rw + shift_w, rc).astype(out_dtype) * factor, axis=[rh, rw, rc])

    return inputs, weight, te.compute((N, out_h, out_w, CO), value, name="conv2d_transpose_nhwc")


def conv2d_capsule_nhwijc(
    N: int,
    H: int,
    W: int,
    CI: int,
    CO: int,
    kernel_size: int,
    stride: int = 1,
    padding: int = 0,
    capsule_size: int = 4,
    in_dtype: str = "float32",
    out_dtype: str = "float32",
) -> _Tensors:
    """Convolve an image of square matrices, (N, H, W, capsule_size, capsule_size, CI), by one of matrices."""
    inputs = te.placeholder((N, H, W, capsule_size, capsule_size, CI), name="inputs", dtype=in_dtype)
    weight = te.placeholder(
        (kernel_size, kernel_size, capsule_size, capsule_size, CI, CO), name="weight", dtype=in_dtype
    )
    out_h, out_w = ((x + 2 * padding - kernel_size) // stride + 1 for x in (H, W))
    rh, rw, cap_k, rc = _axes(["rh", "rw", "cap_k", "rc"], [kernel_size, kernel_size, capsule_size, CI])
    padded = topi.nn.pad(inputs, [0, padding, padding, 0, 0, 0])

    def value(n: Any, h: Any, w: Any, cap_i: Any, cap_j: Any, co: Any) -> Any:
        read = padded[n, h * stride + rh, w * stride + rw, cap_i, cap_k, rc].astype(out_dtype)
        return te.sum(read * weight[rh, rw, cap_k, cap_j, rc, co].astype(out_dtype), axis=[rh, rw, cap_k, rc])

    shape = (N, out_h, out_w, capsule_size, capsule_size, CO)
    return inputs, weight, te.compute(shape, value, name="conv2d_capsule_nhwijc")


def norm_bmn(B: int, M: int, N: int) -> _Tensors:
    """Take the Euclidean norm of each matrix of (B, M, N)."""
    a = te.placeholder((B, M, N), name="A")
    i, j = _axes(["i", "j"], [M, N])
    c = te.compute((B,), lambda b: te.sum(a[b][i][j] * a[b][i][j], axis=[i, j]), name="C")
    return a, te.compute((B,), lambda b: te.sqrt(c[b]), name="D")


def conv2d_nhwc_without_layout_rewrite(
    Input: te.Tensor,
    Filter: te.Tensor,
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    out_dtype: str = "float32",
) -> Any:
    """Convolve a tensor (N, H, W, CI) by one (KH, KW, CI, CO) whose layout stays as it is."""
    stride_h, stride_w = (stride, stride) if isinstance(stride, int) else stride
    dilation_h, dilation_w = (dilation, dilation) if isinstance(dilation, int) else dilation
    batch, in_h, in_w, channels = Input.shape
    kernel_h, kernel_w, _, co = Filter.shape
    wide_h, wide_w = (kernel_h - 1) * dilation_h + 1, (kernel_w - 1) * dilation_w + 1
    top, left, bottom, right = (padding,) * 4 if isinstance(padding, int) else (*padding, *padding)[:4]
    out_h = topi.utils.simplify((in_h - wide_h + top + bottom) // stride_h + 1)
    out_w = topi.utils.simplify((in_w - wide_w + left + right) // stride_w + 1)
    padded = topi.nn.pad(Input, [0, top, left, 0], [0, bottom, right, 0], name="PaddedInput")
    rc, ry, rx = _axes(["rc", "ry", "rx"], [channels, kernel_h, kernel_w])

    def value(nn: Any, yy: Any, xx: Any, ff: Any) -> Any:
        read = padded[nn, yy * stride_h + ry * dilation_h, xx * stride_w + rx * dilation_w, rc].astype(out_dtype)
        return te.sum(read * Filter[ry, rx, rc, ff].astype(out_dtype), axis=[ry, rx, rc])

    return te.compute((batch, out_h, out_w, co), value, name="Conv2dOutput", tag="conv2d_nhwc")


def _normalized(conv: Any, bias: Any, scale: Any, offset: Any, part: Callable[[Any, Sequence[Any]], Any]) -> Any:
    """Add a bias, scale, add an offset and clip at zero; `part` reads an element of a vector of the channels."""
    for name, vector, combine in (("bias_add", bias, tir.Add), ("bn_mul", scale, tir.Mul), ("bn_add", offset, tir.Add)):
        conv = te.compute(
            conv.shape,
            lambda i, j, k, l, x=conv, v=vector, op=combine: op(x[i, j, k, l], part(v, (i, j, k, l))),  # noqa: E741
            name=name,
        )
    return topi.nn.relu(conv)


def conv2d_nhwc_bn_relu(
    N: int,
    H: int,
    W: int,
    CI: int,
    CO: int,
    kernel_size: int,
    strides: int,
    padding: int,
    dilation: int = 1,
    in_dtype: str = "float32",
    out_dtype: str = "float32",
) -> _Tensors:
    """Make a convolution with bias, batch normalization and ReLU; arguments: data, kernel, bias, offset, scale."""
    data = te.placeholder((N, H, W, CI), name="data", dtype=in_dtype)
    kernel = te.placeholder((kernel_size, kernel_size, CI, CO), name="kernel", dtype=in_dtype)
    bias, scale, offset = (te.placeholder((CO,), name=name) for name in ("bias", "bn_scale", "bn_offset"))
    conv = conv2d_nhwc_without_layout_rewrite(data, kernel, strides, padding, dilation, out_dtype)
    return data, kernel, bias, offset, scale, _normalized(conv, bias, scale, offset, lambda v, at: v[at[3]])


def transpose_batch_matmul(
    batch: int, seq_len: int, n_head: int, n_dim: int, in_dtype: str = "float32", out_dtype: str = "float32"
) -> _Tensors:
    """Multiply queries and values of (batch, seq_len, n_head, n_dim), as attention does, head by head."""
    shape = (batch, seq_len, n_head, n_dim)
    query, value = (te.placeholder(shape, name=name, dtype=in_dtype) for name in ("query", "value"))
    query_t = te.compute((batch, n_head, seq_len, n_dim), lambda b, h, l, d: query[b, l, h, d], name="query_T")  # noqa: E741
    value_t = te.compute((batch, n_head, n_dim, seq_len), lambda b, h, d, l: value[b, l, h, d], name="value_T")  # noqa: E741
    (k,) = _axes(["k"], [n_dim])

    def product(b: Any, h: Any, i: Any, j: Any) -> Any:
        return te.sum(query_t[b, h, i, k].astype(out_dtype) * value_t[b, h, k, j].astype(out_dtype), axis=[k])

    return query, value, te.compute((batch, n_head, seq_len, seq_len), product, name="C")


def batch_matmul_nkkm(
    B: int, N: int, M: int, K: int, in_dtype: str = "float32", out_dtype: str = "float32"
) -> _Tensors:
    """Multiply (B, N, K) by (B, K, M)."""
    x, y = te.placeholder((B, N, K), name="X", dtype=in_dtype), te.placeholder((B, K, M), name="Y", dtype=in_dtype)
    (k,) = _axes(["k"], [K])

    def product(b: Any, i: Any, j: Any) -> Any:
        return te.sum(x[b][i][k].astype(out_dtype) * y[b][k][j].astype(out_dtype), axis=[k])

    return x, y, te.compute((B, N, M), product, name="Z")


def matmul(n: int, m: int, k: int, in_dtype: str = "float32", out_dtype: str = "float32") -> _Tensors:
    """Multiply (n, k) by (k, m)."""
    a, b = te.placeholder((n, k), name="A", dtype=in_dtype), te.placeholder((k, m), name="B", dtype=in_dtype)
    (r,) = _axes(["k"], [k])
    product = te.compute(
        (n, m), lambda i, j: te.sum(a[i, r].astype(out_dtype) * b[r, j].astype(out_dtype), axis=[r]), name="C"
    )
    return a, b, product


def matmul_relu(n: int, m: int, k: int, in_dtype: str = "float32", out_dtype: str = "float32") -> _Tensors:
    """Multiply (n, k) by (k, m) and clip at zero."""
    a, b, c = matmul(n, m, k, in_dtype, out_dtype)
    return a, b, topi.nn.relu(c)


def conv2d_nchw(
    n: int,
    h: int,
    w: int,
    ci: int,
    co: int,
    kh: int,
    kw: int,
    stride: int,
    padding: int,
    dilation: int = 1,
    in_dtype: str = "float32",
    out_dtype: str = "float32",
) -> _Tensors:
    """Convolve (n, ci, h, w) by (co, ci, kh, kw)."""
    x = te.placeholder((n, ci, h, w), name="X", dtype=in_dtype)
    weight = te.placeholder((co, ci, kh, kw), name="W", dtype=in_dtype)
    return x, weight, topi.nn.conv2d_nchw(x, weight, stride, padding, dilation, out_dtype=out_dtype)


def conv2d_nchw_bias_bn_relu(
    n: int,
    h: int,
    w: int,
    ci: int,
    co: int,
    kh: int,
    kw: int,
    stride: int,
    padding: int,
    dilation: int = 1,
    in_dtype: str = "float32",
    out_dtype: str = "float32",
) -> _Tensors:
    """Make a channels-first convolution with bias, batch normalization and ReLU."""
    x, weight, y = conv2d_nchw(n, h, w, ci, co, kh, kw, stride, padding, dilation, in_dtype, out_dtype)
    b, scale, offset = (te.placeholder((co, 1, 1), name=v, dtype=out_dtype) for v in ("B", "bn_scale", "bn_offset"))
    return x, weight, b, scale, offset, _normalized(y, b, scale, offset, lambda v, at: v[at[1], 0, 0])


def max_pool2d_nchw(n: int, h: int, w: int, ci: int, padding: int) -> _Tensors:
    """Take maxima of windows of 2 by 2 in steps of one."""
    x = te.placeholder((n, ci, h, w), name="X")
    return x, topi.nn.pool2d(x, [2, 2], [1, 1], [1, 1], [padding] * 4, "max")


def softmax_mn(m: int, n: int) -> _Tensors:
    """Take the softmax of each row of (m, n)."""
    a = te.placeholder((m, n), name="A")
    return a, topi.nn.softmax(a, axis=1)


_RESNET = [
    (1, 224, 224, 3, 64, 7, 2, 3),
    (1, 56, 56, 64, 64, 1, 1, 0),
    (1, 14, 14, 256, 256, 3, 1, 1),
    (1, 7, 7, 512, 512, 3, 1, 1),
]
CONFIGS: dict[str, tuple[Callable[..., _Tensors], list[tuple[int, ...]]]] = {
    "C1D": (
        conv1d_nlc,
        [
            (1, 256, 64, 128, 3, 2, 1),
            (1, 128, 128, 256, 1, 2, 0),
            (1, 64, 256, 256, 5, 1, 2),
            (1, 32, 512, 512, 3, 1, 1),
        ],
    ),
    "C2D": (conv2d_nhwc, _RESNET),
    "C3D": (conv3d_ndhwc, [(1, 16, *size[1:]) for size in _RESNET]),
    "GMM": (batch_matmul_nkkm, [(1, 128, 128, 128), (1, 512, 32, 512), (1, 512, 512, 512), (1, 1024, 1024, 1024)]),
    "GRP": (conv2d_nhwc, [(1, 56, 56, 64, 128, 3, 2, 1, 1, 4), *((*size, 1, 4) for size in _RESNET[1:])]),
    "DIL": (conv2d_nhwc, [(*size, 2) for size in _RESNET]),
    "DEP": (
        depthwise_conv2d_nhwc,
        [(1, 112, 112, 32, 3, 1, 1), (1, 112, 112, 64, 3, 2, 1), (1, 14, 14, 512, 3, 2, 1), (1, 7, 7, 1024, 3, 1, 1)],
    ),
    "T2D": (
        conv2d_transpose_nhwc,
        [
            (1, 4, 4, 512, 256, 4, 2, 1),
            (1, 8, 8, 256, 128, 4, 2, 1),
            (1, 16, 16, 128, 64, 4, 2, 1),
            (1, 32, 32, 64, 3, 4, 2, 1),
        ],
    ),
    "CAP": (
        conv2d_capsule_nhwijc,
        [
            (1, 16, 16, 32, 32, 3, 2, 1),
            (1, 8, 8, 32, 32, 3, 1, 1),
            (1, 16, 16, 8, 16, 3, 2, 1),
            (1, 8, 8, 16, 16, 3, 1, 1),
        ],
    ),
    "NRM": (norm_bmn, [(1, 256, 256), (1, 512, 512), (1, 1024, 1024), (1, 4096, 1024)]),
    "SFM": (softmax_mn, [(256, 256), (512, 512), (1024, 1024), (2048, 2048)]),
    "CBR": (
        conv2d_nhwc_bn_relu,
        [
            (1, 224, 224, 3, 64, 7, 2, 3),
            (1, 56, 56, 64, 128, 3, 2, 1),
            (1, 28, 28, 128, 256, 1, 2, 0),
            (1, 7, 7, 512, 512, 3, 1, 1),
        ],
    ),
    "TBG": (transpose_batch_matmul, [(1, 128, 12, 64), (1, 128, 16, 64), (1, 64, 12, 128), (1, 128, 12, 128)]),
}
"""The workloads by name: the function and its arguments for four sizes each."""


def create_te_workload(name: str, idx: int) -> tir.PrimFunc:
    """Make the function of the workload `name` at its size number `idx`."""
    make, sizes = CONFIGS[name]
    return te.create_prim_func(list(make(*sizes[idx])))
