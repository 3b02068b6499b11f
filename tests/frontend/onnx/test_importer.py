"""What from_onnx takes and gives: forms of a model, shapes and types from outside, weights, choices, functions."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import convert_model_to_external_data

import weft
from tests.arrays import floats
from tests.frontend.models import calls, check, compare, model_of, oracle, symbolic
from tests.onnx_models import model, onnx_nodes
from tests.refusals import refuses
from weft import error, ir, relax
from weft.frontend.onnx import from_onnx, supported_operators
from weft.relax.interpreter import evaluate
from weft.relax.rewriter import all_bindings

node = helper.make_node
RNG = np.random.default_rng(11)
f32 = floats(RNG)


def linear(dims: Any = None, weight: np.ndarray | None = None) -> onnx.ModelProto:
    w = f32(4, 3) if weight is None else weight
    nodes = [node("MatMul", ["x:0", "w"], ["m"], name="mm"), node("Relu", ["m"], ["y"])]
    return model_of(nodes, {"x:0": f32(2, 4)}, ["y"], 17, {"w": w}, {"x:0": dims} if dims else None)


def io(mod: Any) -> dict:
    return json.loads(mod["main"].attrs["weft.io"])


# --- forms of a model -------------------------------------------------------------------------------------------------


def test_proto_bytes_and_path(tmp_path: Path) -> None:
    model, x = linear(), f32(2, 4)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    expected = evaluate(from_onnx(model), x)
    for form in (model.SerializeToString(), path, str(path)):
        compare(evaluate(from_onnx(form), x), expected)


def test_names_types_and_shapes_are_described() -> None:
    mod = from_onnx(linear(["batch", 4]))
    assert io(mod) == {
        "inputs": [{"name": "x:0", "dtype": "float32", "shape": ["batch", 4]}],
        "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 3]}],
    }
    main = mod["main"]
    assert main.params[0].name_hint == "x_0"
    assert main.attrs["num_input"] == 1
    assert main.attrs["params"] == ()
    assert isinstance(main.params[0].ty.shape[0], ir.SizeVar)


def test_one_variable_for_each_named_dimension() -> None:
    given, dims = {"a": f32(2, 3), "b": f32(2, 3)}, {"a": ["n", None], "b": ["n", None]}
    model = model_of([node("Add", ["a", "b"], ["y"])], given, ["y"], 17, dims=dims)
    a, b = (p.ty.shape for p in from_onnx(model)["main"].params)
    assert a[0] is b[0]
    assert a[1] is not b[1]


def test_bindings_carry_their_node() -> None:
    block = from_onnx(linear())["main"].body.blocks[0]
    assert isinstance(block, relax.DataflowBlock)
    assert str(block.bindings[0].span) == 'ONNX node 0 "mm" (MatMul)'
    assert str(block.bindings[1].value.span) == 'ONNX node 1 "y" (Relu)'
    assert [isinstance(b.var, relax.DataflowVar) for b in block.bindings] == [True, False]


def test_weights_as_graph_inputs_are_weights_unless_a_shape_names_them() -> None:
    model, x, weight = linear(), f32(2, 4), f32(4, 3)
    refuses(error.ModelImportError, "does not have", from_onnx, model, shape_dict={"w": [4, 3]})
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 3]))
    assert len(from_onnx(model)["main"].params) == 1
    found = weft.Session(model, shape_dict={"w": [4, 3]}).run({"x:0": x, "w": weight})[0].numpy()
    compare([found], evaluate(from_onnx(linear(weight=weight)), x))
    refuses(error.InvalidArgument, "where shape_dict names it", weft.Session(model).run, {"x:0": x, "w": weight})


def test_unsorted_nodes_are_sorted() -> None:
    model, x = linear(), f32(2, 4)
    expected = evaluate(from_onnx(model), x)
    nodes = list(model.graph.node)[::-1]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    compare(evaluate(from_onnx(model), x), expected)


# --- shapes and types from outside ------------------------------------------------------------------------------------


def test_shape_dict_fixes_and_names() -> None:
    fixed = from_onnx(linear(["n", 4]), shape_dict={"x:0": [5, 4]})
    assert [d.value for d in fixed["main"].ret_ty.shape] == [5, 3]
    named = from_onnx(linear(["n", 4]), shape_dict={"x:0": ["rows", -1]})
    assert io(named)["inputs"][0]["shape"] == ["rows", 4]


def test_shape_dict_fixes_a_name_everywhere() -> None:
    given, dims = {"a": f32(2, 3), "b": f32(2, 1)}, {"a": ["n", 3], "b": ["n", "m"]}
    model = model_of([node("Concat", ["a", "b"], ["y"], axis=1)], given, ["y"], 17, dims=dims)
    b = from_onnx(model, shape_dict={"a": [2, 3]})["main"].params[1].ty.shape
    assert isinstance(b[0], ir.IntImm) and b[0].value == 2
    assert isinstance(b[1], ir.SizeVar)


def test_shape_dict_gives_a_missing_rank() -> None:
    model = linear()
    model.graph.input[0].type.tensor_type.ClearField("shape")
    refuses(error.ModelImportError, "has no shape", from_onnx, model)
    x = f32(3, 4)
    compare(
        evaluate(from_onnx(model, shape_dict={"x:0": ["n", 4]}), x),
        evaluate(from_onnx(linear(["n", 4], numpy_helper.to_array(model.graph.initializer[0]))), x),
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"z": [1, 4]}, "does not have"),
        ({"x:0": [1]}, "another rank"),
        ({"x:0": [2, 5]}, "fixed dimension"),
        ({"x:0": [1.5, 4]}, "malformed"),
    ],
)
def test_bad_shape_dict(given: dict, message: str) -> None:
    refuses(error.ModelImportError, message, from_onnx, linear(["n", 4]), shape_dict=given)


def test_dtype_dict() -> None:
    model = model_of([node("Relu", ["x"], ["y"])], {"x": f32(2)}, ["y"])
    for given in ({"x": "float16"}, "float16"):
        assert from_onnx(model, dtype_dict=given)["main"].ret_ty.dtype == "float16"
    refuses(error.ModelImportError, "does not have", from_onnx, model, dtype_dict={"q": "float16"})


# --- weights ----------------------------------------------------------------------------------------------------------


def test_params_stay_parameters() -> None:
    model, x = linear(), f32(2, 4)
    mod = from_onnx(model, keep_params_in_input=True)
    main = mod["main"]
    assert [p.name_hint for p in main.params] == ["x_0", "w"]
    assert main.attrs["num_input"] == 1
    assert len(main.attrs["params"]) == 1
    compare(evaluate(mod, x), oracle(model, {"x:0": x}))


@pytest.mark.parametrize("one_file", [True, False])
def test_external_data(tmp_path: Path, one_file: bool) -> None:
    weight = f32(64, 33)
    model = model_of([node("MatMul", ["x", "w"], ["y"])], {"x": f32(2, 64)}, ["y"], 17, {"w": weight})
    convert_model_to_external_data(
        model, all_tensors_to_one_file=one_file, location="weights.bin" if one_file else None, size_threshold=0
    )
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    x = f32(2, 64)
    compare(evaluate(from_onnx(path), x), [x @ weight])
    refuses(error.ModelImportError, "pass the model's path", from_onnx, path.read_bytes())
    for file in tmp_path.iterdir():
        if file != path:
            file.write_bytes(file.read_bytes()[:100])
    refuses(error.ModelImportError, "not all inside of the file", from_onnx, path)


@pytest.mark.parametrize("location", ["../weights.bin", "/etc/hostname", "missing.bin"])
def test_external_data_stays_in_the_folder(tmp_path: Path, location: str) -> None:
    model = linear()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    (tmp_path / "m").mkdir()
    (tmp_path / "weights.bin").write_bytes(bytes(48))
    path = tmp_path / "m" / "model.onnx"
    path.write_bytes(model.SerializeToString())
    refuses(error.ModelImportError, "tensor 'w'", from_onnx, path)


@pytest.mark.parametrize(
    "dtype", ["float16", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"]
)
@pytest.mark.parametrize("raw", [True, False])
def test_tensor_types(dtype: str, raw: bool) -> None:
    value = np.array([[0, 1, 2], [3, 4, 5]]).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(value.dtype)
    tensor = (
        numpy_helper.from_array(value, "w") if raw else helper.make_tensor("w", kind, value.shape, value.reshape(-1))
    )
    model = model_of([node("Identity", ["w"], ["y"])], {}, ["y"])
    model.graph.initializer.append(tensor)
    compare(evaluate(from_onnx(model)), [value])


@pytest.mark.parametrize("kind", [TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2])
def test_small_float_tensors(kind: int) -> None:
    tensor = helper.make_tensor("w", kind, [3], [0.5, -1.0, 2.0])
    model = model_of([node("Cast", ["w"], ["y"], to=TensorProto.FLOAT)], {}, ["y"], 19)
    model.graph.initializer.append(tensor)
    compare(evaluate(from_onnx(model)), [np.array([0.5, -1, 2], np.float32)])


def test_sparse_tensors() -> None:
    values = numpy_helper.from_array(np.array([1.5, 2.5], np.float32), "w")
    indices = numpy_helper.from_array(np.array([1, 5], np.int64), "w_indices")
    model = model_of([node("Add", ["x", "w"], ["y"])], {"x": f32(2, 3)}, ["y"])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2, 3]))
    x, dense = f32(2, 3), np.array([[0, 1.5, 0], [0, 0, 2.5]], np.float32)
    compare(evaluate(from_onnx(model), x), [x + dense])
    constant = model_of(
        [node("Constant", [], ["y"], sparse_value=helper.make_sparse_tensor(values, indices, [2, 3]))], {}, ["y"]
    )
    compare(evaluate(from_onnx(constant)), [dense])


# --- choices and functions --------------------------------------------------------------------------------------------


def branch(name: str, nodes: Any, output: str) -> onnx.GraphProto:
    return helper.make_graph(nodes, name, [], [helper.make_empty_tensor_value_info(output)])


def test_known_condition_takes_its_branch() -> None:
    then, other = branch("t", [node("Relu", ["x"], ["a"])], "a"), branch("e", [node("Neg", ["x"], ["b"])], "b")
    for value, op in ((True, "nn.relu"), (False, "negative")):
        nodes = [node("If", ["c"], ["y"], then_branch=then, else_branch=other)]
        model = model_of(nodes, {"x": f32(3)}, ["y"], 17, {"c": np.array(value)})
        assert calls(check(model, {"x": f32(3)}, dynamic=("x",))) == [op]


def test_condition_from_a_shape_is_known() -> None:
    then = branch("t", onnx_nodes("p = Squeeze(x, a)"), "p")
    other = branch("e", onnx_nodes("q = Identity(x)"), "q")
    nodes = onnx_nodes("s = Shape(x); d = Gather(s, z); c = Equal(d, o)")
    nodes.append(node("If", ["c"], ["y"], then_branch=then, else_branch=other))
    weights = {"a": np.array([0]), "z": np.int64(0), "o": np.int64(1)}
    for shape in ((1, 3), (2, 3)):
        check(model_of(nodes, {"x": f32(*shape)}, ["y"], 17, weights), {"x": f32(*shape)})


@pytest.mark.parametrize("value", [True, False])
def test_condition_is_data(value: bool) -> None:
    """Branches that use values around them, one another's names, and a shape computed outside."""
    then = branch("t", onnx_nodes("r = Relu(h); out = Concat <axis = 0> (r, x)"), "out")
    other = branch("e", onnx_nodes("s = Shape(h); r = ConstantOfShape(s); out = Sub(r, h)"), "out")
    choice = node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    nodes = [*onnx_nodes("h = Mul(x, x)"), choice, *onnx_nodes("z = Abs(y)")]
    inputs = {"x": f32(3, 2), "c": np.array(value)}
    model = model_of(nodes, inputs, ["z"], 17)
    for m in (model, symbolic(model, ["x"])):
        mod = from_onnx(m)
        compare(evaluate(mod, *inputs.values()), oracle(model, inputs))
        blocks = mod["main"].body.blocks
        assert sum(isinstance(b.value, ir.If) for block in blocks for b in block.bindings) == 1
        assert isinstance(blocks[0], relax.DataflowBlock)
        assert isinstance(blocks[-1], relax.DataflowBlock)


