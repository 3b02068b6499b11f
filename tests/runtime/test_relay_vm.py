"""The Relay virtual machine, on hand-made programs."""

import resource

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from tests.runtime.relay_programs import (
    CONS,
    NIL,
    I,
    countdown,
    counting_loop,
    doubles,
    executable,
    fold_sum,
    function,
    kernels,
    list_of,
    machine,
    make_list,
    value,
)
from weft.runtime.relay_instruction import RELAY_OPCODES
from weft.runtime.relay_vm import ADT, Ref, tuple_object

F = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_identity_gives_the_tensor_back():
    vm = machine(function("main", ["x"], 1, I.ret(0)))
    np.testing.assert_array_equal(vm.run(F).numpy(), F)
    x = weft.nd.array(F)
    assert vm.run(x).handle.data_ptr() == x.handle.data_ptr()


def test_constants_calls_and_kernels_go_through_the_file():
    vm = machine(
        function(
            "main",
            ["x"],
            6,
            I.load_const(0, 1),
            I.load_consti(12, 2),
            I.alloc_storage(2, 64, "float32", 0, 3),
            I.alloc_tensor(3, 0, [3], "float32", 4),
            I.invoke_packed(0, 3, 1, [0, 1, 4]),
            I.invoke(1, [4], 5),
            I.ret(5),
        ),
        function(
            "twice",
            ["y"],
            4,
            I.load_consti(24, 1),
            I.alloc_storage(1, 64, "float32", 0, 2),
            I.alloc_tensor(2, 12, [3], "float32", 3),
            I.invoke_packed(1, 2, 1, [0, 3]),
            I.ret(3),
        ),
        constants=[F[1]],
        primitives=["add", "double"],
        lib=kernels(),
    )
    np.testing.assert_array_equal(vm.run(F[0]).numpy(), 2 * (F[0] + F[1]))
    np.testing.assert_array_equal(vm.invoke("twice", F[0]).numpy(), 2 * F[0])
    np.testing.assert_array_equal(vm["twice"](F[0]).numpy(), 2 * F[0])


def test_every_opcode_is_constructed_and_printed_and_decoded():
    samples = [
        I.move(1, 2),
        I.ret(3),
        I.invoke(0, [1, 2], 3),
        I.invoke_closure(1, [], 2),
        I.invoke_packed(0, 2, 1, [1, 2]),
        I.alloc_tensor(1, 64, [2, 3], "float16", 4),
        I.alloc_tensor_reg(1, 0, 2, "int8", 4),
        I.alloc_adt(7, [1], 2),
        I.alloc_closure(0, [1], 2),
        I.get_field(1, 4, 2),
        I.if_(1, 2, -3, 4),
        I.load_const(3, 1),
        I.goto(-1),
        I.get_tag(1, 2),
        I.load_consti(-5, 1),
        I.fatal(),
        I.fatal(2),
        I.alloc_storage(1, 64, "bfloat16", 1, 2),
        I.shape_of(1, 2),
        I.reshape_tensor(1, 2, 3),
        I.device_copy(1, 0, 1, 2),
        I.kill_register(4),
        I.alloc_ref(1, 2),
        I.read_ref(1, 2),
        I.write_ref(1, 2),
        I.scalar("floor_mod", 1, 2, 3),
    ]
    assert {i.name for i in samples} == set(RELAY_OPCODES)
    assert list(I.decode([w for i in samples for w in i.words()])) == samples
    text = "\n".join(map(str, samples))
    assert "invoke_packed PackedFunc[0] (in: $1, out: $2)" in text
    assert "alloc_tensor $4 $1 64 [2, 3] float16" in text
    assert "if $1 $2 -3 4" in text
    assert "floor_mod $3 $1 $2" in text


LISTING = """\
VM Function[0]: main(n)
# reg file size = 3
# instruction count = 6
opcode, fields # inst(text):
  0: 14 0 1     # load_consti $1 0
  1: 14 1 2     # load_consti $2 1
  2: 10 1 0 3 1 # if $1 $0 3 1
  3: 67 0 1 1 2 # add $1 $1 $2
  4: 12 -2      # goto -2
  5: 1 1        # ret $1

VM Function[1]: pair(x)
# reg file size = 2
# instruction count = 2
opcode, fields # inst(text):
  0: 7 0 1 2 0 0 # alloc_data $1 tag(0) [$0, $0]
  1: 1 1         # ret $1
"""
STATS = """\
Relay VM executable statistics:
  Constant shapes (# 2): [float32[2, 3], 'no clause']
  Globals (# 2): [("main", 0), ("pair", 1)]
  Primitive ops (# 1): [vm.builtin.copy]
  Instructions (# 8): [Ret 2, AllocADT 1, If 1, Goto 1, LoadConsti 2, Scalar 1]
"""


