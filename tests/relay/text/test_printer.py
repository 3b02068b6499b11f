"""What Relay looks like as text."""

import numpy as np
import pytest

from tests.relay.text.programs import PROGRAMS
from weft import ir, relay, script, tir

X = relay.var("x", shape=(2, 3))


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (1, "int32", "1"),
        (-7, "int64", "-7i64"),
        (200, "uint8", "200u8"),
        (True, "bool", "True"),
        (1.5, "float32", "1.5f"),
        (10e10, "float32", "1e+11f"),
        (0.1, "float32", "0.1f"),
        (0.1, "float64", "0.1f64"),
        (-0.0, "float32", "-0f"),
        (np.inf, "float32", "inff"),
        (-np.inf, "float16", "-inff16"),
        (np.nan, "float64", "nanf64"),
        (2.0, "bfloat16", "2.0bf16"),
        (1e-30, "float32", "1e-30f"),
    ],
)
def test_scalars(value, dtype, text):
    made = relay.const(value, dtype)
    assert str(made) == text
    assert ir.structural_equal(relay.parse_expr(text), made)


def test_a_nan_with_a_payload_is_metadata():
    odd = relay.const(np.array(0x7FC01234, "uint32").view("float32"))
    assert str(odd).startswith("meta[relay.Constant][0]")
    assert relay.parse_expr(odd.astext()).data.numpy().tobytes() == odd.data.numpy().tobytes()


def test_numbers_are_given_in_order_of_use():
    z = X + relay.const(1.0)
    w = relay.Function([X], relay.Tuple([z, z * z]))
    assert str(w) == "\n".join(
        ("fn (%x: Tensor[(2, 3), float32]) {", "  %0 = add(%x, 1f);", "  %1 = multiply(%0, %0);", "  (%0, %1)", "}")
    )


def test_a_node_that_two_branches_share_stands_before_them():
    shared = X + X
    text = str(relay.If(relay.var("c", "bool"), relay.Tuple([shared]), shared * shared))
    assert text.index("%0 = add(%x, %x);") < text.index("if (%c)") and text.count("add(") == 1


def test_a_node_of_one_branch_stands_inside():
    text = str(relay.If(relay.var("c", "bool"), relay.Tuple([X + X]), X))
    assert text.index("if (%c)") < text.index("%0 = add(%x, %x);")


def test_a_shared_node_stays_where_its_variables_are_known():
    """The same variable may be bound twice; what hangs on it is then written twice."""
    v = relay.Var("v")
    inner = v + v
    one, two = (relay.Function([], relay.Let(v, relay.const(k), relay.Tuple([inner]))) for k in (1, 2))
    both = relay.Tuple([one, two])
    assert ir.structural_equal(relay.parse_expr(both.astext()), both)
    again = relay.Function([v], relay.Tuple([inner, relay.Function([v], inner)]))
    assert ir.structural_equal(relay.parse_expr(again.astext()), again)


def test_lets_are_lines_and_nested_lets_stand_between_braces():
    x, y = relay.Var("x"), relay.Var("x")
    inner = relay.Let(y, relay.const(1), y)
    assert str(relay.Let(x, inner, x)) == "let %x = {\n  let %x1 = 1;\n  %x1\n};\n%x"
    tup = relay.Tuple([relay.const(0), relay.const(0)])
    assert str(relay.Let(x, tup, tup)) == "%0 = (0, 0);\nlet %x = %0;\n%0"
    assert str(relay.Let(x, tup, x)) == "let %x = (0, 0);\n%x"


def test_names():
    assert "%v1" in relay.var("1").astext()
    assert "%base/x" in str(relay.var("base/x"))
    odd = relay.Function([relay.var("layer.0.weight"), relay.var('a\n"b')], relay.const(1))
    assert [p.name_hint for p in relay.parse_expr(odd.astext()).params] == ["layer.0.weight", 'a\n"b']
    assert str(relay.Function([relay.var("x"), relay.var("x")], relay.const(1))).startswith("fn (%x, %x1)")


def test_types_are_comments_and_annotations():
    mod = relay.transform.InferType()(relay.parse("def @main(%x: int32) { let %y = %x + 1; (%y + 2, 3) }"))
    text = str(mod)
    assert "let %y: int32 = add(%x, 1 /* ty=int32 */);" in text
    assert "add(%y, 2 /* ty=int32 */) /* ty=int32 */;" in text
    assert "-> (int32, int32)" in text
    assert ir.structural_equal(relay.parse(mod.astext()), mod)


def test_comments_may_be_given():
    text = (X + X).astext(annotate=lambda e: f"a {type(e).__name__} */ here")
    assert "add(%x, %x) /* a Call * / here */" in text
    assert "add(%x, %x) /* mine */" in (X + X).astext(annotate=lambda e: "/* mine */")


