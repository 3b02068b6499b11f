"""Dynamic programs: what the Relay virtual machine takes for an instruction that is no kernel.

Hand-made programs whose loops hold only instructions; the time of a call with many steps less that of one with none,
over the instructions of the steps.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks import report
from weft.runtime.relay_vm import Executable, Instruction, VirtualMachine, VMFunction

LIMIT_NS = 10.0
STEPS = 1_000_000
I = Instruction  # noqa: E741 - what the programs are written in


def loop(body: Sequence[Instruction], registers: int = 8) -> list[VMFunction]:
    """main(n): runs `body` n times, with 1 in register 2; the loop itself is three instructions."""
    n = len(body)
    code = [I.load_consti(0, 1), I.load_consti(1, 2), I.alloc_adt(0, [1], 3), I.alloc_ref(1, 4),
            I.if_(1, 0, n + 3, 1), *body, I.scalar("add", 1, 2, 1), I.goto(-n - 2), I.ret(1)]  # fmt: skip
    return [VMFunction("main", ["n"], registers, code), VMFunction("same", ["x"], 1, [I.ret(0)])]


def countdown(lift: bool) -> list[VMFunction]:
    """main(n): calls itself in tail position, directly or as a closure; a step is five or six instructions."""
    call = [I.alloc_closure(0, [], 3), I.invoke_closure(3, [0], 4)] if lift else [I.invoke(0, [0], 4)]
    code = [I.load_consti(0, 1), I.if_(0, 1, 4 + len(call), 1), I.load_consti(1, 2), I.scalar("subtract", 0, 2, 0),
            *call, I.ret(4), I.ret(0)]  # fmt: skip
    return [VMFunction("main", ["n"], 5, code)]


PROGRAMS = {
    "counting loop": (loop([]), 3),
    "loads and moves": (loop([I.load_consti(7, 5), I.move(5, 6), I.load_consti(8, 5), I.move(5, 7)]), 7),
    "fields and tags": (loop([I.get_field(3, 0, 5), I.get_tag(3, 6), I.get_field(3, 0, 7), I.get_tag(3, 5)]), 7),
    "cells": (loop([I.write_ref(4, 2), I.read_ref(4, 5)]), 5),
    "pairs": (loop([I.alloc_adt(0, [1, 2], 5)]), 4),
    "tensors": (loop([I.load_consti(64, 5), I.alloc_storage(5, 64, "float32", 0, 6),
                      I.alloc_tensor(6, 0, [16], "float32", 7)]), 6),
    "views of shapes": (loop([I.load_const(0, 5), I.shape_of(5, 6), I.reshape_tensor(5, 6, 7)]), 6),
    "call and return": (loop([I.invoke(1, [1], 5), I.kill_register(6)]), 6),
    "tail calls": (countdown(lift=False), 6),
    "tail calls of closures": (countdown(lift=True), 7),
}  # fmt: skip


def nanoseconds(functions: list[VMFunction], instructions: int, repeats: int = 7) -> float:
    """Least time of an instruction."""
    vm = VirtualMachine(Executable.from_parts(functions, [np.zeros((2, 8), np.float32)]))

    def best(n: int) -> float:
        steps = np.array(n, np.int64)
        times = []
        for _ in range(repeats):
            start = time.perf_counter_ns()
            vm.run(steps)
            times.append(time.perf_counter_ns() - start)
        return min(times)

    return (best(STEPS) - best(0)) / STEPS / instructions


def main() -> int:
    options = report.arguments(__doc__).parse_args()
    rows: list[dict[str, Any]] = [
        {"program": name, "instructions a step": n, "ns an instruction": nanoseconds(functions, n),
         "limit": LIMIT_NS if name == "counting loop" else ""}
        for name, (functions, n) in PROGRAMS.items()
    ]  # fmt: skip
    report.show("dynamic", rows)
    report.save(options.json, "dynamic", rows)
    return int(rows[0]["ns an instruction"] > LIMIT_NS)


if __name__ == "__main__":
    sys.exit(main())
