"""Programs in Relay text that use every form of the language; the tests print, parse, change and break them."""

from tests.texts import named

PROGRAMS = named("""
# arithmetic
def @main(%x: Tensor[(2, 3), float32], %y: Tensor[(?, 3), float32]) -> Tensor[(?, 3), float32] {
  %0 = add(%x, %y);
  %1 = (%0, %0, 2f);
  multiply(%1.0, -%1.1) / 3f
}
# lists
type List[A] {
  Cons(A, List[A]),
  Nil,
}
def @map[A, B](%f: fn (A) -> B, %xs: List[A]) -> List[B] {
  match (%xs) {
    Cons(%h, %t) => Cons(%f(%h), @map(%f, %t)),
    Nil => Nil,
  }
}
def @even(%n: int32) -> bool {
  if (%n == 0) { True } else { @odd(%n - 1) }
}
def @odd(%n: int32) -> bool {
  if (%n == 0) { False } else if (%n == 1) { True } else { @even(%n - 1) }
}
def @main() -> List[bool] {
  @map(@even, Cons(1, Cons(2, Nil())))
}
# references
def @main(%x: float32) {
  let %cell: ref(float32) = ref(%x);
  let %bump = fn (%by: float32) -> () { ref_write(%cell, ref_read(%cell) + %by) };
  %bump(1f);
  %bump(-2.5f);
  ref_read(%cell)
}
# patterns
extern type Handle[A]
type Pair[A, B] { Both(A, B), Neither }
def @main(%p: Pair[(int32, int64), Handle[float64]], %d: fn [T](T) -> (T,)) {
  match? (%p) {
    Both((%a: int32, _), _) => {
      let %b = { let %c = %a * 2; %c };
      (%b, 1i64).0
    },
    Both(_, %h) => 300,
  }
}
# closures
def @compose[A, B, C](%f: fn (B) -> C, %g: fn (A) -> B) -> fn (A) -> C {
  fn (%x: A) -> C { %f(%g(%x)) }
}
def @main(%x: Tensor[(3), int8], Primitive=1, "odd name"="a\\nb", sizes=[1, -2.5f, None, {"a"=True}]) {
  let %loop = fn (%i, %acc) { if (%i < 1i64) { %acc } else { %loop(%i - 1i64, %acc + %x) } };
  %loop(10i64, cast(%x, dtype="int8"))
}
""")
