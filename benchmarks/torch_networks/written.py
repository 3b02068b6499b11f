"""Architectures that are written here: diffusion, detection, graphs, sequences, recommendation."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

__all__ = ["WRITTEN", "define_nms"]


class Residual(nn.Module):
    """Two convolutions to which the time step is added."""

    def __init__(self, wide: int, out: int, time: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, wide), nn.Conv2d(wide, out, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(8, out), nn.Conv2d(out, out, 3, padding=1)
        self.time = nn.Linear(time, out)
        self.skip = nn.Conv2d(wide, out, 1) if wide != out else nn.Identity()

    def forward(self, x: Any, time: Any) -> Any:
        """(batch, wide, h, w) and (batch, time)."""
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(y)))


class CrossAttention(nn.Module):
    """Pixels that attend to each other and to a text."""

    def __init__(self, wide: int, text: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(8, wide)
        self.own = nn.MultiheadAttention(wide, 4, batch_first=True)
        self.other = nn.MultiheadAttention(wide, 4, kdim=text, vdim=text, batch_first=True)

    def forward(self, x: Any, text: Any) -> Any:
        """(batch, wide, h, w) and (batch, words, text)."""
        y = self.norm(x).flatten(2).transpose(1, 2)
        y = y + self.own(y, y, y, need_weights=False)[0]
        y = y + self.other(y, text, text, need_weights=False)[0]
        return x + y.transpose(1, 2).unflatten(2, x.shape[2:])


class DiffusionUNet(nn.Module):
    """Noise in, noise out, for a time step and a text."""

    def __init__(self, wide: int = 32, text: int = 48) -> None:
        super().__init__()
        self.first, self.time = nn.Conv2d(4, wide, 3, padding=1), nn.Linear(32, 64)
        self.down1, self.shrink = Residual(wide, wide, 64), nn.Conv2d(wide, 64, 3, 2, 1)
        self.down2, self.attend = Residual(64, 64, 64), CrossAttention(64, text)
        self.up2, self.grow = Residual(128, 64, 64), nn.Conv2d(64, wide, 3, padding=1)
        self.up1, self.last = Residual(2 * wide, wide, 64), nn.Conv2d(wide, 4, 3, padding=1)

    def forward(self, x: Any, step: Any, text: Any) -> Any:
        """(batch, 4, h, w), (batch,) and (batch, words, text)."""
        angle = step[:, None].to(x.dtype) * torch.exp(-torch.arange(16, dtype=x.dtype) / 2)
        time = self.time(torch.cat([angle.sin(), angle.cos()], -1))
        a = self.down1(self.first(x), time)
        b = self.down2(self.shrink(a), time)
        c = self.up2(torch.cat([self.attend(b, text), b], 1), time)
        c = self.grow(F.interpolate(c, scale_factor=2.0, mode="nearest"))
        return self.last(F.silu(self.up1(torch.cat([c, a], 1), time)))


class DiffusionTransformer(nn.Module):
    """Patches whose norms the time step modulates."""

    def __init__(self, wide: int = 128) -> None:
        super().__init__()
        self.patches, self.time = nn.Conv2d(4, wide, 2, 2), nn.Linear(1, wide)
        self.norm, self.shift = nn.LayerNorm(wide, elementwise_affine=False), nn.Linear(wide, 6 * wide)
        self.joint, self.out = nn.Linear(wide, 3 * wide), nn.Linear(wide, wide)
        self.mlp = nn.Sequential(nn.Linear(wide, 4 * wide), nn.GELU("tanh"), nn.Linear(4 * wide, wide))
        self.last = nn.ConvTranspose2d(wide, 4, 2, 2)

    def forward(self, x: Any, step: Any) -> Any:
        """(batch, 4, h, w) and (batch,)."""
        y = self.patches(x)
        h, w = y.shape[2:]
        y = y.flatten(2).transpose(1, 2)
        time = F.silu(self.time(step[:, None].to(x.dtype)))
        a, b, c, d, e, f = self.shift(time)[:, None].chunk(6, -1)
        q, k, v = self.joint(self.norm(y) * (1 + a) + b).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        y = y + c * self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        y = y + f * self.mlp(self.norm(y) * (1 + d) + e)
        return self.last(y.transpose(1, 2).unflatten(2, (h, w)))


def define_nms() -> None:
    """Define ``torchvision::nms``, where the package that brings it is not loaded."""
    if hasattr(torch.ops.torchvision, "nms"):
        return
    _LIBRARY.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _LIBRARY.impl("nms", _nms, "CPU")

    def kept(boxes: Any, scores: Any, threshold: float) -> Any:
        del scores, threshold
        return boxes.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)

    torch.library.register_fake("torchvision::nms", kept, lib=_LIBRARY)


_LIBRARY = torch.library.Library("torchvision", "FRAGMENT")


def _nms(boxes: Any, scores: Any, threshold: float) -> Any:
    """Of the boxes from the best on, those that overlap no chosen one by more than the threshold."""
    area = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
    kept: list[int] = []
    for i in scores.argsort(descending=True, stable=True).tolist():
        shared = torch.minimum(boxes[i, 2:], boxes[kept, 2:]) - torch.maximum(boxes[i, :2], boxes[kept, :2])
        shared = shared.clamp_min(0).prod(-1)
        if not (shared > threshold * (area[i] + area[kept] - shared)).any():
            kept.append(i)
    return torch.tensor(kept, dtype=torch.int64)


class Detector(nn.Module):
    """Boxes and scores of a pyramid, and of these the ones that overlap no better one."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1),
            nn.BatchNorm2d(16),
            nn.SiLU(),
            nn.Conv2d(16, 32, 3, 2, 1),
            nn.BatchNorm2d(32),
            nn.SiLU(),
            nn.Conv2d(32, 32, 3, 2, 1),
            nn.SiLU(),
        )
        define_nms()
        self.boxes, self.scores = nn.Conv2d(32, 4, 1), nn.Conv2d(32, 1, 1)

    def forward(self, image: Any) -> Any:
        """(1, 3, h, w) to (kept, 5)."""
        x = self.body(image)
        raw = self.boxes(x)[0].flatten(1).T
        scores = self.scores(x)[0, 0].flatten()
        middle = torch.arange(raw.shape[0], dtype=raw.dtype)[:, None] % 8 + raw[:, :2].sigmoid()
        size = raw[:, 2:].exp()
        boxes = torch.cat([middle - size, middle + size], -1)
        kept = torch.ops.torchvision.nms(boxes, scores, 0.4)
        return torch.cat([boxes[kept], scores[kept, None]], -1)


