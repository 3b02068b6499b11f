"""Each rule of well-formedness has an error that names the function and the binding."""

import pytest

import weft
from tests.refusals import refuses
from tests.texts import named
from weft import error, relax, script
from weft.ir import Attrs, Call, IRModule, Op, Var
from weft.relax.analysis import check_well_formed, well_formed
from weft.relax.expr import BindingBlock, DataflowBlock, DataflowVar, MatchCast, SeqExpr, VarBinding

HEAD = "@I.ir_module\nclass Module:\n"
T = 'R.Tensor((4,), "float32")'
TENSOR = relax.TensorType((4,), "float32")


def refused(mod, place, message, beneath=None):
    """Check that a module breaks one rule, at a place, with the message under a line that begins with `beneath`."""
    assert not check_well_formed(mod) and not well_formed(mod, check_struct_info=False)
    e = refuses(error.ErrorGroup, "", well_formed, mod)
    assert [str(x.what) for x in e.errors] == [f"{place}: {message}"]
    lines = [line.strip() for line in str(e).splitlines()]
    above = lines[: lines.index(f"# ^ {message}")]
    assert beneath is None or [line for line in above if " = " in line][-1].startswith(beneath), above


# Programs under the place of what is wrong in them and what is said of it.
SOURCES = named(f"""
# main, 'b': the call of 'my.f' may have effects and stands in a dataflow block
    @R.function(pure=False)
    def main(x: {T}):
        with R.dataflow():
            a = R.exp(x)
            b = R.call_packed("my.f", a, ty_args={T})
            R.output(b)
        return b
# main, 'c': the call of 'relax.print' may have effects and stands in a pure function
    @R.function
    def main(x: {T}):
        c = R.print(x, format="x")
        return x
# main, 'b': the call of 'f' may have effects and stands in a pure function
    @R.function
    def main(x: {T}):
        b = Module.f(x)
        return b

    @R.function(pure=False)
    def f(x: {T}) -> {T}:
        c = R.print(x, format="x")
        return x
# main, 'd': the call of 'relax.print' may have effects and stands in a pure function
    @R.function
    def main(x: {T}):
        @R.function
        def inner(y: {T}) -> {T}:
            d = R.print(y, format="y")
            return y

        z = inner(x)
        return z
# main, 'y': the condition of an if is no scalar bool but R.Tensor((2,), dtype="bool")
    @R.function
    def main(x: {T}, c: R.Tensor((2,), "bool")):
        if c:
            y = R.exp(x)
        else:
            y = R.sin(x)
        return y
""")


@pytest.mark.parametrize("said", SOURCES)
def test_programs(said):
    refused(script.from_source(HEAD + SOURCES[said]), *said.split(": ", 1))


def test_forced_purity_is_believed():
    mod = script.from_source(
        f"""{HEAD}
    @R.function
    def main(x: {T}):
        R.func_attr({{"relax.force_pure": True}})
        c = R.print(x, format="x")
        return x
"""
    )
    well_formed(mod)
    assert check_well_formed(mod)
    assert not check_well_formed(IRModule({"main": mod["main"].with_attr("relax.force_pure", False)}))


def module(*bindings, dataflow=True, params=None, result=None, ret_ty=TENSOR, attrs=None, **functions):
    """Make a module of one function with these bindings, made by hand."""
    params = (X,) if params is None else params
    blocks = bindings if bindings and isinstance(bindings[0], BindingBlock) else None
    blocks = blocks or ((DataflowBlock if dataflow else BindingBlock)(tuple(bindings)),)
    out = result or blocks[-1].bindings[-1].var
    body = SeqExpr(tuple(blocks), out, ty=out.ty)
    func = relax.Function(tuple(params), body, ret_ty, True, Attrs.of(attrs or {"global_symbol": "main"}))
    return weft.IRModule({"main": func, **functions})


X = relax.Var("x", TENSOR)


def call(name, *args, ty=TENSOR):
    return Call(Op.get(f"relax.{name}"), args, ty=ty)


