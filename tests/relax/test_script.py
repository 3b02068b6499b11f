"""TVMScript of Relax: what is read, what is printed, and that reading what is printed gives the same program."""

import sys

import numpy as np
import pytest

import weft as tvm
from tests.ir.programs import relax_module
from tests.relax_models import model
from weft import ir, relax
from weft.ir import If, SizeVar, Var, assert_structural_equal
from weft.relax import transform as t
from weft.script import from_source, ir_module
from weft.script import ir as I
from weft.script import relax as R
from weft.script import tir as T


def round_trip(node):
    text = node.script(show_meta=True)
    back = from_source(text)
    assert_structural_equal(node, back)
    assert back.script(show_meta=True) == text
    return text


def bindings(func):
    return [b for block in func.body.blocks for b in block.bindings]


def test_the_example_of_the_document():
    @tvm.script.ir_module
    class MyModule:
        @R.function
        def main(x: R.Tensor((3, 4), "float32")):
            return R.add(x, x)

    func = MyModule["main"]
    (binding,) = bindings(func)
    assert binding.value.op is ir.Op.get("relax.add")
    assert isinstance(func.body, relax.SeqExpr) and func.body.body is binding.var
    assert str(func.ret_ty) == 'R.Tensor((3, 4), dtype="float32")'
    assert func.attrs["global_symbol"] == "main"
    round_trip(MyModule)


def test_nested_calls_are_bound_one_by_one():
    @R.function
    def f(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 8), "float32")):
        return R.nn.softmax(R.matmul(x, w) + R.const(1.0), axis=0)

    assert [b.value.op.name for b in bindings(f)] == ["relax.matmul", "relax.add", "relax.nn.softmax"]
    assert all(b.var.ty is not None for b in bindings(f))
    assert bindings(f)[2].value.attrs["axis"] == 0
    n = f.params[0].ty.shape[0]
    assert isinstance(n, SizeVar) and f.ret_ty.shape[0] is n
    round_trip(f)