@pytest.mark.parametrize("value", [True, False])
def test_choice_with_two_results_and_condition_of_one_element(value: bool) -> None:
    def two(name: str, first: str, second: str) -> onnx.GraphProto:
        nodes = [node(first, ["x"], ["p"]), node(second, ["x"], ["q"])]
        return helper.make_graph(nodes, name, [], [helper.make_empty_tensor_value_info(n) for n in "pq"])

    inputs = {"x": f32(2, 3), "c": np.array([value])}
    nodes = [node("If", ["c"], ["u", "v"], then_branch=two("t", "Relu", "Neg"), else_branch=two("e", "Abs", "Exp"))]
    model = model_of(nodes, inputs, ["u", "v"], 17)
    compare(evaluate(from_onnx(model), *inputs.values()), oracle(model, inputs))


@pytest.mark.parametrize("flag", [True, False])
def test_branches_of_different_rank(flag: bool) -> None:
    then, other = branch("t", [node("Flatten", ["x"], ["p"])], "p"), branch("e", [node("Identity", ["x"], ["q"])], "q")
    outer = branch("o", [node("If", ["d"], ["v"], then_branch=then, else_branch=other)], "v")
    choices = [node("If", ["c"], ["u"], then_branch=outer, else_branch=other)]
    inputs = {"x": f32(2, 3, 4), "c": np.array(True), "d": np.array(flag)}
    after = [node("Neg", ["x"], ["z"]), node("Exp", ["u"], ["w"]), node("ReduceSum", ["w"], ["y"], keepdims=0)]
    model = model_of([*choices, *after], inputs, ["y", "z"], 17)
    compare(evaluate(from_onnx(model), *inputs.values()), oracle(model, inputs))
    model = model_of([*choices, node("Transpose", ["u"], ["y"], perm=[2, 0, 1]), *after[:1]], inputs, ["y", "z"], 17)
    if flag:
        refuses(error.InvalidArgument, "cannot take it", evaluate, from_onnx(model), *inputs.values())
    else:
        compare(evaluate(from_onnx(model), *inputs.values()), oracle(model, inputs))
    for nodes in (choices, [*choices, node("Identity", ["u"], ["y"])]):
        model = model_of(nodes, inputs, [nodes[-1].output[0]], 17)
        refuses(error.ModelImportError, "different type or rank", from_onnx, model)


