"""Types of well-typed programs."""

import time

import pytest

from weft import error, ir, relay
from weft.relay.expr import lets
from weft.relay.op import op_call

LIST = """
type List[A] { Cons(A, List[A]), Nil, }
type Option[A] { Some(A), None, }
def @map[A, B](%f: fn(A) -> B, %xs: List[A]) -> List[B] {
  match (%xs) { Cons(%x, %rest) => Cons(%f(%x), @map(%f, %rest)), Nil => Nil }
}
def @length[A](%xs: List[A]) { match (%xs) { Cons(_, %rest) => add(1, @length(%rest)), Nil => 0 } }
"""


def infer(text):
    return relay.transform.InferType()(relay.fromtext(text))


def result(text, name="main"):
    return str(infer(text)[name].ret_type)


def test_the_result_of_a_recursive_function_is_inferred():
    mod = infer(LIST + "def @main() { (@length(Cons(1f, Nil)), @length(Cons((1, 2), Nil))) }")
    assert str(mod["length"].ty) == "fn [A](List[A]) -> int32"
    assert str(mod["main"].ret_type) == "(int32, int32)"


def test_calls_of_polymorphic_functions_have_type_arguments():
    mod = infer(LIST + "def @main(%x: Tensor[(3), float32]) { @map(fn (%y) { (%y, less(%y, %y)) }, Cons(%x, Nil)) }")
    call = mod["main"].body
    assert [str(t) for t in call.type_args] == ["Tensor[(3), float32]", "(Tensor[(3), float32], Tensor[(3), bool])"]
    assert str(call.ty) == "List[(Tensor[(3), float32], Tensor[(3), bool])]"
    assert str(call.args[0].ty.arg_types[0]) == "Tensor[(3), float32]"
    assert [str(t) for t in call.args[1].args[1].type_args] == ["Tensor[(3), float32]"]


def test_type_arguments_of_an_operator_are_those_of_its_arguments():
    x, y = relay.var("x", shape=(10, 10)), relay.var("y", shape=(1, 10))
    assert [t.concrete_shape for t in relay.infer_type(x + y).type_args] == [(10, 10), (1, 10)]


def test_polymorphic_recursion():
    """The recursive call is of another type than the function itself: only its annotation tells."""
    nested = "type Nested[A] { Flat(A), Deep(Nested[(A, A)]), }\n"
    mod = infer(
        nested
        + """
def @depth[A](%n: Nested[A]) -> int32 {
  match (%n) { Flat(_) => 0, Deep(%inner) => add(1, @depth(%inner)) }
}
def @main() { @depth(Deep(Flat((1f, 2f)))) }
"""
    )
    (_, deep) = mod["depth"].body.clauses
    a = mod["depth"].type_params[0]
    assert deep.rhs.args[1].type_args == (relay.TupleType((a, a)),)


def test_mutual_recursion():
    mod = infer("""
def @main() { @even(10) }
def @even(%n) { if (equal(%n, 0)) { True } else { @odd(subtract(%n, 1)) } }
def @odd(%n: int32) { if (equal(%n, 0)) { False } else { @even(subtract(%n, 1)) } }
""")
    assert [str(f.ty) for f in mod.functions.values()] == ["fn () -> bool", "fn (int32) -> bool", "fn (int32) -> bool"]


def test_mutual_recursion_of_polymorphic_functions():
    mod = infer(
        LIST
        + """
def @a[A](%xs: List[A]) { match (%xs) { Cons(%x, %r) => @b(%x, %r), Nil => None } }
def @b[B](%y: B, %ys: List[B]) { match (%ys) { Nil => Some(%y), _ => @a(%ys) } }
def @main() { @a(Cons(True, Nil)) }
"""
    )
    assert str(mod["a"].ret_type) == "Option[A]"
    assert str(mod["b"].ret_type) == "Option[B]"
    assert str(mod["main"].ret_type) == "Option[bool]"


