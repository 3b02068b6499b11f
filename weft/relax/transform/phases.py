"""Phases: what a transposed convolution gives, before it has the form of an image.

Outputs whose positions leave the same remainder by the stride are of one phase. Each phase is a convolution of the
input with those elements of the kernel that it meets, and all phases together are one convolution with as many times
the channels. Where kernel and stride are equal, it is a product of pixels with the columns of their blocks.
Element-wise operations work on the result as it is. Blocks with many numbers in a row are written where they belong,
and take the form of an image by a change of shape alone; others are put in their places once, when somebody needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Any, NamedTuple

import numpy as np

from weft import op, runtime
from weft.ir import Attrs, Call, Constant, Expr, Op, PrimExpr, Tuple, as_int, constant
from weft.op import equal_dims
from weft.relax.block_builder import BlockBuilder
from weft.relax.transform import panels
from weft.relax.transform.panels import known_shape, moved_weight, padded_weight, reshaped

Crop = tuple[tuple[int, PrimExpr], ...]
"""Where the image begins in what the blocks make, and its size, for each spatial axis."""


@dataclass(frozen=True)
class Phased:
    """A value of shape (n, h, rows, w, columns * channels), or, where blocks lie together, (n, h, w, block * channels).

    As an image it is (n, h * rows, w * columns, channels), or the part of that which `crop` says; volumes likewise.
    Channels of `groups` lie apart: each group has its blocks.
    """

    value: Any
    base: tuple[PrimExpr, ...]
    block: tuple[int, ...]
    channels: int
    together: bool
    groups: int = 1
    crop: Crop | None = None

    def image(self, bb: BlockBuilder) -> Expr:
        """Emit the image, channels last."""
        (n, *sizes), block, value, rank = self.base, self.block, self.value, len(self.block)
        if self.together:
            apart = (n, *sizes, self.groups, *block, self.channels // self.groups)
            value = bb.emit(reshaped(value, apart))
            places = [d for i in range(rank) for d in (1 + i, 2 + rank + i)]
            axes = (0, *places, 1 + rank, 2 + 2 * rank)
            value = bb.emit(Call(Op.get("relax.permute_dims"), (value,), Attrs.of(axes=axes)))
        whole = [size * by for size, by in zip(sizes, block, strict=True)]
        value = bb.emit(reshaped(value, (n, *whole, self.channels)))
        return value if self.crop is None else bb.emit(_cropped(value, self.crop, 1))

    def alike(self, other: Phased) -> bool:
        """Whether elements of both values stand for the same elements of images, where their sizes are equal."""
        mine, theirs = ((p.block, p.channels, p.groups, tuple(b for b, _ in p.crop or ())) for p in (self, other))
        return mine == theirs

    def broadcast(self, arg: Constant) -> Constant | None:
        """Return a channels-first constant as it broadcasts with the value; None if it differs between pixels."""
        data, ndim = arg.data.numpy(), len(self.block) + 2
        shape = (1,) * (ndim - data.ndim) + data.shape
        if len(shape) != ndim or shape[0] != 1 or any(n != 1 for n in shape[2:]):
            return None
        if shape[1] not in (1, self.channels):
            return None
        repeats = prod(self.block if self.together else self.block[1:])
        each = data.reshape(self.groups, 1, -1) if shape[1] > 1 else data.reshape(1, 1, 1)
        tiled = np.tile(each, (1, repeats if shape[1] > 1 else 1, 1))
        return constant(runtime.aligned(tiled.reshape((1,) * (ndim - 1 if self.together else ndim) + (-1,))))


class Phases(NamedTuple):
    """A transposed convolution as an ordinary one whose channels are phases.

    The window of the convolution has `taps` elements along each axis, `dilation` apart; its output is `more` longer
    than its input. `spread` is what lay between elements of the kernel and lies between its zeros now. Phases that meet
    no element of the kernel are zeros: `made` says how many others an axis has, and how far apart they are.
    """

    block: tuple[int, ...]
    taps: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    spread: tuple[int, ...]
    more: tuple[int, ...]
    crop: Crop | None
    made: tuple[tuple[int, int], ...]

    @property
    def is_sparse(self) -> bool:
        """Whether some phases are not made."""
        return any(m < s for (m, _), s in zip(self.made, self.block, strict=True))

    def parts(self, attrs: Attrs, shape: Sequence[PrimExpr], kernel: Sequence[int], panel: int) -> list[list[Part]]:
        """List the phases of each axis as convolutions of their own; nothing where that spares few products.

        Channels that share products lie in panels; where each is convolved by itself, there are none.
        """
        _, channels, *sizes = kernel
        edges = [1 + more / panels.likely(n, panels.LIKELY_SIZE) for n, more in zip(shape[2:], self.more, strict=True)]
        together, own = (panels.round_up(n, panel or n) for n in (channels * prod(m for m, _ in self.made), channels))
        spared = 1 - prod(sizes) * own / (prod(self.taps) * prod(edges) * together)
        few = 1 < prod(self.block) <= _MOST_CALLS and len(sizes) == 2 and not self.is_sparse
        return _parts_of(attrs, sizes) if few and (not panel or spared >= _WORTH_CALLS) else []

    def filled(self, value: Expr, lead: Sequence[Any], tail: Sequence[Any], bb: BlockBuilder) -> Expr:
        """Put zeros where no phases were made; they share a dimension with the groups ahead and channels behind."""
        if not self.is_sparse:
            return value
        both = [n for m, _ in self.made for n in (m, 1)]
        after = [n for s, (m, by) in zip(self.block, self.made, strict=True) for n in (s // by - m, by - 1)]
        value = bb.emit(reshaped(value, (*lead, *both, *tail)))
        widths = [w for n in (*[0] * len(lead), *after, *[0] * len(tail)) for w in (0, n)]
        value = bb.emit(op.make_call("nn.pad")(value, pad_width=widths))
        return bb.emit(reshaped(value, (*lead[:-1], lead[-1] * prod(self.block) * tail[0], *tail[1:])))


_WORTH_CALLS, _MOST_CALLS = 0.05, 16
"""The part of the products that phases of one window multiply by zeros, or for what is cut off, from which on each is
computed by itself, and how many that may be."""


def phases_of(attrs: Attrs, kernel: Sequence[int], sizes: Sequence[PrimExpr], outs: Sequence[PrimExpr]) -> Phases:
    """Find the phases of a transposed convolution.

    Output ``o`` is in the window of input ``i`` at element ``o + pad - i * stride`` of the kernel. With ``o + pad`` as
    ``q * stride + phase`` that is element ``phase + t * stride`` for ``i = q - t``: a window over the inputs.
    """
    axes: list[tuple[Any, ...]] = []
    whole = True
    windows = _windows(attrs, len(kernel))
    for k, size, out, (stride, dilation, pad, cut) in zip(kernel, sizes, outs, windows, strict=True):
        length = (k - 1) * dilation + 1
        s = length if as_int(size) == 1 else stride  # one window has no other to be away from
        gap, spread = (dilation, 1) if s == 1 else (1, dilation)
        taps = k if s == 1 else -(-length // s)
        first = min(pad // s, (taps - 1) * gap)
        before, after = (taps - 1) * gap - first, max(0, -(-(length - cut - s) // s))
        begin, more = pad - first * s, before + after - (taps - 1) * gap
        whole = whole and begin == 0 and (more + 1) * s == length - pad - cut
        axes.append((s, taps, before, after, gap, spread, more, (begin, out), _phases_made(k, spread, s)))
    block, taps, before, after, gap, spread, more, crop, made = zip(*axes, strict=True)
    return Phases(block, taps, (*before, *after), gap, spread, more, None if whole else crop, made)


def _windows(attrs: Attrs, rank: int) -> list[tuple[int, int, int, int]]:
    """List stride, dilation, and what is cut off before and behind, for each axis of a transposed convolution."""
    named = (("strides", 1, 1), ("dilation", 1, 1), ("output_padding", 0, 1), ("padding", 0, 2))
    strides, dilations, extra, pads = (np.resize(attrs.get(n, v), rank * by).tolist() for n, v, by in named)
    return [(strides[i], dilations[i], pads[i], pads[rank + i] - extra[i]) for i in range(rank)]


class Part(NamedTuple):
    """One phase of the output by itself: taps ``first, first + step, ...`` of the kernel, and how its window pads.

    The output begins at `begin` in what all phases make.
    """

    first: int
    step: int
    gap: int
    before: int
    after: int
    begin: int


def _parts_of(attrs: Attrs, kernel: Sequence[int]) -> list[list[Part]]:
    """List the phases of each axis as convolutions of the input that multiply what the output needs and no more.

    Output ``o`` is the sum over elements ``j`` of the kernel with ``j * dilation = o + pad`` modulo the stride, of
    input ``(o + pad - j * dilation) / stride``. Nothing where a phase meets no element.
    """
    axes = []
    for k, (s, d, pad, cut) in zip(kernel, _windows(attrs, len(kernel)), strict=True):
        more, step, parts = -(-((k - 1) * d + 1 - s - pad - cut) // s), s // gcd(s, d), []
        for phase in range(s):
            first = next((j for j in range(k) if (j * d - phase - pad) % s == 0), k)
            at, reach = (phase + pad - first * d) // s, (len(range(first, k, step)) - 1) * d * step // s
            parts.append(Part(first, step, d * step // s, reach - at, more + at, 0))
        if any(p.first == k for p in parts):
            return []
        ahead, behind = (max(0, *(-getattr(p, name) for p in parts)) for name in ("before", "after"))
        axes.append([p._replace(before=p.before + ahead, after=p.after + behind, begin=ahead * s) for p in parts])
    return axes


def phase_of(weight: Constant, axes: Sequence[Part]) -> tuple[Constant, list[int], list[int]]:
    """Return the weights, the padding and the dilation of the convolution that a phase of each axis is."""
    taps = weight.data.numpy()[(..., *(slice(p.first, None, p.step) for p in axes))]
    flipped = constant(runtime.aligned(np.flip(taps, tuple(range(2, taps.ndim)))))
    return flipped, [*(p.before for p in axes), *(p.after for p in axes)], [p.gap for p in axes]


def placed(each: Sequence[Any], parts: Sequence[Sequence[Part]], outs: Sequence[PrimExpr], bb: BlockBuilder) -> Phased:
    """Put the phases of an output side by side, which are images, channels last, of one size."""
    (*base, channels), block = each[0].ty.shape, tuple(map(len, parts))
    value = bb.emit(Call(Op.get("relax.concat"), (Tuple(tuple(each)),), Attrs.of(axis=len(base))))
    crop = tuple((axis[0].begin, out) for axis, out in zip(parts, outs, strict=True))
    whole = all(map(equal_dims, (n * by for n, by in zip(base[1:], block, strict=True)), outs))
    return Phased(value, tuple(base), block, as_int(channels) or 0, True, 1, None if whole else crop)


def _phases_made(k: int, dilation: int, stride: int) -> tuple[int, int]:
    """How many phases meet elements of a kernel, and how far apart these are; all where they are neither."""
    met, apart = {j * dilation % stride for j in range(k)}, gcd(dilation, stride)
    if met == set(range(len(met))):
        return len(met), 1
    return (stride // apart, apart) if len(met) == stride // apart else (stride, 1)


def phase_weights(weight: Expr, plan: Phases, groups: int, bb: BlockBuilder) -> Expr:
    """Order weights (in, out / groups, ...) for the convolution: (groups * block * out / groups, in / groups, taps).

    Weights that come at run time are brought into that order by operators.
    """
    c, channels, *sizes = known_shape(weight)
    rank = len(sizes)
    if any(d > 1 for d in plan.spread):  # zeros between the elements, and behind the last one
        apart = [n for k in sizes for n in (k, 1)]
        weight = moved_weight(weight, (c, channels, *apart), range(2 + 2 * rank), bb)
        weight = padded_weight(weight, [0, 0, *(n for d in plan.spread for n in (0, d - 1))], bb)
        sizes = [k * d for k, d in zip(sizes, plan.spread, strict=True)]
        weight = moved_weight(weight, (c, channels, *sizes), range(2 + rank), bb)
    full = [t if s == 1 else t * s for t, s in zip(plan.taps, plan.block, strict=True)]
    weight = padded_weight(weight, [0, 0, *(f - k for f, k in zip(full, sizes, strict=True))], bb)
    both = [n for t, s in zip(plan.taps, plan.block, strict=True) for n in (t, s)]
    taps = tuple(3 + 2 * i for i in range(rank))
    order = (0, *(t + 1 for t in taps), 2, 1, *taps)
    if plan.is_sparse:
        both = [n for t, s, (_, by) in zip(plan.taps, plan.block, plan.made, strict=True) for n in (t, s // by, by)]
        weight = moved_weight(weight, (c, channels, *both), range(2 + 3 * rank), bb)
        cut = [n for s, (m, by) in zip(plan.block, plan.made, strict=True) for n in (0, m - s // by, 1 - by)]
        weight = padded_weight(weight, [0, 0, *cut], bb)
        both = [n for t, (m, _) in zip(plan.taps, plan.made, strict=True) for n in (t, m)]
    apart_weight = moved_weight(weight, (groups, c // groups, channels, *both), order, bb)
    flat = (groups * prod(m for m, _ in plan.made) * channels, c // groups, *plan.taps)
    flat_weight = moved_weight(apart_weight, flat, range(2 + rank), bb)
    return panels.flipped_weight(flat_weight, range(2, 2 + rank), bb)


def image_of_planes(
    value: Expr, base: tuple[PrimExpr, ...], plan: Phases, channels: int, groups: int, bb: BlockBuilder
) -> Call:
    """Put planes of phases (n, groups * made * channels, h, w) in their places: the image, channels first."""
    (n, *sizes), rank, block = base, len(plan.block), plan.block
    value = plan.filled(value, (n, groups), (channels, *sizes), bb)
    value = bb.emit(reshaped(value, (n, groups, *block, channels, *sizes)))
    places = [d for i in range(rank) for d in (3 + rank + i, 2 + i)]
    value = bb.emit(Call(Op.get("relax.permute_dims"), (value,), Attrs.of(axes=(0, 1, 2 + rank, *places))))
    whole = (size * by for size, by in zip(sizes, block, strict=True))
    image = reshaped(value, (n, groups * channels, *whole))
    return image if plan.crop is None else _cropped(bb.emit(image), plan.crop, 2)


def _cropped(image: Expr, crop: Crop, axis: int) -> Call:
    begin, end = [b for b, _ in crop], [b + size for b, size in crop]
    return op.make_call("strided_slice")(image, axes=list(range(axis, axis + len(crop))), begin=begin, end=end)


def product_of_blocks(pixels: Expr, base: tuple[PrimExpr, ...], kernel: Expr, bb: BlockBuilder) -> Phased:
    """Emit the product of pixels (n, h, w, in) with weights (in, out, rows, columns), the rows of blocks apart."""
    n, h, w = base
    c, channels, rows, columns = known_shape(kernel)
    weight = moved_weight(kernel, (c, channels, rows, columns), (2, 0, 3, 1), bb)
    weight = moved_weight(weight, (rows, c, columns * channels), range(3), bb)
    apart = bb.emit(reshaped(pixels, (n, h, 1, w, c)))
    value = bb.emit(op.make_call("matmul")(apart, weight))
    return Phased(value, base, (rows, columns), channels, together=False)
