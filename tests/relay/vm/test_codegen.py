"""Code of the Relay machine from programs in A-normal form, without kernels."""

import numpy as np
import pytest

from tests.refusals import refuses
from tests.relay.vm import programs as P
from tests.relay.vm.programs import BOOL, I64, INTS, NIL, WILD, Chain, clauses, cons, i64, module, op
from weft import ir, relay
from weft.error import LoweringError, WeftError
from weft.relay import Call, Function, GlobalVar, If, Let, Match, PatternConstructor, PatternTuple, PatternVar, Var
from weft.relay.vm.codegen import CodeUnit
from weft.runtime.relay_vm import ADT, VirtualMachine


def compiled(mod, *args, name="main"):
    return VirtualMachine(relay.vm.compile(mod, "llvm"), "cpu").invoke(name, *args)


def number(value):
    return int(value.numpy())


def names(exe, function="main"):
    return [i.name for i in exe.function(function).instructions]


def test_counting_loop_in_constant_stack():
    exe = relay.vm.compile(P.counting(), "llvm")
    assert number(VirtualMachine(exe, "cpu").invoke("main", np.int64(2_000_000), np.int64(5))) == 2_000_005
    code = names(exe)
    assert code[-2:] == ["Invoke", "Ret"] and "Move" not in code and "KillRegister" not in code
    assert exe.function("main").register_file_size <= 4


@pytest.mark.parametrize(("m", "n", "expected"), [(0, 4, 5), (1, 3, 5), (2, 3, 9), (2, 9, 21), (3, 3, 61)])
def test_ackermann(m, n, expected):
    assert number(compiled(P.ackermann(), np.int64(m), np.int64(n))) == expected


def test_list_is_made_and_folded():
    exe = relay.vm.compile(P.list_sum(), "llvm")
    assert number(VirtualMachine(exe, "cpu").invoke("main", np.int64(100_000))) == 100_000 * 100_001 // 2
    fold = names(exe, "fold")
    assert fold.count("GetTag") == 1 and fold.count("GetField") == 2 and fold.count("If") == 1


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize(
    "name",
    (
        "add subtract multiply floor_divide floor_mod minimum maximum equal not_equal less less_equal greater "
        "greater_equal bitwise_and bitwise_or bitwise_xor"
    ).split(),
)
def test_scalar_operators_are_numpys(name, dtype):
    ty = relay.scalar_type(dtype)
    x, y, c = Var("x", ty), Var("y", ty), Chain()
    mod = module({"main": Function([x, y], c.tail(op(name, x, y)))})
    vm = VirtualMachine(relay.vm.compile(mod), "cpu")
    for a, b in [(7, 3), (-7, 3), (7, -3), (0, 5), (-8, -8)]:
        a, b = np.array(a, dtype), np.array(b, dtype)
        got = vm.invoke("main", a, b)
        expected = getattr(np, {"floor_mod": "mod"}.get(name, name))(a, b)
        assert got.numpy() == expected and got.dtype == str(expected.dtype)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("logical_and", np.logical_and),
        ("logical_or", np.logical_or),
        ("logical_xor", np.logical_xor),
        ("equal", np.equal),
    ],
)
def test_logical_operators(name, function):
    x, y, c = Var("x", BOOL), Var("y", BOOL), Chain()
    vm = VirtualMachine(relay.vm.compile(module({"main": Function([x, y], c.tail(op(name, x, y), BOOL))})), "cpu")
    for a in (False, True):
        for b in (False, True):
            got = vm.invoke("main", a, b)
            assert got.numpy() == function(a, b) and got.dtype == "bool"


def test_operators_of_one_scalar():
    x, c = Var("x", P.I32), Chain()
    wide = c(Call(ir.Op.get("cast"), (x,), {"dtype": "int64"}), I64)
    flag = c(Call(ir.Op.get("cast"), (x,), {"dtype": "bool"}), BOOL)
    out = c(relay.Tuple((wide, flag, c(op("logical_not", flag), BOOL), c(op("negative", x), P.I32))))
    got = compiled(module({"main": Function([x], c.end(out))}), 7)
    assert [g.numpy().tolist() for g in got] == [7, True, False, -7]
    assert [g.dtype for g in got] == ["int64", "bool", "bool", "int32"]


def test_equal_constants_are_one():
    c = Chain()
    fields = [c(relay.const(np.arange(4, dtype="float32")), None) for _ in range(3)] + [c(relay.const(3), None)] * 2
    exe = relay.vm.compile(module({"main": Function([], c.end(c(relay.Tuple(tuple(fields)))))}))
    assert len(exe.constant_values) == 2
    assert [v.numpy().tolist() for v in VirtualMachine(exe, "cpu").invoke("main")] == [[0, 1, 2, 3]] * 3 + [3, 3]


