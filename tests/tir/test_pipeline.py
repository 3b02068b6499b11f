"""weft.lower runs the phases once, with the passes of the user's own between them; build goes on from there."""

import numpy as np
import pytest

import weft
from weft import te, tir
from weft.error import InvalidArgument
from weft.ir import PassContext, PassInstrument, Ramp, structural_equal, walk
from weft.target import Target, get_source
from weft.tir import For, ForKind
from weft.tir.pipeline import finishing_passes, host_phases, lower, lower_module


class Names(PassInstrument):
    """Writes down which passes ran."""

    def __init__(self):
        self.names = []

    def run_before_pass(self, mod, info):
        self.names.append(info.name)


def program(n=100):
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] * 2.0 + 1.0, name="B")
    s = te.create_schedule(b.op)
    s[b].vectorize(s[b].split(b.op.axis[0], factor=8)[1])
    return s, a, b


def seen(run, **options):
    watch = Names()
    with PassContext(instruments=[watch], **options):
        run()
    return watch.names


def run(module, n=100):
    x, out = np.random.default_rng(0).random(n, "float32"), np.zeros(n, "float32")
    module(x, out)
    np.testing.assert_allclose(out, 2 * x + 1, rtol=1e-6)


def test_lower_runs_the_phases_in_order():
    s, a, b = program()
    names = seen(lambda: weft.lower(s, [a, b]))
    assert names == [*(p.name for _, p in host_phases()), "NarrowDataType"]
    steps = (
        "LowerBlocks InjectPrefetch InjectDoubleBuffer LoopPartition StorageRewrite FlattenBuffer VectorizeLoop "
        "UnrollLoop Simplify RemoveNoOp"
    ).split()
    first = names.index("Simplify")
    assert [n for i, n in enumerate(names) if n in steps and i != first] == steps
    phases = [n for n, _ in host_phases()]
    assert phases == sorted(phases)


def test_simple_mode_keeps_the_conditions_of_boundaries():
    s, a, b = program()
    names = seen(lambda: weft.lower(s, [a, b], simple_mode=True))
    assert "LoopPartition" not in names and "VectorizeLoop" in names
    body = weft.lower(s, [a, b], simple_mode=True)["main"].body
    assert isinstance(body, tir.Stmt) and any(isinstance(n, Ramp) for n in walk(body))
    branches = [n for n in walk(weft.lower(s, [a, b])["main"]) if isinstance(n, tir.IfThenElse)]
    assert branches and not any(isinstance(n, tir.IfThenElse) for n in walk(body))


def test_build_of_what_was_lowered_only_finishes_it():
    s, a, b = program()
    mod = weft.lower(s, [a, b])
    assert seen(lambda: weft.build(mod, target="llvm")) == [p.name for p in finishing_passes()]
    run(weft.build(mod, target="llvm"))
    once = seen(lambda: weft.build(s, [a, b], target="llvm"))
    assert len(once) == len(host_phases(Target("llvm"))) + len(finishing_passes()) - 2  # they are among them
    assert lower_module(mod) is mod and structural_equal(weft.lower(mod), mod)
    with Target("llvm"):
        same = weft.lower(s, [a, b])
    func = te.schedule.schedule_to_prim_func(s, [a, b], "main")
    assert get_source(same, "llvm") == get_source(func, "llvm")


def test_lowering_a_module_leaves_the_rest_of_it():
    s, a, b = program()
    first = weft.lower(s, [a, b], name="first")["first"]
    block = te.create_prim_func([a, b]).with_attr("global_symbol", "second")
    mod = weft.lower(weft.IRModule({"first": first, "second": block}))
    assert [v.name_hint for v, _ in mod.items()] == ["first", "second"] and mod["first"] is first
    assert not any(isinstance(n, tir.Block) for n in walk(mod["second"]))
    module = weft.build(mod, target="llvm")
    for name in ("first", "second"):
        run(module[name])


def forms(phase, target=None):
    """What a pass of the user's own sees in a phase, and the function that came of it."""
    found = []

    @tir.transform.prim_func_pass(opt_level=0)
    def look(func, mod, ctx):
        found.append(func)
        return func

    s, a, b = program()
    with PassContext(config={"tir.add_lower_pass": [(phase, look)]}):
        if target is None:
            weft.lower(s, [a, b])
        else:
            run(weft.build(s, [a, b], target=target))
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("target", [None, "llvm", "c"])
def test_own_passes_run_behind_their_phase(target):
    def kinds(f):
        return {n.kind for n in walk(f) if isinstance(n, For)}

    assert ForKind.VECTORIZED in kinds(forms(0, target)) and forms(0, target).buffer_map[0][1].name == "A"
    assert ForKind.VECTORIZED in kinds(forms(1, target))
    if target != "c":  # which leaves vectors to the C compiler
        assert any(isinstance(n, Ramp) for n in walk(forms(2, target)))
    forms(3, target)