def test_normalization_of_values_that_hardly_differ_takes_the_variance_of_differences() -> None:
    x = (300 + f32(3, 2, 5, 4)).astype(np.float32)
    away = x - x.mean((0, 2, 3), np.float64, keepdims=True)
    model = model_of([node("MeanVarianceNormalization", ["x"], ["y"])], {"x": x}, ["y"], 13)
    expected = np.float32(away / np.sqrt((away**2).mean((0, 2, 3), keepdims=True)))
    compare(evaluate(from_onnx(model), x), [expected], atol=1e-3)


def test_operators_with_a_body_are_inlined() -> None:
    assert "Swish" not in supported_operators()
    x, scale = f32(2, 3, 4, 4), f32(4)
    check(model_of([node("Swish", ["x"], ["y"], alpha=0.5)], {"x": x}, ["y"], 24), {"x": x}, dynamic=("x",))
    model = model_of([node("RMSNormalization", ["x", "s"], ["y"])], {"x": x, "s": scale}, ["y"], 23)
    check(model, {"x": x, "s": scale}, dynamic=("x",))
    x = f32(2, 4, 5)
    nodes = [node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2)]
    model = model_of(nodes, {"x": x}, ["y"], 21, {"s": f32(4), "b": f32(4)})
    check(model, {"x": x}, dynamic=("x",))