def bind(name, value, ty=TENSOR, kind=relax.Var):
    return VarBinding(kind(name, ty), value)


def test_variables():
    a = bind("a", call("exp", X))
    refused(module(a, VarBinding(a.var, call("sin", X))), "main, 'a'", "variable 'a' is bound twice", "a:")
    other = relax.Var("other", TENSOR)
    refused(module(bind("b", call("exp", other))), "main, 'b'", "variable 'other' is not bound here", "b:")
    refused(
        module(bind("b", call("exp", X)), VarBinding(X, call("sin", X))), "main, 'x'", "variable 'x' is bound twice"
    )


def test_dataflow_variables():
    inner = bind("a", call("exp", X), kind=DataflowVar)
    blocks = (DataflowBlock((inner,)), BindingBlock((bind("b", call("sin", inner.var)),)))
    refused(module(*blocks), "main, 'b'", "the dataflow variable 'a' is used outside of its block", "b:")
    message = "the dataflow variable 'a' is bound outside of a dataflow block"
    refused(module(inner, bind("b", call("sin", inner.var)), dataflow=False), "main, 'a'", message, "a:")


def test_symbolic_variables():
    m = Var("m", "int64")
    ty = relax.TensorType((m,), "float32")
    mod = module(
        bind(
            "a",
            Call(Op.get("relax.zeros"), (relax.ShapeExpr((m,)),), Attrs.of(dtype="float32"), ty=ty),
            relax.TensorType(None, "float32", 1),
        ),
        ret_ty=None,
    )
    refused(mod, "main, 'a'", "the symbolic variable 'm' is not introduced here", "a:")
    cast = MatchCast(relax.Var("a", ty), X, ty)
    well_formed(module(cast, bind("b", call("exp", cast.var, ty=ty), ty), ret_ty=None))


def test_functions_that_are_called():
    mod = module(bind("a", Call(relax.GlobalVar("gone"), (X,), ty=TENSOR)))
    refused(mod, "main, 'a'", "the module has no function 'gone'", "a:")
    helper = script.from_source(f"@R.function(private=True)\ndef helper(x: {T}, y: {T}) -> {T}:\n    return x\n")
    gvar = relax.GlobalVar("helper")
    mod = module(bind("a", Call(gvar, (X,), ty=TENSOR)), helper=helper)
    refused(mod, "main, 'a'", "'helper' takes 2 arguments (x, y), 1 are given", "a:")
    wide = relax.Var("wide", relax.TensorType((5,), "float32"))
    mod = module(bind("a", Call(gvar, (X, wide), ty=TENSOR)), params=(X, wide), helper=helper)
    message = """'helper' wants R.Tensor((4,), dtype="float32") for 'y', it is given R.Tensor((5,), dtype="float32")"""
    refused(mod, "main, 'a'", message, "a:")
    f = relax.Var("f", relax.FuncType((TENSOR,), TENSOR))
    mod = module(bind("a", Call(f, (X, X), ty=TENSOR)), params=(X, f))
    refused(mod, "main, 'a'", "'f' takes 1 arguments (argument 0), 2 are given", "a:")


KERNEL = script.from_source("""
@T.prim_func(private=True)
def kernel(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32"), n: T.int64):
    for i in range(4):
        with T.sblock("B"):
            v = T.axis.spatial(4, i)
            B[v] = A[v]
""")


INT, SQUARE = relax.TensorType((4,), "int32"), relax.TensorType((4, 4), "float32")


