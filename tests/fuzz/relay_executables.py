"""Relay executables that are mutated, and the fields of such files."""

import numpy as np

from tests.fuzz.binary import TENSOR, TEXT, Field, Fields
from tests.runtime.relay_programs import CONS, I, doubles, executable, fold_sum, function, kernels, make_list
from weft import relay
from weft.runtime.relay_vm import Executable


def program() -> Executable:
    """A program in which each kind of instruction is run."""
    return executable(
        function(
            "main",
            ["x", "list", "n"],
            9,
            I.invoke(1, [0], 3),
            I.invoke(2, [1, 3], 4),
            I.load_consti(0, 5),
            I.invoke(3, [1, 5], 5),
            I.alloc_closure(3, [1], 6),
            I.load_consti(5, 7),
            I.invoke_closure(6, [7], 7),
            I.alloc_ref(7, 8),
            I.write_ref(8, 5),
            I.read_ref(8, 8),
            I.device_copy(3, 0, 0, 6),
            I.kill_register(7),
            I.invoke(4, [2], 7),
            I.alloc_adt(0, [3, 4, 5, 6, 7, 8], 3),
            I.ret(3),
        ),
        doubles(I.alloc_tensor(4, 4, [2], "float32", 4)),
        function(
            "head",
            ["list", "other"],
            4,
            I.get_tag(0, 2),
            I.load_consti(CONS, 3),
            I.if_(2, 3, 2, 1),
            I.fatal(1),
            I.get_field(0, 0, 2),
            I.move(2, 3),
            I.ret(3),
        ),
        fold_sum(index=3),
        make_list(),
        constants=[np.array([], np.int64), "no clause"],
        primitives=["double"],
        lib=kernels(),
    )


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