def test_operators_of_python():
    @R.function
    def f(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
        a = x * y - x / y
        b = -a
        return b + 1.0

    names = [b.value.op.name.removeprefix("relax.") for b in bindings(f)]
    assert names == ["multiply", "divide", "subtract", "negative", "add"]
    round_trip(f)


def test_dataflow_blocks():
    @R.function
    def f(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.exp(a)
            c = R.add(a, b)
            R.output(b, c)
        d = R.multiply(b, c)
        return d

    first, second = f.body.blocks
    assert isinstance(first, relax.DataflowBlock) and not isinstance(second, relax.DataflowBlock)
    assert [isinstance(b.var, relax.DataflowVar) for b in first.bindings] == [True, False, False]
    assert "R.output(b, c)" in round_trip(f)


def test_symbolic_dimensions():
    @R.function
    def f(x: R.Tensor(("n", "n * 2", "m"), "float32"), s: R.Shape(["k"]), p: R.Prim("int64"), q: R.Prim(value="i")):
        n, m = T.int64(), T.int64()
        i = T.int64()
        y = R.reshape(x, R.shape([n * n * 2, m]))
        return y, R.shape([i, n + 1]), R.prim_value(i * 2)

    dims = f.params[0].ty.shape
    assert isinstance(dims[0], SizeVar) and isinstance(dims[2], SizeVar)
    assert type(f.params[1].ty.values[0]) is Var and type(f.params[3].ty.value) is Var
    assert ir.structural_equal(dims[1], dims[0] * 2)
    text = round_trip(f)
    assert '"n * 2"' in text and "n = T.int64()" in text and "is_size_var" not in text


def test_variables_that_are_not_sizes_say_so():
    n = Var("n", "int64")
    x = relax.Var("x", relax.tensor_type((n,), "float32"))
    assert "T.int64(is_size_var=False)" in round_trip(model(relax.op.exp, x))


def test_types():
    source = """
    @R.function
    def f(
        a: R.Tensor, b: R.Tensor(dtype="int8"), c: R.Tensor(ndim=2), d: R.Tensor("float16", ndim=3), e: R.Shape, g:
        R.Shape(ndim=2),
        h: R.Tuple(R.Tensor((1,), "int32"), R.Tuple()), i: R.Object, j: R.Any, k: R.Callable((R.Tensor((2,),
        "int32"),), R.Any, purity=False),
        l: R.Callable, m: R.PackedFunc, o: R.Tensor((2,), "float32", vdevice="llvm:1"), q:
        R.Callable((R.Tensor(("n",)),), R.Tensor(("n",))),
    ):
        return a
    """
    f = from_source(source)
    types = [p.ty for p in f.params]
    assert types[0].ndim == -1 and types[0].dtype == ""
    assert types[2].ndim == 2 and types[3].dtype == "float16" and types[5].ndim == 2
    assert isinstance(types[7], relax.AnyType) and not types[9].purity and types[10].params is None
    assert types[12].vdevice.vdevice_id == 1
    assert types[13].params[0].shape[0] is types[13].ret.shape[0]
    round_trip(f)


def test_conditions():
    @R.function
    def f(c: R.Tensor((), "bool"), x: R.Tensor((2,), "float32")):
        if c:
            a = R.exp(x)
            y = R.add(a, a)
        else:
            y = x
        if c:
            z = y
        else:
            if c:
                z = R.exp(y)
            else:
                z = R.log(y)
        return z

    first, second = (b.value for b in bindings(f))
    assert isinstance(first, If) and first.false_branch.body is f.params[1]
    assert isinstance(second.false_branch.blocks[0].bindings[0].value, If)
    assert from_source(round_trip(f)).script() == f.script()


def test_branches_that_return():
    @R.function
    def f(c: R.Tensor((), "bool"), x: R.Tensor((2,), "float32")):
        if c:
            return R.exp(x)
        else:
            return x

    (binding,) = bindings(f)
    assert isinstance(binding.value, If) and f.body.body is binding.var
    round_trip(f)


def test_match_cast():
    @R.function
    def f(x: R.Tensor(ndim=2, dtype="float32")):
        n = T.int64()
        m = T.int64(is_size_var=True)
        y = R.match_cast(x, R.Tensor((n, m), "float32"))
        with R.dataflow():
            z = R.match_cast(y, R.Tensor((n, 4), "float32"))
            R.output(z)
        return R.shape([n, m])

    first, second = bindings(f)
    assert isinstance(first, relax.MatchCast) and isinstance(first.ty.shape[1], SizeVar)
    assert second.ty.shape[0] is first.ty.shape[0]
    round_trip(f)


def test_calls_into_other_levels():
    @ir_module
    class Module:
        I.module_attrs({"version": 3})
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("cuda", 1, "global")]})

        @T.prim_func(private=True)
        def add(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.sblock("b"):
                    vi = T.axis.spatial(4, i)
                    B[vi] = A[vi] + 1.0

        @T.prim_func(private=True)
        def split(a: T.handle, B: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32"), n: T.int64):
            A = T.match_buffer(a, (n,), "float32")
            for i in range(4):
                B[i] = A[i]
                C[i] = A[i]

        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32"), d: R.Tensor(("n",), "float32")):
            n = T.int64()
            R.func_attr({"relax.force_pure": True, "sizes": [1, 2]})
            cls = Module
            a = R.call_tir(cls.add, (x,), out_sinfo=R.Tensor((4,), "float32"))
            b = R.call_tir(
                Module.split, d, [R.Tensor((4,), "float32"), R.Tensor((4,), "float32")], tir_vars=R.shape([n])
            )
            c = R.call_tir_inplace(cls.add, (a,), inplace_indices=[0], out_ty=R.Tensor((4,), "float32"))
            e = R.call_dps_packed("my.dps", (c, R.prim_value(3)), R.Tensor((4,), "float32"))
            f = R.call_packed("my.packed", e, 1, "text", ty_args=R.Tensor((4,), "float32"))
            g = R.call_pure_packed("my.pure", f, ty_args=(R.Tensor(ndim=1),))
            R.call_packed("my.effect", g)
            R.print(x, format="x = {}")
            R.assert_op(R.const(True), x, format="wrong")
            _ = R.call_builtin_with_ctx(
                "vm.builtin.alloc_shape_heap", (R.prim_value(2),), ty_args=(R.Tensor((2,), "int64"),)
            )
            s = R.memory.alloc_storage(R.shape([64]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
            u = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([4]), R.dtype("float32"))
            w = R.builtin.alloc_tensor(R.shape([4]), dtype="float32", runtime_device_index=0)
            R.memory.kill_storage(s)
            _ = R.to_vdevice(w, dst_vdevice=I.vdevice("llvm", 1))
            return b[0], R.shape_of(d), R.null_value(), u

    main = Module["main"]
    assert Module.attrs["version"] == 3 and len(Module.global_infos["vdevice"]) == 2
    assert not main.is_pure and main.attrs["sizes"] == (1, 2)
    assert bindings(main)[0].value.args[0] is Module.get_global_var("add")
    round_trip(Module)


def test_functions_call_each_other_in_any_order():
    @ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            return Module.helper(x)

        @R.function(private=True)
        def helper(x: R.Tensor(("n",), "float32")):
            return R.exp(x)

        @R.function
        def loop(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            cls = Module
            return cls.loop(x)

    assert str(Module["main"].ret_ty) == 'R.Tensor((4,), dtype="float32")'
    assert str(bindings(Module["loop"])[0].var.ty) == 'R.Tensor((n,), dtype="float32")'
    round_trip(Module)


def test_inner_functions_and_closures():
    @R.function
    def f(x: R.Tensor(("n",), "float32"), y: R.Tensor((2, 3), "float32")):
        @R.function
        def inner(z: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            return R.add(z, x)

        @R.function
        def again(z: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            return again(z)

        a = inner(x)
        return (a, again(y))

    inner = bindings(f)[0].value
    assert isinstance(inner, relax.Function) and "global_symbol" not in inner.attrs
    assert inner.params[0].ty.shape[0] is f.params[0].ty.shape[0]
    round_trip(f)


def test_tuples():
    @R.function
    def f(x: R.Tuple(R.Tensor((2,), "float32"), R.Tensor((3,), "int32"))):
        a, b = x
        c = (a, (b,), R.tuple())
        d = c[1][0]
        return d

    assert str(f.ret_ty) == 'R.Tensor((3,), dtype="int32")'
    round_trip(f)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1.5, "float32"),
        (-0.0, "float64"),
        (float("inf"), "float32"),
        (float("nan"), "float32"),
        (3, "int8"),
        (2**63, "uint64"),
        (True, "bool"),
        (1.5, "float16"),
        (0.1, "bfloat16"),
        (-7, "int64"),
    ],
)
def test_scalar_constants(value, dtype):
    c = relax.const(value, dtype)
    assert "metadata" not in str(c)
    func = relax.Function((), relax.SeqExpr((), c, ty=c.ty), c.ty)
    assert_structural_equal(from_source(func.script()).body.body, c)


def test_large_constants_travel_beside_the_text():
    mod = relax_module()
    text = mod.script()
    assert 'metadata["relax.expr.Constant"][0]' in text and "show_meta" in text
    constant = next(n for n in ir.walk(mod["main"]) if isinstance(n, relax.Constant))
    back = from_source(text, {"metadata": {"relax.expr.Constant": [constant]}})
    assert_structural_equal(mod, back)
    round_trip(mod)
    with pytest.raises(tvm.error.ParseError, match="damaged"):
        from_source(mod.script(show_meta=True).replace('I.metadata("', 'I.metadata("AAAA'))


@pytest.mark.parametrize(
    "steps", [[t.fuse_ops], [t.fuse_ops, t.lower_ops], [t.lower_ops, t.to_non_dataflow, t.call_tir_rewrite]]
)
def test_modules_of_the_pipeline(steps):
    mod = relax_module()
    del mod["matmul"]
    for step in steps:
        mod = step()(mod)
    round_trip(mod)


def test_whole_pipeline():
    from weft.relax.pipeline import default_passes

    mod = relax_module()
    del mod["matmul"]
    for step in default_passes():
        mod = step(mod)
        assert_structural_equal(mod, from_source(mod.script(show_meta=True)))


def test_macros():
    @R.macro
    def twice(x):
        y = R.add(x, x)
        return R.exp(y)

    @R.function
    def f(x: R.Tensor((2,), "float32")):
        a = twice(x)
        return twice(a)

    assert [b.value.op.name for b in bindings(f)] == ["relax.add", "relax.exp"] * 2
    round_trip(f)


def test_programs_are_written_by_python():
    layers, dtype = 3, "float32"

    @R.function
    def f(x: R.Tensor((2,), dtype)):
        for i in range(layers):
            x = R.multiply(x, R.const(float(i)))
        if dtype == "float16":
            x = R.astype(x, "float32")
        return x

    assert len(bindings(f)) == 3


def test_te_functions():
    from weft import te

    def double(a):
        return te.compute(a.shape, lambda *i: a[i] * 2.0, name="double")

    @ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            return R.emit_te(double, x)

    assert "double" in Module
    round_trip(Module)


def test_names_that_python_does_not_have():
    mod = relax_module()
    func = mod["matmul"]
    del mod["matmul"]
    mod["a.b-c"] = func.with_attr("global_symbol", "a.b-c")
    assert 'name="a.b-c"' in round_trip(mod)


def test_shadowed_names():
    @R.function
    def f(x: R.Tensor((2,), "float32")):
        x = R.exp(x)
        x = R.exp(x)
        return x

    assert len({id(b.var) for b in bindings(f)} | {id(f.params[0])}) == 3
    assert from_source(f.script()).script() == f.script()
    assert_structural_equal(f, from_source(f.script()))


def test_running_what_was_read():
    @tvm.script.ir_module
    class MyModule:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")):
            return R.add(x, R.exp(x))

    vm = relax.VirtualMachine(relax.build(MyModule, "llvm"), tvm.cpu())
    x = np.random.default_rng(0).standard_normal((3, 4)).astype("float32")
    np.testing.assert_allclose(vm["main"](x).numpy(), x + np.exp(x), rtol=1e-5)


def test_fragments_print():
    mod = relax_module()
    for node in ir.walk(mod["main"]):
        assert str(node)
    assert str(bindings(mod["main"])[1].value).startswith("R.nn.relu(")


def test_texts_of_fragments_and_of_what_has_a_type_read_as_in_tvm():
    x = relax.Var("x", R.Tensor((1, ir.Var("n", "int64")), "float32"))
    assert relax.op.exp(x).script(verbose_expr=True).splitlines() == [
        "n = T.int64()",
        'x: R.Tensor((1, n), dtype="float32")',
        "R.exp(x)",
    ]

    @R.function(private=True)
    def main(x: R.Tensor((2,), "float32")):
        f = R.ExternFunc("f", R.Callable((R.Any,), R.Any))
        g = R.match_cast(x, R.entry.TensorProxy)
        return f(g)

    assert 'R.ExternFunc("f", R.Callable(' in round_trip(main)
    assert bindings(main)[1].ty.ndim == -1
    printed = tvm.runtime.script_printer._script(main, tvm.runtime.script_printer.PrinterConfig(name="M"))
    assert printed == str(main)


def test_a_text_names_the_package_as_the_program_does(monkeypatch):
    text = str(tvm.IRModule())
    assert text.startswith("# from weft.script import ir as I")
    monkeypatch.setitem(sys.modules, "tvm", tvm)
    assert str(tvm.IRModule()) == text.replace("weft", "tvm")


def test_unknown_operator_lists_near_names():
    with pytest.raises(tvm.error.WeftError) as e:
        from_source("@R.function\ndef f(x: R.Tensor((2,), 'float32')):\n    return R.nn.softmx(x)\n")
    assert "R.nn.softmax" in str(e.value) or "nn.softmax" in str(e.value)
    assert e.value.where.line == 3


def test_names_of_outside_may_be_declared():
    dtype = "float32"

    @R.function
    def graph(x: R.Tensor((2,), "int8")):
        nonlocal dtype
        return R.astype(x, dtype)

    @T.prim_func
    def kernel(x: T.Buffer((2,), "float32")):
        nonlocal dtype
        x[0] = T.Cast(dtype, x[1])

    assert graph.ret_ty.dtype == dtype and 'T.Cast("float32", x[1])' in kernel.script()


def test_a_variable_made_under_the_name_of_a_size_is_that_size():
    func = from_source("""
@R.function
def main(x: R.Tensor(("n",), "float32")):
    n = T.Var("n", "int64")
    return R.call_dps_packed("f", x, out_ty=R.Tensor((n, 2), "float32"))
""")
    assert func.ret_ty.shape[0] is func.params[0].ty.shape[0]


def test_a_result_that_is_some_tuple():
    text = "(x: R.Tensor((2,), 'float32')) -> {}:\n    return {}"
    func = from_source("@R.function\ndef main" + text.format("R.Tuple", "(x, x)"))
    assert str(func.ret_ty) == str(relax.TupleType((func.params[0].ty, func.params[0].ty)))
    with pytest.raises(tvm.error.ParseError, match="the result of 'main' has another type"):
        from_source("@R.function\ndef main" + text.format("R.Tensor", "(x, x)"))


def test_a_variable_of_a_number_is_a_scalar_value_and_types_of_packed_functions_stay():
    @R.function
    def func(n: R.Prim("int64")) -> R.Prim("int64"):
        more = R.prim_value(n)
        return more

    round_trip(func)
    ty = relax.FuncType([], relax.TensorType(None, "float32", ndim=2))
    mod = ir.IRModule({"f": relax.ExternFunc("f", ty)})
    round_trip(mod)
    assert mod["f"].ty is ty