def test_listing():
    exe = executable(
        counting_loop(),
        function("pair", ["x"], 2, I.alloc_adt(0, [0, 0], 1), I.ret(1)),
        constants=[F, "no clause"],
        primitives=["vm.builtin.copy"],
    )
    assert exe.bytecode == LISTING
    assert exe.stats == STATS
    assert exe.constants == "VM Const[0]: float32[2, 3]\nVM Const[1]: 'no clause'"
    assert exe.globals == ["main", "pair"]
    assert exe.primitive_ops == ["vm.builtin.copy"]
    assert exe.get_function_params("main") == ["n"]
    np.testing.assert_array_equal(exe.constant_values[0].numpy(), F)
    assert repr(exe) == "Executable(main, pair)"


# ---- calls ----------------------------------------------------------------------------------------------------------


def recursive(*combine):
    """A function of n that jumps over what combines register 0, n, and register 4, its value of n - 1, where n is 0."""
    steps = I.if_(0, 1, 5, 1), I.scalar("subtract", 0, 2, 3), I.invoke(0, [3], 4)
    return function("main", ["n"], 5, I.load_consti(0, 1), I.load_consti(1, 2), *steps, *combine)


def factorial():
    return recursive(I.scalar("multiply", 0, 4, 2), I.ret(2), I.ret(2))


def test_recursion():
    assert value(machine(factorial()).run(np.int64(20))) == 2432902008176640000
    assert value(machine(factorial()).run(np.int64(0))) == 1


def even(name, other, result):
    return function(
        name,
        ["n"],
        4,
        I.load_consti(0, 1),
        I.load_consti(1, 2),
        I.if_(0, 1, 4, 1),
        I.scalar("subtract", 0, 2, 3),
        I.invoke(other, [3], 3),
        I.ret(3),
        I.scalar("equal", 1, result, 3),
        I.ret(3),
    )


def test_mutual_recursion_by_tail_calls():
    vm = machine(even("even", 1, 1), even("odd", 0, 2))
    for n in (0, 1, 2, 9, 1_500_000):
        assert value(vm.invoke("even", np.int64(n))) == (n % 2 == 0)
        assert value(vm.invoke("odd", np.int64(n))) == (n % 2 == 1)


def test_ten_million_tail_calls_take_no_memory():
    vm = machine(countdown())
    vm.run(np.int64(1000), np.int64(0))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert value(vm.run(np.int64(10_000_000), np.int64(0))) == 10_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 4096


def test_tail_calls_keep_their_arguments():
    """A register twice, swapped, of functions with other numbers of registers, behind moves and jumps."""
    rng = np.random.default_rng(0)
    big = 3000  # registers: the stack's chunks are exchanged on the way
    vm = machine(
        function(
            "main",
            ["x", "y", "n"],
            6,
            I.load_consti(0, 3),
            I.if_(2, 3, 7, 1),
            I.load_consti(1, 4),
            I.scalar("subtract", 2, 4, 2),
            I.invoke(1, [1, 0, 2, 0], 3),
            I.kill_register(0),
            I.move(3, 5),
            I.goto(2),
            I.alloc_adt(0, [0, 1], 5),
            I.ret(5),
        ),
        function("other", ["a", "b", "n", "c"], big, I.load_const(0, big - 1), I.invoke(0, [0, 3, 2], 4), I.ret(4)),
        constants=[F],
    )
    for n in (0, 1, 2, 1001):
        x, y = rng.random(3), rng.random(4)
        first, second = vm.run(x, y, np.int64(n))
        expected = (x, y) if n % 2 == 0 else (y, x)
        np.testing.assert_array_equal(first.numpy(), expected[0])
        np.testing.assert_array_equal(second.numpy(), expected[1])


def test_deep_recursion_and_runaway_recursion():
    down = recursive(I.scalar("add", 4, 2, 4), I.ret(4), I.ret(1))
    vm = machine(down, function("forever", ["x"], 3, I.invoke(1, [0], 1), I.move(0, 2), I.ret(2)))
    assert value(vm.run(np.int64(1_000_000))) == 1_000_000
    refuses(RecursionError, "forever: more than 1048576 nested calls of functions", vm.invoke, "forever", F)
    assert value(vm.run(np.int64(10))) == 10  # the stack is as before


