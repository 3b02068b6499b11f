"""Mutates Relay executables, blindly and field by field, and runs what loads: ``-m tests.fuzz.relay_executables N``.

As `tests.fuzz.executables`, in a process of its own with little memory to ask for.
"""

from __future__ import annotations

import json
import signal
import struct
import sys
from collections.abc import Callable, Iterator

import numpy as np

import weft
from tests.fuzz.executables import (
    EXPECTED,
    TENSOR,
    TEXT,
    CallTooLong,
    damage,
    limit_memory,
    mutate_fields,
)
from tests.runtime.relay_programs import CONS, I, executable, fold_sum, function, kernels, list_of, make_list
from weft.runtime.relay_vm import Executable, VirtualMachine

CALL_SECONDS = 0.2  # many a mutated jump is a loop without end


def program() -> Executable:
    """A program in which each kind of instruction is run."""
    return executable(
        function("main", ["x", "list", "n"], 9,
                 I.invoke(1, [0], 3), I.invoke(2, [1, 3], 4), I.load_consti(0, 5), I.invoke(3, [1, 5], 5),
                 I.alloc_closure(3, [1], 6), I.load_consti(5, 7), I.invoke_closure(6, [7], 7), I.alloc_ref(7, 8),
                 I.write_ref(8, 5), I.read_ref(8, 8), I.device_copy(3, 0, 0, 6), I.kill_register(7),
                 I.invoke(4, [2], 7), I.alloc_adt(0, [3, 4, 5, 6, 7, 8], 3), I.ret(3)),
        function("double", ["x"], 6, I.shape_of(0, 1), I.load_const(0, 2), I.reshape_tensor(1, 2, 2),
                 I.load_consti(4, 3), I.scalar("multiply", 2, 3, 3), I.alloc_storage(3, 64, "float32", 0, 4),
                 I.alloc_tensor_reg(4, 0, 1, "float32", 5), I.invoke_packed(0, 2, 1, [0, 5]),
                 I.alloc_tensor(4, 4, [2], "float32", 4), I.ret(5)),
        function("head", ["list", "other"], 4, I.get_tag(0, 2), I.load_consti(CONS, 3), I.if_(2, 3, 2, 1), I.fatal(1),
                 I.get_field(0, 0, 2), I.move(2, 3), I.ret(3)),
        fold_sum(index=3), make_list(),
        constants=[np.array([], np.int64), "no clause"], primitives=["double"], lib=kernels(),
    )  # fmt: skip


def fields(data: bytes) -> Iterator[tuple[str, int, str]]:
    """Yield what each number of the file is: its group, its offset and its struct format."""
    at = 0

    def number(group: str, form: str) -> Iterator[tuple[str, int, str]]:
        nonlocal at
        yield group, at, form
        at += struct.calcsize("<" + form)

    def value(form: str) -> int:
        return struct.unpack_from("<" + form, data, at)[0]

    def text() -> Iterator[tuple[str, int, str]]:
        nonlocal at
        size = value("Q")
        yield from number("count", "Q")
        at += size

    def counted(item: Callable[[], Iterator[tuple[str, int, str]]]) -> Iterator[tuple[str, int, str]]:
        n = value("Q")
        yield from number("count", "Q")
        for _ in range(n):
            yield from item()

    def constant() -> Iterator[tuple[str, int, str]]:
        nonlocal at
        yield from number("device", "q")
        tag = value("i")
        yield from number("tag", "i")
        if tag == TEXT:
            yield from text()
            return
        assert tag == TENSOR
        ndim = struct.unpack_from("<i", data, at + 24)[0]
        for form in ("Q", "Q", "i", "i", "i", "B", "B", "H", *("q" * ndim)):
            yield from number("tensor", form)
        size = value("q")
        yield from number("tensor", "q")
        at += size

    def code() -> Iterator[tuple[str, int, str]]:
        yield from counted(text)
        yield from counted(lambda: number("device", "q"))
        yield from number("registers", "q")
        yield from counted(lambda: number("word", "q"))

    yield from number("header", "Q")
    yield from text()
    for item in (text, constant, text, code):
        yield from counted(item)


def run(first: int, count: int) -> dict[str, int]:
    """Mutate, load and call `count` files; a seed whose error is not of the expected classes raises."""
    data, lib = program().save()
    data = bytes(data)
    args = (np.ones(5, np.float32), list_of([3, 4, 5]), np.int64(20))
    table = list(fields(data))
    words = [f for f in table if f[0] == "word"]  # most of what loads differs from the program here
    result = {"rejected": 0, "failed": 0, "ran": 0, "stopped": 0}

    def stop(*_: object) -> None:
        raise CallTooLong

    signal.signal(signal.SIGALRM, stop)
    limit_memory()
    for seed in range(first, first + count):
        rng = np.random.default_rng(seed)
        bad = mutate_fields(data, words if rng.integers(2) else table, rng) if rng.integers(8) else damage(data, rng)
        stage = "rejected"
        print(seed, file=sys.stderr, flush=True)
        signal.setitimer(signal.ITIMER_REAL, CALL_SECONDS)
        try:
            loaded = Executable.load_exec(bad, lib)
            stage = "failed"
            assert loaded.bytecode
            VirtualMachine(loaded, weft.cpu()).invoke("main", *args)
            stage = "ran"
        except (*EXPECTED, ZeroDivisionError) as e:
            assert str(e), f"seed {seed}"
        except CallTooLong:
            stage = "stopped"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        result[stage] += 1
    return result


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[2]) if len(sys.argv) > 2 else 0, int(sys.argv[1]))))
