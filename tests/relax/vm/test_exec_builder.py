"""Executables by hand: operands, constants, texts and programs that rebuild them."""

import ml_dtypes
import numpy as np
import pytest
import tvm_ffi

import weft as tvm
from tests.refusals import refuses
from weft import error, ir, relax, runtime
from weft.runtime.opcodes import FuncKind, Opcode, encode_arg
from weft.script import ir as I
from weft.script import relax as R
from weft.script import tir as T


@tvm.register_global_func("test.exec_builder.add", override=True)
def _add(a, b):
    return tvm.runtime.tensor(a.numpy() + b.numpy())


# What Apache TVM 0.27 prints for the program that `listed` builds.
TEXT = """\
@other packed_func;

@main:
  call  vm.builtin.copy  in: %0           dst: %2
  call  test.vm.add      in: %0, %1, i-5, %vm, f[other], c[0], c[1], c[2] dst: %3
  call  foo              in: c[3]         dst: %void
  call  foo              in: i7           dst: %void
  If    %0, 2
  goto  -1
  call  a.very.long.function.name.indeed in:              dst: %void
  ret   %3

@vm.builtin.copy packed_func;

@test.vm.add packed_func;

@foo packed_func;

@a.very.long.function.name.indeed packed_func;

@noparams:
  call  foo              in: c[0]         dst: %0
  ret   %0

@tirf num_inputs=2 vm_tir_func;

"""
STATS = """\
Relax VM executable statistics:
  Constant pool (# 4): [shapetuple[1, 2], [2, 3], float32, "text"]
  Globals (#8): [other, main, vm.builtin.copy, test.vm.add, foo, a.very.long.function.name.indeed, noparams, tirf]
"""


def listed():
    ib = relax.ExecBuilder()
    ib.declare_function("other")
    with ib.function("main", num_inputs=2, param_names=["x", "y"]):
        ib.emit_call("vm.builtin.copy", args=[ib.r(0)], dst=ib.r(2))
        tensor = runtime.tensor(np.arange(6, dtype="float32").reshape(2, 3))
        operands = [ib.r(0), ib.r(1), ib.imm(-5), ib.vm_state(), ib.f("other")]
        ib.emit_call("test.vm.add", args=[*operands, (1, 2), tensor, ir.DataType("float32")], dst=ib.r(3))
        ib.emit_call("foo", args=[ib.convert_constant("text")])
        ib.emit_call("foo", args=[ib.convert_constant(7)])
        ib.emit_if(ib.r(0), 2)
        ib.emit_goto(-1)
        ib.emit_call("a.very.long.function.name.indeed", args=[], dst=ib.void_arg())
        ib.emit_ret(ib.r(3))
    with ib.function("noparams", num_inputs=0):
        ib.emit_call("foo", args=[ib.c(0)], dst=ib.r(0))
        ib.emit_ret(ib.r(0))
    ib.declare_function("tirf", FuncKind.VMTIR_FUNC, num_inputs=2, register_file_size=2)
    return ib.get()


def rebuilt(ex):
    scope = {}
    exec(ex.as_python(), scope)
    return scope["ex"]


def test_texts_are_those_of_apache_tvm():
    ex = listed()
    assert ex.as_text() == TEXT
    assert ex.stats() == STATS
    assert rebuilt(ex).bytes == ex.bytes


def values_of(pool):
    ib = relax.ExecBuilder()
    with ib.function("main", num_inputs=0):
        ib.emit_call("vm.builtin.make_tuple", args=[ib.add_constant(v) for v in pool], dst=ib.r(0))
        ib.emit_ret(ib.r(0))
    return ib.get()


FLOATS = [0.0, -0.0, 0.1, 1e300, float("inf"), float("-inf"), float("nan")]