def test_closures():
    vm = machine(
        function("add3", ["a", "b", "c"], 4, I.scalar("multiply", 0, 1, 3), I.scalar("add", 3, 2, 3), I.ret(3)),
        function(
            "main",
            ["x"],
            4,
            I.load_consti(10, 1),
            I.alloc_closure(0, [0, 1], 2),
            I.load_consti(7, 3),
            I.invoke_closure(2, [3], 1),
            I.ret(1),
        ),
        function("make", ["x"], 3, I.alloc_closure(0, [0, 0], 1), I.ret(1)),
        function("apply", ["f", "x"], 3, I.invoke_closure(0, [1], 2), I.scalar("add", 2, 1, 2), I.ret(2)),
        function("none", [], 1, I.alloc_closure(5, [], 0), I.invoke_closure(0, [], 0), I.ret(0)),
        function("five", [], 1, I.load_consti(5, 0), I.ret(0)),
    )
    assert value(vm.run(np.int64(4))) == 4 * 10 + 7
    closure = vm.invoke("make", np.int64(3))
    assert value(vm.invoke_closure(closure, np.int64(2))) == 11
    assert value(vm.invoke("apply", closure, np.int64(2))) == 13
    assert value(vm.invoke("none")) == 5
    refuses(TypeError, r"add3\(a, b, c\): expected 3 arguments, found 4", vm.invoke_closure, closure, 1, 2)
    refuses(TypeError, "expected a closure, found a tensor", vm.invoke, "apply", F, 1)
    with pytest.raises(ValueError, match="another executable"):
        machine(function("main", ["f"], 2, I.invoke_closure(0, [], 1), I.ret(1))).run(closure)


def test_a_closure_in_a_tail_call_brings_its_variables():
    vm = machine(
        function(
            "step",
            ["self_n", "k", "acc"],
            6,
            I.load_consti(0, 3),
            I.if_(1, 3, 7, 1),
            I.load_consti(1, 4),
            I.scalar("subtract", 1, 4, 1),
            I.scalar("add", 2, 0, 2),
            I.alloc_closure(0, [0], 5),
            I.invoke_closure(5, [1, 2], 3),
            I.ret(3),
            I.ret(2),
        )
    )
    assert value(vm.invoke("step", np.int64(3), np.int64(2_000_000), np.int64(0))) == 6_000_000


# ---- data types -----------------------------------------------------------------------------------------------------


def test_tuples_come_out_as_tuples_and_go_in():
    vm = machine(
        function("main", ["x"], 4, I.load_consti(3, 1), I.alloc_adt(0, [0, 1], 2), I.alloc_adt(0, [2, 0], 3), I.ret(3)),
        function("second", ["t"], 2, I.get_field(0, 1, 1), I.ret(1)),
        function("tag", ["t"], 2, I.get_tag(0, 1), I.ret(1)),
    )
    (x, three), again = vm.run(F)
    np.testing.assert_array_equal(x.numpy(), F)
    np.testing.assert_array_equal(again.numpy(), F)
    assert value(three) == 3
    for pair in ((1, F), [1, F], tuple_object([1, F])):
        np.testing.assert_array_equal(vm.invoke("second", pair).numpy(), F)
        assert value(vm.invoke("tag", pair)) == 0
    refuses(IndexError, "field 1 of a value of 1 fields", vm.invoke, "second", (F,))
    refuses(TypeError, "expected a value of a data type, found a tensor", vm.invoke, "second", F)
    refuses(TypeError, "expected a value of a data type, found a tensor", vm.invoke, "tag", F)


def test_values_of_data_types_in_python():
    tree = ADT(4, [ADT(3, []), 2, (F, ADT(0, [1]))])
    assert (tree.tag, len(tree), tree[0].tag, len(tree[0])) == (4, 3, 3, 0)
    assert tree[1].dtype == "int32"
    assert tree[-1][1][0].shape == ()
    assert [type(field).__name__ for field in tree[:2]] == ["ADT", "Tensor"] and isinstance(tree[2], tuple)
    assert repr(tree) == "ADT(tag=4, fields=3)"
    refuses(IndexError, "field 3 of a value of 3 fields", lambda: tree[3])
    refuses(ValueError, "tag is not negative", ADT, -1, [])
    vm = machine(function("main", ["t"], 3, I.get_field(0, 2, 1), I.get_field(1, 1, 2), I.ret(2)))
    assert value(vm.run(tree)[0]) == 1


