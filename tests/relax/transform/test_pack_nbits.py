"""Weights of few bits: what is read as bits, what is not, and that products are right to what was asked for."""

import warnings

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import weft
from tests.relax_models import written
from tests.target import amx_emulation
from weft import ir, te, tir
from weft.frontend import onnx as frontend
from weft.relax.transform import fold_constant, pack_nbits
from weft.target import Target, get_source
from weft.topi.nbits import matmul_nbits_dot

RNG = np.random.default_rng(4)
ROWS = (1, 0, 2, 15, 33)
FLOATS = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}


def product(nodes, constants, k, n, dtype="float32"):
    """A model whose last node makes `y` (m, n) of `x` (m, k)."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOATS[dtype], ["m", k])],
        [helper.make_tensor_value_info("y", FLOATS[dtype], ["m", n])],
        [a if isinstance(a, onnx.TensorProto) else numpy_helper.from_array(a, name) for name, a in constants.items()],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def names(model):
    """The operators that are left of a model's products, after constants are folded."""
    mod = pack_nbits(panel=16)(frontend.from_onnx(model))
    calls = [n for n in ir.walk(fold_constant()(mod)["main"].body) if isinstance(getattr(n, "op", None), ir.Op)]
    return {c.op.name.removeprefix("relax.") for c in calls}


def outputs(model, k, dtype="float32", **options):
    session = weft.Session(model, **options)
    for m in ROWS:
        x = RNG.standard_normal((m, k)).astype(dtype)
        yield x.astype(np.float64), session.run({"x": x})[0].numpy().astype(np.float64)


def largest_error(x, weights, group):
    """What rounding each group of a row to 127 steps may change a product by."""
    k = len(weights)
    parts = [
        np.abs(x[:, i : i + group]).max(1, keepdims=True) / 254 * np.abs(weights[i : i + group]).sum(0)
        for i in range(0, k, group)
    ]
    return sum(parts) * 1.01 + 1e-4


def taken_apart(a, bits):
    return (a[..., None] >> np.arange(0, 8, bits, dtype=np.uint8) & (1 << bits) - 1).reshape(*a.shape[:-1], -1)


