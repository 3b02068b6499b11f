"""The forms of Relay: what each refuses, and which passes lead there."""

from tests.refusals import refuses
from weft import error, ir, relay
from weft.ir.spec import verify
from weft.relay.op import op_call

TEXT = """
type List[A] { Cons(A, List[A]), Nil, }
def @f(%x: Tensor[(?, 2), float32], %c: bool) {
  if (%c) { exp(exp(%x)) } else { let %t = (%x, %x); concatenate(%t) }
}
def @len[A](%xs: List[A]) { match (%xs) { Cons(_, %r) => add(1, @len(%r)), Nil => 0 } }
def @main(%x: Tensor[(3, 2), float32]) {
  (@f(%x, True), @len(Cons(%x, Nil)), fn (%q) { add(exp(%q), %x) }(%x))
}
"""
INT = relay.scalar_type("int32")


def violation(body, form, params=(), passes=()):
    mod = ir.IRModule({"main": relay.Function(params, body)})
    for p in passes:
        mod = p(mod)
    return str(refuses(error.ErrorGroup, "", verify, mod, form))


def test_the_passes_lead_through_the_forms():
    typed = relay.transform.InferType()(relay.fromtext(TEXT))
    verify(typed, "relay.typed")
    refuses(error.ErrorGroup, "not 'relay.anf'", verify, typed, "relay.anf")
    lifted = relay.transform.LambdaLift()(relay.transform.ToANormalForm()(typed))
    verify(lifted, "relay.anf")
    again = relay.transform.InferType()(lifted)
    verify(again, "relay.typed")
    refuses(error.ErrorGroup, "operator 'exp' is left", verify, again, "relay.lowered")
    lowered = relay.transform.ManifestAlloc("llvm")(relay.transform.LowerRegions("llvm")(again))
    verify(lowered, "relay.lowered")
    verify(relay.transform.InferType()(lowered), "relay.typed")


def test_scopes():
    x = relay.Var("x", INT)
    assert "main: variable '%x' is used where it is not bound" in violation(x, "relay.well_formed")


def test_types():
    x = relay.Var("x")
    assert "`%x` has no type" in violation(x, "relay.typed", (x,))
    assert "the type of the result is not known" in violation(relay.const(1), "relay.typed")
    y = relay.Var("y", relay.TupleType((relay.IncompleteType(),)))
    assert "the type of `%y` is incomplete" in violation(y, "relay.typed", (y,))


def test_a_normal_form():
    x, y = relay.Var("x", INT), relay.Var("y", INT)
    assert "the operand `add(%x, %x)` is no atom" in violation(relay.Let(y, (x + x) + x, y), "relay.anf", (x,))
    assert "the result `add(%x, %x)` is no atom" in violation(x + x, "relay.anf", (x,))
    branch = relay.Let(y, relay.If(relay.const(True), x + x, x), y)
    assert "the result `add(%x, %x)` is no atom" in violation(branch, "relay.anf", (x,))
    inner = relay.Let(y, relay.Let(relay.Var("z", INT), x, x), y)
    assert "a let is the value of a let" in violation(inner, "relay.anf", (x,))


def test_lowered():
    t = relay.var("t", shape=(2,))
    y = relay.Var("y")
    text = violation(relay.Let(y, op_call("exp", t), y), "relay.lowered", (t,), [relay.transform.InferType()])
    assert "operator 'exp' is left, which no kernel computes" in text