def test_fold_of_a_million_nodes():
    sum_of_list = function("main", ["n"], 4, I.invoke(1, [0], 1), I.load_consti(0, 2), I.invoke(0, [1, 2], 3), I.ret(3))
    vm = machine(fold_sum(), make_list(), sum_of_list)
    n = 1_000_000
    assert value(vm.run(np.int64(n))) == n * (n + 1) // 2
    long = vm.invoke("make", np.int64(n))
    assert value(vm.invoke("fold", long, np.int64(0))) == n * (n + 1) // 2
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert value(vm.run(np.int64(n))) == n * (n + 1) // 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000
    del long  # freed without recursion of destructors
    assert value(vm.invoke("fold", list_of([1, 2, 3]), 4)) == 10


def test_deep_structures_of_all_kinds_are_freed():
    """Closures that know closures, cells in cells, tuples in tuples; the last also as a result."""

    def nest(name, make):
        return function(
            name,
            ["n"],
            6,
            I.load_consti(0, 1),
            I.load_consti(1, 2),
            I.alloc_adt(NIL, [], 3),
            I.move(0, 4),
            I.if_(4, 1, 4, 1),
            make,
            I.scalar("subtract", 4, 2, 4),
            I.goto(-3),
            I.ret(3),
        )

    vm = machine(
        nest("closures", I.alloc_closure(3, [3], 3)),
        nest("cells", I.alloc_ref(3, 3)),
        nest("tuples", I.alloc_adt(0, [3, 4], 3)),
        function("same", ["x"], 1, I.ret(0)),
    )
    for name in ("closures", "cells", "tuples"):
        out = vm.invoke(name, np.int64(300_000))
        assert out is not None
        del out


def test_references():
    vm = machine(
        function(
            "main",
            ["x", "n"],
            6,
            I.alloc_ref(0, 2),
            I.load_consti(0, 3),
            I.load_consti(1, 4),
            I.if_(1, 3, 6, 1),
            I.read_ref(2, 5),
            I.scalar("add", 5, 5, 5),
            I.write_ref(2, 5),
            I.scalar("subtract", 1, 4, 1),
            I.goto(-5),
            I.read_ref(2, 5),
            I.alloc_adt(0, [2, 5], 5),
            I.ret(5),
        ),
        function("set", ["r", "x"], 2, I.write_ref(0, 1), I.ret(1)),
    )
    cell, number = vm.run(np.int64(3), np.int64(10))
    assert value(number) == 3 << 10
    assert isinstance(cell, Ref)
    assert value(cell.value) == 3 << 10
    vm.invoke("set", cell, F)
    np.testing.assert_array_equal(cell.value.numpy(), F)
    refuses(TypeError, "expected a reference, found a tensor", vm.invoke, "set", F, F)


def test_primitives_get_the_fields_of_tuples():
    seen = []
    weft.register_func("test_relay.see", lambda *args: seen.append([type(a).__name__ for a in args]), override=True)
    vm = machine(
        function(
            "main",
            ["x", "list"],
            6,
            I.load_consti(1, 2),
            I.alloc_adt(0, [0, 2], 3),
            I.alloc_adt(0, [3, 0], 4),
            I.invoke_packed(0, 4, 0, [4, 2, 1, 3]),
            I.ret(2),
        ),
        primitives=["test_relay.see"],
    )
    vm.run(F, list_of([1]))
    assert seen == [["Tensor", "Tensor", "Tensor", "Tensor", "ADT", "Tensor", "Tensor"]]
    vm.run((F, (F, F)), ADT(0, []))
    assert seen[1] == ["Tensor"] * 3 + ["Tensor"] + ["Tensor"] * 3 + ["Tensor"] + ["Tensor"] * 4


# ---- memory and shapes ----------------------------------------------------------------------------------------------


def test_jagged_batch():
    """A list of vectors of different lengths, each doubled: shapes known at run time only."""
    vm = machine(
        doubles(),
        function(
            "main",
            ["list"],
            8,
            I.get_tag(0, 1),
            I.load_consti(NIL, 2),
            I.if_(1, 2, 7, 1),
            I.get_field(0, 0, 3),
            I.get_field(0, 1, 4),
            I.invoke(0, [3], 5),
            I.invoke(1, [4], 6),
            I.alloc_adt(CONS, [5, 6], 7),
            I.ret(7),
            I.ret(0),
        ),
        constants=[np.array([], np.int64)],
        primitives=["double"],
        lib=kernels(),
    )
    rows = [np.arange(n, dtype=np.float32) for n in (3, 0, 1, 17)]
    out = vm.run(list_of(rows))
    for row in rows:
        np.testing.assert_array_equal(out[0].numpy(), 2 * row)
        out = out[1]
    assert out.tag == NIL
