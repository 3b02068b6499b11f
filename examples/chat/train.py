"""Training of the decoder by Weft: characters of this project's documentation, Adam, some hundred steps."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import weft
from examples.chat.model import THETA, Config, training_module
from examples.minilm.corpus import sentences
from weft import relax
from weft.relax.training import SetupTrainer, Trainer
from weft.relax.training.loss import CrossEntropyLoss
from weft.relax.training.optimizer import Adam

__all__ = ["CHARACTERS", "decode", "encode", "text", "trained"]

CHARACTERS = "\n " + "".join(map(chr, range(33, 127)))
BATCH, LENGTH = 16, 64


def encode(line: str) -> np.ndarray:
    """Return the numbers of characters, int32; what has no number becomes a space."""
    return np.array([max(CHARACTERS.find(c), 0 if c == "\n" else 1) for c in line], np.int32)


def decode(tokens: list[int]) -> str:
    """Return the characters of numbers."""
    return "".join(CHARACTERS[t] for t in tokens)


def text() -> str:
    """Return sentences of the documentation, a line each."""
    return "\n".join(s.text for s in sentences(4000)) + "\n"


def trained(c: Config, path: Path, steps: int = 600, report: Callable[[str], None] = print) -> dict[str, np.ndarray]:
    """Return weights by name: those at `path` if they fit, or else newly trained ones, which are left there."""
    mod, shapes = training_module(c, BATCH, LENGTH)
    if path.exists():
        with np.load(path) as stored:
            if all(n in stored and stored[n].shape == s for n, s in shapes):
                return {n: stored[n] for n, _ in shapes}
    weights, loss = _train(c, mod, shapes, steps, report)
    if not loss < 2.4:  # what pairs of characters alone give
        raise RuntimeError(f"training did not succeed: {loss:.2f} nats a character after {steps} steps")
    path.parent.mkdir(parents=True, exist_ok=True)
    stored: dict[str, Any] = dict(weights)
    np.savez(path, **stored)
    return weights


def _train(
    c: Config, mod: weft.IRModule, shapes: list[tuple[str, tuple[int, ...]]], steps: int, report: Callable[[str], None]
) -> tuple[dict[str, np.ndarray], float]:
    start = time.perf_counter()
    types = [
        weft.ir.tensor_type((BATCH * LENGTH, c.vocabulary), "float32"),
        weft.ir.tensor_type((BATCH * LENGTH,), "int64"),
    ]
    made = SetupTrainer(CrossEntropyLoss(), Adam(2e-3), types, legalize=False)(mod)
    trainer = Trainer(made, relax.VirtualMachine(weft.compile(made, "llvm"), weft.cpu()), weft.cpu())
    rng = np.random.default_rng(1)
    trainer.load_params([_initial(rng, name, shape) for name, shape in shapes])
    report(
        f"compiled the training of {sum(np.prod(s) for _, s in shapes) / 1e6:.1f} M weights "
        f"in {time.perf_counter() - start:.1f} s"
    )
    angles = np.outer(np.arange(LENGTH), THETA ** (-np.arange(0, c.head, 2) / c.head))
    tables = [np.concatenate([f(angles)] * 2, -1).astype(np.float32) for f in (np.cos, np.sin)]
    mask = np.triu(np.full((LENGTH, LENGTH), -1e9, np.float32), 1)
    tokens, losses, start = encode(text()), [], time.perf_counter()
    for step in range(1, steps + 1):
        rows = np.stack([tokens[i : i + LENGTH + 1] for i in rng.integers(0, len(tokens) - LENGTH, BATCH)])
        given = [np.ascontiguousarray(rows[:, :-1]), *tables, mask]
        losses.append(float(trainer.update(given, [rows[:, 1:].reshape(-1).astype(np.int64)]).numpy()))
        if step % 100 == 0:
            report(f"step {step}: {np.mean(losses[-50:]):.2f} nats a character, {time.perf_counter() - start:.0f} s")
    found = trainer.export_params()
    return {name: value.numpy() for (name, _), value in zip(shapes, found.values(), strict=True)}, float(
        np.mean(losses[-50:])
    )


def _initial(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    if len(shape) == 1:
        return np.ones(shape, np.float32)
    spread = 0.02 if name.startswith("embedding") else shape[1] ** -0.5
    return rng.normal(0, spread, shape).astype(np.float32)
