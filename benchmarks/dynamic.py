"""Dynamic programs on the Relay virtual machine: recursive networks beside PyTorch, and what an instruction takes.

The networks are those of ``benchmarks.relay_programs``; results are compared before anything is timed. Instructions
are timed by hand-made programs whose loops hold nothing else: the time of a call with many steps less that of one with
none, over the instructions of the steps.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks import relay_programs as programs
from benchmarks import report
from benchmarks.networks import torch_export
from benchmarks.peer import THREADS, peer_session
from benchmarks.race import race, ratio
from weft import relay, tir
from weft.ir import IRModule, int64
from weft.relax import compile_kernels
from weft.runtime import tensor
from weft.runtime.relay_vm import ADT, Executable, Instruction, VirtualMachine, VMFunction
from weft.target import Target

LIMIT_NS = 10.0
STEPS = 1_000_000
I = Instruction  # noqa: E741 - what the programs are written in


def loop(body: Sequence[Instruction], registers: int = 8) -> list[VMFunction]:
    """main(n): runs `body` n times, with 1 in register 2; the loop itself is three instructions."""
    n = len(body)
    code = [
        I.load_consti(0, 1),
        I.load_consti(1, 2),
        I.alloc_adt(0, [1], 3),
        I.alloc_ref(1, 4),
        I.if_(1, 0, n + 3, 1),
        *body,
        I.scalar("add", 1, 2, 1),
        I.goto(-n - 2),
        I.ret(1),
    ]
    return [VMFunction("main", ["n"], registers, code), VMFunction("same", ["x"], 1, [I.ret(0)])]


def countdown(lift: bool) -> list[VMFunction]:
    """main(n): calls itself in tail position, directly or as a closure; a step is five or six instructions."""
    call = [I.alloc_closure(0, [], 3), I.invoke_closure(3, [0], 4)] if lift else [I.invoke(0, [0], 4)]
    code = [
        I.load_consti(0, 1),
        I.if_(0, 1, 4 + len(call), 1),
        I.load_consti(1, 2),
        I.scalar("subtract", 0, 2, 0),
        *call,
        I.ret(4),
        I.ret(0),
    ]
    return [VMFunction("main", ["n"], 5, code)]


PROGRAMS = {
    "counting loop": (loop([]), 3),
    "loads and moves": (loop([I.load_consti(7, 5), I.move(5, 6), I.load_consti(8, 5), I.move(5, 7)]), 7),
    "fields and tags": (loop([I.get_field(3, 0, 5), I.get_tag(3, 6), I.get_field(3, 0, 7), I.get_tag(3, 5)]), 7),
    "cells": (loop([I.write_ref(4, 2), I.read_ref(4, 5)]), 5),
    "pairs": (loop([I.alloc_adt(0, [1, 2], 5)]), 4),
    "tensors": (
        loop([I.load_consti(64, 5), I.alloc_storage(5, 64, "float32", 0, 6), I.alloc_tensor(6, 0, [16], "float32", 7)]),
        6,
    ),
    "views of shapes": (loop([I.load_const(0, 5), I.shape_of(5, 6), I.reshape_tensor(5, 6, 7)]), 6),
    "call and return": (loop([I.invoke(1, [1], 5), I.kill_register(6)]), 6),
    "tail calls": (countdown(lift=False), 6),
    "tail calls of closures": (countdown(lift=True), 7),
}


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


# --- networks ---------------------------------------------------------------------------------------------------------

LENGTHS = (5, 100, 23, 64, 41, 87, 12, 73, 50, 32)
LEAVES = (5, 60, 12, 33, 21, 47, 8, 55, 28, 17)
TOKENS = (8, 128, 37, 64, 101, 16, 90, 51)
OUTSIDE_LIMIT = 0.05
WARM_PASSES = 30

Feed = Any
Contestants = dict[str, Callable[[Feed], Any]]


def _machine(mod: Any) -> tuple[Executable, VirtualMachine]:
    executable = relay.vm.compile(mod, "llvm")
    return executable, VirtualMachine(executable, "cpu")


def _race(
    name: str, units: int, feeds: Sequence[Feed], run: Contestants, must: dict[str, float], vm: VirtualMachine
) -> dict[str, Any]:
    """Compare results, then time passes over all feeds in turns, once the hot shapes have their kernels."""
    for feed in feeds:
        expected, *others = (np.asarray(f(feed)) for f in reversed(run.values()))
        for found in others:
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    for _ in range(WARM_PASSES):
        for feed in feeds:
            run["weft"](feed)
    while any(h.state == "requested" for h in vm.hot_shapes()):
        time.sleep(0.1)
    lanes = race({n: lambda f=f: [f(feed) for feed in feeds] for n, f in run.items()}, rounds=9, block_seconds=0.4)
    us = {n: 1e3 * lane.median_ms / units for n, lane in lanes.items()}
    row: dict[str, Any] = {"workload": name, "us a token": us["weft"]}
    for peer in ("torch", "onnxruntime"):
        row[f"{peer} us"] = us.get(peer, float("nan"))
        row[f"{peer} / weft"] = 1 / ratio(lanes, "weft", peer) if peer in us else float("nan")
    row["must"] = ", ".join(f"{m:g} times {n}" for n, m in must.items())
    row["reached"] = all(row[f"{n} / weft"] >= m for n, m in must.items())
    return row


def lstm(layers: int) -> dict[str, Any]:
    """Sequences of mixed lengths."""
    mod, network = programs.lstm(layers)
    vm = _machine(mod)[1]
    rng = np.random.default_rng(0)
    feeds = [rng.standard_normal((n, programs.INPUT), np.float32) for n in LENGTHS]
    main = vm["main"]
    given = {id(x): (tensor(x), tensor(np.int32(len(x)))) for x in feeds}
    inputs = {id(x): torch.from_numpy(x)[:, None] for x in feeds}

    def peer(x: Feed) -> Any:
        with torch.inference_mode():
            return network(inputs[id(x)])[1][0][-1].numpy()

    run = {"weft": lambda x: main(*given[id(x)]).numpy(), "torch": peer}
    return _race(f"LSTM, layers {layers}", sum(LENGTHS), feeds, run, {"torch": 1.5}, vm)


def tree_lstm() -> dict[str, Any]:
    """Random binary trees."""
    mod, network = programs.tree_lstm()
    vm = _machine(mod)[1]
    _, leaf, branch = mod.get_type("Tree")

    def value(tree: Any) -> ADT:
        x, children = tree
        return ADT(branch.tag if children else leaf.tag, [tensor(x), *map(value, children)])

    rng = np.random.default_rng(0)
    feeds = [programs.random_tree(rng, n) for n in LEAVES]
    main = vm["main"]
    given = {id(t): value(t) for t in feeds}
    inputs = {id(t): programs.map_tree(torch.from_numpy, t) for t in feeds}

    def peer(tree: Feed) -> Any:
        with torch.inference_mode():
            return network(inputs[id(tree)])[0].numpy()

    run = {"weft": lambda t: main(given[id(t)]).numpy(), "torch": peer}
    return _race("Tree-LSTM", sum(LEAVES), feeds, run, {"torch": 10.0}, vm)


def bert() -> dict[str, Any]:
    """The encoder at mixed lengths, through one executable."""
    mod, network = programs.bert()
    vm = _machine(mod)[1]
    rng = np.random.default_rng(0)
    feeds = [rng.standard_normal((1, n, programs.BERT_HIDDEN), np.float32) for n in TOKENS]
    main = vm["main"]
    given = {id(x): tensor(x) for x in feeds}
    with tempfile.TemporaryDirectory() as folder:
        axes = {n: {1: "tokens"} for n in ("x", "y")}
        torch_export.export(network, (torch.from_numpy(feeds[0]),), f"{folder}/bert.onnx", ["x"], ["y"], axes)
        session = peer_session(f"{folder}/bert.onnx")

    def peer(x: Feed) -> Any:
        with torch.inference_mode():
            return network(torch.from_numpy(x)).numpy()

    run = {
        "weft": lambda x: main(given[id(x)]).numpy(),
        "torch": peer,
        "onnxruntime": lambda x: session.run(None, {"x": x})[0],
    }
    return _race("BERT-base encoder", sum(TOKENS), feeds, run, {"torch": 1.0, "onnxruntime": 1.0}, vm)


def share_outside_kernels() -> float:
    """Return the share of the LSTM's time that is left when its kernels do nothing (shapes are still computed)."""
    mod, _ = programs.lstm(1)
    executable, vm = _machine(mod)
    compiler = relay.vm.VMCompiler()
    lowered, _ = compiler.optimize(mod, "llvm")
    functions = {
        v: f if v.name_hint.startswith("shape_func") else f.replace(body=tir.Evaluate(int64(0)))
        for v, f in lowered.items()
        if isinstance(f, tir.PrimFunc)
    }
    code, _ = executable.save()
    empty = VirtualMachine(Executable.load_exec(code, compile_kernels(IRModule(functions), Target("llvm"))), "cpu")
    x = np.random.default_rng(0).standard_normal((50, programs.INPUT), np.float32)
    given = tensor(x), tensor(np.int32(len(x)))
    calls = {"all": partial(vm["main"], *given), "nothing": partial(empty["main"], *given)}
    return ratio(race(calls, rounds=7), "nothing", "all")


def main() -> int:
    torch.set_num_threads(THREADS)
    options = report.arguments(__doc__).parse_args()
    workloads = [lstm(1), lstm(2), tree_lstm(), bert()]
    report.show("dynamic networks, batch 1, two threads", workloads)
    share = share_outside_kernels()
    print(f"share of the LSTM's time outside of kernels: {share:.1%} (at most {OUTSIDE_LIMIT:.0%})")
    rows: list[dict[str, Any]] = [
        {
            "program": name,
            "instructions a step": n,
            "ns an instruction": nanoseconds(functions, n),
            "limit": LIMIT_NS if name == "counting loop" else "",
        }
        for name, (functions, n) in PROGRAMS.items()
    ]
    report.show("instructions", rows)
    report.save(options.json, "dynamic", rows, workloads=workloads, share_outside_kernels=share)
    within = rows[0]["ns an instruction"] <= LIMIT_NS and share <= OUTSIDE_LIMIT
    return int(not (within and all(r["reached"] for r in workloads)))


if __name__ == "__main__":
    sys.exit(main())
