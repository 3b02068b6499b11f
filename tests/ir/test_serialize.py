import copy
import json
import pickle
from collections.abc import Mapping

import ml_dtypes
import numpy as np
import pytest
import tvm_ffi

import weft
from tests.ir.programs import long_chain, matmul_func, relax_module
from tests.refusals import refuses
from weft import error, ffi, ir, relax, runtime, te, tir
from weft.runtime.container import ADT, ShapeTuple, String


@pytest.mark.parametrize("make", [matmul_func, relax_module])
def test_round_trip(make):
    node = make()
    assert ir.structural_equal(node, ir.load_json(ir.save_json(node)))


def test_sharing_is_kept():
    x = ir.Var("x") + 1
    back = ir.load_json(ir.save_json(ir.Mul(x, x)))
    assert back.a is back.b
    a, b = ir.load_json(ir.save_json((x.a, x.a)))
    assert a is b


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "float16", ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 5)])
def test_constants(dtype, shape):
    data = (np.arange(int(np.prod(shape)) or 0).reshape(shape) if shape else np.array(1)).astype(dtype)
    got = ir.load_json(ir.save_json(relax.constant(data))).data.numpy()
    assert got.dtype == data.dtype and got.shape == data.shape
    assert got.tobytes() == data.tobytes()


def test_scalars():
    values = ir.Attrs.of(a=1, b=True, c=None, d="é\n", e=(1.5, float("inf"), float("-inf")), f=2**70)
    back = ir.load_json(ir.save_json(values))
    assert back.items == values.items
    assert isinstance(back["b"], bool)
    nan = ir.load_json(ir.save_json(ir.FloatImm("float32", float("nan"))))
    assert nan.value != nan.value


def test_spans_and_dtypes_survive():
    node = ir.load_json(ir.save_json(ir.Var("x", ir.DataType("float32x4"), span=ir.Span("model.py", 3, 5, 4, 9))))
    assert node.span == ir.Span("model.py", 3, 5, 4, 9)
    assert node.dtype.lanes == 4


def test_operators_stay_unique():
    op = ir.Op.get("relax.add")
    assert ir.load_json(ir.save_json(ir.Call(op, ()))).op is op


def test_long_chains():
    e = long_chain(20000)
    assert ir.structural_equal(e, ir.load_json(ir.save_json(e)), map_free_vars=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1 column 1"),
        ("[]", "expected weft_ir 1, found list"),
        ('{"weft_ir": 7}', "expected weft_ir 1, found 7"),
        ('{"weft_ir": 1}', "a part is missing"),
        ('{"weft_ir": 1, "root": {"n": 3}, "nodes": []}', "a part is missing"),
        ('{"weft_ir": 1, "root": {"n": 0}, "nodes": [["ir.Nope", {}]]}', "no node class 'ir.Nope'"),
        ('{"weft_ir": 1, "root": {"n": 0}, "nodes": [["os.path", {}]]}', "no node class"),
        ('{"weft_ir": 1, "root": {"n": 0}, "nodes": [["ir.Add", {"c": 1}]]}', "node 0 is no ir.Add"),
        ('{"weft_ir": 1, "root": {"z": 0}}', "unknown kind"),
        ('{"weft_ir": 1, "root": {"t": 0}, "tensors": [["float32", [2], "AAAA"]]}', "a part is missing"),
    ],
)
def test_malformed(text, message):
    assert message in str(refuses(error.InvalidArgument, "", ir.load_json, text))


@pytest.mark.parametrize("make", [matmul_func, relax_module])
def test_fields_of_other_types_are_refused(make):
    """Each field of the first node of each class, replaced: refused by name, or a value that works."""
    whole = ir.save_json(make())
    nodes, refused = json.loads(whole)["nodes"], 0
    first = {name: i for i, (name, _) in reversed(list(enumerate(nodes)))}
    for name, i in first.items():
        for field in nodes[i][1]:
            for other in (None, True, 7, -1.5, "x", [], [[1], "y"], {"n": 0}, {"d": "float32"}, {"f": "nan"}):
                document = json.loads(whole)
                document["nodes"][i][1][field] = other
                try:
                    read = ir.load_json(json.dumps(document))
                except error.InvalidArgument as e:
                    refused += f"node {i}, {name}: the field '{field}'" in str(e)
                else:
                    assert ir.structural_hash(read) is not None and str(read), (name, field, other)
    assert refused > 100


