"""MiniLM-L6-v2 with its trained weights, as the demo writes it."""

from pathlib import Path

import numpy as np

from examples.minilm.network import write_onnx

SIZES = ((1, 128), (1, 9), (4, 33), (2, 1), (3, 256))
VOCABULARY = 30522


def export(path: str | Path) -> None:
    write_onnx(path)


def inputs(rng: np.random.Generator, size: int) -> dict[str, np.ndarray]:
    batch, length = SIZES[size]
    mask = np.ones((batch, length), np.int64)
    for row in range(1, batch):  # all but the first sentence are shorter than the longest
        mask[row, int(rng.integers(1, length + 1)) :] = 0
    ids = rng.integers(1000, VOCABULARY, (batch, length), np.int64) * mask
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