def blocks_model(bits, group, k, n, zeros, level, dtype="float32"):
    """``MatMulNBits`` and its weights."""
    blocks = -(-k // group)
    b = RNG.integers(0, 256, (n, blocks, group * bits // 8)).astype(np.uint8)
    scale = RNG.uniform(-0.1, 0.1, (n, blocks)).astype(dtype)
    zero, constants = np.full((n, blocks), 1 << bits - 1), {"b": b, "s": scale.reshape(-1)}
    if zeros == "packed":
        constants["z"] = RNG.integers(0, 256, (n, -(-blocks * bits // 8))).astype(np.uint8)
        zero = taken_apart(constants["z"], bits)[:, :blocks]
    elif zeros:
        constants["z"] = zero = RNG.uniform(0, 1 << bits, (n, blocks)).astype(dtype)
    node = helper.make_node(
        "MatMulNBits",
        ["x", *constants],
        ["y"],
        domain="com.microsoft",
        K=k,
        N=n,
        bits=bits,
        block_size=group,
        accuracy_level=level,
    )
    q = taken_apart(b.reshape(n, -1), bits)[:, :k].astype(np.float64)
    spread = [np.repeat(p.astype(np.float64), group, 1)[:, :k] for p in (zero, scale)]
    return product([node], constants, k, n, dtype), ((q - spread[0]) * spread[1]).T


@pytest.mark.parametrize(
    ("bits", "group", "k", "n", "zeros"), [(4, 32, 96, 37, "packed"), (8, 128, 130, 16, ""), (2, 16, 40, 5, "real")]
)
def test_blocks_of_weights(bits, group, k, n, zeros):
    model, weights = blocks_model(bits, group, k, n, zeros, level=0)
    assert names(model) == {"nn.matmul_nbits_packed"}
    for x, y in outputs(model, k):
        np.testing.assert_allclose(y, x @ weights, rtol=1e-5, atol=1e-4 * (1 << bits) / 16)
    model, weights = blocks_model(bits, group, k, n, zeros, level=4)
    assert names(model) == {"nn.matmul_nbits_packed"}
    for x, y in outputs(model, k):
        assert (np.abs(y - x @ weights) <= largest_error(x, weights, min(group, 128))).all()


@pytest.mark.parametrize("cpu", ["x86-64-v3", "native"])
@pytest.mark.parametrize(("bits", "group"), [(2, 8), (2, 32), (4, 16), (4, 32), (4, 64), (8, 32)])
def test_largest_weights_and_rows_are_exact(bits, group, cpu):
    """Sums of products are in 16 bits where the machine has no dot product of bytes."""
    k = 128
    model, _ = blocks_model(bits, group, k, 16, zeros="", level=4)
    packed = {t.name: t for t in model.graph.initializer}
    b = np.repeat(np.array([0, 255], np.uint8), 8)[:, None, None] * np.ones(
        (16, k // group, group * bits // 8), np.uint8
    )
    packed["b"].CopyFrom(numpy_helper.from_array(b, "b"))
    packed["s"].CopyFrom(numpy_helper.from_array(np.ones(16 * (k // group), np.float32), "s"))
    target = "llvm" if cpu == "native" else f"llvm -mcpu={cpu}"
    x = np.concatenate([np.ones((1, k)), -np.ones((1, k)), RNG.choice([-1.0, 1.0], (6, k))]).astype(np.float32)
    weights = np.repeat([-(1 << bits - 1), (1 << bits - 1) - 1], 8)
    expected = x.astype(np.float64).sum(1, keepdims=True) * weights
    np.testing.assert_allclose(
        weft.Session(model, target=target).run({"x": x})[0].numpy(), expected, rtol=1e-6, atol=1e-3
    )


@pytest.mark.parametrize(
    ("bits", "group", "k", "n", "zeros"), [(4, 32, 96, 37, "packed"), (8, 128, 130, 64, ""), (2, 16, 40, 5, "real")]
)
def test_many_rows_go_to_matrix_tiles(bits, group, k, n, zeros):
    """Rows of 32 and more; what they are rounded to loses less than half of what bytes lose."""
    model, weights = blocks_model(bits, group, k, n, zeros, level=4)
    ex = weft.compile(frontend.from_onnx(model), target=amx_emulation.target())
    vm = weft.relax.VirtualMachine(ex, weft.cpu())
    for m in (0, 1, 31, 32, 33, 70):
        x = RNG.standard_normal((m, k)).astype(np.float32)
        expected = x.astype(np.float64) @ weights
        wrong = np.abs(vm["main"](weft.runtime.tensor(x)).numpy() - expected)
        assert (wrong <= largest_error(x, weights, min(group, 128))).all()
        assert m < 32 or np.sqrt((wrong**2).mean()) < 0.0035 * expected.std()  # bytes: 0.0045 and more


def test_weights_are_never_written_out():
    mod = frontend.from_onnx(blocks_model(4, 32, 96, 37, "", level=4)[0])

    def dequantised(mod):
        return [
            n
            for n in ir.walk(mod["main"].body)
            if getattr(getattr(n, "op", None), "name", "") == "relax.dequantize_groups"
        ]

    assert dequantised(mod) and not dequantised(pack_nbits()(mod))


def test_what_nobody_uses_is_not_evaluated():
    mod = written("""
x: (2)
w = R.exp(R.const([1.0, 2.0], "float32"))
v = R.negative(w)
y = R.add(x, R.sqrt(R.const([4.0, 9.0], "float32")))
""")
    calls = [n.op.name for n in ir.walk(fold_constant()(mod)["main"].body) if isinstance(getattr(n, "op", None), ir.Op)]
    assert sorted(calls) == ["relax.add", "relax.exp", "relax.negative"]


def test_half_precision():
    model, weights = blocks_model(4, 32, 64, 24, "", 4, "float16")
    for x, y in outputs(model, 64, "float16"):
        assert (np.abs(y - x @ weights) <= largest_error(x, weights, 32) + 2e-3 * np.abs(x @ weights)).all()


def quantised(kind, k, n, axis, block, turned):
    """A weight behind DequantizeLinear: (node, constants, the weights (k, n))."""
    low, high = {"int4": (-8, 8), "uint4": (0, 16), "int8": (-128, 128), "uint8": (0, 256)}[kind]
    shape = (n, k) if turned else (k, n)
    q = RNG.integers(low, high, shape)
    dims = (
        [-(-d // block) if i == axis else d for i, d in enumerate(shape)]
        if block
        else ([shape[axis]] if axis is not None else [])
    )
    scale, zero = RNG.uniform(0.01, 0.1, dims).astype(np.float32), RNG.integers(low, high, dims)
    stored = (
        helper.np_dtype_to_tensor_dtype(np.dtype(kind)) if kind.endswith("8") else getattr(TensorProto, kind.upper())
    )
    constants = {
        "w": helper.make_tensor("w", stored, shape, q.reshape(-1)),
        "s": scale,
        "z": helper.make_tensor("z", stored, dims, np.atleast_1d(zero).reshape(-1)),
    }
    attrs = {"block_size": block, "axis": axis} if block else {} if axis is None else {"axis": axis}
    node = helper.make_node("DequantizeLinear", [], [], **attrs)
    if block:
        scale, zero = (np.repeat(p, block, axis).take(range(shape[axis]), axis) for p in (scale, zero))
    elif axis is not None:
        line = [-1 if i == axis else 1 for i in range(2)]
        scale, zero = scale.reshape(line), zero.reshape(line)
    real = (q - zero) * scale.astype(np.float64)
    return node, constants, real.T if turned else real


def dequantised_model(k, n, cases):
    """A model with a product for each (kind, axis, block, turned), and the weights."""
    nodes, constants, weights = [], {}, []
    for i, (kind, axis, block, turned) in enumerate(cases):
        node, own, real = quantised(kind, k, n, axis, block, turned)
        own = {f"{name}{i}": value for name, value in own.items()}
        node.input[:], node.output[:] = list(own), [f"real{i}"]
        for name, value in own.items():
            if isinstance(value, onnx.TensorProto):
                value.name = name
        nodes.append(node)
        if turned:
            nodes.append(helper.make_node("Transpose", [f"real{i}"], [f"t{i}"], perm=[1, 0]))
        nodes.append(helper.make_node("MatMul", ["x", f"t{i}" if turned else f"real{i}"], [f"y{i}"]))
        constants |= own
        weights.append(real)
    nodes.append(helper.make_node("Concat", [f"y{i}" for i in range(len(cases))], ["y"], axis=1))
    return product(nodes, constants, k, n * len(cases)), weights


def test_weights_behind_dequantize_linear():
    """All kinds; a scale for blocks, for columns, for the matrix; as they are and transposed."""
    k, n = 70, 19
    cases = [
        ("int4", 0, 32, False),
        ("uint4", 1, 32, True),
        ("int8", 1, 0, False),
        ("uint8", 0, 0, True),
        ("int8", None, None, True),
        ("uint8", None, None, False),
    ]
    model, weights = dequantised_model(k, n, cases)
    assert names(model) == {"nn.matmul_nbits_packed", "concat"}
    joined = np.concatenate(weights, 1)
    for x, y in outputs(model, k):
        np.testing.assert_allclose(y, x @ joined, rtol=1e-5, atol=2e-4)
    for x, y in outputs(model, k, precision="int8"):
        limit = np.concatenate([largest_error(x, w, c[2] or 64) for w, c in zip(weights, cases, strict=True)], 1)
        assert (np.abs(y - x @ joined) <= limit + 2e-4).all()


def test_what_is_not_read_as_bits():
    """Groups that no kernel has, and groups across columns, are written out, and right."""
    model, weights = dequantised_model(72, 64, [("uint4", 0, 24, False), ("uint4", 1, 32, False)])
    assert names(model) == {"matmul", "concat"}
    for x, y in outputs(model, 72):
        np.testing.assert_allclose(y, x @ np.concatenate(weights, 1), rtol=1e-5, atol=2e-4)


def test_other_targets_write_weights_out():
    model, weights = blocks_model(4, 32, 64, 24, "packed", 4)
    x = RNG.standard_normal((3, 64)).astype(np.float32)
    found = weft.Session(model, target="llvm -mcpu=x86-64").run({"x": x})[0].numpy()
    np.testing.assert_allclose(found, x @ weights, rtol=1e-4, atol=1e-4)


# --- pairs of products ------------------------------------------------------------------------------------------------


def pairs(narrow, lanes):
    """A function that stores the sums of pairs of products of two vectors."""
    left, right = ("uint8", "int8") if narrow == 8 else ("int16", "int16")
    a, b = te.placeholder((lanes,), left, name="a"), te.placeholder((lanes,), right, name="b")

    def body(ins, outs):
        ib = tir.ir_builder.create()
        x, y, out = (ib.buffer_ptr(v) for v in (*ins, *outs))
        every = weft.ir.Ramp(weft.ir.const(0, "int32"), weft.ir.const(1, "int32"), lanes)
        half = weft.ir.Ramp(weft.ir.const(0, "int32"), weft.ir.const(1, "int32"), lanes // 2)
        out[half] = tir.dot_pairs(x[every], y[every])
        return ib.get()

    return te.create_prim_func([a, b, te.extern((lanes // 2,), [a, b], body, name="c", dtype=f"int{2 * narrow}")])


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64"])
@pytest.mark.parametrize(("narrow", "lanes"), [(8, 32), (16, 16), (8, 16)])
def test_pairs_of_products(narrow, lanes, cpu):
    func, target = pairs(narrow, lanes), f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}"
    a = RNG.integers(0, 128, lanes).astype(np.uint8 if narrow == 8 else np.int16)
    b = RNG.integers(-128, 128, lanes).astype(np.int8 if narrow == 8 else np.int16)
    expected = (a.astype(np.int32) * b).reshape(-1, 2).sum(1)
    found = np.zeros(lanes // 2, f"int{2 * narrow}")
    tir.interpret(func, a, b, found)
    np.testing.assert_array_equal(found, expected)
    text = get_source(func, Target(target), "asm")
    assert ("pmadd" in text) == (cpu != "x86-64" and (narrow, lanes) != (8, 16)) or cpu == "x86-64"
    with warnings.catch_warnings(action="ignore"):
        found[:] = 0
        weft.build(func, target)["main"](a, b, found)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.usefixtures("optimised")
def test_dot_products_of_bytes_are_used():
    shapes = (((3, 64), "int8"), ((3, 2), "float32"), ((3, 2), "int32"), ((1, 8, 32), "int32"), ((1, 2, 32), "float16"))
    given = [te.placeholder(s, d, name=f"p{i}") for i, (s, d) in enumerate(shapes)]
    func = te.create_prim_func([*given, matmul_nbits_dot(*given, n=20, bits=4, group=32, dot=16)])
    target = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=icelake-server")
    assert "vpdpbusd" in get_source(func, target, "asm")
