"""What the program decides itself is run at compile time; effects and endless recursion are left."""

import numpy as np
import pytest

from weft import ir, relay
from weft.relay.interpreter import Interpreter
from weft.relay.transform import InferType, PartialEvaluate
from weft.relay.walk import subexpressions

NAT = """
type nat { Z, S(nat), }
type List[A] { Cons(A, List[A]), Nil, }
def @add(%a: nat, %b: nat) -> nat { match (%a) { Z => %b, S(%n) => @add(%n, S(%b)), } }
def @double(%n: nat) -> nat { @add(%n, %n) }
def @map[A, B](%f: fn (A) -> B, %l: List[A]) -> List[B] {
  match (%l) { Cons(%x, %r) => Cons(%f(%x), @map(%f, %r)), Nil => Nil, }
}
"""


def run(text, **options):
    mod = InferType()(relay.fromtext('#[version = "0.0.5"]\n' + text))
    return mod, InferType()(PartialEvaluate(**options)(mod))


def check(body, expected, library="", params="%x: Tensor[(2), float32], %c: bool"):
    _, result = run(f"{library}\ndef @main({params}) {{ {body} }}")
    _, wanted = run(f"{library}\ndef @main({params}) {{ {expected} }}", max_steps=-10_000)
    ir.assert_structural_equal(result["main"].body, wanted["main"].body, map_free_vars=True)


def count(mod, kind):
    return sum(type(e) is kind for e in subexpressions(mod["main"]))


def test_choices_and_closures():
    check(
        "let %f = fn (%y) { if (True) { add(%y, %x) } else { %y } }; %f(%f(%x))",
        "let %a = add(%x, %x); let %b = add(%a, %x); %b",
    )
    check("let %t = (%x, fn (%y) { %y }); let %g = %t.1; let %r = %g(%t.0); %r", "%x")
    check("let %i = add(1, 2); if (less(%i, 4)) { %x } else { negative(%x) }", "%x")


def test_data_types():
    check("@double(S(S(Z)))", "let %z = Z; let %a = S(%z); let %b = S(%a); let %c = S(%b); let %d = S(%c); %d", NAT)
    mod, result = run(NAT + "def @main(%x: int32) { @map(fn (%y: int32) { add(%y, %x) }, Cons(1, Cons(%x, Nil))) }")
    assert count(result, relay.Match) == count(result, relay.Function) - 1 == 0
    assert not any(type(e) is relay.GlobalVar for e in subexpressions(result["main"]))
    value = Interpreter(result).function("main")(np.int32(4))
    assert [int(value.fields[0].numpy()), int(value.fields[1].fields[0].numpy())] == [5, 8]


def test_tuples_are_matched():
    check("match ((%x, %c)) { (%a, %b) => add(%a, %a) }", "let %a = add(%x, %x); %a")
    check("match (%t) { (%a, _) => %a }", "let %a = %t.0; %a", params="%t: (Tensor[(2), float32], bool)")


def test_clauses_that_cannot_be():
    library = "type T { A(bool), B(bool), }"
    _, result = run(library + "def @main(%c: bool) { match (B(%c)) { A(_) => 1, B(_) => 2 } }")
    assert int(result["main"].body.data.numpy()) == 2
    nested = "match ((%t, A(%c))) { (A(%x), B(%y)) => 1, (_, A(_)) => 2, (B(_), _) => 3, (_, _) => 4 }"
    _, result = run(library + f"def @main(%t: T, %c: bool) {{ {nested} }}")
    assert count(result, relay.Match) == 0 or len(result["main"].body.value.clauses) < 4


def test_branches_know_what_decided():
    check(
        "if (%c) { if (%c) { add(%x, %x) } else { negative(%x) } } else { if (%c) { exp(%x) } else { %x } }",
        "let %r = if (%c) { let %a = add(%x, %x); %a } else { %x }; %r",
    )
    check(
        "match (%t) { A(%a) => match (%t) { A(%b) => %b, B(_) => True },"
        " B(_) => match (%t) { A(_) => %c, B(%b) => %b } }",
        "let %r = match (%t) { A(%a) => %a, B(_) => { let %s = match (%t) { A(_) => %c, B(%b) => %b }; %s } }; %r",
        "type T { A(bool), B(bool), }",
        "%t: T, %c: bool",
    )


def test_loops_over_constants():
    _, result = run(
        "def @f(%i: int32, %x: int32) -> int32 { if (less(%i, 10)) { @f(add(%i, 1), add(%x, %x)) }"
        " else { %x } } def @main(%x: int32) -> int32 { @f(0, %x) }"
    )
    assert count(result, relay.If) == 0 and count(result, relay.Call) == 10