@pytest.mark.parametrize(
    "pool",
    [
        [np.float32([[1.5, -0.0], [3e-45, 4]]), np.zeros((0, 3), "int8"), np.array(True), np.arange(100.0)],
        [np.float32([np.nan, np.inf]), np.arange(17, dtype="uint16"), np.float16([0.1])],
        [np.ones((2, 2), ml_dtypes.bfloat16), np.ones(3, ml_dtypes.float8_e4m3fn)],
        [tvm_ffi.Shape(()), tvm_ffi.Shape((2**40, 0)), "", "q\"u'\n\\", 0, -(2**63), 2**63 - 1],
        FLOATS,
        [tvm_ffi.dtype("float32x4"), tvm_ffi.dtype("bool"), tvm_ffi.dtype("float8_e4m3fn"), tvm_ffi.dtype("void")],
        ["same", "same", 1.0, 1.0],
    ],
    ids=["tensors", "more tensors", "ml_dtypes", "shapes, strings, ints", "floats", "dtypes", "repeated"],
)
def test_programs_rebuild_constants(pool):
    ex = values_of(pool)
    assert rebuilt(ex).bytes == ex.bytes
    again = runtime.VMExecutable.from_bytes(ex.bytes)
    assert rebuilt(again).bytes == ex.bytes
    assert again.as_python() == ex.as_python()


def test_programs_rebuild_compiled_models():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 4), "float32")):
            n = T.int64()
            y = R.matmul(x, w)
            return R.reshape(y, (n * 4,)), R.nn.relu(y)

        @R.function
        def second(flag: R.Tensor((), "bool"), x: R.Tensor((2,), "float32")):
            if flag:
                y = R.add(x, R.const([1.0, 2.0], "float32"))
            else:
                y = R.multiply(x, x)
            return y

    ex = tvm.compile(Module, params={"w": np.eye(4, dtype="float32")})
    other = rebuilt(ex)
    assert other.bytes == ex.bytes
    x = np.random.rand(3, 4).astype("float32")
    vm = relax.VirtualMachine(runtime.VMExecutable.from_bytes(other.bytes, imports=ex.imports))
    np.testing.assert_allclose(vm["main"](x)[1].numpy(), x)


def test_programs_rebuild_tables_of_other_builders():
    functions = [
        runtime.VMFuncInfo(0, "g"),
        runtime.VMFuncInfo(0, "h", num_args=3),
        runtime.VMFuncInfo(1, "late", 1, 2, 1, 5, ()),
        runtime.VMFuncInfo(1, "early", 0, 1, 2, 2, ("x", "y")),
        runtime.VMFuncInfo(2, "t", 0, 0, 2, 7, ("a", "b")),
    ]
    data = [Opcode.Ret, 1, Opcode.Ret, 0]
    ex = runtime.VMExecutable.from_parts(functions, [np.ones(2), 3.0], {0: "global.texture"}, [0, 2], data)
    assert rebuilt(ex).bytes == ex.bytes
    assert rebuilt(ex).memory_scopes == {0: "global.texture"}
    hole = runtime.VMExecutable.from_parts([runtime.VMFuncInfo(1, "f", 1, 2, 1, 1)], [], {}, [0, 2], data)
    refuses(error.InvalidArgument, "belong to no function", hole.as_python)


def test_words():
    ex = listed()
    offset, data = ex.instr_offset, ex.instr_data
    assert offset.tolist()[:3] == [0, 5, 17]
    assert data[:5].tolist() == [Opcode.CALL, 2, 2, 1, 0]
    assert data[5:9].tolist() == [Opcode.CALL, 3, 3, 8]
    assert data[11:14].tolist() == [encode_arg(1, -5), 2**54 + 1, encode_arg(3, 0)]
    ib = relax.ExecBuilder()
    assert (ib.r(3), ib.imm(2), ib.void_arg(), ib.vm_state()) == (3, (1 << 56) + 2, 2**54, 2**54 + 1)


def test_values_in_place_of_operands():
    ib = relax.ExecBuilder()
    array = np.float32([1, 2])
    with ib.function("main", num_inputs=1):
        args = [(1, ("a", 2.5, ()), array), array, True, "a", 2.5, ir.DataType("int8")]
        args += [ib.convert_constant(2**60), ib.imm(-1), ib.void_arg()]
        ib.emit_call("vm.builtin.make_tuple", args=[ib.r(0), *args], dst=ib.r(1))
        ib.emit_ret(ib.r(1))
    ex = ib.get()
    first, nested, again, true, text, half, dtype, big, minus, nothing = relax.VirtualMachine(ex)["main"](5)
    assert first == 5
    assert nested[0] == 1
    assert (str(nested[1][0]), nested[1][1], tuple(nested[1][2])) == ("a", 2.5, ())
    np.testing.assert_array_equal(nested[2].numpy(), array)
    np.testing.assert_array_equal(again.numpy(), array)
    assert (true, str(text), half, str(dtype), big, minus, nothing) == (1, "a", 2.5, "int8", 2**60, -1, None)
    assert len([c for c in ex.constants if isinstance(c, str) and not isinstance(c, tvm_ffi.dtype)]) == 1
    assert ex.function("main").register_file_size == 4
    assert rebuilt(ex).bytes == ex.bytes


