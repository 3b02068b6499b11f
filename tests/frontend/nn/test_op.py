"""Operations compute what PyTorch's do, at symbolic sizes."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from weft.relax.frontend.nn import Tensor, op  # noqa: F401 - rows of the tables name Tensor

from tests.frontend.nn.tracing import check
from tests.texts import named

FACTOR = 'x, scale_factor=1.7, mode="bilinear", recompute_scale_factor=True'

OPERATIONS = named(f"""
    # arithmetic
        x=[2, "n"], y=[1, "n"], n=(5, 1, 0)
        x + y
        x - 2
        3 - x
        x * 0.5
        2 * x
        x / y
        1 / y
        -x
        x.maximum(y) | torch.maximum(x, y)
        x.minimum(0.25) | x.clamp(max=0.25)
        op.power(y, 2.0) | y**2
        x < y
        x <= 0
        x > y
        x >= 0.5
        op.equal(x, x) | x == x
        op.not_equal(x, y) | x != y
        op.logical_and(x < y, x > 0) | (x < y) & (x > 0)
    # functions
        x=["n", 3], n=(5, 1, 0)
        op.exp(x) | x.exp()
        op.sqrt(op.square(x)) | x.abs()
        op.log(op.square(x) + 1) | (x * x + 1).log()
        op.tanh(x) | x.tanh()
        op.sigmoid(x) | x.sigmoid()
        op.silu(x) | F.silu(x)
        op.gelu(x) | F.gelu(x)
        op.gelu(x, "tanh") | F.gelu(x, approximate="tanh")
        op.relu(x) | x.relu()
        op.relu6(x * 9) | F.relu6(x * 9)
        op.floor(x) | x.floor()
        op.softplus(x, 2.0) | F.softplus(x, 2.0)
        op.sin(x) | x.sin()
        op.cos(x) | x.cos()
        op.erf(x) | x.erf()
        op.astype(x, "int32") | x.int()
        x.astype("float64") | x.double()
        op.negative(x) | -x
    # where and prelu
        x=["n", 4, 3], a=[4], n=(5, 1, 0)
        op.where(x > 0, x, -1.0) | torch.where(x > 0, x, -1.0)
        op.where(x < 0.5, 2.0, x) | torch.where(x < 0.5, 2.0, x)
        op.where(x < 0.5, 2.0, 3) | torch.where(x < 0.5, 2.0, 3.0)
        op.prelu(x, a) | F.prelu(x, a)
    # shapes
        x=["n", 4, 6], n=(5, 1)
        op.reshape(x, (x.shape[0] * 2, -1)) | x.reshape(x.shape[0] * 2, 12)
        x.reshape(3, 4, -1) | x.reshape(3, 4, 2 * x.shape[0])
        op.permute_dims(x) | x.permute(2, 1, 0)
        x.permute_dims(0, 2, 1) | x.permute(0, 2, 1)
        op.permute(x, [1, 0, 2]) | x.permute(1, 0, 2)
        op.unsqueeze(x, 1) | x[:, None]
        op.squeeze(op.unsqueeze(x, -1)) | x
        op.concat([x, x], 2) | torch.cat([x, x], 2)
        op.split(x, [1, 3], axis=1) | [x[:, :1], x[:, 1:3], x[:, 3:]]
        op.split(x, 2, axis=-1) | x.chunk(2, -1)
        op.chunk(x, 3, dim=2) | x.chunk(3, 2)
        op.repeat(x, 2, axis=1) | x.repeat_interleave(2, 1)
        op.pad(x, [0, 0, 1, 2, 0, 1], value=0.5) | F.pad(x, (0, 1, 1, 2), value=0.5)
        op.broadcast_to(op.unsqueeze(x, 0), (2, *x.shape)) | x[None].expand(2, *x.shape)
        op.strided_slice(x, [0, 2], [0, 1], [x.shape[0], 5], [1, 2]) | x[:, :, 1:5:2]
    # indices
        x=[4, 5], i=(["n", 2], "int64"), n=(4, 1)
        op.take(x, i, axis=0) | x[i.long()]
        op.take(x, op.reshape(i, (-1,)), axis=1) | x[:, i.reshape(-1).long()]
        op.gather_elements(x, i, axis=1) | x.gather(1, i)
    # triangles
        x=["n", "n"], n=(5, 1, 0)
        op.triu(x, 1) | x.triu(1)
        op.tril(x, -1) | x.tril(-1)
        op.triu(x) | x.triu()
    # made from shapes
        x=["n"], n=(5, 1, 0)
        op.zeros((x.shape[0], 2)) | torch.zeros(x.shape[0], 2)
        op.ones([x.shape[0]], "int64") | torch.ones(x.shape[0], dtype=torch.int64)
        op.full((2, x.shape[0]), 1.5) | torch.full((2, x.shape[0]), 1.5)
        op.arange(x.shape[0]) | torch.arange(x.shape[0]).float()
        op.arange(1, x.shape[0], 2, "int64") | torch.arange(1, max(x.shape[0], 1), 2)
        op.full((2,), Tensor.from_scalar(3, "int32"), "int32") | torch.full((2,), 3, dtype=torch.int32)
        op.full((x.shape[0],), op.sum(x)) | torch.full((x.shape[0],), x.sum())
        op.arange(0.0, 1.0, 0.25) | torch.arange(0, 1, 0.25)
        op.full((1,), True, "bool") | torch.full((1,), True)
    # reductions
        x=["n", 3, 7], n=(5, 1)
        op.sum(x) | x.sum()
        op.sum(x, -1) | x.sum(-1)
        op.max(x, [1, 2]) | x.amax((1, 2))
        op.min(x, 1, keepdims=True) | x.amin(1, keepdim=True)
        op.mean(x, 2) | x.mean(2)
        op.softmax(x) | x.softmax(-1)
        op.softmax(x, 1) | x.softmax(1)
        op.cumsum(x, 1) | x.cumsum(1)
        op.cumsum(x, 2, exclusive=True) | x.cumsum(2) - x
    # norms
        x=["n", 4, 6], w=[6], b=[6], n=(3, 1)
        op.layer_norm(x, 6, w, b, eps=1e-6) | F.layer_norm(x, (6,), w, b, 1e-6)
        op.layer_norm(x, [6]) | F.layer_norm(x, (6,))
        op.rms_norm(x, w, -1, 1e-6) | rms(x, w)
        op.group_norm(x, 2, None, None) | F.group_norm(x, 2)
        op.rms_norm(x, w, [2], 1e-6) | rms(x, w)
    # matmul
        x=[3, "n", 4], y=[4, 5], n=(5, 1, 0)
        op.matmul(x, y) | x @ y
        x @ y
    # convolutions
        x=[2, 4, 9, 8], w=[6, 4, 3, 3], b=[6], x1=[1, 4, 7], w1=[6, 4, 5], t1=[4, 6, 3]
        op.conv2d(x, w, b) | F.conv2d(x, w, b)
        op.conv2d(x, w, stride=2, padding=1, dilation=2) | F.conv2d(x, w, stride=2, padding=1, dilation=2)
        op.conv2d(x, w, padding="same") | F.conv2d(x, w, padding="same")
        op.conv1d(x1, w1, padding=(1,), stride=2) | F.conv1d(x1, w1, padding=(1,), stride=2)
        op.conv1d_transpose(x1, t1, b, stride=2, output_padding=1) | F.conv_transpose1d(x1, t1, b, 2, output_padding=1)
        op.conv1d(x1, w1, padding="same") | F.conv1d(x1, w1, padding="same")
        op.conv1d(x1, w1, padding="valid") | F.conv1d(x1, w1, padding="valid")
    # conv3d
        x=[1, 2, 4, 5, 3], w=[3, 2, 3, 3, 3], b=[3]
        op.conv3d(x, w, b, padding=1) | F.conv3d(x, w, b, padding=1)
    # interpolate
        x=[1, 3, 4, 5]
        op.interpolate(x, size=(8, 9)) | F.interpolate(x, (8, 9))
        op.interpolate(x, scale_factor=2.0, mode="bilinear") | F.interpolate(x, scale_factor=2.0, mode="bilinear")
        op.interpolate(x, None, (1.5, 3.0), "bicubic") | F.interpolate(x, None, (1.5, 3.0), "bicubic")
        op.interpolate(x, scale_factor=1.7) | F.interpolate(x, scale_factor=1.7)
        op.interpolate(x, size=6, mode="bilinear", align_corners=True) | F.interpolate(x, 6, None, "bilinear", True)
        op.interpolate({FACTOR}) | F.interpolate({FACTOR})
    # sorting
        x=["n", 6], n=(5, 2)
        op.sort(x) | x.sort().values
        op.argsort(x, 0, True, "int64") | x.argsort(0, True)
        op.topk(x, 2, dtype="int64") | list(x.topk(2))
        op.topk(x, 1, 0, "values", False) | x.topk(1, 0, largest=False).values