@pytest.mark.parametrize(
    "body",
    [
        "let %f = fn (%y: Tensor[(2), float32]) -> Tensor[(2), float32] { %f(%y) }; %f(%x)",
        "let %f = fn (%y: Tensor[(2), float32]) -> Tensor[(2), float32] { if (%c) { %f(%y) } else { %y } }; %f(%x)",
        "let %f = fn (%i: int32) -> int32 { %f(add(%i, 1)) }; %f(0)",
        "let %f = fn (%i: int32) -> int32 { if (%c) { add(%f(add(%i, 1)), %f(add(%i, 2))) } else { %i } }; %f(0)",
    ],
)
def test_recursion_that_nothing_ends(body):
    mod, result = run("def @main(%x: Tensor[(2), float32], %c: bool) { " + body + " }")
    assert count(result, relay.Let) <= count(mod, relay.Call) + count(mod, relay.If) + 5


def test_effects():
    text = """
    def @main(%x: int32) {
      let %r = ref(%x);
      let %f = fn (%y: int32) { let %u = ref_write(%r, add(ref_read(%r), %y)); %y };
      let %a = %f(1);
      let %b = if (True) { %f(2) } else { %f(3) };
      let %unused = %f(4);
      (%a, %b, ref_read(%r))
    }"""
    mod, result = run(text)
    assert count(result, relay.RefWrite) == 3 and count(result, relay.Function) == 1
    for m in (mod, result):
        assert [int(v.numpy()) for v in Interpreter(m).function("main")(np.int32(10))] == [1, 2, 17]


def test_cells_whose_contents_are_known():
    check(
        "let %r = ref(%x); let %u = ref_write(%r, add(ref_read(%r), %x)); ref_read(%r)",
        "let %r = ref(%x); let %a = add(%x, %x); let %u = ref_write(%r, %a); %a",
    )
    text = """
    def @main(%c: bool, %q: ref(int32), %f: fn (ref(int32)) -> int32) {
      let %r = ref(1);
      let %a = CODE;
      ref_read(%r)
    }"""
    writes = [
        "if (%c) { ref_write(%r, 2) } else { () }",
        "ref_write(%q, 3)",
        "%f(%r)",
        "match (%c) { _ => if (%c) { let %u = ref_write(%r, 4); 1 } else { 2 } }",
    ]
    for code in writes:
        assert count(run(text.replace("CODE", code))[1], relay.RefRead) == 1
    for code in ("if (%c) { 1 } else { ref_read(%r) }", "add(2, 3)", "fn () { ref_write(%r, 5) }"):
        assert count(run(text.replace("CODE", code))[1], relay.RefRead) == 0
    body = "if (%c) { let %u = ref_write(%r, %n); %g(ref_read(%r)) } else { 0 }"
    loop = f"{{ let %g = fn (%n: int32) -> int32 {{ {body} }}; %g(7) }}"
    assert count(run(text.replace("CODE", loop))[1], relay.RefRead) == 1


def test_what_decides_nothing_stays():
    mod, _ = run(NAT + "def @main(%n: nat, %x: int32) { (@add(%n, %n), add(%x, 1)) }")
    assert PartialEvaluate()(mod)["main"] is mod["main"]


def test_polymorphic_functions_that_are_left():
    text = """
    def @compose[A, B, C](%f: fn (B) -> C, %g: fn (A) -> B) -> fn (A) -> C { fn (%x: A) -> C { %f(%g(%x)) } }
    def @main(%h: fn (int32) -> bool, %g: fn (float32) -> int32) { @compose(%h, %g) }
    """
    _, result = run(text)
    body = result["main"].body
    assert str(result["main"].ret_type) == "fn (float32) -> bool" and type(body.value) is relay.Function


def test_types_of_constructors_and_functions_that_were_values():
    text = """
    type List[A] { Cons(A, List[A]), Nil, }
    type Box[A] { Box(fn () -> List[A]), }
    def @empty[A](%n: int32) -> List[A] { if (less(%n, 0)) { Nil } else { @empty(subtract(%n, 1)) } }
    def @keep[A](%f: fn (int32) -> List[A], %n: int32) -> int32 {
      let %l = %f(%n);
      match (%l) { Nil => 1, Cons(_, _) => 2 }
    }
    def @main(%n: int32) {
      let %f: fn (int32) -> List[bool] = @empty;
      let %a: fn (bool, List[bool]) -> List[bool] = Cons;
      (@keep(%f, %n), %a)
    }"""
    _, result = run(text)
    assert count(result, relay.Match) == 1


def test_long_chains():
    x = relay.var("x", "int32")
    variables = [relay.var("v") for _ in range(10_000)]
    bindings = [(v, w + relay.const(1)) for w, v in zip([x, *variables], variables, strict=False)]
    body = relay.expr.lets([*bindings, (relay.var("u"), relay.If(relay.const(True), x, x))], variables[-1])
    mod = PartialEvaluate()(ir.IRModule({"main": relay.Function([x], body)}))
    assert len(relay.expr.let_chain(mod["main"].body)[0]) == 10_000