class GraphConvolution(nn.Module):
    """Messages along edges, summed where they arrive and divided by degrees."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 64), nn.Linear(64, 64), nn.Linear(64, 8)])

    def forward(self, x: Any, edges: Any) -> Any:
        """(nodes, 16) and (2, edges)."""
        source, target = edges
        ones = torch.ones_like(source, dtype=x.dtype)
        degree = torch.ones(x.shape[0], dtype=x.dtype).index_add(0, target, ones).rsqrt()
        for layer in self.layers:
            y = layer(x)
            messages = y[source] * (degree[source] * degree[target])[:, None]
            x = F.relu(torch.zeros_like(y).index_add_(0, target, messages) + y * degree[:, None] ** 2)
        return x


class GraphAttention(nn.Module):
    """Edges whose weights are a softmax over those that arrive at a node."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.left, self.right = nn.Linear(16, 64), nn.Linear(16, 4), nn.Linear(16, 4)
        self.out = nn.Linear(64, 8)

    def forward(self, x: Any, edges: Any) -> Any:
        """(nodes, 16) and (2, edges)."""
        source, target = edges
        score = F.leaky_relu(self.left(x)[source] + self.right(x)[target], 0.2)
        places, nodes = target[:, None].expand_as(score), x.shape[0]
        top = score.new_full((nodes, 4), float("-inf")).scatter_reduce(0, places, score, "amax")
        weight = (score - top.gather(0, places)).exp()
        total = torch.zeros_like(top).scatter_add(0, places, weight)
        messages = self.project(x).unflatten(-1, (4, 16))[source] * (weight / total.gather(0, places))[..., None]
        gathered = torch.zeros(nodes, 4, 16, dtype=x.dtype).index_add(0, target, messages)
        return self.out(F.elu(gathered.flatten(1)))


