"""Registers: what is unused goes, ranges share registers, kills stand where memory would be held over costly code."""

import resource

import numpy as np
import pytest

from tests.relay.vm import programs as P
from weft import relay
from weft.relay.vm.assembly import Assembly
from weft.relay.vm.liveness import assemble, drop_unused, last_uses
from weft.runtime.relay_vm import Executable, Instruction, VirtualMachine, VMFunction

I = Instruction  # noqa: E741 - what the code is written in


def listing(asm):
    registers, code = assemble(asm)
    return registers, [str(i) for i in code]


def test_unused_values_go():
    asm = Assembly(1)
    a, b, c = asm.value(), asm.value(), asm.value()
    for i in (I.get_field(0, 0, a), I.alloc_adt(0, [a], b), I.invoke(0, [0], c), I.ret(0)):
        asm.emit(i)
    assert [r.name for r in drop_unused(asm.rows)] == ["Invoke", "Ret"], "calls stay, they may not end"


def test_ranges_share_registers():
    asm = Assembly(1)
    at = 0
    for _ in range(50):
        nxt = asm.value(scalar=True)
        asm.emit(I.scalar("add", at, 0, nxt))
        at = nxt
    asm.emit(I.ret(at))
    assert listing(asm)[0] == 2


def branches():
    """if p0 == p1: call on p2; call; return p3. Else: return p3."""
    asm = Assembly(4)
    yes, no = asm.label(), asm.label()
    a, b = asm.value(), asm.value()
    asm.emit(I.if_(0, 1, yes, no))
    asm.place(yes)
    asm.emit(I.invoke(0, [2], a))
    asm.emit(I.invoke(0, [a], b))
    asm.emit(I.alloc_adt(0, [b, 3], b))
    asm.emit(I.ret(b))
    asm.place(no)
    asm.emit(I.invoke(0, [3], a))
    asm.emit(I.alloc_adt(0, [a, a], a))
    asm.emit(I.ret(a))
    return asm


def test_ends_of_ranges_in_branches():
    asm = branches()
    ends = last_uses(asm.rows, asm)
    assert {k: v for k, v in ends.items() if v} == {2: [2], 6: [2]}, "behind its last call, and at the other's label"
    registers, code = listing(asm)
    assert code[1:3] == ["invoke $0 VMFunc[0]($2)", "kill_register $2"]
    assert registers == 4


def test_nothing_is_killed_in_front_of_tail_calls():
    asm = Assembly(3)
    a, b = asm.value(), asm.value()
    asm.emit(I.alloc_adt(0, [0, 1], a))
    asm.emit(I.invoke(0, [a], b))
    asm.emit(I.ret(b))
    assert listing(asm)[1] == ["alloc_data $0 tag(0) [$0, $1]", "invoke $0 VMFunc[0]($0)", "ret $0"]


def test_moves_to_a_join_go_where_registers_allow():
    asm = Assembly(2)
    yes, no, join, out = asm.label(), asm.label(), asm.label(), asm.value()
    asm.emit(I.if_(0, 1, yes, no))
    asm.place(yes)
    made = asm.value()
    asm.emit(I.alloc_adt(0, [0], made))
    asm.emit(I.move(made, out))
    asm.emit(I.goto(join))
    asm.place(no)
    asm.emit(I.move(1, out))
    asm.place(join)
    asm.emit(I.ret(out))
    registers, code = listing(asm)
    assert sum("move" in i for i in code) == 1 and not any(i == "goto 1" for i in code)
    assert Executable.from_parts([VMFunction("main", ["x", "y"], registers, assemble(asm)[1])])


def memory_kb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize("n", [1_000_000])
def test_fold_over_a_long_list(n):
    vm = VirtualMachine(relay.vm.compile(P.list_sum()), "cpu")
    assert int(vm.invoke("main", np.int64(n)).numpy()) == n * (n + 1) // 2
    before = memory_kb()
    for _ in range(3):
        vm.invoke("main", np.int64(n))
    assert memory_kb() - before < 30_000, "lists that were folded are freed"


def test_ten_million_tail_calls_in_flat_memory():
    vm = VirtualMachine(relay.vm.compile(P.counting()), "cpu")
    vm.invoke("main", np.int64(1000), np.int64(0))
    before = memory_kb()
    assert int(vm.invoke("main", np.int64(10_000_000), np.int64(0)).numpy()) == 10_000_000
    assert memory_kb() - before < 5_000


def test_a_list_is_freed_while_it_is_folded():
    """Tensors of 1 MB in a list made and consumed cell by cell never are all there."""
    mod = relay.fromtext("""#[version = "0.0.5"]
    type Stream { More(Tensor[(262144), float32], fn (int32) -> Stream), Done, }
    def @numbers(%n: int32) -> Stream {
      let %next = fn (%i: int32) { @numbers(%n - %i) };
      if (%n == 0) { Done } else { More(full(1f, shape=[262144], dtype="float32"), %next) }
    }
    def @sum(%s: Stream, %acc: Tensor[(262144), float32]) -> Tensor[(262144), float32] {
      match (%s) {
        More(%x, %next) => { let %t = add(%x, %acc); @sum(%next(1), %t) },
        Done => { %acc },
      }
    }
    def @main(%n: int32) { @sum(@numbers(%n), zeros(shape=[262144], dtype="float32")) }
    """)
    vm = VirtualMachine(relay.vm.compile(mod), "cpu")
    vm.invoke("main", 3)
    before = memory_kb()
    assert vm.invoke("main", 400).numpy()[0] == 400
    assert memory_kb() - before < 40_000