def test_local_functions() -> None:
    scale = onnx.FunctionProto(name="Scale", domain="my", input=["v"], output=["w"], attribute=["factor"])
    scale.opset_import.append(helper.make_opsetid("", 17))
    constant = node("Constant", [], ["f"])
    reference = constant.attribute.add(name="value_float", type=onnx.AttributeProto.FLOAT)
    reference.ref_attr_name = "factor"
    scale.node.extend([constant, node("Mul", ["v", "f"], ["w"])])
    twice = onnx.FunctionProto(name="Twice", domain="my", input=["v"], output=["w"])
    twice.opset_import.extend([helper.make_opsetid("", 17), helper.make_opsetid("my", 1)])
    twice.node.extend(
        [node("Scale", ["v"], ["h"], domain="my", factor=3.0), node("Scale", ["h"], ["w"], domain="my", factor=0.5)]
    )
    model = model_of([node("Twice", ["x"], ["y"], domain="my")], {"x": f32(3)}, ["y"], 17, functions=[scale, twice][:1])
    model.functions.append(twice)
    x = f32(3)
    compare(evaluate(from_onnx(model), x), [x * np.float32(1.5)])


def test_a_function_that_calls_itself_is_refused() -> None:
    loop = onnx.FunctionProto(name="Loop", domain="my", input=["v"], output=["w"])
    loop.opset_import.append(helper.make_opsetid("my", 1))
    loop.node.append(node("Loop", ["v"], ["w"], domain="my"))
    model = model_of([node("Loop", ["x"], ["y"], domain="my")], {"x": f32(3)}, ["y"], 17, functions=[loop])
    refuses(error.ModelImportError, "without end", from_onnx, model)


