import subprocess
import sys

import numpy as np
import pytest
from tvm_ffi.access_path import AccessPath

from tests.ir.programs import long_chain, matmul_func, relax_module
from tests.refusals import refuses
from weft import error, ir, relax, tir


def test_names_of_variables_do_not_count():
    a, b = matmul_func(), matmul_func(names=("x", "y", "z"))
    assert ir.structural_equal(a, b)
    assert ir.fingerprint(a) == ir.fingerprint(b) and ir.structural_hash(a) == ir.structural_hash(b)


@pytest.mark.parametrize("other", [dict(m=17), dict(dtype="float64"), dict(k=5)])
def test_content_counts(other):
    a, b = matmul_func(), matmul_func(**other)
    assert not ir.structural_equal(a, b)
    assert ir.fingerprint(a) != ir.fingerprint(b)


def test_variables_map_one_to_one():
    x, y = ir.Var("x", "int32"), ir.Var("y", "int32")
    assert ir.structural_equal(x + y, x + y)
    assert not ir.structural_equal(x + y, y + x)
    assert ir.structural_equal(x + y, y + x, map_free_vars=True)
    assert not ir.structural_equal(x + y, x + x, map_free_vars=True)
    assert not ir.structural_equal(x + x, x + y, map_free_vars=True)
    assert ir.fingerprint(x + x) != ir.fingerprint(x + y)


def test_kinds_of_variables_differ():
    assert not ir.structural_equal(ir.Var("n", "int64"), ir.SizeVar("n", "int64"), map_free_vars=True)
    assert not ir.structural_equal(ir.Var("n", "int64"), ir.Var("n", "int32"), map_free_vars=True)


def test_let_binds():
    x, y, free = ir.Var("x"), ir.Var("y"), ir.Var("free")
    assert ir.structural_equal(ir.Let(x, ir.const(1), x + free), ir.Let(y, ir.const(1), y + free))
    assert not ir.structural_equal(ir.Let(x, ir.const(1), x + free), ir.Let(y, ir.const(1), free + y))


def test_order_of_attributes_does_not_count():
    a, b = ir.Attrs.of(x=1, y=(2, 3)), ir.Attrs.of(y=(2, 3), x=1)
    assert ir.structural_equal(a, b) and ir.fingerprint(a) == ir.fingerprint(b)
    assert not ir.structural_equal(a, ir.Attrs.of(x=1, y=(2, 4)))
    assert not ir.structural_equal(a, ir.Attrs.of(x=1))
    assert not ir.structural_equal(a, ir.Attrs.of(x=True, y=(2, 3)))


def test_constants_compare_by_content():
    a, b = relax.constant(np.ones((2, 3), "float32")), relax.constant(np.ones((2, 3), "float32"))
    assert ir.structural_equal(a, b) and ir.fingerprint(a) == ir.fingerprint(b)
    c = relax.constant(np.array([[1, 1, 1], [1, 2, 1]], "float32"))
    assert not ir.structural_equal(a, c) and ir.fingerprint(a) != ir.fingerprint(c)
    assert not ir.structural_equal(a, relax.constant(np.ones((3, 2), "float32")))
    refuses(ValueError, r"\.data at \[1, 1\]", ir.assert_structural_equal, a, c)


def test_nan_equals_itself():
    assert ir.structural_equal(ir.FloatImm("float32", float("nan")), ir.FloatImm("float32", float("nan")))


def test_shared_and_repeated_subtrees_are_equal():
    x = ir.Var("x")
    shared = x + 1
    assert ir.fingerprint(ir.Mul(shared, shared)) == ir.fingerprint(ir.Mul(x + 1, x + 1))


def test_modules():
    a, b = relax_module("n"), relax_module("batch")
    assert ir.structural_equal(a, b) and ir.structural_hash(a) == ir.structural_hash(b)
    b["other"] = matmul_func()
    refuses(ValueError, "names of functions", ir.assert_structural_equal, a, b)
    assert not ir.structural_equal(a, a.with_attr("system_lib_prefix", "x"))
    assert not ir.structural_equal(a, matmul_func())


def test_message_names_path_and_both_sides():
    a, b = matmul_func(), matmul_func(k=5)
    with pytest.raises(ValueError, match=r"root\.buffer_map\[0\]\[1\]\.shape\[1\]\.value\n  left:  4\n  right: 5"):
        ir.assert_structural_equal(a, b)


def test_undefined_variable_is_named():
    x, y = ir.Var("x"), ir.Var("y")
    refuses(ValueError, r"neither side defines", ir.assert_structural_equal, x + 1, y + 1)


def test_long_chains_do_not_recurse():
    assert ir.structural_equal(long_chain(50000), long_chain(50000), map_free_vars=True)
    assert ir.fingerprint(long_chain(50000)) == ir.fingerprint(long_chain(50000))