def test_nested_patterns_look_once():
    """match (xs, ys) { (Cons(a, _), Cons(b, _)) => a + b, (Cons(a, _), _) => a, (_, rest) => sum of its head }."""
    xs, ys, a, b, d, e = Var("xs", INTS), Var("ys", INTS), *(Var(n, I64) for n in "abde")
    c, s = Chain(), Chain()
    both = c(relay.Tuple((xs, ys)), relay.TupleType((INTS, INTS)))
    match = Match(
        both,
        clauses(
            (PatternTuple((cons(PatternVar(a), WILD), cons(PatternVar(b), WILD))), s.tail(op("add", a, b))),
            (PatternTuple((cons(PatternVar(d), WILD), WILD)), d),
            (PatternTuple((WILD, cons(PatternVar(e), WILD))), e),
            (PatternTuple((WILD, PatternConstructor(NIL))), i64(-1)),
        ),
    )
    exe = relay.vm.compile(module({"main": Function([xs, ys], c.tail(match))}))
    vm = VirtualMachine(exe, "cpu")
    nil = ADT(2, [])
    one, two = (ADT(1, [np.int64(n), nil]) for n in (1, 2))
    assert [number(vm.invoke("main", *v)) for v in [(one, two), (one, nil), (nil, two), (nil, nil)]] == [3, 1, 2, -1]
    code = names(exe)
    assert "AllocADT" not in code, "the tuple is taken apart where it is made"
    assert code.count("GetTag") == 3 and code.count("If") == 3


def test_shared_clause_has_one_body():
    xs, ys, c = Var("xs", INTS), Var("ys", INTS), Chain()
    both = c(relay.Tuple((xs, ys)), relay.TupleType((INTS, INTS)))
    match = Match(both, clauses((PatternTuple((cons(WILD, WILD), cons(WILD, WILD))), i64(2)), (WILD, i64(77))))
    exe = relay.vm.compile(module({"main": Function([xs, ys], c.tail(match))}))
    loads = [i.val for i in exe.function("main").instructions if i.name == "LoadConsti"]
    assert loads == [1, 2, 77], "one tag to compare with, two results"
    vm, nil = VirtualMachine(exe, "cpu"), ADT(2, [])
    one = ADT(1, [np.int64(1), nil])
    assert [number(vm.invoke("main", *v)) for v in [(one, one), (one, nil), (nil, one), (nil, nil)]] == [2, 77, 77, 77]


def test_missing_case_names_constructor_and_place():
    xs, a = Var("xs", INTS), Var("a", I64)
    match = Match(
        xs, clauses((cons(PatternVar(a), cons(WILD, WILD)), a)), complete=False, span=ir.Span("list.rly", 4, column=7)
    )
    vm = VirtualMachine(relay.vm.compile(module({"main": Function([xs], match)})), "cpu")
    nil = ADT(2, [])
    refuses(RuntimeError, r"no clause of the match in 'main' at list.rly:4:7 takes Nil", vm.invoke, "main", nil)
    refuses(RuntimeError, r"takes Cons\(_, Nil\)", vm.invoke, "main", ADT(1, [np.int64(1), nil]))


def test_value_of_if_and_match_inside():
    n, xs, h, c = Var("n", I64), Var("xs", INTS), Var("h", I64), Chain()
    picked = c(If(c(op("less", n, i64(3)), BOOL), n, Chain().tail(op("multiply", n, i64(10)))))
    head = c(Match(xs, clauses((cons(PatternVar(h), WILD), h), (WILD, i64(0)))))
    mod = module({"main": Function([n, xs], c.tail(op("add", picked, head)))})
    nil = ADT(2, [])
    assert number(compiled(mod, np.int64(2), ADT(1, [np.int64(100), nil]))) == 102
    assert number(compiled(mod, np.int64(5), nil)) == 50


def closure_program():
    """main(n): twice(adder(n))(1), where adder(n) = fn(x) {x + n}."""
    f_ty = relay.FuncType((I64,), I64)
    adder, twice, main = GlobalVar("adder"), GlobalVar("twice"), GlobalVar("main")
    n, x, f, y, k = Var("n", I64), Var("x", I64), Var("f", f_ty), Var("y", I64), Var("k", I64)
    body = Function([x], Chain().tail(op("add", x, n)), I64)
    t, c = Chain(), Chain()
    return module(
        {
            main: Function([k], c.tail(Call(twice, (c(Call(adder, (k,)), f_ty), i64(1)))), I64),
            adder: Function([n], body, f_ty),
            twice: Function([f, y], t.tail(Call(f, (t(Call(f, (y,))),))), I64),
        }
    )


