"""The zoo by name: ONNX files made on demand, and inputs of five sizes."""

import hashlib
import importlib
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.networks import light

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "zoo"
_FILES = ROOT / "benchmarks" / "networks"
MODELS = ("minilm", "text_detector", "text_recogniser", "mobilenet_v3", "decoder_step", "resnet50", "mobilenet_v2")
# Larger ones, which only benchmarks use.
LARGE = tuple(
    """vit_b16 bert_base gpt2_small lstm lstm2 mlp resnet50_int8 resnet50_s8 dcgan unet3d segformer conformer wavenet
    hifigan mixture_of_experts""".split()
)
# Of packages, and small ones of many kinds; each has one size.
PACKAGED = tuple(
    """efficientnet_b0 convnext resnext50 xcit efficientnet_v2 mobilevit mobilenet_v4 yolo detr whisper mamba2
    diffusion_unet graph_attention gaussian_process""".split()
)
N_SIZES = 5

_SHARED = {n: ("transformer",) for n in ("vit_b16", "bert_base", "gpt2_small")} | {
    "lstm2": ("lstm",),
    "resnet50_int8": ("resnet50",),
    "resnet50_s8": ("resnet50", "resnet50_int8"),
}

if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))


def onnx_path(name: str) -> Path:
    """The ONNX file of a model, exported when there is none of the model's present source.

    ``light_<name>`` is a network of the ``onnx`` package.
    """
    if name.startswith("light_"):
        return _exported(name, [_FILES / "light.py"], lambda path: light.export(path, name.removeprefix("light_")))
    sources = [_FILES / f"{'packaged' if name in PACKAGED else name}.py", _FILES / "torch_export.py"]
    if name == "minilm":
        sources[1] = ROOT / "examples" / "minilm" / "network.py"
    sources += [_FILES / f"{n}.py" for n in _SHARED.get(name, ())]
    return _exported(name, sources, _module(name).export)


def _exported(name: str, sources: Sequence[Path], export: Callable[[Path], None]) -> Path:
    digest = hashlib.sha256(b"".join(p.read_bytes() for p in sources)).hexdigest()[:12]
    path = FOLDER / f"{name}-{digest}.onnx"
    if not path.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            unfinished = Path(folder) / "model.onnx"
            export(unfinished)
            unfinished.replace(path)
    return path


def inputs(name: str, size: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Feeds of one of the five sizes of a model; sizes are described in its ``SIZES``."""
    if name.startswith("light_"):
        return light.inputs(name.removeprefix("light_"), np.random.default_rng([seed, size]))
    return _module(name).inputs(np.random.default_rng([seed, size]), size)


def describe(name: str, size: int) -> str:
    """The size in words, for tables."""
    dims = _module(name).SIZES[size]
    return "x".join(str(d) for d in dims) if isinstance(dims, tuple) else str(dims)


def network(name: str):
    """The PyTorch module."""
    return _module(name).network()


def _module(name: str):
    if name in PACKAGED:
        return importlib.import_module("benchmarks.networks.packaged").ARCHITECTURES[name]
    return importlib.import_module(f"benchmarks.networks.{name}")