""")  # a row of shapes and the sizes of their n, then an operation a row


def rms(x, w):
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * w


@pytest.mark.parametrize("table", OPERATIONS.values(), ids=OPERATIONS)
def test_same_as_pytorch(table):
    """Rows are an operation and PyTorch's, "ours | PyTorch's", or what both understand."""
    head, *rows = table.strip().splitlines()
    given = eval(f"dict({head})")
    sizes = [{"n": n} for n in given.pop("n", [0])]
    both = [row.strip().partition(" | ") for row in rows]

    def results(texts):
        return lambda *values: [eval(text, globals(), dict(zip(given, values, strict=True))) for text in texts]

    check(results([ours for ours, _, _ in both]), results([theirs or ours for ours, _, theirs in both]), sizes, **given)


def test_attention():
    def attend(q, k, v, m, s=op.scaled_dot_product_attention):
        return [
            s(q, k, v, **how)
            for how in ({}, {"is_causal": True, "scale": 0.3}, {"attn_mask": m}, {"attn_mask": m > -1})
        ]

    def want(q, k, v, m):
        q, k, v = (a.transpose(1, 2) for a in (q, k, v))
        s = F.scaled_dot_product_attention
        return attend(q, k, v, m, lambda *a, **kw: s(*a, **kw, enable_gqa=True).transpose(1, 2))

    check(
        attend,
        want,
        ({"n": 5, "m": 7}, {"n": 1, "m": 9}),
        q=[1, "n", 4, 8],
        k=[1, "m", 2, 8],
        v=[1, "m", 2, 8],
        m=[1, 4, "n", "m"],
    )


def test_timestep_embedding():
    def want(x):
        f = torch.exp(torch.arange(3).float() * (-np.log(10000) / 2))
        a = x[:, None] * f[None]
        return F.pad(torch.cat([a.cos(), a.sin()], -1), (0, 1))

    check(lambda x: op.get_timestep_embedding(x, 7, flip_sin_to_cos=True), want, ({"n": 3}, {"n": 1}), x=["n"])
