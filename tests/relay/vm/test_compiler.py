"""``relay.vm.compile`` on programs with kernels: files, profiles, threads, errors, shapes that run time knows."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from tests.threads import at_once
from weft import error, relay
from weft.relay.vm import VMCompiler, compile
from weft.runtime.relay_vm import Executable, VirtualMachine

RNG = np.random.default_rng(5)


def text(body):
    return relay.fromtext('#[version = "0.0.5"]\n' + body)


def mlp(batch):
    x = relay.var("x", shape=(batch, 16))
    h, params = x, {}
    for i in range(3):
        w, b = relay.var(f"w{i}", shape=(16, 16)), relay.var(f"b{i}", shape=(16,))
        h = relay.nn.relu(relay.nn.bias_add(relay.nn.dense(h, w), b))
        params |= {w: RNG.normal(size=(16, 16)).astype("float32") * 0.2, b: RNG.normal(size=16).astype("float32")}
    func = relay.Function([x, *params], relay.nn.softmax(h))
    return weft.IRModule.from_expr(func), {v.name_hint: a for v, a in params.items()}


def mlp_reference(x, params):
    for i in range(3):
        x = np.maximum(x @ params[f"w{i}"].T + params[f"b{i}"], 0)
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("batches", [(4,), (1, 3, 8, 0)])
def test_mlp(batches):
    mod, params = mlp(batches[0] if len(batches) == 1 else relay.Any())
    vm = VirtualMachine(compile(mod, "llvm", params=params), weft.cpu())
    for n in batches:
        x = RNG.normal(size=(n, 16)).astype("float32")
        np.testing.assert_allclose(vm.run(x).numpy(), mlp_reference(x, params), rtol=1e-4, atol=1e-6)


def test_parameters_by_position_and_name():
    mod, params = mlp(2)
    vm = VirtualMachine(compile(mod, "llvm"), weft.cpu())
    x = RNG.normal(size=(2, 16)).astype("float32")
    expected = mlp_reference(x, params)
    np.testing.assert_allclose(vm.run(x, *params.values()).numpy(), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(vm.run(x=x, **params).numpy(), expected, rtol=1e-4, atol=1e-6)
    vm.set_input("main", x=x, **params)
    vm.invoke_stateful("main")
    np.testing.assert_allclose(vm.get_outputs()[0].numpy(), expected, rtol=1e-4, atol=1e-6)


LSTM = """
type List[A] { Cons(A, List[A]), Nil, }
def @cell(%x: Tensor[(1, 6), float32], %h: Tensor[(1, 8), float32], %c: Tensor[(1, 8), float32],
          %wx: Tensor[(32, 6), float32], %wh: Tensor[(32, 8), float32])
    -> (Tensor[(1, 8), float32], Tensor[(1, 8), float32]) {
  let %g = split(nn.dense(%x, %wx) + nn.dense(%h, %wh), indices_or_sections=4, axis=1);
  let %next = sigmoid(%g.1) * %c + sigmoid(%g.0) * tanh(%g.2);
  (sigmoid(%g.3) * tanh(%next), %next)
}
def @run(%xs: List[Tensor[(1, 6), float32]], %h: Tensor[(1, 8), float32], %c: Tensor[(1, 8), float32],
         %wx: Tensor[(32, 6), float32], %wh: Tensor[(32, 8), float32]) -> Tensor[(1, 8), float32] {
  match (%xs) {
    Cons(%x, %rest) => { let %s = @cell(%x, %h, %c, %wx, %wh); @run(%rest, %s.0, %s.1, %wx, %wh) },
    Nil => { %h },
  }
}
def @main(%xs: List[Tensor[(1, 6), float32]], %wx: Tensor[(32, 6), float32], %wh: Tensor[(32, 8), float32]) {
  @run(%xs, zeros(shape=[1, 8], dtype="float32"), zeros(shape=[1, 8], dtype="float32"), %wx, %wh)
}
"""


def lstm_inputs(n):
    xs = [RNG.normal(size=(1, 6)).astype("float32") for _ in range(n)]
    wx, wh = (RNG.normal(size=(32, k)).astype("float32") for k in (6, 8))
    h = c = np.zeros((1, 8), np.float32)
    for x in xs:
        i, f, g, o = np.split(x @ wx.T + h @ wh.T, 4, axis=1)
        c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        h = np.tanh(c) / (1 + np.exp(-o))
    value = weft.runtime.relay_vm.ADT(2, [])
    for x in reversed(xs):
        value = weft.runtime.relay_vm.ADT(1, [x, value])
    return (value, wx, wh), h


def test_lstm_over_a_list():
    exe = compile(text(LSTM), "llvm")
    vm = VirtualMachine(exe, weft.cpu())
    for n in (0, 1, 9):
        args, expected = lstm_inputs(n)
        np.testing.assert_allclose(vm.run(*args).numpy(), expected, rtol=1e-4, atol=1e-5)
    assert exe.function("run").instructions[-3].name == "Invoke"


def test_files(tmp_path):
    mod, params = mlp(relay.Any())
    exe = compile(mod, "llvm", params=params)
    x = RNG.normal(size=(3, 16)).astype("float32")
    expected = VirtualMachine(exe, weft.cpu()).run(x).numpy()
    code, lib = exe.save()
    lib.export_library(tmp_path / "lib.so")
    (tmp_path / "code.ro").write_bytes(code)
    loaded = Executable.load_exec((tmp_path / "code.ro").read_bytes(), weft.runtime.load_module(tmp_path / "lib.so"))
    np.testing.assert_array_equal(VirtualMachine(loaded, weft.cpu()).run(x).numpy(), expected)
    exe.mod.export_library(tmp_path / "whole.so")
    whole = weft.runtime.load_module(tmp_path / "whole.so")
    np.testing.assert_array_equal(VirtualMachine(whole, weft.cpu()).run(x).numpy(), expected)
    assert loaded.bytecode == exe.bytecode and loaded.stats == exe.stats and loaded.globals == ["main"]
    assert all(name in exe.stats for name in exe.primitive_ops) and exe.constants.count("VM Const") == len(
        exe.constant_values
    )


def test_names_of_tvms_runtime(tmp_path):
    x = relay.var("x", shape=(3,))
    exe = compile(relay.Function([x], x + x), "llvm")
    code, lib = exe.save()
    vm = weft.runtime.vm.VirtualMachine(weft.runtime.vm.Executable.load_exec(code, lib), weft.cpu())
    assert isinstance(vm, VirtualMachine) and vm.invoke("main", np.ones(3, "float32")).numpy().sum() == 6
    exe.mod.export_library(tmp_path / "m.so")
    vm = weft.runtime.vm.VirtualMachine(weft.runtime.load_module(tmp_path / "m.so"), weft.cpu())
    assert vm.run(np.ones(3, "float32")).numpy().sum() == 6


def test_profile_names_kernels():
    mod, params = mlp(2)
    vm = VirtualMachine(compile(mod, "llvm", params=params), weft.cpu())
    x = np.ones((2, 16), np.float32)
    report = str(vm.profile(x))
    assert "matmul" in report and "softmax" in report
    assert vm.benchmark(weft.cpu(), x, repeat=2, number=2).mean > 0


def test_many_threads_call_one_machine():
    vm = VirtualMachine(compile(text(LSTM), "llvm"), weft.cpu())
    failures = []

    def work(seed):
        args, expected = cases[seed]
        for _ in range(30):
            if not np.allclose(vm.run(*args).numpy(), expected, rtol=1e-4, atol=1e-5):
                failures.append(seed)

    cases = [lstm_inputs(n) for n in (3, 5, 8, 13)]
    at_once(work, 4)
    assert not failures


def test_steps_of_the_compiler():
    mod, params = mlp(2)
    compiler = VMCompiler()
    refuses(error.InvalidArgument, "call lower", compiler.codegen)
    refuses(error.InvalidArgument, "call lower", compiler.get_exec)
    compiler.set_params(params)
    assert compiler.get_params().keys() == params.keys()
    compiler.lower(mod, "llvm")
    compiler.codegen()
    x = np.ones((2, 16), np.float32)
    out = VirtualMachine(compiler.get_exec(), weft.cpu()).run(x)
    np.testing.assert_allclose(out.numpy(), mlp_reference(x, params), rtol=1e-4, atol=1e-6)
    lowered, left = VMCompiler().optimize(mod, "llvm", params=params)
    assert "vm.invoke_tvm_op" in str(lowered["main"]) and left == {} and len(lowered["main"].params) == 1
    assert relay.backend.vm.compile is compile


def test_functions_and_expressions_are_compiled():
    x = relay.var("x", shape=(3,))
    assert VirtualMachine(compile(relay.Function([x], x + x)), "cpu").run(np.ones(3, "float32")).numpy().sum() == 6
    assert VirtualMachine(compile(relay.const(2) + relay.const(3)), "cpu").run().numpy() == 5
    refuses(error.InvalidArgument, "a module or function is compiled", compile, "x")


def test_polymorphic_and_higher_order_functions():
    mod = text("""
    type List[A] { Cons(A, List[A]), Nil, }
    def @map[A, B](%f: fn (A) -> B, %xs: List[A]) -> List[B] {
      match (%xs) { Cons(%x, %rest) => { Cons(%f(%x), @map(%f, %rest)) }, Nil => { Nil }, }
    }
    def @foldl[A, B](%f: fn (A, B) -> A, %acc: A, %xs: List[B]) -> A {
      match (%xs) { Cons(%x, %rest) => { @foldl(%f, %f(%acc, %x), %rest) }, Nil => { %acc }, }
    }
    def @compose[A, B, C](%f: fn (B) -> C, %g: fn (A) -> B) -> fn (A) -> C { fn (%x: A) { %f(%g(%x)) } }
    def @main(%a: Tensor[(4), float32], %n: int32) {
      let %twice = fn (%x: Tensor[(4), float32]) { add(%x, %x) };
      let %h = @compose(%twice, fn (%x: Tensor[(4), float32]) { multiply(%x, %a) });
      let %xs = @map(%h, Cons(%a, Cons(exp(%a), Nil)));
      let %count = @foldl(fn (%i: int32, %x: Tensor[(4), float32]) { %i + %n }, 0, %xs);
      (@foldl(fn (%x: Tensor[(4), float32], %y: Tensor[(4), float32]) { add(%x, %y) }, %a, %xs), %count)
    }""")
    a = RNG.normal(size=4).astype("float32")
    out = VirtualMachine(compile(mod, "llvm"), weft.cpu()).run(a, 21)
    np.testing.assert_allclose(out[0].numpy(), a + 2 * a * a + 2 * a * np.exp(a), rtol=1e-4)
    assert out[1].numpy() == 42


def test_mutual_recursion_over_trees():
    mod = text("""
    type Tree { Leaf(Tensor[(2), float32]), Node(Forest), }
    type Forest { Trees(Tree, Forest), End, }
    def @tree(%t: Tree) -> Tensor[(2), float32] {
      match (%t) { Leaf(%x) => { tanh(%x) }, Node(%f) => { @forest(%f) }, }
    }
    def @forest(%f: Forest) -> Tensor[(2), float32] {
      match (%f) {
        Trees(%t, %rest) => { add(@tree(%t), @forest(%rest)) },
        End => { zeros(shape=[2], dtype="float32") },
      }
    }
    def @main(%x: Tensor[(2), float32]) {
      @tree(Node(Trees(Leaf(%x), Trees(Node(Trees(Leaf(exp(%x)), End)), End))))
    }""")
    x = np.array([0.5, -1], np.float32)
    out = VirtualMachine(compile(mod, "llvm"), weft.cpu()).run(x)
    np.testing.assert_allclose(out.numpy(), np.tanh(x) + np.tanh(np.exp(x)), rtol=1e-5)


def test_values_of_data_types_come_out():
    mod = text("""
    type List[A] { Cons(A, List[A]), Nil, }
    def @main(%x: Tensor[(2), float32]) { Cons(%x, Cons(add(%x, %x), Nil)) }""")
    out = VirtualMachine(compile(mod, "llvm"), weft.cpu()).run(np.ones(2, "float32"))
    assert (out.tag, out[1].tag, out[1][1].tag) == (1, 1, 2) and out[1][0].numpy().tolist() == [2, 2]


def test_a_kernels_condition_decides():
    mod = text("""
    def @main(%x: Tensor[(3), float32]) {
      if (greater(sum(%x), 1f)) { %x } else { negative(%x) }
    }""")
    vm = VirtualMachine(compile(mod, "llvm"), weft.cpu())
    for x in (np.ones(3, "float32"), -np.ones(3, "float32")):
        np.testing.assert_array_equal(vm.run(x).numpy(), np.ones(3, "float32"))


def test_jagged_batches():
    """Rows of lengths that differ, each under its own shape, joined to one tensor whose length run time knows."""
    mod = text("""
    type List[A] { Cons(A, List[A]), Nil, }
    def @join(%rows: List[Tensor[(?), float32]], %all: Tensor[(?), float32]) -> Tensor[(?), float32] {
      match (%rows) { Cons(%r, %rest) => { @join(%rest, concatenate((%all, %r), axis=0)) }, Nil => { %all }, }
    }
    def @main(%a: Tensor[(?), float32], %b: Tensor[(?), float32]) {
      @join(Cons(nn.softmax(%a), Cons(cumsum(%b, axis=0), Nil)), zeros(shape=[0], dtype="float32"))
    }""")
    vm = VirtualMachine(compile(mod, "llvm"), weft.cpu())
    for n, m in [(1, 4), (7, 2), (5, 5)]:
        a, b = RNG.normal(size=n).astype("float32"), RNG.normal(size=m).astype("float32")
        e = np.exp(a - a.max())
        np.testing.assert_allclose(
            vm.run(a, b).numpy(), np.concatenate([e / e.sum(), b.cumsum()]), rtol=1e-4, atol=1e-6
        )


def test_errors_of_programs():
    with pytest.raises(error.WeftError):
        compile(text("def @main(%x: Tensor[(3), float32], %y: Tensor[(4), float32]) { add(%x, %y) }"), "llvm")
    vm = VirtualMachine(compile(text("def @main(%x: Tensor[(3, ?), float32]) { exp(%x) }"), "llvm"), weft.cpu())
    refuses(Exception, r"3|shape|rank|dim", vm.run, np.ones((4, 2), "float32"))
    refuses(TypeError, "main", vm.run)


def test_of_the_standard_library_what_a_program_reaches_is_compiled():
    """The prelude has 280 functions: compiling all of them took 13 s."""
    mod = text("def @half(%x: Tensor[(3), float32]) { %x * 0.5f }\ndef @main(%x: Tensor[(3), float32]) { %x }")
    mod.import_from_std("prelude.rly")
    prelude = relay.prelude.Prelude(mod)
    mod["sizes"] = relay.Function([], prelude.length(prelude.cons(relay.const(1), prelude.nil())))
    exe = compile(mod, "llvm")
    assert {"main", "half", "sizes", "length", "foldl"} < set(exe.globals) and "map" not in exe.globals
    assert VirtualMachine(exe, weft.cpu()).invoke("half", np.ones(3, "float32")).numpy().tolist() == [0.5] * 3


def test_of_a_library_alone_everything_is_compiled(monkeypatch):
    monkeypatch.setattr("weft.relay.vm.compiler.is_standard", lambda _: True)
    exe = compile(text("def @half(%x: Tensor[(3), float32]) { %x * 0.5f }"), "llvm")
    assert VirtualMachine(exe, weft.cpu()).invoke("half", np.ones(3, "float32")).numpy().tolist() == [0.5] * 3
