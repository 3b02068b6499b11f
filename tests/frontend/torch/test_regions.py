"""Operators of torchvision beside their formulas in PyTorch, which stand in where the package is not loaded."""

import itertools
import math

import pytest
import torch
from torch.export import Dim
from torch.nn import functional as F

from tests.frontend.torch.programs import Call, check
from tests.refusals import refuses
from weft.error import ModelImportError
from weft.op import vision

LIBRARY = torch.library.Library("torchvision", "FRAGMENT")
SIZE = "SymInt pooled_height, SymInt pooled_width"
REGIONS = f"(Tensor input, Tensor rois, float spatial_scale, {SIZE}"
BOXES = torch.tensor([[0, 1, 2, 9, 7.5], [1, 0, 0, 3, 3], [0, 4, 4, 4, 4], [1, -3, 5, 30, 40], [1, -1, -1, 2, 3]])


def operator(arguments, like, pair=False):
    """Define an operator by a formula, and how many channels its result has beside the input's."""

    def define(formula):
        name = formula.__name__
        if hasattr(torch.ops.torchvision, name):
            return formula
        LIBRARY.define(f"{name}{arguments} -> {'(Tensor, Tensor)' if pair else 'Tensor'}")
        LIBRARY.impl(name, formula, "CPU")

        def fake(x, *given):
            found = x.new_empty(like(x, *given))
            return (found, found.to(torch.int32)) if pair else found

        torch.library.register_fake(f"torchvision::{name}", fake, lib=LIBRARY)
        return formula

    return define


def whole(x, rois, scale, rows, columns, *_):
    return rois.shape[0], x.shape[1], rows, columns


def apart(x, rois, scale, rows, columns, *_):
    return rois.shape[0], x.shape[1] // (rows * columns), rows, columns


def own_channels(x, rows, columns):
    """Channels of each part, (channels, rows, columns) of their numbers."""
    return torch.arange(x.shape[1], dtype=torch.int32).reshape(-1, rows, columns)


@operator(f"{REGIONS}, int sampling_ratio, bool aligned)", whole)
def roi_align(x, rois, scale, rows, columns, samples, aligned):
    moved = (rois - torch.tensor([0, *[0.5 / scale * aligned] * 4])).numpy()
    return torch.from_numpy(vision.roi_align(x.numpy(), moved, (rows, columns), scale, samples, aligned))


@operator(f"{REGIONS}, int sampling_ratio)", apart, pair=True)
def ps_roi_align(x, rois, scale, rows, columns, samples):
    every, own = roi_align(x, rois, scale, rows, columns, samples, True), own_channels(x, rows, columns)
    return every[:, own, torch.arange(rows)[:, None], torch.arange(columns)], own.repeat(len(rois), 1, 1, 1)


@operator(f"{REGIONS})", whole, pair=True)
def roi_pool(x, rois, scale, rows, columns):
    found = torch.from_numpy(vision.roi_pool(x.numpy(), rois.numpy(), (rows, columns), scale))
    return found, found.int()


@operator(f"{REGIONS})", apart, pair=True)
def ps_roi_pool(x, rois, scale, rows, columns):
    """Means; regions end before their second corner, and an image before its last row and column."""
    found, own = x.new_zeros(apart(x, rois, scale, rows, columns)), own_channels(x, rows, columns)
    for r, i, j in itertools.product(range(len(rois)), range(rows), range(columns)):
        _, left, top, right, bottom = (math.trunc(c + math.copysign(0.5, c)) for c in (rois[r] * scale).tolist())
        spans = []
        for k, low, high, n, edge in ((i, top, bottom, rows, x.shape[2]), (j, left, right, columns, x.shape[3])):
            ends = math.floor(k * max(high - low, 1) / n), math.ceil((k + 1) * max(high - low, 1) / n)
            spans.append(slice(*(min(max(e + low, 0), edge - 1) for e in ends)))
        pixels = x[(int(rois[r, 0]), slice(None), *spans)][own[:, i, j]]
        found[r, :, i, j] = pixels.mean((1, 2)) if pixels.numel() else 0
    return found, own.repeat(len(rois), 1, 1, 1)


