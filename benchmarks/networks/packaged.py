"""Networks of the packages ``timm`` and ``transformers``, and some that are written here, with random weights.

Each is an :class:`Architecture`, which does what the other modules of the zoo do.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from torch.onnx import symbolic_helper

from benchmarks.networks import torch_export
from benchmarks.torch_networks import written

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Architecture:
    """A network, what it is fed with, and which axes of its inputs have names in the ONNX file."""

    make: Callable[[], nn.Module]
    draw: Callable[[np.random.Generator], Arrays]
    axes: Mapping[str, Mapping[int, str]]

    def network(self) -> nn.Module:
        """The PyTorch module."""
        pairs = zip(self._sample(), self._sample(1), strict=True)  # of two, since statistics of one are none
        return torch_export.build(50, self.make, *(torch.cat(p) for p in pairs))

    def export(self, path: str | Path) -> None:
        """Write the ONNX file."""
        torch_export.export(self.network(), self._sample(), path, list(self.axes), ["y"], self.axes)

    def inputs(self, rng: np.random.Generator, size: int) -> Arrays:
        """Feeds; there is one size."""
        return self.draw(rng)

    def _sample(self, seed: int = 0) -> tuple[torch.Tensor, ...]:
        return tuple(torch.from_numpy(a) for a in self.draw(np.random.default_rng(seed)).values())


class OneResult(nn.Module):
    """A model of ``transformers`` whose call takes tensors and returns one of its results."""

    def __init__(self, name: str, given: Sequence[str], result: str, config: dict[str, Any]) -> None:
        super().__init__()
        import transformers  # the extra 'bench'

        made = getattr(transformers, name)
        settings = made.config_class(**config)
        settings._attn_implementation = "eager"
        self.model, self.given, self.result = made(settings), given, result

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return self.model(**dict(zip(self.given, tensors, strict=True)))[self.result]


class Mixed(nn.Module):
    """Mamba's second form: a state per head that decays by what each token says, computed in chunks of tokens."""

    def __init__(self, wide: int = 256, heads: int = 8, state: int = 64, chunk: int = 32) -> None:
        super().__init__()
        self.heads, self.state, self.chunk, self.inner = heads, state, chunk, 2 * wide
        self.norm, self.last = nn.LayerNorm(wide), nn.LayerNorm(self.inner)
        self.read = nn.Linear(wide, 2 * self.inner + 2 * state + heads)
        self.along = nn.Conv1d(self.inner + 2 * state, self.inner + 2 * state, 4, groups=self.inner + 2 * state)
        self.decay, self.skip = nn.Parameter(torch.rand(heads)), nn.Parameter(torch.ones(heads))
        self.out = nn.Linear(self.inner, wide)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, y, step = self.read(self.norm(x)).split([self.inner, self.inner + 2 * self.state, self.heads], -1)
        y = nn.functional.silu(self.along(nn.functional.pad(y.transpose(1, 2), (3, 0)))).transpose(1, 2)
        v, keys, queries = y.split([self.inner, self.state, self.state], -1)
        v = v.reshape(x.shape[0], -1, self.chunk, self.heads, self.inner // self.heads)
        keys, queries = (a.reshape(x.shape[0], -1, self.chunk, self.state) for a in (keys, queries))
        step = nn.functional.softplus(step).reshape(x.shape[0], -1, self.chunk, self.heads)
        total = (-step * self.decay.exp()).cumsum(2)  # (batch, chunks, chunk, heads)
        u = v * step[..., None]
        causal = torch.ones(self.chunk, self.chunk).tril()[..., None]
        near = torch.exp((total[:, :, :, None] - total[:, :, None]) * causal) * causal
        inside = (near * (queries @ keys.transpose(2, 3))[..., None]).permute(0, 1, 4, 2, 3) @ u.transpose(2, 3)
        left = torch.exp(total[:, :, -1:] - total)
        states = (u * left[..., None]).permute(0, 1, 3, 4, 2) @ keys[:, :, None]  # (batch, chunks, heads, each, state)
        ends = torch.cat([torch.zeros_like(total[:, :1, -1]), total[:, :, -1].cumsum(1)[:, :-1]], 1)
        before = ends[:, :, None] - ends[:, None] - total[:, None, :, -1]
        chunks = torch.ones(*before.shape[1:3]).tril(-1)[..., None]
        carried = torch.einsum("bijh,bjhes->bihes", torch.exp(before * chunks) * chunks, states)
        across = (queries[:, :, None] @ carried.transpose(3, 4)) * total.exp().transpose(2, 3)[..., None]
        y = (inside + across).transpose(2, 3) + v * self.skip[:, None]
        return x + self.out(self.last(y.reshape(*x.shape[:2], self.inner) * nn.functional.silu(gate)))


class Yolo(nn.Module):
    """Boxes and scores of 80 classes at three scales of an image, and of these the best that do not overlap."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList()
        for before, wide in ((3, 16), (16, 32), (32, 64), (64, 128), (128, 256)):
            shrink = [nn.Conv2d(before, wide, 3, 2, 1, bias=False), nn.BatchNorm2d(wide), nn.SiLU()]
            mix = [nn.Conv2d(wide, wide, 3, 1, 1, bias=False), nn.BatchNorm2d(wide), nn.SiLU()]
            self.stages.append(nn.Sequential(*shrink, *mix))
        self.heads = nn.ModuleList(nn.Conv2d(wide, 84, 1) for wide in (64, 128, 256))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = []
        for stage in self.stages:
            x = stage(x)
            found.append(x)
        parts = [head(y).flatten(2) for head, y in zip(self.heads, found[2:], strict=True)]
        raw = torch.cat(parts, 2)[0]
        centres = torch.cat([_grid(y.shape[2]) for y in found[2:]])
        middle, size = centres + 8 * raw[:2].T.tanh(), 24 * raw[2:4].T.exp()
        boxes = torch.cat([middle - size / 2, middle + size / 2], 1)
        scores, classes = raw[4:].sigmoid().max(0)
        names = classes[:, None].float()
        kept = torch.ops.torchvision.nms(boxes + 1000 * names, scores, 0.5).sort()[
            0
        ]  # scores that are near change places
        return torch.cat([boxes[kept], scores[kept, None], names[kept]], 1)


def _grid(side: int) -> torch.Tensor:
    places = (torch.arange(side, dtype=torch.float32) + 0.5) * (320 / side)
    return torch.stack(torch.meshgrid(places, places, indexing="xy"), -1).reshape(-1, 2)


class GaussianProcess:
    """The mean of a Gaussian process as ``skl2onnx`` writes it: a Scan over the rows for their distances."""

    def __init__(self, known: int = 500, features: int = 20) -> None:
        self.known, self.features = known, features

    def inputs(self, rng: np.random.Generator, size: int) -> Arrays:
        """200 rows."""
        return {"x": rng.standard_normal((200, self.features), np.float32)}

    def export(self, path: str | Path) -> None:
        """Write the ONNX file."""
        rng = np.random.default_rng(50)
        value = helper.make_tensor_value_info
        states = [value(n, TensorProto.FLOAT, [self.known, self.features]) for n in ("known", "kept")]
        row = value("row", TensorProto.FLOAT, [self.features])
        body = helper.make_graph(
            [
                helper.make_node("Sub", ["known", "row"], ["apart"]),
                helper.make_node("ReduceSumSquare", ["apart"], ["far"], axes=[1], keepdims=0),
                helper.make_node("Identity", ["known"], ["kept"]),
            ],
            "distances",
            [states[0], row],
            [states[1], value("far", TensorProto.FLOAT, [self.known])],
        )
        made = {
            "points": rng.standard_normal((self.known, self.features)),
            "scale": np.array(-0.05),
            "weights": rng.standard_normal((self.known, 1)),
        }
        graph = helper.make_graph(
            [
                helper.make_node("Scan", ["points", "x"], ["same", "squares"], body=body, num_scan_inputs=1),
                helper.make_node("Mul", ["squares", "scale"], ["scaled"]),
                helper.make_node("Exp", ["scaled"], ["kernel"]),
                helper.make_node("MatMul", ["kernel", "weights"], ["y"]),
            ],
            "gaussian_process",
            [value("x", TensorProto.FLOAT, ["rows", self.features])],
            [value("y", TensorProto.FLOAT, ["rows", 1])],
            [numpy_helper.from_array(a.astype(np.float32), n) for n, a in made.items()],
        )
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8), path)


def _normal(**shapes: Sequence[int]) -> Callable[[np.random.Generator], Arrays]:
    return lambda rng: {n: rng.standard_normal(s, np.float32) for n, s in shapes.items()}


def _timm(name: str) -> Architecture:
    def make() -> nn.Module:
        import timm  # the extra 'bench'

        return timm.create_model(name, exportable=True)

    return Architecture(make, _normal(x=(1, 3, 224, 224)), {"x": {}})


def _yolo() -> nn.Module:
    written.define_nms()
    torch.onnx.register_custom_op_symbolic("torchvision::nms", _nms, torch_export.OPSET)
    return Yolo()


@symbolic_helper.parse_args("v", "v", "f")
def _nms(g: Any, boxes: Any, scores: Any, threshold: float) -> Any:
    whole = g.op("Constant", value_t=torch.tensor([1000]))
    limit = g.op("Constant", value_t=torch.tensor([threshold], dtype=torch.float32))
    axes = g.op("Constant", value_t=torch.tensor([0])), g.op("Constant", value_t=torch.tensor([0, 1]))
    boxes, scores = g.op("Unsqueeze", boxes, axes[0]), g.op("Unsqueeze", scores, axes[1])
    chosen = g.op("NonMaxSuppression", boxes, scores, whole, limit)
    return g.op("Gather", chosen, g.op("Constant", value_t=torch.tensor(2)), axis_i=1)


_DETR = {
    "use_timm_backbone": False,
    "use_pretrained_backbone": False,
    "backbone": None,
    "d_model": 256,
    "backbone_config": {
        "model_type": "resnet",
        "layer_type": "basic",
        "depths": [2, 2, 2, 2],
        "hidden_sizes": [64, 128, 256, 512],
        "out_features": ["stage4"],
    },
    "encoder_layers": 3,
    "decoder_layers": 3,
    "num_queries": 100,
}
_WHISPER = {
    "d_model": 384,
    "encoder_layers": 4,
    "decoder_layers": 4,
    "encoder_attention_heads": 6,
    "decoder_ffn_dim": 1536,
    "decoder_attention_heads": 6,
    "encoder_ffn_dim": 1536,
    "max_source_positions": 500,
    "use_cache": False,
}

_SPEECH = ["input_features", "decoder_input_ids", "decoder_attention_mask"]

ARCHITECTURES: dict[str, Architecture | GaussianProcess] = {
    "efficientnet_b0": _timm("efficientnet_b0"),
    "convnext": _timm("convnext_tiny"),
    "resnext50": _timm("resnext50_32x4d"),
    "xcit": _timm("xcit_nano_12_p16_224"),
    "efficientnet_v2": _timm("tf_efficientnetv2_b0"),
    "mobilevit": _timm("mobilevit_s"),
    "mobilenet_v4": _timm("mobilenetv4_conv_small"),
    "yolo": Architecture(_yolo, _normal(x=(1, 3, 320, 320)), {"x": {}}),
    "detr": Architecture(
        lambda: OneResult("DetrForObjectDetection", ["pixel_values"], "pred_boxes", _DETR),
        _normal(x=(1, 3, 320, 320)),
        {"x": {}},
    ),
    "whisper": Architecture(
        lambda: OneResult("WhisperModel", _SPEECH, "last_hidden_state", _WHISPER),
        lambda rng: {
            **_normal(x=(1, 80, 1000))(rng),
            "tokens": rng.integers(0, 50000, (1, 24)),
            "mask": np.ones((1, 24), np.int64),
        },
        {"x": {}, "tokens": {}, "mask": {}},
    ),
    "mamba2": Architecture(lambda: nn.Sequential(*(Mixed() for _ in range(4))), _normal(x=(1, 256, 256)), {"x": {}}),
    "diffusion_unet": Architecture(
        lambda: written.DiffusionUNet(64, 256),
        lambda rng: {
            **_normal(x=(1, 4, 64, 64))(rng),
            "step": rng.integers(0, 1000, 1),
            **_normal(text=(1, 77, 256))(rng),
        },
        {"x": {0: "batch"}, "step": {0: "batch"}, "text": {0: "batch", 1: "words"}},
    ),
    "graph_attention": Architecture(
        written.GraphAttention,
        lambda rng: {**_normal(x=(2000, 16))(rng), "edges": rng.integers(0, 2000, (2, 10000))},
        {"x": {0: "nodes"}, "edges": {1: "edges"}},
    ),
    "gaussian_process": GaussianProcess(),
}
