"""Pooling."""

import numpy as np
import torch
import torch.nn.functional as torch_nn

from tests.relay.op.contract import Case, Sizes, call, cases

SPACE = {1: (7,), 2: (7, 5), 3: (5, 4, 6)}
LAST = {1: "NWC", 2: "NHWC", 3: "NDHWC"}
WINDOWS = [f"nn.{kind}_pool{rank}d" for kind in ("max", "avg") for rank in (1, 2, 3)]


def _torch(name: str, *args, **options):
    def expect(x):
        out = getattr(torch_nn, name.removeprefix("nn."))(torch.from_numpy(np.ascontiguousarray(x)), *args, **options)
        return out.numpy()

    return expect


@cases(*WINDOWS)
def _windows(s: Sizes, name: str) -> Case:
    rank = int(name[-2])
    options = {"count_include_pad": False} if "avg" in name else {}
    return call(
        s.real(s.a, 3, *SPACE[rank]),
        pool_size=(3,) * rank,
        strides=(2,) * rank,
        padding=(1,) * rank,
        expect=_torch(name, 3, 2, 1, **options),
    )


@cases(*WINDOWS)
def _windows_last(s: Sizes, name: str) -> Case:
    rank = int(name[-2])
    pool = _torch(name, 2, 1, 0, ceil_mode=True)
    return call(
        s.real(s.a, *SPACE[rank], 3),
        pool_size=(2,) * rank,
        layout=LAST[rank],
        ceil_mode=True,
        expect=lambda x: np.moveaxis(pool(np.moveaxis(x, -1, 1)), 1, -1),
    )


@cases(*[n.replace("nn.", "nn.adaptive_") for n in WINDOWS])
def _adaptive(s: Sizes, name: str) -> Case:
    rank = int(name[-2])
    return call(s.real(s.a, 3, *SPACE[rank]), output_size=(3,) * rank, expect=_torch(name, (3,) * rank))


@cases(*[n.replace("nn.", "nn.global_") for n in WINDOWS])
def _global(s: Sizes, name: str) -> Case:
    rank = int(name[-2])
    reduce = np.max if "max" in name else np.mean
    return call(s.real(s.a, 3, *SPACE[rank]), expect=lambda x: reduce(x, tuple(range(2, x.ndim)), keepdims=True))


@cases("nn.max_pool2d", "nn.global_avg_pool2d")
def _blocked(s: Sizes, name: str) -> Case:
    options = {"pool_size": (2, 2)} if "max" in name else {}
    pool = _torch(name, 2, 1) if "max" in name else (lambda x: x.mean((2, 3), keepdims=True))

    def expect(x):
        y = pool(x.transpose(0, 1, 4, 2, 3).reshape(x.shape[0], -1, *x.shape[2:4]))
        return y.reshape(y.shape[0], 2, 4, *y.shape[2:]).transpose(0, 1, 3, 4, 2)

    return call(s.real(s.a, 2, 5, 6, 4), layout="NCHW4c", expect=expect, **options)