def test_every_cut_of_a_text_is_an_error():
    text = ir.save_json(matmul_func())
    for end in range(0, len(text) - 1, max(1, len(text) // 60)):
        refuses(error.InvalidArgument, "", ir.load_json, text[:end])
    assert json.loads(text)["weft_ir"] == 1


def test_every_container_is_saved():
    """What functions hand to Python and take from it: containers, values, and what holds them."""
    inner = tvm_ffi.convert([1, "two", 2.5])
    values = [
        inner,
        tvm_ffi.List([1, inner]),
        tvm_ffi.convert({"a": inner}),
        tvm_ffi.Dict({1: inner}),
        b"\0\xff",
        tvm_ffi.Shape((2, 0)),
        ShapeTuple((3,)),
        String("text"),
        ir.DataType("float8_e4m3fn"),
        weft.cpu(),
        weft.cuda(1),
        weft.ffi.convert([1, (2, None)]),
        ffi.Map({ir.Var("x"): (1,)}),
    ]
    for value in values:
        back = ir.load_json(ir.save_json(value))
        if isinstance(value, Mapping):
            assert [ir.structural_equal(k, j, map_free_vars=True) for k, j in zip(value, back, strict=True)] == [True]
            assert [list(v) for v in back.values()] == [list(v) for v in value.values()]
        elif isinstance(value, (tuple, tvm_ffi.Array, tvm_ffi.List)):
            assert ir.save_json(back) == ir.save_json(tuple(value))
        else:
            assert back == value and isinstance(back, str) == isinstance(value, str)


def test_values_of_data_types_are_saved():
    back = ir.load_json(ir.save_json(ADT(3, [ADT(1, []), runtime.tensor(np.float32([1, 2])), 7])))
    assert (back.tag, back[0].tag, len(back[0]), back[2].numpy()) == (3, 1, 0, 7)
    np.testing.assert_array_equal(back[1].numpy(), [1, 2])


@pytest.mark.parametrize("target", ["llvm -mcpu=skylake -opt-level=2", "cuda -arch=sm_80", "c", "nvidia/nvidia-a100"])
@pytest.mark.parametrize("host", [None, "llvm -num-cores=3"])
def test_targets_are_saved(target, host):
    made = weft.target.Target(target, host)
    back = ir.load_json(ir.save_json({"target": made}))["target"]
    assert back == made and back.attrs == made.attrs and back.host == made.host


def test_what_has_no_json_form_is_refused():
    refuses(error.InvalidArgument, "cannot be written as JSON", ir.save_json, ir.Attrs((("x", object()),)))


@pytest.mark.parametrize(
    "make",
    [
        lambda n, a: n + 1,
        lambda n, a: a,
        lambda n, a: te.create_prim_func([a, te.compute(a.shape, lambda i: a[i] * 2)]),
        lambda n, a: weft.IRModule({"f": te.create_prim_func([a, te.compute(a.shape, lambda i: a[i] * 2)])}),
        lambda n, a: ir.Range(0, n),
        lambda n, a: tir.decl_buffer((n, 4), "int8"),
        lambda n, a: ir.Op.get("tir.exp"),
        lambda n, a: tir.IndexMap.from_func(lambda i: [i // 4, i % 4]),
        lambda n, a: ir.PrimType("int32"),
    ],
)
def test_nodes_are_pickled_and_copied_deeply(make):
    n = te.var("n")
    node = make(n, te.placeholder((n,), name="a"))
    for again in (pickle.loads(pickle.dumps(node)), pickle.loads(pickle.dumps([node]))[0], copy.deepcopy(node)):
        assert type(again) is type(node)
        ir.assert_structural_equal(again, node, map_free_vars=True)
    assert copy.deepcopy([n + n])[0].a.name == "n"