def test_equal_constants_share_a_place():
    ib = relax.ExecBuilder()
    for v in ("a", 2.5, tvm_ffi.Shape((1, 2)), ir.DataType("int8"), float("nan")):
        assert ib.convert_constant(v) == ib.convert_constant(v)
    assert ib.convert_constant((1, 2)) == ib.convert_constant(tvm_ffi.Shape((1, 2)))
    assert ib.convert_constant(0.0) != ib.convert_constant(-0.0)
    assert ib.convert_constant("a") != ib.convert_constant("a", memory_scope="global.texture")
    assert ib.convert_constant(1) == ib.imm(1)


def test_loops_and_branches_by_hand():
    """Add x to itself as often as a scalar says."""
    ib = relax.ExecBuilder()
    with ib.function("main", num_inputs=1, param_names=["x"]):
        ib.emit_call("vm.builtin.copy", [ib.r(0)], ib.r(1))
        ib.emit_call("vm.builtin.copy", [ib.imm(0)], ib.r(2))
        ib.emit_if(ib.r(2), 3)
        ib.emit_call("test.exec_builder.add", [ib.r(1), ib.r(1)], ib.r(1))
        ib.emit_ret(ib.r(1))
        ib.emit_call("test.exec_builder.add", [ib.r(0), ib.r(1)], ib.r(1))
        ib.emit_call("vm.builtin.copy", [ib.imm(1)], ib.r(2))
        ib.emit_goto(-5)
    x = np.random.rand(5).astype("float32")
    np.testing.assert_allclose(relax.VirtualMachine(ib.get())["main"](x).numpy(), 4 * x, rtol=1e-6)


def in_function(act):
    def run():
        ib = relax.ExecBuilder()
        with ib.function("main", num_inputs=1):
            act(ib)
            ib.emit_ret(ib.r(0))
        return ib.get()

    return run


def twice():
    ib = relax.ExecBuilder()
    for _ in range(2):
        with ib.function("f", num_inputs=1):
            ib.emit_ret(ib.r(0))


def nested(ib):
    with ib.function("inner"):
        pass


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: relax.ExecBuilder().emit_call("f"), "outside of a function"),
        (lambda: relax.ExecBuilder().r(-1), "numbered from 0"),
        (lambda: relax.ExecBuilder().imm(1 << 55), "56 bits"),
        (lambda: relax.ExecBuilder().c(0), "there is no constant 0"),
        (lambda: relax.ExecBuilder().convert_constant(("a",)), "holds no tuples"),
        (lambda: relax.ExecBuilder().convert_constant(None), "not a value that a constant pool holds"),
        (lambda: relax.ExecBuilder().add_constant(object()), "found: object|object"),
        (lambda: relax.ExecBuilder().function("f", 2, ["x"]).__enter__(), "each argument has one name"),
        (in_function(lambda ib: ib.emit_ret(ib.imm(1))), "the result of a function is a register"),
        (in_function(lambda ib: ib.emit_if(ib.imm(1), 1)), "the condition of an If is a register"),
        (in_function(lambda ib: ib.emit_call("f", [], ib.f("g"))), "the destination of a call is a register"),
        (in_function(lambda ib: ib.emit_call("f", [ib.r(4)])), "instruction 0 reads register 4, which nothing sets"),
        (in_function(lambda ib: ib.emit_call("f", [-1])), "an integer among the arguments of a call is an operand"),
        (in_function(lambda ib: ib.emit_goto(9)), "leaves the function"),
        (in_function(nested), "'inner' begins inside of function 'main'"),
        (twice, "'f' is there already"),
    ],
)
def test_wrong_uses(act, message):
    refuses(tvm.error.WeftError, message, act)
