"""Relay text means the nodes that one would build by hand."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from tests.relay.text.programs import PROGRAMS
from weft import error, ir, relay
from weft.frontend.common import pairs

UNIT = relay.Tuple([])


def same(text, expr):
    parsed = relay.parse_expr(text)
    ir.assert_structural_equal(parsed, expr, map_free_vars=True)
    ir.assert_structural_equal(relay.parse_expr(parsed.astext()), expr, map_free_vars=True)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_survive_printing(name):
    mod = relay.parse(PROGRAMS[name])
    again = relay.parse(mod.astext())
    ir.assert_structural_equal(again, mod)
    assert again.astext() == mod.astext()
    ir.assert_structural_equal(ir.load_json(ir.save_json(mod)), mod)
    assert ir.structural_hash(again) == ir.structural_hash(mod)


OPERATORS = "*:multiply /:divide +:add -:subtract <:less >:greater <=:less_equal >=:greater_equal ==:equal !=:not_equal"


@pytest.mark.parametrize(("sign", "op"), pairs(OPERATORS).items())
def test_operators(sign, op):
    same(f"1 {sign} 2", relay.Call(ir.Op.get(op), [relay.const(1), relay.const(2)]))


def test_precedence():
    for a, b in [
        ("1 * 1 + 1 < 1 == 1", "(((1 * 1) + 1) < 1) == 1"),
        ("1 == 1 < 1 + 1 * 1", "1 == (1 < (1 + (1 * 1)))"),
        ("1 - 2 - 3", "(1 - 2) - 3"),
        ("-1f * 2f", "(-1f) * 2f"),
    ]:
        assert ir.structural_equal(relay.parse_expr(a), relay.parse_expr(b))
    assert not ir.structural_equal(relay.parse_expr("1 * 1 + 1"), relay.parse_expr("1 * (1 + 1)"))


@pytest.mark.parametrize(
    ("text", "value", "dtype"),
    [
        ("-05", -5, "int32"),
        ("--10", 10, "int32"),
        ("---10", -10, "int32"),
        ("-42i", -42, "int32"),
        ("-42i16", -42, "int16"),
        ("9223372036854775807i64", 2**63 - 1, "int64"),
        ("-128i8", -128, "int8"),
        ("-2147483648", -(2**31), "int32"),
        ("2147483648", 2**31, "int64"),
        ("-9223372036854775808", -(2**63), "int64"),
        ("1.56667f", 1.56667, "float32"),
        ("1e-1f", 0.1, "float32"),
        ("1.0E+1f", 10, "float32"),
        ("3f16", 3, "float16"),
        ("3f64", 3, "float64"),
        ("2.5", 2.5, "float32"),
    ],
)
def test_literals(text, value, dtype):
    made = relay.parse_expr(text)
    assert str(made.data.dtype) == dtype and made.data.numpy() == np.array(value, dtype)


def test_comments():
    same("// one line\n () /* a block /* inside */ a block */", UNIT)


def test_lets_and_numbers():
    x, y = relay.Var("x"), relay.Var("y")
    same("let %x = 1; let %y = 2; ()", relay.Let(x, relay.const(1), relay.Let(y, relay.const(2), UNIT)))
    same("(); ()", relay.Let(relay.Var("_"), UNIT, UNIT))
    same("%0 = (); %7 = 1; (%0, %0, %7)", relay.Tuple([UNIT, UNIT, relay.const(1)]))
    same("let %_ : _ = (); ()", relay.Let(relay.Var("_"), UNIT, UNIT))
    shared = relay.parse_expr("%0 = 1 + 2; (%0, %0)")
    assert shared[0] is shared[1]


def test_atoms():
    same("(0,)", relay.Tuple([relay.const(0)]))
    same("(0)", relay.const(0))
    same(
        "free_var %x: float32; %x((%x,).0, %x)",
        (lambda x: relay.Call(x, [relay.TupleGetItem(relay.Tuple([x]), 0), x]))(relay.var("x", shape=())),
    )
    assert relay.parse_expr("add") is ir.Op.get("add") and relay.parse_expr("nn.relu").name == "nn.relu"
    assert isinstance(relay.parse_expr("@foo"), relay.GlobalVar)
    same("if (True) { 0 } else { 1 }", relay.If(relay.const(True), relay.const(0), relay.const(1)))
    same("(fn (%x) { %x })(0)", relay.Call(relay.Function([x := relay.Var("x")], x), [relay.const(0)]))
    same(
        "((1, (2, 3)).1.0)",
        relay.TupleGetItem(
            relay.TupleGetItem(relay.Tuple([relay.const(1), relay.Tuple([relay.const(2), relay.const(3)])]), 1), 0
        ),
    )


@pytest.mark.parametrize(
    ("text", "ty"),
    [
        ("int8", relay.scalar_type("int8")),
        ("float16x4", relay.TensorType((), "float16x4")),
        ("()", relay.TupleType([])),
        ("Tensor[(), float32]", relay.TensorType(())),
        ("Tensor[(1, ?), bool]", relay.TensorType((1, relay.Any()), "bool")),
        ("(int32,)", relay.TupleType([relay.scalar_type("int32")])),
        ("(int32)", relay.scalar_type("int32")),
        ("fn (int32) -> ()", relay.FuncType([relay.scalar_type("int32")], relay.TupleType([]))),
        ("ref(int64)", relay.RefType(relay.scalar_type("int64"))),
    ],
)
def test_types(text, ty):
    assert relay.parse_expr(f"fn (%x: {text}) {{ 1 }}").params[0].ty == ty


def test_attributes():
    call = relay.parse_expr("free_var %x: Tensor[(2, 3), float32]; transpose(%x, axes=[1, 0])")
    assert call.attrs.axes == (1, 0)
    mod = relay.parse('def @f(a=-1, b=2.5f, c=3i64, d=[?, "x"], e={"k"=None}, "odd key"=float32) { 1 }')
    attrs = mod["f"].attrs
    assert (attrs["a"], attrs["b"], attrs["c"].value, attrs["d"][1], attrs["e"]["k"]) == (-1, 2.5, 3, "x", None)
    assert attrs["odd key"] == "float32" and isinstance(attrs["d"][0], relay.Any) and attrs["c"].dtype == "int64"
    assert ir.structural_equal(relay.parse(mod.astext()), mod)


def test_spans():
    mod = relay.parse("def @main(%x: int32) {\n  let %y = %x +\n    1;\n  (%y,)\n}", "prog.rly")
    let = mod["main"].body
    assert str(let.value.span) == "prog.rly:2:12" and (let.value.span.end_line, let.value.span.end_column) == (3, 6)
    assert str(let.body.span).endswith(":4:3") and str(let.var.span).endswith(":2:7")
    assert all(n.span is not None for n in ir.walk(mod["main"].body) if isinstance(n, ir.Expr))


def test_text_that_stands_on_a_module():
    base = relay.parse("type Box { Full(int32) } def @f(%y: int32) -> Box { Full(%y) }")
    table = {"relay.Constant": [relay.const(np.ones((2, 3), "float32"))]}
    mod = relay.parse("def @main(%x: int32) -> (Box, float32) { (@f(%x), meta[relay.Constant][0]) }", None, base, table)
    assert "f" in mod and mod["main"].body[1] is table["relay.Constant"][0] and "main" not in base
    assert mod["main"].body[0].op is base.get_global_var("f")
    refuses(error.ParseError, "@f is defined twice", relay.parse, "def @f() { 1 }", mod=base)


def test_metadata_of_wrong_kinds():
    text = relay.const(np.ones((2, 3), "float32")).astext()
    for old, new in [
        ('"d": "float32"', '"d": "int32"'),
        ('"value": 3', '"value": 4'),
        ('"t": 0', '"n": 0'),
        ('"n": 2', '"t": 0'),
    ]:
        assert old in text
        refuses(error.ParseError, "the metadata section cannot be read", relay.parse_expr, text.replace(old, new))


def test_modules_and_expressions():
    assert isinstance(relay.fromtext('#[version = "0.0.5"]\ndef @main() { 1 }'), ir.IRModule)
    assert isinstance(relay.fromtext('#[version = "0.0.5"]\n1'), relay.Constant)
    assert len(relay.parse("")) == 0 and weft.parser.parse is relay.parse
    refuses(error.InvalidArgument, "Relay text is a str", relay.parse, 3)


def check_error(text, line, column, message, read=relay.parse_expr):
    e = refuses(error.ParseError, "", read, text)
    assert message in str(e)
    assert (e.where.line, e.where.column) == (line, column)
    source = text.split("\n")[line - 1]
    assert not source.strip() or source.rstrip() in str(e)  # the message shows the line


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("1 +", 1, 4, "found the end of the text"),
        ("%x", 1, 1, "%x is not known here"),
        ("let %abc = 1; %abd", 1, 15, "did you mean %abc?"),
        ("\nadd(1,\n  axis=2)", 3, 3, "'add' has no attribute 'axis'"),
        ("let x = 1; ()", 1, 5, "expected variable such as %x, found 'x'"),
        ("let @x = 1; ()", 1, 5, "found '@x'"),
        ("ad(1, 2)", 1, 1, "did you mean"),
        ("300i8", 1, 1, "expected -128 to 127, found 300"),
        ("9223372036854775808", 1, 1, "does not fit int64"),
        ("1e60f", 1, 1, "does not fit float32"),
        ("1.5i32", 1, 1, "a whole number is expected"),
        ("1q", 1, 1, "a number of unknown kind"),
        ("if (True) { let %x = (); () } else { %x }", 1, 38, "%x is not known here"),
        ("if (True) { %0 = 1; %0 } else { %0 }", 1, 33, "%0 is not known here"),
        ("meta[type_key][1337]", 1, 6, "there is no metadata 'type_key'"),
        ("(1, 2", 1, 6, "expected ',' or ')'"),
        ("fn (%x, %x) { 1 }", 1, 9, "parameter %x is declared twice"),
        ("1 $ 2", 1, 3, "found '$'"),
        ("/* a", 1, 1, "a comment does not end"),
        ('fn (a="b) { 1 }', 1, 7, "a string does not end"),
        ('fn (a="\\q") { 1 }', 1, 7, "a string is malformed"),
        ("let %x: foo = 1; ()", 1, 9, "'foo' is no type"),
        ("let %x: Tensor[(1.5), int8] = 1; ()", 1, 17, "a dimension is a number"),
        ("let %x = let %y = 1; %y; %x", 1, 10, "between braces"),
        ("match (1) { Foo(_) => 1 }", 1, 13, "'Foo' is no constructor"),
        ("ref_write(1)", 1, 1, "'ref_write' takes 2"),
        ("add(axis=1)", 1, 5, "has no attribute"),
        ("meta[", 1, 6, "this is no key of metadata"),
        ("fn [A, A]() { 1 }", 1, 8, "declared twice"),
        ("fn (a=1, a=2) { 1 }", 1, 10, "given twice"),
        ('#[version = "9.9"]\n1', 1, 1, "expected 0.0.5, found 9.9"),
        ("1; 2 3", 1, 6, "expected an operator, ';' or the end of the text"),
        ("(" * 30_000, 1, 20_001, "nests too deep"),
    ],
)
def test_errors_of_expressions(text, line, column, message):
    check_error(text, line, column, message)


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("type A { } type A { }", 1, 17, "data type 'A' is defined twice"),
        ("type A { L }\ntype B { L }", 2, 10, "constructor 'L' is defined twice"),
        ("def @f() { 1 }\ndef @f() { 1 }", 2, 5, "@f is defined twice"),
        ("1 + 1", 1, 1, "expected def, type or extern type"),
        ("def main() { 1 }", 1, 5, "@main"),
        ("def @main() { 1 } 2", 1, 19, "a definition is expected"),
        ("def @main() { 1 }\n#[metadata]\n{", 2, 1, "the metadata section cannot be read"),
    ],
)
def test_errors_of_modules(text, line, column, message):
    check_error(text, line, column, message, relay.parse)


def test_all_wrong_functions_are_named():
    e = refuses(error.ErrorGroup, "", relay.parse, "def @f() { 1 + }\ndef @g() { %y }\ndef @h() { 1 }")
    assert len(e.errors) == 2 and "2 definitions" in str(e) and ":2:12" in str(e)


def test_long_texts():
    assert str(relay.parse_expr("1" + " + 1" * 5000)).count("add(") == 5000
    assert str(relay.parse_expr("let %x = 1;\n" * 5000 + "%x")).count("let") == 5000
    nested = relay.parse_expr("(" * 5000 + "1" + ",)" * 5000)
    assert ir.structural_equal(relay.parse_expr(nested.astext()), nested)