def test_fingerprint_is_the_same_in_another_process():
    code = (
        "from tests.ir.programs import matmul_func; from weft.ir import fingerprint; print(fingerprint(matmul_func()))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == ir.fingerprint(matmul_func())


def test_derived_types_do_not_count():
    assert ir.structural_equal(relax.ExternFunc("f"), relax.ExternFunc("f", ty=relax.PackedFuncType()))
    s = relax.ShapeExpr((ir.int64(3),))
    assert ir.structural_equal(s, relax.shape_expr((3,)))


def test_buffers_map_consistently():
    a, b = tir.decl_buffer((4,), "float32", "A"), tir.decl_buffer((4,), "float32", "B")
    i = ir.Var("i")
    lhs = tir.BufferStore(a, a[i], (i,))
    assert ir.structural_equal(lhs, tir.BufferStore(b, b[i], (i,)), map_free_vars=True)
    assert not ir.structural_equal(lhs, tir.BufferStore(b, a[i], (i,)), map_free_vars=True)


def test_lists_are_taken_for_tuples():
    x = ir.Var("x", "int64")
    assert ir.ShapeExpr([1, x]).values[1] is x and type(ir.ShapeExpr([1, x]).values) is tuple
    assert type(ir.Tuple([ir.constant(1.0)]).fields) is tuple
    assert ir.TensorType([2, x], "float32").ndim == 2
    assert type(tir.SeqStmt([]).seq) is tuple


def test_dimensions_are_numbers():
    refuses(error.InvalidArgument, r"tir.Var\('n', 'int64'\)", ir.tensor_type, ("n", 3), "float32")


def test_ranges_take_both_ends():
    n = ir.Var("n", "int64")
    cases = [
        (ir.Range(2, 5), 2, 3),
        (ir.Range(7), 0, 7),
        (ir.Range(begin=1, end=4), 1, 3),
        (ir.Range(5, 5), 5, 0),
        (ir.Range.from_min_extent(2, 5), 2, 5),
        (ir.Range(min=ir.const(2), extent=ir.const(9)), 2, 9),
    ]
    for found, low, extent in cases:
        assert (found.min.value, found.extent.value) == (low, extent)
        assert ir.structural_equal(ir.load_json(ir.save_json(found)), found)
    assert ir.Range(0, n).extent is n and ir.Range(n, n + 4).extent.value == 4 and ir.Range(1, n).min.dtype == "int64"
    refuses(error.InvalidArgument, "a range needs its ends", ir.Range)


def test_a_node_is_a_key_that_only_it_finds():
    """Equal nodes are keys of their own, and `==` of scalars, which makes a node, is never asked."""
    n = ir.Var("n", "int64")
    nodes = [
        n,
        ir.Var("n", "int64"),
        ir.IntImm("int64", 1),
        ir.IntImm("int64", 1),
        n + 1,
        n + 1,
        ir.ExprVar("x"),
        ir.ExprVar("x"),
    ]
    places = {node: i for i, node in enumerate(nodes)}
    assert [places[node] for node in nodes] == list(range(len(nodes)))
    assert ir.Var("n", "int64") not in places


def test_buffers_that_nothing_defines_are_equal_over_the_same_memory_only():
    a, b = (tir.decl_buffer((1,), "int64", name) for name in "ab")
    again = tir.decl_buffer((1,), "int64", "again", data=a.data)
    at = (ir.const(0, "int64"),)
    loads = {name: tir.BufferLoad(x, at) for name, x in (("a", a), ("b", b), ("again", again))}
    assert not ir.structural_equal(loads["a"], loads["b"]) and ir.structural_equal(loads["a"], loads["again"])
    assert ir.structural_equal(loads["a"], loads["b"], map_free_vars=True)
    moved = tir.BufferStore(b, tir.BufferLoad(b, (loads["b"],)), (loads["a"],))
    handles = [ir.Var(name, "handle") for name in "ab"]
    func = tir.PrimFunc(tuple(handles), moved, None, tuple(zip(handles, (a, b), strict=True)))
    assert tir.transform.remove_no_op()(ir.IRModule({"f": func}))["f"].body is moved


def test_a_function_with_the_same_fields_is_the_same_function():
    x = relax.Var("x", ir.tensor_type((2,), "float32"))
    func = ir.Function((x,), x)
    assert func.replace(body=x, params=func.params) is func
    assert func.replace(is_pure=False) is not func


def test_fields_that_stay_the_same_leave_the_node():
    a, b = (ir.Var(n, "int64") for n in "ab")
    both = ir.Tuple((a, b), ty=ir.TupleType(()))
    assert ir.with_fields(both, fields=both.fields) is both
    assert ir.with_fields(both, fields=(a, b), ty=both.ty) is both  # another tuple, of the same
    assert ir.with_fields(both) is both
    for fields in ((b, a), (a,), (a, b, a), ()):
        other = ir.with_fields(both, fields=fields)
        assert type(other) is ir.Tuple and other.fields == fields and other.ty is both.ty


def test_where_two_nodes_first_differ():
    x, root, first = tir.Var("x", "int32"), AccessPath.root(), ir.get_first_structural_mismatch
    assert first(x + 1, x + 1) is None and first([1, [2]], [1, [2]]) is None
    assert first([1, 2, 3], [1, 4, 3]) == (root.array_item(1),) * 2
    assert first([1], [1, 2]) == (root.array_item_missing(1), root.array_item(1))
    assert first({"a": 1}, {"a": 1, "b": 2}) == (root.map_item_missing(None), root.map_item("b"))
    assert first(x * 2 + 1, x * 3 + 1) == (root.attr("a").attr("b").attr("value"),) * 2


def test_hashes_tell_free_variables_apart_unless_they_are_mapped() -> None:
    x, y = (ir.Var(n, "int32") for n in "xy")
    pairs = [(x, y), (x + 1, y + 1), ((x, y), (x, x)), (relax.Var("v"), relax.Var("w")), ({"k": x}, {"k": y})]
    for a, b in pairs:
        assert ir.structural_hash(a) == ir.structural_hash(a) != ir.structural_hash(b)
        assert (ir.structural_hash(a, True) == ir.structural_hash(b, True)) == ir.structural_equal(a, b, True)
    func = [tir.PrimFunc((v,), tir.Evaluate(v + 1)) for v in (x, y)]
    assert ir.structural_hash(func[0]) == ir.structural_hash(func[1])