def test_the_metadata_stands_at_the_end():
    f = relay.Function([X], X + relay.const(np.arange(6, dtype="float32").reshape(2, 3)))
    assert "meta[relay.Constant][0]" in str(f) and "#[metadata]" not in str(f)
    assert f.astext().startswith('#[version = "0.0.5"]\n') and "#[metadata]" in f.astext()
    assert "#[metadata]" not in f.astext(show_meta_data=False)
    assert ir.structural_equal(relay.parse_expr(f.astext()), f)


def test_symbolic_dimensions():
    n = tir.SizeVar("n", "int64")
    x = relay.var("x", shape=(n, n * 2, relay.Any(), 4))
    assert "Tensor[(meta[tir.SizeVar][0], meta[tir.Mul][0], ?, 4), float32]" in x.astext()
    assert str(x.ty) == "Tensor[(n, n * 2, ?, 4), float32]"
    shape = relay.parse_expr(x.astext()).ty.shape
    assert isinstance(shape[2], relay.Any) and ir.structural_equal(shape[1].a, shape[0])


def test_attributes_that_differ_from_the_defaults():
    assert str(relay.nn.softmax(X)).endswith("nn.softmax(%x)")
    assert "nn.softmax(%x, axis=0)" in str(relay.nn.softmax(X, axis=0))
    lacking = relay.Call(ir.Op.get("nn.softmax"), [X])
    assert "nn.softmax(%x, axis=_)" in str(lacking)
    assert ir.structural_equal(relay.parse_expr(lacking.astext()), lacking, True)
    assert "Note=None" in str(relay.Function([X], X).with_attr("Note", None))


def test_data_types_and_free_variables():
    text = str(relay.parse(PROGRAMS["patterns"]))
    assert "extern type Handle[A]" in text and "type Pair[A, B] {\n  Both(A, B),\n  Neither,\n}" in text
    assert (X + X).astext().splitlines()[1:] == ["free_var %x: Tensor[(2, 3), float32];", "add(%x, %x)"]
    assert str(X) == "%x"


def test_constructors_that_are_not_called():
    mod = relay.parse(
        "type Box { Full(int32), Empty } def @main() { (Empty, Full, meta[relay.Constructor][Empty], Empty()) }"
    )
    call, full, empty, same = mod["main"].body.fields
    assert isinstance(call, relay.Call) and isinstance(same, relay.Call) and full.name_hint == "Full"
    assert empty is call.op and str(empty) == "Empty"
    ir.assert_structural_equal(relay.parse(mod.astext()), mod)


def test_a_lowered_module_shows_both_languages():
    kernel = script.from_source("@T.prim_func\ndef k(A: T.Buffer((2,), 'float32')):\n    A[0] = T.float32(1)")
    mod = ir.IRModule({"main": relay.Function([X], X), "k": kernel})
    assert "def @main(%x: Tensor[(2, 3), float32]) {" in str(mod) and "def k(A: T.Buffer" in str(mod)


def test_other_modules_are_tvmscript():
    kernel = script.from_source("@T.prim_func\ndef k(A: T.Buffer((2,), 'float32')):\n    A[0] = T.float32(1)")
    assert "@I.ir_module" in str(ir.IRModule({"k": kernel})) and "def k" in kernel.astext()


def test_long_programs():
    v = relay.const(1)
    for i in range(5000):
        v = v + relay.const(i)
    assert str(v).count("add(") == 5000
    chain = relay.const(1)
    for i in range(10_000):
        chain = relay.Let(relay.Var("x"), relay.const(i), chain)
    assert str(chain).count("let ") == 10_000


def test_malformed_nodes_are_still_printed():
    assert str(relay.Call(None, (None,))) and str(relay.Match(None, ())) and str(relay.Function([], None))
    assert str(relay.TensorType((2,), "float32")) == "Tensor[(2), float32]"


@pytest.mark.parametrize("text", ["(64).0", "(1f).1", "(@main).0", "(add).2", "(%x).0", "(%x, %x).1"])
def test_an_item_of_an_atom_is_no_number_and_no_name(text):
    mod = relay.parse(f'#[version = "0.0.5"]\ndef @main(%x: int32) {{\n  let %f = fn () {{ {text} }};\n  %x\n}}')
    ir.assert_structural_equal(relay.parse(mod.astext()), mod)


def test_a_program_without_functions_is_read_back():
    empty = relay.parse('#[version = "0.0.5"]\n')
    assert not empty.functions and ir.structural_equal(relay.parse(empty.astext()), empty)
    assert "@I.ir_module" in str(empty)
