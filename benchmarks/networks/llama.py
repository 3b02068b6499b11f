"""One step of decoders in Llama's form with 4-bit weights: tokens and caches go in, logits and longer caches come out.

RMS norms, rotary positions, grouped queries, gated MLPs. Batch, new tokens and caches are dynamic. Weights are random,
in blocks of 32 with a scale each, as ``MatMulNBits`` has them; the file is in the form that ONNX Runtime runs best.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

GROUP = 32


@dataclass(frozen=True)
class Config:
    """Sizes of a decoder."""

    hidden: int
    layers: int
    heads: int
    groups: int
    inner: int
    vocabulary: int
    head: int = 64
    positions: int = 2048

    def products(self) -> list[tuple[str, int, int]]:
        """List the matrices of a layer: name, inputs, outputs."""
        return [
            ("qkv", self.hidden, (self.heads + 2 * self.groups) * self.head),
            ("project", self.heads * self.head, self.hidden),
            ("gate", self.hidden, self.inner),
            ("up", self.hidden, self.inner),
            ("down", self.inner, self.hidden),
        ]

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights and scales that a token reads."""
        sizes = self.layers * sum(k * n for _, k, n in self.products()) + self.hidden * self.vocabulary
        return sizes // 2 + sizes // GROUP * 4


CONFIGS = {
    "tiny": Config(128, 2, 4, 2, 352, 500),
    "500m": Config(896, 24, 14, 2, 4864, 151936),
    "1100m": Config(2048, 22, 32, 4, 5632, 32000),
}


class _Graph:
    """Nodes and initializers of a decoder."""

    def __init__(self, config: Config, accuracy: int) -> None:
        self.config, self.accuracy = config, accuracy
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.rng = np.random.default_rng(7)

    def constant(self, name: str, value: np.ndarray) -> str:
        self.initializers.append(numpy_helper.from_array(value, name))
        return name

    def node(self, op: str, inputs: list[str], output: str, domain: str = "", outputs: int = 1, **attrs: object) -> str:
        names = [output] + ["" for _ in range(outputs - 2)] + ([output + ".sum"] if outputs > 1 else [])
        self.nodes.append(helper.make_node(op, inputs, names, domain=domain, **attrs))
        return output

    def product(self, x: str, name: str, k: int, n: int) -> str:
        blocks = k // GROUP
        b = self.constant(f"{name}.weight", self.rng.integers(0, 256, (n, blocks, GROUP // 2), np.uint8))
        spread = self.rng.uniform(0.7, 1.3, n * blocks) / (4.6 * np.sqrt(k))
        s = self.constant(f"{name}.scale", spread.astype(np.float32))
        return self.node(
            "MatMulNBits",
            [x, b, s],
            name,
            "com.microsoft",
            K=k,
            N=n,
            bits=4,
            block_size=GROUP,
            accuracy_level=self.accuracy,
        )

    def norm(self, x: str, skip: str | None, name: str) -> tuple[str, str]:
        """Add the residual; return the norm and the sum."""
        gamma = self.constant(f"{name}.gamma", self.rng.uniform(0.5, 1.5, self.config.hidden).astype(np.float32))
        if skip is None:
            return self.node("SimplifiedLayerNormalization", [x, gamma], name, axis=-1, epsilon=1e-5), x
        self.node("SkipSimplifiedLayerNormalization", [skip, x, gamma], name, "com.microsoft", 4, epsilon=1e-5)
        return name, f"{name}.sum"

    def layer(self, i: int, x: str, skip: str | None) -> tuple[str, str]:
        """Add a layer; return what it adds, and what to."""
        c, sizes = self.config, {name: (k, n) for name, k, n in self.config.products()}
        y, total = self.norm(x, skip, f"{i}.norm1")
        qkv = self.product(y, f"{i}.qkv", *sizes["qkv"])
        present = [f"present.{i}.{part}" for part in ("key", "value")]
        self.nodes.append(
            helper.make_node(
                "GroupQueryAttention",
                [qkv, "", "", f"past.{i}.key", f"past.{i}.value", "ends", "total", "cos", "sin"],
                [f"{i}.attention", *present],
                domain="com.microsoft",
                num_heads=c.heads,
                kv_num_heads=c.groups,
                do_rotary=1,
                rotary_interleaved=0,
            )
        )
        y = self.product(f"{i}.attention", f"{i}.project", *sizes["project"])
        y, total = self.norm(y, total, f"{i}.norm2")
        gate, up = (self.product(y, f"{i}.{name}", *sizes[name]) for name in ("gate", "up"))
        silu = self.node("Mul", [gate, self.node("Sigmoid", [gate], f"{i}.sigmoid")], f"{i}.silu")
        gated = self.node("Mul", [silu, up], f"{i}.gated")
        return self.product(gated, f"{i}.down", *sizes["down"]), total


def export(path: str | Path, size: str = "500m", accuracy: int = 4) -> None:
    """Write a decoder as an ONNX file; `accuracy` is ``accuracy_level`` of its products."""
    c = CONFIGS[size]
    g = _Graph(c, accuracy)
    table = (g.rng.standard_normal((c.vocabulary, c.hidden), np.float32)).astype(np.float16)
    rows = g.node("Gather", [g.constant("tokens", table), "input_ids"], "rows")
    x, skip = g.node("Cast", [rows], "embedded", to=TensorProto.FLOAT), None
    angles = np.outer(np.arange(c.positions), 10000.0 ** (-np.arange(0, c.head, 2) / c.head))
    g.constant("cos", np.cos(angles).astype(np.float32))
    g.constant("sin", np.sin(angles).astype(np.float32))
    for i in range(c.layers):
        x, skip = g.layer(i, x, skip)
    y, _ = g.norm(x, skip, "norm")
    last = g.node("Gather", [y, g.constant("last", np.array(-1, np.int64))], "newest", axis=1)
    g.node("Identity", [g.product(last, "head", c.hidden, c.vocabulary)], "logits")
    caches = [f"{i}.{part}" for i in range(c.layers) for part in ("key", "value")]

    def info(name: str, dims: list[object], dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, dtype, dims)

    inputs = [
        info("input_ids", ["batch", "new"], TensorProto.INT64),
        info("ends", ["batch"], TensorProto.INT32),
        info("total", [], TensorProto.INT32),
        *(info(f"past.{n}", ["batch", c.groups, "past", c.head]) for n in caches),
    ]
    outputs = [
        info("logits", ["batch", c.vocabulary]),
        *(info(f"present.{n}", ["batch", c.groups, "longer", c.head]) for n in caches),
    ]
    graph = helper.make_graph(g.nodes, "llama", inputs, outputs, g.initializers)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    Path(path).write_bytes(helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString())


def feeds(size: str, batch: int, new: int, past: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Random tokens after random caches; without a past they are prompts."""
    c, rng = CONFIGS[size], np.random.default_rng(seed)
    out: dict[str, np.ndarray] = {
        "input_ids": rng.integers(0, c.vocabulary, (batch, new), np.int64),
        "ends": np.full(batch, past + new - 1, np.int32),
        "total": np.array(past + new, np.int32),
    }
    for i in range(c.layers):
        for part in ("key", "value"):
            out[f"past.{i}.{part}"] = rng.standard_normal((batch, c.groups, past, c.head), np.float32)
    return out