@pytest.mark.parametrize(
    ("arguments", "scalars", "out", "message"),
    [
        ((X, X), [1], TENSOR, "takes 3 arguments (A, B, n), call_tir gives 2 inputs and 1 outputs and 1 scalars"),
        ((X,), None, TENSOR, "takes 3 arguments (A, B, n), call_tir gives 1 inputs and 1 outputs"),
        ((X,), [1], INT, f"wants {TENSOR} for 'B', call_tir gives {INT}"),
        ((X,), [1], SQUARE, f"wants {TENSOR} for 'B', call_tir gives {SQUARE}"),
        ((X,), [1], TENSOR, None),
    ],
)
def test_call_tir(arguments, scalars, out, message):
    value = relax.call_tir(relax.GlobalVar("kernel"), list(arguments), out, scalars)
    value = Call(value.op, value.args, value.attrs, value.ty_args, ty=out)
    mod = module(bind("a", value, out), ret_ty=out, kernel=KERNEL)
    if message is None:
        well_formed(mod)
    else:
        message = message.replace("A, B, n", ", ".join(p.name for p in KERNEL.params))
        refused(mod, "main, 'a'", f"'kernel' {message}", "a:")


def test_call_tir_of_a_relax_function():
    helper = script.from_source(f"@R.function(private=True)\ndef helper(x: {T}) -> {T}:\n    return x\n")
    value = relax.call_tir(relax.GlobalVar("helper"), [X], TENSOR)
    mod = module(bind("a", Call(value.op, value.args, value.attrs, value.ty_args, ty=TENSOR)), helper=helper)
    refused(mod, "main, 'a'", "call_tir calls the Relax function 'helper'; call it directly", "a:")


@pytest.mark.parametrize(
    "ty",
    [
        relax.TensorType((5,), "float32"),
        relax.TensorType((4, 4), "float32"),
        relax.TensorType((4,), "int32"),
        relax.TensorType(None, "float32", 2),
        relax.TupleType((TENSOR,)),
        relax.ShapeType((4,), 1),
    ],
)
def test_types(ty):
    message = f"variable 'a' is said to be {ty}, its value is {TENSOR}"
    refused(module(bind("a", call("exp", X), ty), ret_ty=None), "main, 'a'", message, "a:")
    mod = module(bind("a", call("exp", X)), ret_ty=ty)
    refused(mod, "main", f"the result is {TENSOR}, the function says {ty}")


@pytest.mark.parametrize("ty", [relax.TensorType(None, "", -1), relax.TensorType(None, "float32", 1), relax.AnyType()])
def test_types_that_say_less(ty):
    assert check_well_formed(module(bind("a", call("exp", X), ty), ret_ty=ty))
    assert not check_well_formed(module(bind("a", call("exp", X), relax.TensorType((5,), "float32")), ret_ty=ty))


def test_sizes_that_nothing_introduces():
    ty = relax.TensorType((Var("k", "int64"),), "float32")
    refused(module(bind("a", call("exp", X), ty)), "main, 'a'", "the symbolic variable 'k' is not introduced here")
    refused(module(bind("a", call("exp", X)), ret_ty=ty), "main", "the symbolic variable 'k' is not introduced here")


def test_elements_of_tuples():
    pair = relax.Var("t", relax.TupleType((TENSOR, TENSOR)))
    mod = module(bind("a", relax.TupleGetItem(pair, 2, ty=TENSOR)), params=(pair,))
    refused(mod, "main, 'a'", "element 2 of a tuple of 2", "a:")


def test_ifs_in_dataflow_blocks():
    c = relax.Var("c", relax.TensorType((), "bool"))
    branches = [SeqExpr((BindingBlock((bind(n, call("exp", X)),)),), X, ty=TENSOR) for n in "ab"]
    mod = module(bind("y", relax.If(c, *branches, ty=TENSOR)), params=(X, c))
    refused(mod, "main, 'y'", "an if stands in a dataflow block", "y:")


def test_names_of_functions():
    mod = module(bind("a", call("exp", X)), attrs={"global_symbol": "other"})
    refused(mod, "main", "the function is named 'main' and has the global_symbol 'other'")


def test_all_violations_are_told():
    bad = [bind(n, call("exp", relax.Var("gone", TENSOR))) for n in "ab"]
    assert len(refuses(error.ErrorGroup, "", well_formed, module(*bad)).errors) == 2
