"""A type of numbers from outside: bfloat16 kept in 16 bits, computed by C functions."""

import ctypes
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import error, ir, relay, te, tir
from weft.support import cc
from weft.target import datatype

SOURCE = """
#include <math.h>
#include <stdint.h>
#include <string.h>
uint16_t t_from(float x) {
  uint32_t u; memcpy(&u, &x, 4);
  u += 0x7fff + ((u >> 16) & 1);
  return (uint16_t)(u >> 16);
}
float t_to(uint16_t h) { uint32_t u = (uint32_t)h << 16; float x; memcpy(&x, &u, 4); return x; }
uint16_t t_add(uint16_t a, uint16_t b) { return t_from(t_to(a) + t_to(b)); }
uint16_t t_mul(uint16_t a, uint16_t b) { return t_from(t_to(a) * t_to(b)); }
uint16_t t_sub(uint16_t a, uint16_t b) { return t_from(t_to(a) - t_to(b)); }
uint16_t t_div(uint16_t a, uint16_t b) { return t_from(t_to(a) / t_to(b)); }
uint16_t t_sqrt(uint16_t a) { return t_from(sqrtf(t_to(a))); }
uint16_t t_least(void) { return 0xff7f; }
uint16_t t_max(uint16_t a, uint16_t b) { return t_to(a) > t_to(b) ? a : b; }
uint16_t t_exp(uint16_t a) { return t_from(expf(t_to(a))); }
"""
T = "custom[mybf]16"


@pytest.fixture(scope="module")
def functions(tmp_path_factory):
    folder = tmp_path_factory.mktemp("functions")
    (folder / "f.c").write_text(SOURCE)
    cc.create_shared(folder / "libf.so", folder / "f.c", ["-O2", "-lm"])
    return ctypes.CDLL(str(folder / "libf.so"), ctypes.RTLD_GLOBAL)


@pytest.fixture
def mybf(functions, monkeypatch):
    for table in ("_NAMES", "_CODES", "_OPS"):
        monkeypatch.setattr(tir.custom_datatype, table, {})
    datatype.register("mybf", 150)
    one = datatype.create_lower_func
    for target in ("llvm", "c"):
        datatype.register_op(one({(32, 16): "t_from"}), "Cast", target, "float", "mybf")
        datatype.register_op(one({(16, 32): "t_to"}), "Cast", target, "mybf", "float")
        datatype.register_op(one({16: "t_from"}), "FloatImm", target, "mybf")
        for op, name in (("Add", "t_add"), ("Mul", "t_mul"), ("Max", "t_max")):
            datatype.register_op(one({16: name}), op, target, "mybf")
        datatype.register_op(one({16: "t_exp"}), "Call", target, "mybf", intrinsic_name="tir.exp")
    datatype.register_min_func(lambda bits: tir.const(-3.0e38, f"custom[mybf]{bits}"), "mybf")


def bf(x):
    return x.astype(ml_dtypes.bfloat16)


def test_types():
    dt = ir.DataType("custom[mybf]16x4")
    assert (dt.code, dt.bits, dt.lanes, dt.itemsize) == ("custom[mybf]", 16, 4, 8)
    assert dt.is_custom and not dt.is_float and not dt.is_integer


@pytest.mark.parametrize("n", [1, 7, 33])
def test_arithmetic_between_floats(mybf, n):
    a, b = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")

    def element(i):
        x, y = a[i].astype(T), b[i].astype(T)
        return (tir.max(x * y + tir.const(0.5, T), x)).astype("float32")

    c = te.compute((n,), element, name="C")
    f = weft.build(te.create_schedule(c.op), [a, b, c], target="llvm")
    x, y = np.random.default_rng(0).standard_normal((2, n)).astype("float32")
    out = np.zeros(n, "float32")
    f(x, y, out)
    p = bf(bf(x).astype("float32") * bf(y).astype("float32")).astype("float32")
    expected = np.maximum(bf(p + np.float32(0.5)).astype("float32"), bf(x).astype("float32"))
    np.testing.assert_array_equal(out, expected)