RESULTS = {  # programs, whose first row says what `@main` returns
    "a let that refers to itself": """int32
def @main(%n: int32) {
  let %sum = fn (%i) { if (less(%i, 1)) { 0 } else { add(%i, %sum(subtract(%i, 1))) } };
  %sum(%n)
}""",
    "a polymorphic function of a let": """(int32, bool, float32)
def @main() {
  let %id = fn [A](%x: A) -> A { %x };
  let %same = %id;
  (%same(1), %same(True), %id(%id)(2f))
}""",
    "a constructor is a function": """List[Option[int32]]
def @main(%xs: List[int32]) { @map(Some, %xs) }""",
    "a polymorphic function is an argument": """List[int32]
def @id[T](%x: T) { %x }
def @main(%xs: List[int32]) { @map(@id, @map(@length, Cons(%xs, Nil))) }""",
    "parameters are told by their use": """Tensor[(3), bool]
def @main(%x: Tensor[(3), float32]) {
  let %compose = fn (%f, %g) { fn (%v) { %f(%g(%v)) } };
  let %h = %compose(fn (%a) { less(%a, %a) }, fn (%p) { %p.1 });
  %h((1, %x))
}""",
    "elements of what is told later": """(Tensor[(2), float32], Tensor[(2), float32])
def @main(%x: Tensor[(2), float32]) {
  let %second = fn (%t) { exp(%t.1) };
  (%second((1, %x)), ref_read(fn (%r) { %r }(ref(%x))))
}""",
}


@pytest.mark.parametrize("program", RESULTS.values(), ids=RESULTS)
def test_results_of_functions_of_functions(program):
    expected, text = program.split("\n", 1)
    assert result(LIST + text) == expected


def test_nested_patterns():
    text = (
        LIST
        + """
def @main(%xs: List[(int32, Option[float32])]) {
  match (%xs) {
    Cons((%n, Some(%f)), Cons((_, %o), _)) => (%n, %f, %o),
    _ => (0, 1f, None),
  }
}"""
    )
    mod = infer(text)
    assert str(mod["main"].ret_type) == "(int32, float32, Option[float32])"
    bound = relay.analysis.bound_vars(mod["main"].body)
    assert {v.name_hint: str(v.ty) for v in bound} == {"n": "int32", "f": "float32", "o": "Option[float32]"}


def test_an_incomplete_annotation_is_completed():
    x = relay.Var("x", relay.TupleType((relay.IncompleteType(), relay.scalar_type("bool"))))
    f = relay.Function((x,), relay.TupleGetItem(x, 0) + relay.const(1))
    done = relay.infer_type(f(relay.Tuple((relay.const(2), relay.const(True)))))
    assert str(done.op.ty) == "fn ((int32, bool)) -> int32"
    fixed = relay.IncompleteType()
    y, z = relay.Var("y", fixed), relay.Var("z", fixed)
    pair = relay.Function((y, z), relay.Tuple((y + relay.const(1.0), z)))
    done = relay.infer_type(pair(relay.Var("a", relay.IncompleteType()), relay.const(2.0)))
    assert str(done.ty) == "(float32, float32)"
    assert str(done.args[0].ty) == "float32"


def test_what_is_typed_keeps_its_identity():
    mod = infer(LIST + "def @main(%x: int32) { let %l = Cons(%x, Nil); (@length(%l), %l) }")
    assert infer_again(mod) is mod
    f = relay.Function((), relay.GlobalVar("main")(relay.const(1)))
    done = infer_again(mod.with_functions({**mod.functions, "more": f}))
    assert all(done[name] is mod[name] for name in ("main", "length", "map"))
    assert done["more"].ret_type == mod["main"].ret_type
    assert done["more"].body.op is done.get_global_var("main")


def infer_again(mod):
    return relay.transform.InferType()(mod)


def test_annotated_variables_keep_their_identity():
    x, y = relay.Var("x", relay.scalar_type("int32")), relay.Var("y")
    f = relay.infer_type(relay.Function((x,), relay.Let(y, x + x, y * x)))
    assert f.params == (x,)
    assert f.body.var is not y
    assert f.body.body.args[0] is f.body.var
    assert f.body.body.args[1] is x


def test_the_input_is_left_as_it_is():
    x = relay.var("x", shape=(2,))
    f = relay.Function((x,), x + x)
    mod = ir.IRModule({"main": f})
    assert relay.infer_type(mod)["main"].ty is not None
    assert mod["main"] is f
    assert (f.ty, f.body.ty, f.ret_type) == (None, None, None)


