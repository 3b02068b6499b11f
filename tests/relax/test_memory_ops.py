"""Operators on memory, of the machine, and on data: what they compute, and what they refuse."""

import numpy as np
import pytest
import tvm_ffi

import weft as tvm
from tests.refusals import refuses
from weft import error, ffi, ir, relax
from weft.relax.testing.runtime_builtin import MakeShapeCode, MatchShapeCode
from weft.relax.testing.vm import check_saved_func
from weft.script import ir as I
from weft.script import relax as R
from weft.script import tir as T

MODES = pytest.mark.parametrize("mode", ["bytecode", "compiled"])


def linked(mod, mode):
    builder = relax.ExecBuilder()
    kernels = relax.vm_build._vmcodegen(builder, mod, exec_mode=mode)
    return relax.VirtualMachine(relax.vm_build._vmlink(builder, "llvm", kernels), tvm.cpu())


def built(mod, mode="bytecode"):
    mod = mod if isinstance(mod, tvm.IRModule) else tvm.IRModule.from_expr(mod)
    return relax.VirtualMachine(relax.build(mod, "llvm", exec_mode=mode), tvm.cpu())


@I.ir_module
class ByHand:
    @R.function(pure=False)
    def main(x: R.Tensor(["n", "m"], "float32")) -> R.Shape(ndim=3):
        heap = R.call_builtin_with_ctx(
            "vm.builtin.alloc_shape_heap", [R.prim_value(2)], ty_args=[R.Tensor(ndim=1, dtype="int64")]
        )
        _ = R.call_packed("vm.builtin.check_tensor_info", x, 2, R.dtype("float32"), "", ty_args=[R.Tuple()])
        _ = R.call_packed(
            "vm.builtin.match_shape",
            x,
            heap,
            2,
            MatchShapeCode.STORE_TO_HEAP,
            0,
            MatchShapeCode.STORE_TO_HEAP,
            1,
            "",
            ty_args=[R.Tuple()],
        )
        s = R.call_packed(
            "vm.builtin.make_shape",
            heap,
            3,
            MakeShapeCode.LOAD_SHAPE,
            1,
            MakeShapeCode.LOAD_SHAPE,
            0,
            MakeShapeCode.USE_IMM,
            2,
            ty_args=[R.Shape(ndim=3)],
        )
        return s

    @R.function(pure=False)
    def killed():
        callback = R.ExternFunc("test.vm.check_if_defined")
        storage = R.vm.alloc_storage(R.shape([16]), R.prim_value(0), R.dtype("uint8"))
        alloc = R.vm.alloc_tensor(storage, R.prim_value(0), R.shape([4]), R.dtype("float32"))
        alias = alloc
        before = callback(alloc)
        _ = R.vm.kill_object(alloc)
        after = callback(alloc)
        return (before, after, callback(alias))


@MODES
def test_programs_that_were_lowered_by_hand(mode):
    vm = linked(ByHand, mode)
    x = np.zeros((1, 2), "float32")
    assert vm["main"](x) == tvm_ffi.Shape([2, 1, 2])
    assert tuple(map(bool, vm["killed"]())) == (True, False, True)
    refuses(ValueError, "ndim", vm["main"], x[0])
    refuses(ValueError, "dtype", vm["main"], x.astype("int32"))


@R.function
def views(x: R.Tensor((4, 2), "float32")):
    bits = R.memory.view(x, dtype=R.dtype("uint32"))
    rest = R.memory.view(x, R.shape([6]), relative_byte_offset=R.prim_value(8))
    return (bits, rest, R.memory.ensure_zero_offset(x))


@MODES
def test_views(mode):
    x = np.random.default_rng(0).random((4, 2), "float32")
    bits, rest, same = built(views, mode)["views"](x)
    np.testing.assert_array_equal(bits.numpy(), x.view("uint32"))
    np.testing.assert_array_equal(rest.numpy(), x.reshape(-1)[2:])
    np.testing.assert_array_equal(same.numpy(), x)


def test_types_of_views():
    x = relax.Var("x", relax.TensorType((4, 2), "float32"))
    bb = relax.BlockBuilder()
    view = relax.op.memory.view
    ir.assert_structural_equal(bb.normalize(view(x, dtype="int64", shape=(4,))).ty, relax.TensorType((4,), "int64"))
    shape = relax.Var("s", relax.ShapeType(ndim=3))
    ir.assert_structural_equal(bb.normalize(view(x, shape)).ty, relax.TensorType(None, "float32", ndim=3))
    for wrong in (
        lambda: view(x, (9,)),
        lambda: view(x, (8,), relative_byte_offset=4),
        lambda: view(x, x),
        lambda: view(x, relative_byte_offset=-4),
        lambda: view(x, dtype=x),
        lambda: view(shape),
    ):
        refuses(ValueError, "view", bb.normalize, wrong())


