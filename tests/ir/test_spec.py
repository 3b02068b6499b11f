import pytest

import weft
from tests.ir.programs import matmul_func, relax_module
from tests.refusals import refuses
from weft import error, ir, relax, tir
from weft.ir import IRModule, PassContext, Var, const, module_pass
from weft.ir.spec import SPECS, Spec, verify, violations
from weft.script import from_source


def broken(spec, program, *messages):
    """Check that a program breaks a form with these messages, each shown under a statement."""
    node = from_source(program) if isinstance(program, str) else program
    e = refuses(error.ErrorGroup, "", verify, node, spec)
    text = str(e)
    assert [str(x.what).partition(": ")[2] for x in e.errors] == list(messages), text
    for m in messages:
        assert "# ^ " + m in text
    return text


def test_good_programs_pass():
    for name in ("tir.well_formed", "tir.scheduled"):
        assert violations(matmul_func(), SPECS[name]) == []
    for name in ("relax.well_formed", "relax.normalized", "tir.scheduled"):
        assert violations(relax_module(), SPECS[name]) == []
    assert violations(tir.pipeline.lower(matmul_func()), SPECS["tir.well_formed"]) == []


def test_lowered():
    from weft.tir.pipeline import lower

    verify(lower(matmul_func()), "tir.lowered")
    assert len(violations(matmul_func(), SPECS["tir.lowered"])[0][2]) >= 2


def test_every_message_stands_under_its_statement():
    text = broken(
        "tir.lowered",
        """
        @T.prim_func
        def f(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4,), "float32")):
            for i in T.vectorized(4):
                B[i] = T.float32(1)
            A[0, 1] = T.float32(2)
        """,
        "a loop to vectorize is left",
        "'A' is not flat: 2 indices",
    )
    lines = [line.strip() for line in text.splitlines()]
    assert lines[lines.index("# ^ 'A' is not flat: 2 indices") - 1] == "A[0, 1] = T.float32(2.0)"
    assert lines[lines.index("# ^ a loop to vectorize is left") - 1] == "for i in T.vectorized(4):"


def store(buffer, *indices, value=None):
    return tir.BufferStore(buffer, value if value is not None else const(1.0), tuple(indices))


def plain(body, *buffers, params=()):
    handles = tuple(Var("p_" + b.name, "handle") for b in buffers)
    return tir.PrimFunc(
        (*handles, *params), body, None, tuple(zip(handles, buffers, strict=True)), ir.Attrs.of(global_symbol="f")
    )


A, N = tir.decl_buffer((4,), "float32", "A"), Var("n", "int32")
LOOP, GRID = Var("i", "int32"), tir.decl_buffer((2, 2), "float32", "G", data=A.data)


def put(value):
    return store(A, const(0), value=value)


def loop(var, start, index):
    return tir.For(
        var, start, const(4, "float32" if var.dtype == "float32" else "int32"), tir.ForKind.SERIAL, store(A, index)
    )


CASES = [
    (store(A, N), "variable 'n' is not introduced here"),
    (store(tir.decl_buffer((4,), "float32", "B"), const(0)), "buffer 'B' is not allocated or declared here"),
    (tir.SeqStmt((loop(LOOP, const(0), LOOP), store(A, LOOP))), "variable 'i' is not introduced here"),
    (store(A, const(0), const(1)), "'A' has 1 dimensions and is accessed with 2 indices"),
    (store(A, const(1.0)), "the index `T.float32(1.0)` of 'A' is no integer but float32"),
    (
        store(GRID, ir.Ramp(const(0), const(1), 2), const(0)),
        "the index `T.Ramp(0, 1, 2)` of 'G' is a vector: only the last one may be",
    ),
    (put(const(1)), "a value of type int32 is stored where 'A' holds float32"),
    (tir.IfThenElse(const(1), store(A, const(0))), "the condition `1` is no bool but int32"),
    (loop(LOOP, const(0, "int64"), LOOP), "loop variable, start and extent have different types: int32, int64"),
    (
        store(A, ir.Add(const(1), const(1, "int64"))),
        "operands of Add have different types: int32 and int64 in `T.Add(T.int32(1), T.int64(1))`",
    ),
    (put(ir.Cast("float32", ir.StringImm("3"))), 'a string or pointer is no float32 in `T.Cast("float32", "3")`'),
    (store(A, ir.Cast("int32", ir.Add(A.data, A.data))), "operands of Add are no numbers in `A + A`"),
    (put(ir.Select(const(1.0), const(1.0), const(0.0))), "the condition `T.float32(1.0)` is no bool but float32"),
    (loop(Var("x", "float32"), const(0.0), const(0)), "the loop counts in float32, and not in integers"),
]


