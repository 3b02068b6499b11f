"""Defunctionalization: the same values, and no functions among values."""

import numpy as np
import pytest

import weft
from weft import error, relay
from weft.relay.transform import Defunctionalization, InferType
from weft.relay.walk import subexpressions

CLOSURES = """
type List[A] { Cons(A, List[A]), Nil, }
def @foldr[A, B](%f: fn (A, B) -> B, %z: B, %l: List[A]) -> B {
  match (%l) { Cons(%h, %t) => %0 = @foldr(%f, %z, %t); %f(%h, %0), Nil => %z, }
}
def @compose[A, B, C](%f: fn (B) -> C, %g: fn (A) -> B) -> fn (A) -> C { fn (%x: A) -> C { %f(%g(%x)) } }
def @id[A](%x: A) -> A { %x }
def @main(%x: Tensor[(3), float32], %b: Tensor[(), bool], %n: Tensor[(), int32]) -> Tensor[(3), float32] {
  let %k = fn (%y: Tensor[(3), float32]) -> Tensor[(3), float32] { add(%y, %x) };
  let %d = fn (%y: Tensor[(3), float32]) -> Tensor[(3), float32] { multiply(%y, 2f) };
  let %f = if (%b) { %k } else { @compose(%k, %d) };
  let %rep = fn (%i: Tensor[(), int32], %v: Tensor[(3), float32]) -> Tensor[(3), float32] {
    if (equal(%i, 0)) { %v } else { %rep(subtract(%i, 1), %f(%v)) }
  };
  let %each = fn (%g: fn (Tensor[(3), float32]) -> Tensor[(3), float32], %a: Tensor[(3), float32])
    -> Tensor[(3), float32] { %g(%a) };
  let %all = @foldr(%each, %x, Cons(%f, Cons(%d, Cons(@id, Nil))));
  add(%rep(%n, %x), %all)
}
"""
CELLS = """
def @main(%x: Tensor[(3), float32], %b: Tensor[(), bool], %n: Tensor[(), int32]) -> Tensor[(3), float32] {
  let %p = (fn (%y: Tensor[(3), float32]) -> Tensor[(3), float32] { add(%y, %x) },
            fn (%y: Tensor[(3), float32]) -> Tensor[(3), float32] { negative(%y) });
  let %r = ref(%p.0);
  let %q = ref_read(%r);
  let %u = ref_write(%r, %p.1);
  let %s = ref_read(%r);
  add(%q(%s(%x)), %p.0(%x))
}
"""


def closures(x, b, n):
    f = (lambda v: v + x) if b else (lambda v: v * 2 + x)
    y = x
    for _ in range(n):
        y = f(y)
    return y + f(x * 2)


def converted(text):
    mod = InferType()(relay.fromtext(text))
    mod["main"] = Defunctionalization(mod["main"], mod)
    return InferType()(mod)


@pytest.mark.parametrize("executor", ["debug", "vm"])
@pytest.mark.parametrize(("text", "meaning"), [(CLOSURES, closures), (CELLS, lambda x, b, n: 2 * x)])
def test_functions_become_data(text, meaning, executor):
    mod = converted(text)
    run = relay.create_executor(executor, mod).evaluate()
    x = np.array([1, -2, 0.5], "float32")
    for b, n in ((True, 0), (False, 3)):
        np.testing.assert_array_equal(run(x, np.array(b), np.int32(n)).numpy(), meaning(x.astype("float64"), b, n))
    reached, waiting = set(), ["main"]
    while waiting:
        func = mod[waiting.pop()]
        for e in subexpressions(func):
            if isinstance(e, relay.GlobalVar) and e.name_hint not in reached:
                reached.add(e.name_hint)
                waiting.append(e.name_hint)
            args = e.args if isinstance(e, relay.Call) else ()
            assert not any(isinstance(t, relay.FuncType) for a in args for t in weft.ir.walk(a.ty)), str(e)


def test_functions_from_outside_are_refused():
    mod = InferType()(
        relay.fromtext("""
def @main(%f: fn (Tensor[(3), float32]) -> Tensor[(3), float32], %x: Tensor[(3), float32]) { %f(%x) }
""")
    )
    with pytest.raises(error.InvalidArgument, match="functions go in or out"):
        Defunctionalization(mod["main"], mod)


def test_a_module_has_its_data_types_by_their_variables():
    mod = relay.fromtext(CLOSURES)
    assert mod[mod.get_global_type_var("List")].constructors[0].name_hint == "Cons"