def test_parameters_hold_bits_and_reductions_run(mybf):
    a = te.placeholder((4, 9), T, name="A")
    k = te.reduce_axis((0, 9), name="k")
    total = te.compute((4,), lambda i: te.max(a[i, k], axis=k), name="M")
    out = te.compute((4,), lambda i: tir.exp(total[i]), name="E")
    f = weft.build(te.create_schedule(out.op), [a, out], target="llvm")
    values = bf(np.random.default_rng(1).standard_normal((4, 9)).astype("float32"))
    result = np.zeros(4, "uint16")
    f(values.view("uint16"), result)
    expected = bf(np.exp(values.astype("float32").max(1)))
    np.testing.assert_array_equal(result, expected.view("uint16"))


def test_structure(mybf):
    a = te.placeholder((4,), T, name="A")
    b = te.compute((4,), lambda i: a[i] + a[i], name="B")
    func = te.schedule.schedule_to_prim_func(te.create_schedule(b.op), [a, b])
    out = tir.transform.LowerCustomDatatypes()(weft.IRModule({"main": func}))["main"]
    assert {buffer.dtype for _, buffer in out.buffer_map} == {"uint16"}
    assert not any(ir.DataType(n.dtype).is_custom for n in ir.walk(out) if getattr(n, "dtype", None))
    plain = te.create_prim_func([te.placeholder((4,), name="x"), te.compute((4,), lambda i: tir.const(0.0), name="y")])
    assert tir.transform.LowerCustomDatatypes()(weft.IRModule({"main": plain}))["main"] is plain


def test_what_was_not_registered(mybf):
    a = te.placeholder((4,), T, name="A")
    b = te.compute((4,), lambda i: a[i] - a[i + 0], name="B")
    with pytest.raises(error.CodegenError, match=r"Sub of 'mybf' has no meaning on target 'llvm'"):
        weft.build(te.create_schedule(b.op), [a, b], target="llvm")
    c = te.compute((4,), lambda i: tir.call_intrin(T, "tir.sqrt", a[i]), name="C")
    with pytest.raises(error.CodegenError, match=r"Call of 'mybf' \(tir.sqrt\)"):
        weft.build(te.create_schedule(c.op), [a, c], target="llvm")


def test_registration_errors(mybf):
    assert datatype.get_type_name(150) == "mybf" and datatype.get_type_code("mybf") == 150
    assert datatype.get_type_registered(150) and not datatype.get_type_registered(151)
    refuses(error.InvalidArgument, "code 100 is taken", datatype.register, "other", 100)
    refuses(error.InvalidArgument, "code 150 is taken", datatype.register, "other", 150)
    refuses(error.InvalidArgument, "no type 'nothing'", datatype.get_type_code, "nothing")
    refuses(error.InvalidArgument, "a Cast goes to a type", datatype.register_op, lambda e: e, "Cast", "llvm", "float")
    refuses(error.InvalidArgument, "least value of 'custom\\[none\\]8'", tir.min_value, "custom[none]8")


@pytest.fixture
def arithmetic(mybf):
    one = datatype.create_lower_func
    for op, name in (("Sub", "t_sub"), ("Div", "t_div")):
        datatype.register_op(one({16: name}), op, "llvm", "mybf")
    datatype.register_op(one({16: "t_sqrt"}), "Call", "llvm", "mybf", intrinsic_name="tir.sqrt")


WEIGHT = relay.const(np.random.default_rng(5).standard_normal((2, 4, 2, 2)).astype("float32"))
OPERATORS = {
    "softmax": relay.nn.softmax,
    "rsqrt": lambda x: relay.rsqrt(relay.exp(x)),
    "max_pool2d": lambda x: relay.nn.max_pool2d(relay.reshape(x, (1, 1, 6, 6)) - relay.const(9.0), (3, 3)),
    "global_avg_pool2d": lambda x: relay.nn.global_avg_pool2d(relay.reshape(x, (1, 4, 3, 3))),
    "conv2d": lambda x: relay.nn.conv2d(relay.reshape(x, (1, 4, 3, 3)), WEIGHT),
    "divide": lambda x: x / (relay.sqrt(relay.exp(x)) + relay.const(2.0)),
}


def converted(dtype, array):
    x = relay.var("x", shape=array.shape, dtype=str(array.dtype))
    return relay.create_executor("graph").evaluate(relay.Function([x], x.astype(dtype)))(array)


