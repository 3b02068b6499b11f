"""Mutates Relay executables, blindly and field by field, and runs what loads: ``-m tests.fuzz.relay_executables N``."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

import weft
from tests.fuzz.binary import EXPECTED, TENSOR, TEXT, Field, Fields, damage, mutate_fields, run_mutated
from tests.runtime.relay_programs import CONS, I, executable, fold_sum, function, kernels, list_of, make_list
from weft import relay
from weft.runtime.relay_vm import Executable, VirtualMachine


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


COMPILED = """#[version = "0.0.5"]
type List[A] { Nil, Cons(A, List[A]), }
def @count(%xs: List[int32], %n: int32) -> int32 {
  match (%xs) { Cons(%x, %rest) => { @count(%rest, %n + 1) }, Nil => { %n }, }
}
def @main(%x: Tensor[(?), float32], %list: List[int32], %n: int64) {
  let %cell = ref(%n);
  let %f = fn (%y: Tensor[(?), float32]) { add(exp(%y), %x) };
  let %g = if (%n < 10i64) { %f } else { fn (%y: Tensor[(?), float32]) { concatenate((%y, %x), axis=0) } };
  let %old = ref_read(%cell);
  let %done = ref_write(%cell, %old * 2i64);
  let %head = match (%list) { Cons(%h, _) => { %h }, Nil => { 0 }, };
  (%g(%x), %f(multiply(%x, 2f)), @count(%list, 0), ref_read(%cell), %head)
}
"""


def compiled() -> Executable:
    """A program as the compiler makes them: shape functions, planned storage, closures, a reference, matches."""
    return relay.vm.compile(relay.fromtext(COMPILED), "llvm")


def fields(data: bytes) -> list[Field]:
    """List what each number of the file is."""
    file = Fields(data)

    def constant() -> None:
        file.number("device", "q")
        tag = file.number("tag", "i")
        assert tag in (TEXT, TENSOR)
        file.text() if tag == TEXT else file.tensor()

    def code() -> None:
        file.counted(file.text)
        file.counted(lambda: file.number("device", "q"))
        file.number("registers", "q")
        file.counted(lambda: file.number("word", "q"))

    file.number("header", "Q")
    file.text()
    for item in (file.text, constant, file.text, code):
        file.counted(item)
    return file.found


def run(first: int, count: int) -> dict[str, int]:
    """Mutate, load and call `count` files; a seed whose error is not of the expected classes raises."""
    sources = []
    for made in (program(), compiled()):
        saved, lib = made.save()
        table = fields(bytes(saved))
        sources.append((bytes(saved), lib, table, [f for f in table if f[0] == "word"]))
    args = (np.ones(5, np.float32), list_of([3, 4, 5]), np.int64(20))

    def mutated(rng: np.random.Generator) -> tuple[bytes, Any]:
        data, lib, table, words = sources[int(rng.integers(len(sources)))]
        of = words if rng.integers(2) else table  # most of what loads differs from the program in its words
        return mutate_fields(data, of, rng) if rng.integers(8) else damage(data, rng), lib

    def load(bad: bytes, lib: Any) -> Any:
        loaded = Executable.load_exec(bad, lib)

        def call() -> None:
            assert loaded.bytecode
            VirtualMachine(loaded, weft.cpu()).invoke("main", *args)

        return call

    # many a mutated jump is a loop without end
    seeds = range(first, first + count)
    return run_mutated(seeds, mutated, load, call_seconds=0.2, expected=(*EXPECTED, ZeroDivisionError))


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[2]) if len(sys.argv) > 2 else 0, int(sys.argv[1]))))
