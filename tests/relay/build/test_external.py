"""External compilers: operators are given to them, cut out as functions, and what they make runs."""

from pathlib import Path

import numpy as np
import pytest

import weft
from weft import error, relay
from weft.relay import transform
from weft.relay.op.annotation import compiler_begin, compiler_end
from weft.relay.testing import byoc

RNG = np.random.default_rng(0)


def _vars(*names: str) -> list[relay.Var]:
    return [relay.var(n, shape=(3, 5)) for n in names]


def _arrays(n: int) -> list[np.ndarray]:
    return [RNG.standard_normal((3, 5)).astype("float32") for _ in range(n)]


def _annotated(compiler: str = "ccompiler") -> weft.IRModule:
    """``exp((x + y) * y) - x``, whose first two operators go to a compiler."""
    x, y = _vars("x", "y")
    total = relay.add(compiler_begin(x, compiler), compiler_begin(y, compiler))
    inner = compiler_end(relay.multiply(total, compiler_begin(y, compiler)), compiler)
    return weft.IRModule.from_expr(relay.Function([x, y], relay.exp(inner) - x))


def _expected(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.exp((x + y) * y) - x


def test_a_region_becomes_a_function_that_is_called() -> None:
    mod = transform.PartitionGraph()(_annotated())
    name = "tvmgen_default_ccompiler_main_0"
    func = mod[name]
    assert func.attrs["Compiler"] == "ccompiler" and func.attrs["global_symbol"] == name
    assert [p.name_hint for p in func.params] == ["ccompiler_0_i0", "ccompiler_0_i1"]
    assert func.body.op.name == "multiply" and "compiler_" not in str(mod["main"].body.op)
    assert "compiler_begin" not in str(mod)


@pytest.mark.parametrize("exported", [False, True])
def test_the_graph_executor_runs_what_the_compiler_made(exported: bool, tmp_path: Path) -> None:
    x, y = _arrays(2)
    graph, lib, _ = relay.build(transform.PartitionGraph()(_annotated()), "llvm")
    if exported:
        lib.export_library(tmp_path / "lib.so")
        lib = weft.runtime.load_module(str(tmp_path / "lib.so"))
    run = weft.contrib.graph_executor.create(graph, lib, weft.cpu())
    run.set_input("x", x)
    run.set_input("y", y)
    run.run()
    np.testing.assert_allclose(run.get_output(0).numpy(), _expected(x, y), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_the_virtual_machine_runs_what_the_compiler_made(target: str) -> None:
    x, y = _arrays(2)
    exe = relay.vm.compile(transform.PartitionGraph()(_annotated()), target)
    out = weft.runtime.vm.VirtualMachine(exe, weft.cpu()).run(x, y)
    np.testing.assert_allclose(out.numpy(), _expected(x, y), rtol=1e-5, atol=1e-5)


def test_a_users_generator_gets_the_function() -> None:
    seen = []

    @weft.register_func("relay.ext.mine_relay", override=True)
    def generate(func: relay.Function) -> object:
        seen.append(func.attrs["global_symbol"])
        name = func.attrs["global_symbol"]
        lowered = relay.to_relax(weft.IRModule({name: func.without_attr("Compiler")}))
        return weft.get_global_func("relax.ext.ccompiler")([lowered[name]], {}, {})[0]

    x, y = _arrays(2)
    exe = relay.vm.compile(transform.PartitionGraph("model")(_annotated("mine_relay")), "llvm")
    out = weft.runtime.vm.VirtualMachine(exe, weft.cpu()).run(x, y)
    np.testing.assert_allclose(out.numpy(), _expected(x, y), rtol=1e-5, atol=1e-5)
    assert seen == ["tvmgen_model_mine_relay_main_0"]


@pytest.mark.parametrize("build", [relay.build, relay.vm.compile])
def test_a_compiler_without_a_generator_is_named(build: object) -> None:
    with pytest.raises(error.CodegenError, match="no code generator for the compiler 'nobody'"):
        build(transform.PartitionGraph()(_annotated("nobody")), "llvm")  # type: ignore[operator]


def test_several_results_are_a_tuple_and_equal_ones_are_one() -> None:
    x, y = _vars("x", "y")
    total = relay.add(compiler_begin(x, "c"), compiler_begin(y, "c"))
    ends = [compiler_end(e, "c") for e in (total, relay.negative(total), total)]
    mod = transform.PartitionGraph()(weft.IRModule.from_expr(relay.Function([x, y], relay.Tuple(ends))))
    func = mod["tvmgen_default_c_main_0"]
    assert len(func.params) == 2 and len(func.body.fields) == 2
    assert [f.index for f in mod["main"].body.fields] == [0, 1, 0]


def test_constants_are_bound_or_passed() -> None:
    (x,) = _vars("x")
    body = compiler_end(relay.add(compiler_begin(x, "c"), compiler_begin(relay.const(np.ones((3, 5), "f4")), "c")), "c")
    mod = weft.IRModule.from_expr(relay.Function([x], body))
    assert len(transform.PartitionGraph()(mod)["main"].body.args) == 1
    assert len(transform.PartitionGraph(bind_constants=False)(mod)["main"].body.args) == 2


def test_a_value_without_an_annotation_is_refused() -> None:
    x, y = _vars("x", "y")
    mod = weft.IRModule.from_expr(relay.Function([x, y], compiler_end(relay.add(compiler_begin(x, "c"), y), "c")))
    with pytest.raises(error.InvalidArgument, match="takes 'y' without an annotation"):
        transform.PartitionGraph()(mod)


def test_a_region_that_did_not_begin_is_refused() -> None:
    (x,) = _vars("x")
    with pytest.raises(error.InvalidArgument, match="a region ends that did not begin"):
        transform.PartitionGraph()(weft.IRModule.from_expr(relay.Function([x], compiler_end(relay.exp(x), "c"))))


def test_annotating_merging_and_partitioning_keep_a_diamond_acyclic() -> None:
    for op in ("abs", "nn.relu", "add"):
        weft.ir.register_op_attr(op, "target.diamond_test", lambda call: True)
    (x,) = _vars("x")
    top = relay.abs(x)
    mod = weft.IRModule.from_expr(relay.Function([x], relay.add(relay.nn.relu(top), relay.tanh(top))))
    for step in (transform.AnnotateTarget(["diamond_test"]), transform.MergeCompilerRegions(),
                 transform.PartitionGraph()):
        mod = step(mod)
    assert sum(bool(f.attrs.get("Compiler")) for _, f in mod.items()) == 2
    assert "tanh" in str(mod["main"])
    inlined = transform.InlineCompilerFunctionsBoundTo([v for v, f in mod.items() if f.attrs.get("Compiler")])(mod)
    (a,) = _arrays(1)
    out = relay.create_executor("vm", transform.InferType()(inlined)).evaluate()(a)
    np.testing.assert_allclose(out.numpy(), np.maximum(abs(a), 0) + np.tanh(abs(a)), rtol=1e-5, atol=1e-5)


def test_annotating_twice_changes_nothing() -> None:
    weft.ir.register_op_attr("nn.relu", "target.twice_test", lambda call: True)
    (x,) = _vars("x")
    once = transform.AnnotateTarget("twice_test")(weft.IRModule.from_expr(relay.Function([x], relay.nn.relu(x))))
    weft.ir.assert_structural_equal(transform.AnnotateTarget("twice_test")(once), once)
    assert str(once).count("compiler_begin") == 1


def test_literals_are_outlined_by_their_symbol_and_marked() -> None:
    x, y = _vars("x", "y")
    a, b = _vars("a", "b")
    attrs = {"Primitive": 1, "Compiler": "ccompiler", "global_symbol": "mine_0"}
    func = relay.Function([a, b], a + b).with_attr(attrs)
    mod = transform.InferType()(weft.IRModule.from_expr(relay.Function([x, y], relay.exp(relay.Call(func, [x, y])))))
    assert "mine_0" not in transform.OutlineCompilerFunctionsWithExistingGlobalSymbols("other")(mod)
    outlined = transform.OutlineCompilerFunctionsWithExistingGlobalSymbols()(mod)
    assert outlined["mine_0"].attrs["Compiler"] == "ccompiler"
    marked = transform.MarkCompilerFunctionsAsExtern("ccompiler")(outlined)
    assert dict(marked["mine_0"].attrs.items) == {"Extern": 1}


def test_the_annotator_of_tests_takes_chains() -> None:
    x, a, b, c = _vars("x", "a", "b", "c")
    func = relay.Function([x, a, b, c], relay.multiply(relay.subtract(relay.add(x, a), b), c))
    mod = transform.PartitionGraph()(weft.IRModule({"main": byoc.CcompilerAnnotator().visit(func)}))
    arrays = _arrays(4)
    out = weft.runtime.vm.VirtualMachine(relay.vm.compile(mod, "llvm"), weft.cpu()).run(*arrays)
    np.testing.assert_allclose(out.numpy(), (arrays[0] + arrays[1] - arrays[2]) * arrays[3], rtol=1e-5, atol=1e-5)


def test_regions_are_listed() -> None:
    regions = relay.analysis.AnnotatedRegionSet(_annotated()["main"])
    (region,) = regions
    assert (region.target, len(region.args), len(region.rets), len(regions)) == ("ccompiler", 3, 1, 1)


def test_one_function_is_lowered_and_compiled_by_itself() -> None:
    x, y = _vars("x", "y")
    compiler = relay.backend.te_compiler.get()
    func = transform.InferType()(weft.IRModule.from_expr(relay.Function([x, y], relay.exp(x) + y)))["main"]
    assert compiler.lower(func, "llvm").same_as(compiler.lower(func, "llvm"))
    kernel = relay.backend.te_compiler.lower_to_primfunc(func, "llvm")
    a, b = _arrays(2)
    out = weft.nd.empty((3, 5))
    weft.build(kernel, target="llvm")(weft.nd.array(a), weft.nd.array(b), out)
    np.testing.assert_allclose(out.numpy(), np.exp(a) + b, rtol=1e-5)
    compiler.jit(func, "llvm")(weft.nd.array(a), weft.nd.array(b), out)
    np.testing.assert_allclose(out.numpy(), np.exp(a) + b, rtol=1e-5)


def test_pattern_tables_are_registered_by_compiler() -> None:
    from weft.relay.op.contrib.register import get_pattern_table, register_pattern_table

    register_pattern_table("table_test", lambda: [("table_test.add", relay.dataflow_pattern.is_op("add"))])
    assert get_pattern_table("table_test")[0][0] == "table_test.add" and get_pattern_table("none_test") is None