def test_result_may_be_an_input_or_a_weight() -> None:
    model = model_of([node("Identity", ["x"], ["y"])], {"x": f32(2)}, ["y", "x", "w"], 17, {"w": f32(3)})
    x = f32(2)
    compare(evaluate(from_onnx(model), x), [x, x, numpy_helper.to_array(model.graph.initializer[0])])


@pytest.mark.parametrize("counts", [(3, 3), (3, 1), (1, 3), (1, 1)])
def test_sums_of_many_tensors_of_lengths_that_only_data_tell(counts: tuple[int, int]) -> None:
    """The length of a sum of two is chosen by theirs, and that of the next by such a choice."""
    x, kept = f32(5), [np.arange(5) < n for n in counts]
    nodes = [node("Compress", ["x", f"k{i % 2}"], [f"p{i}"]) for i in range(20)]
    nodes += [node("Add", [f"s{i}" if i else "p0", f"p{i + 1}"], [f"s{i + 1}"]) for i in range(19)]
    model = model_of(nodes, {"x": x, "k0": kept[0], "k1": kept[1]}, ["s19"], 17)
    compare(evaluate(from_onnx(model), x, *kept), [10 * (x[: counts[0]] + x[: counts[1]])])


def test_sizes_that_a_quantiser_wrapped_stay_known() -> None:
    """Paddings as exporters compute them for "same", from sizes that are numbers."""
    nodes = onnx_nodes("""
        s = Shape (x); n = Gather (s, two); f = Cast <to = 1> (n); q = QuantizeLinear (f, one, zero)
        g = DequantizeLinear (q, one, zero); h = Sub (g, one); c = Ceil (h); p = Cast <to = 7> (c)
        pads = Concat <axis = 0> (none, p); y = Pad (x, pads)""")
    weights = {"two": np.array([2]), "one": np.float32(1), "zero": np.uint8(0), "none": np.zeros(7, np.int64)}
    made = model(nodes, {"x": ("float32", ["b", 3, 9, 9])}, {"y": ("float32", None)}, weights)
    assert [str(d) for d in from_onnx(made)["main"].ret_ty.shape] == ["b", "3", "9", "17"]
    check(made, {"x": np.ones((2, 3, 9, 9), "float32")})


def test_sizes_that_are_padded_by_data_again_and_again_get_names() -> None:
    steps = 12
    text = "; ".join(f"x{i + 1} = Pad (x{i}, pads)" for i in range(steps))
    made = model(
        onnx_nodes(text), {"x0": ("float32", ["b", 4]), "pads": ("int64", [4])}, {f"x{steps}": ("float32", None)}
    )
    types = [b.var.ty for b in all_bindings(from_onnx(made)["main"])]
    assert max(sum(1 for _ in ir.walk(d)) for t in types for d in getattr(t, "shape", None) or ()) < 60
    check(made, {"x0": np.ones((2, 4), "float32"), "pads": np.array([0, 1, 0, 2])})