@I.ir_module
class Data:
    @R.function
    def main(x: R.Tensor(("m", "n"), "int64")):
        first = R.unique(x, sorted=False)
        full = R.unique(x, return_index=True, return_inverse=True, return_counts=True)
        return first, full, R.nonzero(x)

    @R.function
    def rows(x: R.Tensor((3, 2), "int64")):
        return R.unique(x, axis=R.prim_value(0))


@MODES
def test_operators_on_data(mode):
    vm = built(Data, mode)
    x = np.random.default_rng(1).integers(0, 9, (5, 4))
    first, full, places = vm["main"](x)
    values, index, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    np.testing.assert_array_equal(first.numpy(), x.reshape(-1)[np.sort(index)])
    for found, expected in zip(full, (values, index, inverse.reshape(-1), counts), strict=True):
        np.testing.assert_array_equal(found.numpy(), expected)
    np.testing.assert_array_equal(places.numpy(), np.stack(np.nonzero(x)))
    rows = np.array([[1, 2], [0, 1], [1, 2]])
    np.testing.assert_array_equal(vm["rows"](rows).numpy(), [[0, 1], [1, 2]])


def test_types_of_operators_on_data():
    x = relax.Var("x", relax.TensorType((2, 3), "int8"))
    bb = relax.BlockBuilder()
    ir.assert_structural_equal(bb.normalize(relax.op.unique(x)).ty, relax.TensorType(None, "int8", ndim=1))
    ir.assert_structural_equal(bb.normalize(relax.op.nonzero(x)).ty, relax.TensorType(None, "int64", ndim=2))
    counted = bb.normalize(relax.op.unique(x, return_counts=True, axis=1)).ty
    assert [t.ndim for t in counted.fields] == [2, 1]
    refuses(ValueError, "no such axis", bb.normalize, relax.op.unique(x, axis=2))
    refuses(TypeError, "", bb.normalize, relax.op.nonzero(relax.Var("s", relax.ShapeType(ndim=2))))


def test_builtins_are_global_functions():
    heap = tvm.runtime.tensor(np.arange(10))
    make = ffi.get_global_func("vm.builtin.make_shape")
    assert make(heap, 2, MakeShapeCode.USE_IMM, 10, MakeShapeCode.LOAD_SHAPE, 3) == tvm_ffi.Shape([10, 3])
    check = ffi.get_global_func("vm.builtin.check_tensor_info")
    x = tvm.runtime.tensor(np.zeros((2, 3), "int32"))
    for args in ((2, "int32", ""), (-1, None, ""), (2, "")):
        check(x, *args)
    refuses(ValueError, "here: expected dtype float32, found int32", check, x, 2, "float32", "here")
    refuses(ValueError, "here: expected ndim 3, found 2", check, x, 3, "here")
    with pytest.raises(RuntimeError):
        ffi.get_global_func("vm.builtin.match_shape")(tvm_ffi.Shape([1, 2]), heap, 2, 0, 1, 0, 3, "")
    assert ffi.get_global_func("vm.builtin.nothing", allow_missing=True) is None


def test_declared_results_are_checked():
    @R.function
    def foo(x: R.Tensor(["n", "m"], "int32"), y: R.Any) -> R.Tensor(["m", "n"], dtype=None):
        return y

    vm = built(foo)
    x = np.zeros((1, 2), "int32")
    assert vm["foo"](x, np.zeros((2, 1))).shape == (2, 1)
    for wrong in ((1, 2), (2, 1, 1)):
        refuses(ValueError, "return", vm["foo"], x, np.zeros(wrong))


def test_calls_outside_of_dataflow_blocks_stay():
    @R.function
    def foo(x: R.Tensor((3,), "float32"), y: R.Tensor((3,), "float32")):
        z = R.call_pure_packed("test.vm.identity", x, y, ty_args=R.Tensor(ndim=1, dtype="float32"))  # noqa: F841
        return y

    x, y = np.ones(3, "float32"), np.zeros(3, "float32")
    built(foo)["foo"](x, y)
    np.testing.assert_array_equal(y, x)


@MODES
def test_what_is_written_into_a_parameter_is_returned_itself(mode):
    @tvm.register_global_func("test.memory.double", override=True)
    def double(a):
        a[:] = a.numpy() * 2
        return a

    @R.function
    def main(x: R.Tensor((3,), "float32")):
        return R.call_inplace_packed("test.memory.double", x, inplace_indices=0, ty_args=R.Tensor((3,), "float32"))

    x = tvm.runtime.tensor(np.ones(3, "float32"))
    result = built(main, mode)["main"](x)
    assert result == x and hash(result) == hash(x) and result != tvm.runtime.tensor(x.numpy())
    np.testing.assert_array_equal(x.numpy(), [2, 2, 2])


def test_functions_that_are_passed_in_take_wefts_tensors():
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "int32"), f: R.Callable([R.Tensor((4,), "int32")], R.Tensor((4,), "int32"))):
        return f(R.multiply(x, R.const(2)))

    seen = []

    def callback(value):
        seen.append(value)
        return value

    x = np.arange(4, dtype="int32")
    out = built(main)["main"](x, callback)
    assert isinstance(seen[0], tvm.runtime.Tensor)
    np.testing.assert_array_equal(out.numpy(), x * 2)