@pytest.mark.parametrize(("body", "message"), CASES, ids=[m for _, m in CASES])
def test_tir_well_formed(body, message):
    broken("tir.well_formed", plain(body, A), message)
    for use in (weft.build, weft.lower, weft.compile):
        refuses(error.ErrorGroup, "not 'tir.well_formed'", use, plain(body, A))


def test_views_of_known_memory_are_known():
    view = tir.decl_buffer((2, 2), "float32", "view", data=A.data)
    assert violations(plain(store(view, const(0), const(1)), A), SPECS["tir.well_formed"]) == []


def test_scheduled():
    func = matmul_func()
    broken("tir.scheduled", func.replace(body=func.root.body), "the body is no root block")


RELAX = [
    (
        "relax.well_formed",
        "y = R.exp(x)\n    R.print(y)",
        "the call of 'relax.print' may have effects and stands in a pure function",
    ),
    ("relax.well_formed", "R.call_packed('f', x)", "the call of 'f' may have effects and stands in a pure function"),
    ("relax.normalized", None, "the operand `R.exp(x)` is no variable or constant"),
    ("relax.legalized", "y = R.exp(x)", "operator 'exp' is left, although it can be lowered"),
    ("relax.planned", "with R.dataflow():\n        y = R.exp(x)\n        R.output(y)", "a dataflow block is left"),
    (
        "relax.planned",
        "y = R.call_dps_packed('f', (x,), R.Tensor((2,), 'float32'))",
        "'call_dps_packed' is left, whose result has no memory yet",
    ),
    ("relax.runtime_calls", "y = R.exp(x)", "operator 'relax.exp' is left, which the virtual machine does not know"),
    ("relax.vm_ready", "y = R.call_pure_packed('f', R.shape([n]))", None),
]


@pytest.mark.parametrize(("spec", "body", "message"), RELAX, ids=[f"{s} {m}" for s, _, m in RELAX])
def test_relax(spec, body, message):
    if body is None:
        x = relax.Var("x", relax.tensor_type((2,), "float32"))
        y = relax.Var("y", x.ty)
        value = relax.Call(ir.Op.get("relax.exp"), (relax.op.exp(x),), ty=x.ty)
        seq = relax.SeqExpr((relax.BindingBlock((relax.VarBinding(y, value),)),), y, ty=y.ty)
        func = relax.Function((x,), seq, y.ty)
    else:
        func = from_source(
            f"@R.function\ndef f(x: R.Tensor(('n',), 'float32')):\n    n = T.int64()\n    {body}\n    return x\n"
        )
    e = refuses(error.ErrorGroup, "", verify, func, spec)
    assert message is None or "# ^ " + message in str(e), str(e)


def relax_function(blocks, result, params, **kw):
    return relax.Function(params, relax.SeqExpr(tuple(blocks), result, ty=result.ty), result.ty, **kw)


def test_relax_names():
    ty = relax.tensor_type((2,), "float32")
    x, y, z = (relax.Var(n, ty) for n in "xyz")
    d = relax.DataflowVar("d", ty)

    def exp(v):
        return relax.Call(ir.Op.get("relax.exp"), (v,), ty=ty)

    def block(*pairs, kind=relax.BindingBlock):
        return kind(tuple(relax.VarBinding(v, e) for v, e in pairs))

    def ill(text, result, *blocks):
        broken("relax.well_formed", relax_function(blocks, result, (x,)), text)

    ill("variable 'z' is not bound here", y, block((y, exp(z))))
    ill("variable 'y' is bound twice", y, block((y, exp(x)), (y, exp(x))))
    inside = block((d, exp(x)), (y, exp(d)), kind=relax.DataflowBlock)
    ill("the dataflow variable 'd' is used outside of its block", z, inside, block((z, exp(d))))
    outside = violations(relax_function([block((d, exp(x)))], x, (x,)), SPECS["relax.well_formed"])
    text = "the dataflow variable 'd' is bound outside of a dataflow block"
    assert any(v.message == text for _, _, bad in outside for v in bad)
    ill("the module has no function 'missing'", y, block((y, relax.Call(ir.GlobalVar("missing"), (x,), ty=ty))))
    n = Var("n", "int64")
    shape = block((y, relax.shape_expr((n,))))
    assert relax.analysis.check_well_formed(relax_function([block((y, exp(x)))], y, (x,)))
    assert not relax.analysis.check_well_formed(relax_function([shape], x, (x,)))