def test_closures():
    exe = relay.vm.compile(closure_program())
    assert number(VirtualMachine(exe, "cpu").invoke("main", np.int64(20))) == 41
    assert names(exe, "adder").count("AllocClosure") == 1 and names(exe, "twice").count("InvokeClosure") == 2


def test_known_closure_is_called_directly():
    """let loop = fn(i) { if (i == n) i else loop(i + 1) }: no step makes a closure."""
    f_ty = relay.FuncType((I64,), I64)
    loop, n, i, c, s = Var("loop", f_ty), Var("n", I64), Var("i", I64), Chain(), Chain()
    step = s.tail(Call(loop, (s(op("add", i, i64(1))),)))
    body = Function([i], c.tail(If(c(op("equal", i, n), BOOL), i, step)), I64)
    exe = relay.vm.compile(module({"main": Function([n], Let(loop, body, Call(loop, (i64(0),))), I64)}))
    assert number(VirtualMachine(exe, "cpu").invoke("main", np.int64(100_000))) == 100_000
    assert "Closure" not in exe.bytecode and "closure" not in exe.stats.lower()


def test_functions_and_constructors_are_values():
    f_ty = relay.FuncType((I64, INTS), INTS)
    apply, f, x = GlobalVar("apply"), Var("f", f_ty), Var("x", I64)
    inc, y, z = GlobalVar("inc"), Var("y", I64), Var("z", INTS)
    a, m = Chain(), Chain()
    nil = m(Call(NIL, ()), INTS)
    mod = module(
        {
            apply: Function([f, x, z], a.tail(Call(f, (x, z)), INTS), INTS),
            inc: Function([y, z], (s := Chain()).tail(Call(P.CONS, (s(op("add", y, i64(1))), z)), INTS), INTS),
            "main": Function([x], m.tail(Call(apply, (P.CONS, x, m(Call(apply, (inc, x, nil)), INTS))), INTS), INTS),
        }
    )
    out = compiled(mod, np.int64(5))
    assert (out.tag, number(out[0]), number(out[1][0]), out[1][1].tag) == (1, 5, 6, 2)


def test_references():
    ref = relay.types.RefType(I64)
    x, c = Var("x", I64), Chain()
    cell = c(relay.RefCreate(x), ref)
    before = c(relay.RefRead(cell))
    done = c(relay.RefWrite(cell, c(op("add", before, i64(1)))), relay.types.unit_type())
    out = c(relay.Tuple((before, c(relay.RefRead(cell)), done)))
    got = compiled(module({"main": Function([x], c.end(out))}), np.int64(4))
    assert (number(got[0]), number(got[1]), got[2]) == (4, 5, ())


def test_runaway_recursion_is_an_error_with_lines():
    f, n, c = GlobalVar("descend"), Var("n", I64), Chain()
    mod = module({f: Function([n], c.tail(op("add", n, c(Call(f, (n,))))), I64)})
    with pytest.raises(RecursionError, match="descend: more than 1048576 nested calls") as error:
        compiled(mod, np.int64(1), name="descend")
    assert "in descend" in "".join(str(t) for t in error.traceback)


def test_long_chain_of_lets_and_deep_branches():
    x, c = Var("x", I64), Chain()
    v = x
    for _ in range(2_000):
        v = c(op("add", v, i64(1)))
    exe = relay.vm.compile(module({"main": Function([x], c.end(v))}))
    assert exe.function("main").register_file_size == 2
    assert number(VirtualMachine(exe, "cpu").invoke("main", np.int64(1))) == 2_001
    body = x
    for i in range(150):
        s = Chain()
        body = s.tail(If(s(op("equal", x, i64(i)), BOOL), i64(2 * i), body))
    mod = module({"main": Function([x], body)})
    assert [number(compiled(mod, np.int64(v))) for v in (3, 149, 5000)] == [6, 298, 5000]


def test_what_has_no_code_is_said():
    x, y = Var("x", I64), Var("y", I64)
    f = Var("f", relay.FuncType((I64,), I64))
    with pytest.raises(LoweringError, match="run LambdaLift before"):
        CodeUnit(module({"main": Function([x], Let(f, Function([y], y), Call(f, (x,))))})).compile()
    refuses(WeftError, "does not bind the variable 'y'", CodeUnit(module({"main": Function([x], y)})).compile)
    with pytest.raises(WeftError, match="no Relay function 'nobody'"):
        CodeUnit(module({"main": Function([x], Call(GlobalVar("nobody"), (x,)))})).compile()
    v = Var("v", relay.TensorType((3,)))
    with pytest.raises(LoweringError, match="the operator add has no instruction"):
        CodeUnit(module({"main": Function([v], op("add", v, v))})).compile()