def test_an_own_pass_changes_the_program():
    """A plain function in phase 1 marks a loop; the passes behind it vectorize it."""
    a = te.placeholder((24,), name="A")
    b = te.compute((24,), lambda i: a[i] * 2.0 + 1.0, name="B")
    s = te.create_schedule(b.op)

    def marked(func):
        loop = func.body
        vector = For(loop.loop_var, loop.min, loop.extent, ForKind.VECTORIZED, loop.body, None, loop.annotations)
        return func.replace(body=vector)

    with PassContext(config={"tir.add_lower_pass": [(1, marked)]}):
        mod = weft.lower(s, [a, b])
    assert any(isinstance(n, Ramp) and n.lanes == 24 for n in walk(mod["main"]))
    run(weft.build(mod, target="llvm"), 24)


def test_a_pass_over_statements_as_users_write_them():
    """Inner loops of eight, of statements that no schedule made, become vectors."""
    a = te.placeholder((128,), name="a")

    def statements(ins, outs):
        ib = tir.ir_builder.create()
        source, out = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        with ib.for_range(0, 16, name="i") as i, ib.for_range(0, 8, name="j") as j:
            out[i * 8 + j] = source[i * 8 + j] * 2.0 + 1.0
        return ib.get()

    c = te.extern((128,), [a], statements, name="c", dtype="float32")

    def split(op):
        if op.extent.value != 8:
            return None
        outer, inner = te.var("outer"), te.var("inner")
        body = tir.stmt_functor.substitute(op.body, {op.loop_var: outer * 8 + inner})
        return tir.For(outer, 0, 1, tir.ForKind.SERIAL, tir.For(inner, 0, 8, tir.ForKind.VECTORIZED, body))

    @tir.transform.prim_func_pass(opt_level=0)
    def vectors(func, mod, ctx):
        return func.with_body(tir.stmt_functor.ir_transform(func.body, None, split, ["tir.For"]))

    s = te.create_schedule(c.op)
    with PassContext(config={"tir.add_lower_pass": [(1, vectors)]}):
        mod = weft.lower(s, [a, c])
        run(weft.build(s, [a, c], target="llvm"), 128)
    assert any(isinstance(n, Ramp) and n.lanes == 8 for n in walk(mod["main"]))


@pytest.mark.parametrize("entry", [(4, lambda f: f), (1, "pass"), lambda f: f, (1,), ("1", lambda f: f)])
def test_entries_that_are_no_pairs(entry):
    s, a, b = program()
    with PassContext(config={"tir.add_lower_pass": [entry]}), pytest.raises(InvalidArgument, match="pairs of a phase"):
        weft.lower(s, [a, b])


def test_options_of_the_context():
    s, a, b = program()

    def lowered(**config):
        with PassContext(config={f"tir.{k}": v for k, v in config.items()}):
            return weft.lower(s, [a, b])["main"]

    assert not any(isinstance(n, Ramp) for n in walk(lowered(disable_vectorize=True)))
    with PassContext(config={"tir.disable_vectorize": True}):
        run(weft.build(s, [a, b], target="llvm"))
    names = seen(lambda: weft.lower(s, [a, b]), config={"tir.disable_storage_rewrite": True})
    assert "StorageRewrite" not in names
    assert "CommonSubexprElim" in seen(lambda: weft.lower(s, [a, b]), config={"tir.disable_cse_tir": False})
    assert "LoopPartition" not in seen(lambda: weft.lower(s, [a, b]), disabled_pass=["LoopPartition"])


def test_functions_on_devices_have_phases_of_their_own():
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] + 1.0, name="B")
    s = te.create_schedule(b.op)
    block, thread = s[b].split(b.op.axis[0], factor=32)
    s[b].bind(block, te.thread_axis("blockIdx.x"))
    s[b].bind(thread, te.thread_axis("threadIdx.x"))
    names = seen(lambda: weft.lower(s, [a, b]))
    assert "HoistIfThenElse" not in names and "FlattenBuffer" in names
    func = weft.lower(s, [a, b])["main"]
    assert func.attrs["tir.lowered"] and "threadIdx.x" in str(func)


def test_lowered_functions_give_the_interpreters_values():
    s, a, b = program(37)
    x, out = np.random.default_rng(1).random(37, "float32"), np.zeros(37, "float32")
    tir.interpret(lower(weft.lower(s, [a, b])["main"]), x, out)
    np.testing.assert_allclose(out, 2 * x + 1, rtol=1e-6)