@pytest.mark.parametrize("name", OPERATORS)
def test_relay_programs_change_their_types(arithmetic, name):
    data = np.random.default_rng(3).standard_normal((6, 6)).astype("float32")
    x = relay.var("x", shape=(6, 6), dtype="float32")
    mod = relay.transform.InferType()(weft.IRModule.from_expr(relay.Function([x], OPERATORS[name](x))))
    want = relay.create_executor("debug", mod=mod).evaluate()(data).numpy()
    change = weft.relay.frontend.ChangeDatatype("float32", T)
    mod = relay.transform.InferType()(change(mod))
    assert [p.ty.dtype for p in mod["main"].params] == [T]
    given = converted(T, data)
    assert given.dtype == T
    for kind in ("graph", "vm", "debug"):
        out = relay.create_executor(kind, mod=mod).evaluate()(given)
        assert out.dtype == T
        np.testing.assert_allclose(converted("float32", out).numpy(), want, rtol=0.05, atol=0.05)


def test_what_changes_types_is_a_visitor_too(mybf):
    x = relay.var("x", shape=(2,), dtype="float32")
    changed = weft.relay.frontend.ChangeDatatype("float32", T).visit(relay.Function([x], x + relay.const(1.0)))
    assert changed.params[0].type_annotation.dtype == T


def test_the_least_value_is_a_function_of_the_library(arithmetic):
    datatype.register_min_func(datatype.create_min_lower_func({16: "t_least"}, "mybf"), "mybf")
    data = np.full((1, 1, 4, 4), -3e38, "float32")
    x = relay.var("x", shape=data.shape, dtype=T)
    pool = relay.Function([x], relay.nn.max_pool2d(x, (2, 2)))
    out = converted("float32", relay.create_executor("graph").evaluate(pool)(converted(T, data)))
    np.testing.assert_allclose(out.numpy(), data[:, :, :3, :3], rtol=0.01)
    refuses(error.CodegenError, "no least value of 32 bits", te.lowest, "custom[mybf]32")
    refuses(error.InvalidArgument, "greatest value", te.highest, T)


def test_the_example_type_needs_no_library(monkeypatch):
    for table in ("_NAMES", "_CODES", "_OPS"):
        monkeypatch.setattr(tir.custom_datatype, table, {})
    datatype.register("myfloat", 131)
    one = datatype.create_lower_func
    for src, dest in (("float", "myfloat"), ("myfloat", "float"), ("int", "myfloat")):
        symbol = f"{src.title()}ToCustom32" if dest == "myfloat" else "Custom32ToFloat"
        datatype.register_op(one({(32, 32): symbol}), "Cast", "llvm", src, dest)
    datatype.register_op(one({32: "FloatToCustom32"}), "FloatImm", "llvm", "myfloat")
    datatype.register_min_func(datatype.create_min_lower_func({32: "MinCustom32"}, "myfloat"), "myfloat")
    for op in ("Add", "Sub", "Mul", "Div", "Max"):
        datatype.register_op(one({32: f"Custom32{op}"}), op, "llvm", "myfloat")
    for op in ("sqrt", "exp", "log", "sigmoid", "tanh"):
        symbol = f"Custom32{op.title()}"
        datatype.register_op(one({32: symbol}), "Call", "llvm", "myfloat", intrinsic_name=f"tir.{op}")
    my = "custom[myfloat]32"
    a, k = te.placeholder((7, 3), "int32", name="A"), te.reduce_axis((0, 3), name="k")
    high = te.compute((7,), lambda i: te.max(a[i, k].astype(my), axis=k), name="H")

    def element(i):
        x = high[i] * high[i] / (high[i] + high[i] - tir.const(0.5, my))
        return tir.tanh(tir.sigmoid(tir.log(tir.sqrt(tir.exp(x))))).astype("float32")

    c = te.compute((7,), element, name="C")
    f = weft.build(te.create_schedule(c.op), [a, c], "llvm")
    given, found = np.arange(-9, 12, dtype="int32").reshape(7, 3), np.zeros(7, "float32")
    f(given, found)
    h = given.max(1).astype("float64")
    np.testing.assert_allclose(found, np.tanh(1 / (1 + np.exp(-h * h / (2 * h - 0.5) / 2))), rtol=1e-6)


def test_a_program_with_two_types_ends(tmp_path):
    """Whoever is asked for names of types is asked until after Python's end."""
    program = tmp_path / "program.py"
    program.write_text(
        "from weft import runtime, target\n"
        "for code, name in ((150, 'one'), (151, 'two')):\n"
        "    target.datatype.register(name, code)\n"
        "    assert str(runtime.empty((1,), f'custom[{name}]32').dtype) == f'custom[{name}]32'\n"
    )
    assert subprocess.run([sys.executable, str(program)]).returncode == 0
