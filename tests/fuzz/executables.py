"""Mutates executable files, blindly and field by field, and runs what still loads: ``-m tests.fuzz.executables N``."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

import weft
from tests.fuzz.binary import SHAPE, SMALL_TEXT, TENSOR, TEXT, Field, Fields, damage, mutate_fields, run_mutated
from tests.fuzz.programs import bases


def fields(data: bytes) -> list[Field]:
    """List what each number of an executable file is."""
    file = Fields(data)

    def function() -> None:
        file.number("function", "i")
        file.text()
        file.number("function", *"qqqq")
        file.counted(file.text)

    def scope() -> None:
        file.number("scope", "q")
        file.text()

    def constant() -> None:
        tag = file.number("tag", "i")
        if tag == TENSOR:
            file.tensor()
        elif tag == SHAPE:
            file.counted(lambda: file.number("shape", "q"))
        elif tag in (TEXT, SMALL_TEXT):
            file.text()
        else:
            file.number("constant", "q" if tag in (1, 2, 3) else "I")

    file.number("header", "Q")
    file.text()
    for item in (function, scope, constant):
        file.counted(item)
    file.counted(lambda: file.number("offset", "q"))
    file.counted(lambda: file.number("word", "q"))
    return file.found


def run(first: int, count: int) -> dict[str, int]:
    """Mutate, load and call `count` files; a seed whose error is not of the expected classes raises."""
    programs = [(base, fields(base.data)) for base in bases()]

    def mutated(rng: np.random.Generator) -> tuple[bytes, Any]:
        base, table = programs[int(rng.integers(len(programs)))]
        return mutate_fields(base.data, table, rng) if rng.integers(4) else damage(base.data, rng), base

    def load(bad: bytes, base: Any) -> Any:
        _, imports, args = base
        executable = weft.runtime.VMExecutable.from_bytes(bad, imports)
        return lambda: weft.relax.VirtualMachine(executable, weft.cpu())["main"](*args)

    return run_mutated(range(first, first + count), mutated, load, call_seconds=2.0)


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[2]) if len(sys.argv) > 2 else 0, int(sys.argv[1]))))