def test_conditions_are_bools():
    func = """
    @R.function
    def f(c: R.Tensor((2,), "float32"), x: R.Tensor((2,), "float32")):
        if c:
            y = x
        else:
            y = R.exp(x)
        return y
    """
    broken("relax.well_formed", func, 'the condition of an if is no scalar bool but R.Tensor((2,), dtype="float32")')


def test_branches_do_not_see_each_other():
    func = from_source("""
    @R.function
    def f(c: R.Tensor((), "bool"), x: R.Tensor((2,), "float32")):
        if c:
            a = R.exp(x)
            y = R.exp(a)
        else:
            y = R.exp(x)
        return y
    """)
    assert relax.analysis.check_well_formed(func)
    value = func.body.blocks[0].bindings[0].value
    leaked = value.true_branch.blocks[0].bindings[0].var
    bad = ir.rewrite(
        func, lambda n: n, pre=lambda n: leaked if n is value.false_branch.blocks[0].bindings[0].value.args[0] else None
    )
    assert not relax.analysis.check_well_formed(bad.replace(params=func.params))


def test_long_functions_show_the_neighbourhood():
    lines = "\n".join(f"    y{i} = R.exp(x)" for i in range(100))
    func = from_source(f"@R.function\ndef f(x: R.Tensor((2,), 'float32')):\n{lines}\n    R.print(x)\n    return x\n")
    assert len(str(refuses(error.ErrorGroup, "", verify, func, "relax.well_formed")).splitlines()) < 20


def test_passes_are_checked_when_asked():
    @module_pass(name="BreakIt", ensures="tir.scheduled")
    def break_it(mod):
        return mod.with_functions({v: f.replace(body=f.root.body) for v, f in mod.items()})

    mod = IRModule({"f": matmul_func()})
    with PassContext(verify=False):
        break_it()(mod)
    with PassContext(verify=True), pytest.raises(error.ErrorGroup, match="not 'tir.scheduled' after BreakIt"):
        break_it()(mod)


def test_default_pipeline_keeps_its_promises():
    from weft.relax.pipeline import default_passes

    mod = relax_module()
    del mod["matmul"]
    assert violations(mod, SPECS["relax.vm_ready"])
    with PassContext(verify=True):
        for step in default_passes():
            mod = step(mod)
    assert violations(mod, SPECS["relax.vm_ready"]) == []


def test_forms_have_sentences():
    assert all(spec.doc for name, spec in SPECS.items() if name != "test")
    refuses(KeyError, "", verify, matmul_func(), "no.such.form")
    assert isinstance(SPECS["tir.lowered"], Spec)


def test_the_suite_checks_after_every_pass():
    assert PassContext.current().verify
    with PassContext(opt_level=3):
        assert PassContext.current().verify


def test_what_a_pass_did_not_change_is_not_checked_again(monkeypatch):
    asked = []
    monkeypatch.setattr(SPECS["tir.well_formed"], "check", lambda func, mod: asked.append(func) or iter(()))
    same = module_pass(lambda mod: mod, name="Same")
    other = module_pass(lambda mod: IRModule({"f": matmul_func()}), name="Other")
    with PassContext(verify=True):
        mod = other(IRModule({"f": matmul_func()}))
        same(same(mod))
        assert len(asked) == 1
        other(mod)
        same(IRModule({"g": mod["f"]}))
        assert len(asked) == 3


def test_a_broken_function_is_said_each_time():
    unknown = IRModule({"f": tir.PrimFunc((), tir.Evaluate(Var("x", "int32")))})
    same = module_pass(lambda mod: mod, name="Same")
    with PassContext(verify=True):
        for _ in range(2):
            refuses(error.ErrorGroup, "variable 'x' is not introduced here", same, unknown)


def test_a_name_is_not_known_behind_its_loop_though_the_expression_was_seen():
    i, b = Var("i", "int32"), tir.decl_buffer((4,), "int32", "b")
    shared = i + 1
    inside = tir.For(i, const(0, "int32"), const(4, "int32"), tir.ForKind.SERIAL, store(b, i, value=shared))
    func = tir.PrimFunc(
        (b.data,), tir.SeqStmt((inside, store(b, const(0, "int32"), value=shared))), buffer_map=((b.data, b),)
    )
    broken("tir.well_formed", func, "variable 'i' is not introduced here")