def test_conditions_on_sizes():
    @R.function
    def chosen(x: R.Tensor(["N"], "int64")):
        N = T.int64()  # noqa: N806
        if R.prim_value(N % 16 == 0):
            out = R.prim_value(5)
        else:
            out = R.prim_value(10)
        return out

    vm = built(chosen)
    assert vm["chosen"](np.arange(16)) == 5 and vm["chosen"](np.arange(20)) == 10


def test_shapes_of_unknown_rank():
    @R.function
    def main(shape: R.Shape(ndim=-1)) -> R.Tensor(ndim=-1):
        return R.shape_to_tensor(shape)

    assert built(main)["main"](tvm_ffi.Shape([3, 2])).numpy().tolist() == [3, 2]


def test_printing(capsys):
    @R.function(pure=False)
    def main(x: R.Tensor((), "int32")):
        t = (x, x)
        R.print(x, t)
        R.print(x, t, format="{} and {}")
        return x

    built(main)["main"](np.array(1, "int32"))
    assert capsys.readouterr().out == "1 (1, 1)\n1 and (1, 1)\n"
    refuses(error.InvalidArgument, "does not fit its 1 values", ffi.get_global_func("weft.run.print"), "{} and {}", 1)


def test_numbers_beyond_their_types():
    p = relax.Var("p", relax.PrimType("int8"))
    main = built(relax.Function([p], p, relax.PrimType("int8")).with_attr("global_symbol", "main"))["main"]
    assert [main(v) for v in (-128, 127)] == [-128, 127]
    for beyond in (-129, 128, 1 << 40):
        refuses(error.InvalidArgument, "'p': expected a int8, found the int", main, beyond)


def test_saved_functions_are_compared():
    builder = relax.ExecBuilder()
    with builder.function("main", num_inputs=2):
        builder.emit_call("test.vm.add", [builder.r(0), builder.r(1)], builder.r(9))
        builder.emit_call("test.vm.mul", [builder.r(9), builder.r(1)], builder.r(5))
        builder.emit_ret(builder.r(5))
    executable = builder.get()
    assert executable.function("main").register_file_size == 4  # gaps are closed
    x, y = np.random.default_rng(2).random((2, 3))
    out = check_saved_func(relax.VirtualMachine(executable, tvm.cpu()), "main", x, y)
    np.testing.assert_allclose(out.numpy(), (x + y) * y)
    assert executable.mod["as_text"]() == executable.as_text()


def test_builders_check_the_order_and_share_constants():
    builder = relax.ExecBuilder()

    def wrong():
        with builder.function("f", 2):
            builder.emit_call("test.vm.add", [builder.r(0), builder.r(2)], builder.r(2))
            builder.emit_ret(builder.r(2))

    refuses(RuntimeError, "reads register 2, which nothing sets before", wrong)
    a, b = (tvm.runtime.tensor(np.array([1, 2, 3])) for _ in range(2))
    assert builder.convert_constant(a) == builder.convert_constant(b)
    assert builder.convert_constant(a) != builder.convert_constant(tvm.runtime.tensor(np.array([1, 2, 4])))


def test_what_functions_allocate_is_estimated():
    @R.function(pure=False)
    def main(x: R.Tensor(("n",), "float16")):
        n = T.int64()
        storage = R.memory.alloc_storage(R.shape([2**20]), 0, "global", "float16")
        a = R.memory.alloc_tensor(storage, 0, R.shape([2**19]), "float16")
        b = R.memory.alloc_tensor(storage, 0, R.shape([2**18, 2]), "float16", R.prim_value(0))
        c = R.builtin.alloc_tensor(R.shape([2**17]), "int32", 0)
        d = R.builtin.alloc_tensor(R.shape([n]), "float16", 0)
        return (a, b, c, d)

    text = relax.analysis.estimate_memory_usage(main)
    assert "3 constant-size memory allocation(s) with total size 0.002441 GB, and 1 dynamic-size" in text  # 2.5 MB
    assert "2 constant-size memory allocation(s) with total size 0.001465 GB.\n" in text
    assert text.endswith("constant memory size to 60.0%.\n")


@pytest.mark.parametrize("dtype", ["", "int8"])
def test_a_view_that_is_larger_whatever_the_sizes_or_the_type_is_refused(dtype):
    n = ir.Var("n", "int64")
    x = relax.Var("x", relax.TensorType([n, 4], dtype))
    for shape, start in (([n * 4 + 1], None), (None, 1)):
        with pytest.raises(tvm.error.ShapeMismatch, match="inside of the tensor"):
            relax.BlockBuilder().normalize(relax.op.memory.view(x, shape, None, start))
    assert relax.BlockBuilder().normalize(relax.op.memory.view(x, [n * 4])).ty.ndim == 1