WINDOW = ", ".join(f"SymInt {name}_{axis}" for name in ("stride", "pad", "dil") for axis in "hw")


@operator(
    f"(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, {WINDOW}, SymInt n_weight_grps, "
    "SymInt n_offset_grps, bool use_mask)",
    lambda x, weight, offset, *_: (x.shape[0], weight.shape[0], *offset.shape[2:]),
)
def deform_conv2d(x, weight, offset, mask, bias, down, right, top, left, apart, beside, groups, shared, use_mask):
    (n, c, h, w), (kh, kw), (oh, ow) = x.shape, weight.shape[2:], offset.shape[2:]
    x, taps = x.reshape(n * shared, c // shared, h, w), []
    offset = offset.reshape(n * shared, kh * kw, 2, oh, ow)
    for tap, (i, j) in enumerate(itertools.product(range(kh), range(kw))):
        y = torch.arange(oh)[:, None] * down - top + i * apart + offset[:, tap, 0]
        z = torch.arange(ow) * right - left + j * beside + offset[:, tap, 1]
        grid = torch.stack([z / (w - 1) * 2 - 1, y / (h - 1) * 2 - 1], -1)
        taps.append(F.grid_sample(x, grid, align_corners=True))
    columns = torch.stack(taps, 2)
    columns = columns * mask.reshape(n * shared, 1, kh * kw, oh, ow) if use_mask else columns
    found = weight.reshape(groups, -1, c // groups * kh * kw) @ columns.reshape(n, groups, -1, oh * ow)
    return found.reshape(n, -1, oh, ow) + bias[:, None, None]


OPEN = ({0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO}, ({0: Dim.AUTO},))


@pytest.mark.parametrize(
    ("name", "scale", "more"),
    [("roi_align", 0.5, (2, True)), ("roi_align", 1.0, (-1, False)), ("ps_roi_align", 0.5, (-1,))]
    + [("roi_pool", 0.5, ()), ("ps_roi_pool", 0.5, ()), ("ps_roi_pool", 1.0, ())],
)
def test_regions_of_images(name, scale, more):
    """Of a few pixels, without any, beyond the image's edges; of other images and boxes, too."""

    def call(x, rois):
        found = getattr(torch.ops.torchvision, name)(x, rois, scale, 3, 2, *more)
        return found[0] if name == "roi_pool" else found

    boxes = BOXES[[0, 1, 3, 4]] if name == "ps_roi_align" else BOXES  # there the mean of no samples is no number
    inputs = [(torch.randn(2, 12, 8, 9), boxes), (torch.randn(3, 12, 11, 7), boxes[:2] * 0.7)]
    inputs[1][1][:, 0] = 2
    check(Call(call), *inputs, dynamic=OPEN)


def test_what_regions_do_not_tell():
    places = Call(lambda x, rois: torch.ops.torchvision.roi_pool(x, rois, 1.0, 3, 2)[1])
    refuses(ModelImportError, "places of the greatest", check, places, (torch.randn(2, 12, 8, 9), BOXES))


@pytest.mark.parametrize(("groups", "shared", "use_mask"), [(2, 1, False), (1, 2, True), (3, 3, True)])
def test_convolutions_whose_taps_are_displaced(groups, shared, use_mask):
    def call(x, weight, offset, mask, bias):
        window = (2, 1, 1, 0, 1, 2, groups, shared, use_mask)
        return torch.ops.torchvision.deform_conv2d(x, weight, offset, mask, bias, *window)

    weight, bias = torch.randn(12, 6 // groups, 3, 2), torch.randn(12)
    inputs = []
    for n, h, w in ((2, 7, 8), (3, 9, 6)):
        out = (h + 2 - 3) // 2 + 1, w - 3 + 1
        offset = torch.randn(n, shared * 12, *out) * 2
        inputs.append((torch.randn(n, 6, h, w), weight, offset, torch.rand(n, shared * 6, *out), bias))
    opened = {0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO}
    check(Call(call), *inputs, dynamic=(opened, ({}, opened, opened, {})))