class TemporalConvolution(nn.Module):
    """Causal convolutions, each twice as far apart as the last."""

    def __init__(self, wide: int = 48) -> None:
        super().__init__()
        self.first = nn.Conv1d(3, wide, 1)
        self.layers = nn.ModuleList([nn.Conv1d(wide, wide, 3, dilation=2**i) for i in range(4)])
        self.last = nn.Linear(wide, 12)

    def forward(self, x: Any) -> Any:
        """(batch, time, 3)."""
        x = self.first(x.transpose(1, 2))
        for i, layer in enumerate(self.layers):
            x = x + F.gelu(layer(F.pad(x, (2 ** (i + 1), 0))))
        return self.last(x[:, :, -1])


class Recurrent(nn.Module):
    """An LSTM both ways, then a GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(24, 48, batch_first=True, bidirectional=True)
        self.gru, self.out = nn.GRU(96, 48, batch_first=True), nn.Linear(48, 10)

    def forward(self, x: Any) -> Any:
        """(batch, time, 24)."""
        return self.out(self.gru(self.lstm(x)[0])[0])


class Recommender(nn.Module):
    """Bags of categories and numbers, which meet in dot products."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(200, 32, mode=mode) for mode in ("sum", "mean")])
        self.dense, self.top = nn.Linear(13, 32), nn.Sequential(nn.Linear(35, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, numbers: Any, categories: Any) -> Any:
        """(batch, 13) and (batch, 2, 5)."""
        x = F.relu(self.dense(numbers))
        rows = torch.stack([x, *(bag(categories[:, i]) for i, bag in enumerate(self.bags))], 1)
        upper = torch.triu_indices(3, 3, 1)
        pairs = (rows @ rows.transpose(1, 2))[:, upper[0], upper[1]]
        return torch.sigmoid(self.top(torch.cat([x, pairs], 1)))


def _edges(batch: int, length: int) -> tuple[Any, ...]:
    nodes = 16 * length
    return torch.randn(nodes, 16), torch.randint(0, nodes, (2, batch * 64 * length))


def _noise(batch: int, length: int) -> tuple[Any, ...]:
    del length
    return torch.randn(batch, 4, 16, 16), torch.randint(0, 1000, (batch,))


def _series(wide: int) -> Callable[[int, int], tuple[Any, ...]]:
    return lambda batch, length: (torch.randn(batch, length, wide),)


WRITTEN: list[tuple[str, str, Callable[[], nn.Module], Callable[[int, int], tuple[Any, ...]]]] = [
    ("diffusion_unet", "diffusion", DiffusionUNet, lambda b, n: (*_noise(b, n), torch.randn(b, n, 48))),
    ("diffusion_transformer", "diffusion", DiffusionTransformer, _noise),
    ("detector", "detection", Detector, lambda b, n: (torch.randn(1, 3, 64, 64),)),
    ("graph_convolution", "graph network", GraphConvolution, _edges),
    ("graph_attention", "graph network", GraphAttention, _edges),
    ("temporal_convolution", "time series", TemporalConvolution, _series(3)),
    ("lstm_gru", "recurrent", Recurrent, _series(24)),
    ("recommender", "recommendation", Recommender, lambda b, n: (torch.randn(b, 13), torch.randint(0, 200, (b, 2, 5)))),
]
"""Name, family, module, and its inputs for a batch and a length."""