def test_global_variables_keep_their_identity():
    x = relay.Var("x", relay.scalar_type("int32"))
    g = relay.GlobalVar("g")
    mod = ir.IRModule({g: relay.Function((x,), x), "main": relay.Function((x,), relay.GlobalVar("g")(x))})
    done = relay.infer_type(mod)
    assert done.functions[g].ty == g.ty
    assert done["main"].body.op is g
    other = relay.Function((relay.var("y", shape=(2,)),), relay.const(1))
    again = relay.infer_type(ir.IRModule({g: other}))
    assert again.get_global_var("g").ty == again["g"].ty != g.ty, "a variable that has another type is replaced"


def test_shared_expressions_stay_shared():
    x = relay.var("x", shape=(2,))
    y = x + x
    done = relay.infer_type(relay.Tuple((y * y, y)))
    assert done.fields[0].args[0] is done.fields[0].args[1] is done.fields[1]
    e = x
    for _ in range(200):  # a tree of 2^200 leaves, if it were one
        e = e + e
    assert relay.infer_type(e).ty == x.ty


def test_a_stale_type_is_replaced():
    """A pass that changes an argument leaves types of what depends on it behind."""
    x, z = relay.var("x", shape=(2,)), relay.var("z", shape=(5,), dtype="float64")
    old = relay.infer_type((x + x) * x)
    new = relay.infer_type(ir.substitute(old, {x: z}))
    assert new.ty == new.args[0].ty == z.ty


def test_elements_of_a_typed_tuple_may_have_lost_their_types():
    x = relay.var("x", shape=(2,))
    pair = relay.Tuple((x, relay.If(relay.const(True), x, x)), ty=relay.TupleType((x.ty, x.ty)))
    assert relay.infer_type(op_call("concatenate", pair)).ty == relay.TensorType((4,))


@pytest.mark.parametrize("nest", ["lets", "calls", "functions", "data"])
def test_deep_programs(nest):
    n, x = 400 if nest == "functions" else 5000, relay.var("x", shape=(2,))
    mod = relay.fromtext(LIST)
    cons, nil = mod.get_type("List")[1:]
    if nest == "lets":
        vs = [relay.Var("v") for _ in range(n)]
        program = lets([(v, op_call("exp", a)) for v, a in zip(vs, [x, *vs], strict=False)], vs[-1])
    else:
        program = nil() if nest == "data" else x
        for _ in range(n):
            program = (
                op_call("exp", program)
                if nest == "calls"
                else relay.Function((), program)
                if nest == "functions"
                else cons(x, program)
            )
    start = time.process_time()
    ty = relay.infer_type(program, mod).ty
    assert str(program) and time.process_time() - start < 20
    if nest in ("lets", "calls"):
        assert ty == x.ty
    elif nest == "data":
        assert str(ty) == "List[Tensor[(2), float32]]"


def test_functions_that_nobody_calls_are_checked():
    with pytest.raises(error.TypeInferenceError, match="no tuple"):
        infer("def @main() { 0 }\ndef @unused(%x: int32) { %x.0 }")


def test_a_kernel_may_stand_beside():
    mod = infer("def @main(%x: int32) { %x }")
    assert relay.infer_type(mod.with_functions({**mod.functions, "k": ir.ExternFunc("k")}))["k"] is not None


@pytest.mark.parametrize(
    "branches", ["Some } else { fn (%x: int32) { Some(%x) }", "fn (%x: int32) { Some(%x) } } else { Some"]
)
def test_a_polymorphic_branch_fits_the_other_whichever_stands_first(branches):
    text = LIST + "def @main(%flag: bool) { if (%flag) { " + branches + " } }"
    assert result(text) == "fn (int32) -> Option[int32]"


def test_dimensions_are_equal_as_numbers():
    n, m, wide = (ir.Var(v, t) for v, t in (("n", "int32"), ("m", "int32"), ("k", "int64")))
    shape = lambda d: relay.TensorType((d,))  # noqa: E731
    for a, b in ((n + 2, ir.Cast("int64", n) + 2), (n * m * 4, m * 4 * n), (n + n, ir.Cast("int64", n) * 2)):
        assert shape(a) == shape(b) and hash(shape(a)) == hash(shape(b))
    for a, b in ((n + 1, n + 2), (n, m), (n, wide), (n, relay.Any()), (n - n + 2, ir.int64(2))):
        assert shape(a) != shape(b)
    assert shape(n + n) != relay.TensorType((n * 2,), "int8")
