"""relay.frontend: models of other tools as Relay programs, with the values that their own tools give."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import weft
from benchmarks.node_cases import node_cases
from tests import onnx_models
from tests.refusals import refuses
from weft import error, relay

torch = pytest.importorskip("torch")

CASES = """
    test_add_bcast test_argmax_keepdims_example test_averagepool_2d_pads test_basic_conv_with_padding
    test_batchnorm_epsilon test_cast_FLOAT_to_FLOAT16 test_clip_example test_concat_3d_axis_1 test_constant_pad_axes
    test_convtranspose_output_shape test_cumsum_2d_axis_0 test_depthtospace_example test_einsum_transpose
    test_expand_dim_changed test_gather_negative_indices test_gathernd_example_int32 test_gemm_all_attributes
    test_gru_defaults test_if test_instancenorm_epsilon test_layer_normalization_2d_axis0 test_logsoftmax_axis_1
    test_lstm_with_initial_bias test_matmul_3d test_maxpool_2d_ceil test_mod_mixed_sign_float32
    test_nonmaxsuppression_suppress_by_IOU test_onehot_with_axis test_quantizelinear_axis
    test_reduce_mean_keepdims_example test_reshape_reduced_dims test_resize_upsample_scales_nearest
    test_scatter_elements_with_axis test_shape_start_1 test_slice_neg_steps test_softmax_large_number
    test_split_variable_parts_1d_opset18 test_squeeze test_top_k test_transpose_all_permutations_3 test_where_example
    test_qlinearmatmul_3D_uint8_float32 test_det_nd test_edge_pad test_loop11
    test_range_float_type_positive_delta_expanded test_reduce_max_empty_set test_reshape_allowzero_reordered
    test_resize_downsample_sizes_linear_antialias test_resize_upsample_sizes_nearest
    test_scan9_sum test_tensorscatter_circular
""".split()


@pytest.fixture(scope="module")
def suite() -> dict:
    return {c.name: c for c in node_cases()}


def array(value: object) -> np.ndarray:
    return np.asarray(numpy_helper.to_array(value) if isinstance(value, TensorProto) else value)


@pytest.mark.parametrize("name", CASES)
def test_operators_of_onnx_mean_the_same(suite, name):
    case = suite[name]
    mod, params = relay.frontend.from_onnx(case.model)
    assert params == {}
    inputs, outputs = ([array(v) for v in values] for values in case.data_sets[0])
    found = relay.create_executor("debug", mod).evaluate()(*inputs)
    for got, expected in zip([found] if len(outputs) == 1 else found, outputs, strict=True):
        assert got.dtype == str(expected.dtype)
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-3, atol=1e-5)


def linear(shape: list) -> onnx.ModelProto:
    w = np.arange(12, dtype="float32").reshape(4, 3)
    nodes = [helper.make_node("Gemm", ["in.put", "w"], ["y"], transB=1), helper.make_node("Flatten", ["y"], ["z"])]
    return onnx_models.model(nodes, {"in.put": ("float32", shape)}, {"z": ("float32", [None, None])}, {"w": w})


def test_a_product_is_a_dense_layer_and_inputs_keep_their_names():
    mod, params = relay.frontend.from_onnx(linear(["n", 3]), shape={"in.put": (2, 3)}, freeze_params=False)
    assert "nn.dense(%in.put, %w, units=4)" in str(mod)
    assert list(params) == ["w"]
    lib = relay.build(mod, target="llvm", params=params)
    module = weft.contrib.graph_executor.GraphModule(lib["default"](weft.cpu()))
    x = np.random.default_rng(0).random((2, 3), "float32")
    module.set_input("in.put", x)
    module.run()
    np.testing.assert_allclose(module.get_output(0).numpy(), x @ params["w"].numpy().T, rtol=1e-5)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_unknown_dimensions_are_computed_where_they_are_needed(n):
    mod, _ = relay.frontend.from_onnx(linear(["n", 3]), shape={"in.put": (relay.Any(), 3)})
    assert isinstance(mod["main"].params[0].ty.shape[0], relay.Any)
    x = np.random.default_rng(0).random((n, 3), "float32")
    got = relay.create_executor("vm", mod).evaluate()(x)
    np.testing.assert_allclose(got.numpy(), x @ np.arange(12, dtype="float32").reshape(4, 3).T, rtol=1e-5)


LOOP = """<ir_version: 7, opset_import: ["": 13]> g (float[N, T, 4] x) => (float[N, 5] y, float[K, N, 5] all) {
 axis = Constant<value_int = 1> ()
 zero = Constant<value_int = 0> ()
 axes = Constant<value_ints = [0]> ()
 shape = Shape (x)
 steps = Gather (shape, axis)
 rows = Gather (shape, zero)
 row = Unsqueeze (rows, axes)
 five = Constant<value_ints = [5]> ()
 size = Concat<axis = 0> (row, five)
 first = ConstantOfShape (size)
 go = Less (zero, steps)
 none = Constant<value_int = 9223372036854775807> ()
 h, k, all = Loop (none, go, first, zero) <body = step (int64 i, bool c, float[A, 5] hh, int64 k)
   => (bool more, float[A, 5] ho, int64 kk, float[A, 5] out) {
   now = Gather<axis = 1> (x, k)
   a = MatMul (now, w)
   r = MatMul (hh, u)
   s = Add (a, r)
   ho = Tanh (s)
   out = Identity (ho)
   kk = Add (k, axis)
   more = Less (kk, steps) }>
 y = Identity (h) }"""


@pytest.mark.parametrize("shape", [(2, 3), (1, 1), (3, 0)])
@pytest.mark.parametrize("executor", ["debug", "vm"])
def test_a_loop_is_a_function_that_calls_itself(executor, shape):
    rng = np.random.default_rng(0)
    w, u, x = (rng.standard_normal(s, "float32") for s in ((4, 5), (5, 5), (*shape, 4)))
    model = onnx.parser.parse_model(LOOP)
    model.graph.initializer.extend([numpy_helper.from_array(w, "w"), numpy_helper.from_array(u, "u")])
    mod, _ = relay.frontend.from_onnx(model)
    y, states = relay.create_executor(executor, mod).evaluate()(x)
    h, rows = np.zeros((shape[0], 5)), []
    for t in range(shape[1]):
        h = np.tanh(x[:, t].astype("float64") @ w + h @ u)
        rows.append(h)
    np.testing.assert_allclose(y.numpy(), h, rtol=1e-5, atol=1e-6)
    assert len(states.numpy()) == shape[1]
    for got, expected in zip(states.numpy(), rows, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8)
        self.head = torch.nn.Linear(128, 5)

    def forward(self, x: "torch.Tensor") -> "torch.Tensor":
        x = torch.nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        return torch.softmax(self.head(x.flatten(1)), -1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", ["traced", "module", "exported"])
def test_a_network_of_pytorch(form):
    net, x = Net().eval(), torch.randn(2, 3, 8, 8)
    made = {
        "traced": lambda: torch.jit.trace(net, x),
        "module": lambda: net,
        "exported": lambda: torch.export.export(net, (x,)),
    }[form]()
    mod, params = relay.frontend.from_pytorch(made, [("input0", (2, 3, 8, 8))])
    assert mod["main"].params[0].name_hint == "input0"
    assert {"conv.weight", "norm.running_mean", "head.bias"} <= set(params)
    got = relay.create_executor("graph", mod, params=params).evaluate()(x.numpy())
    np.testing.assert_allclose(got.numpy(), net(x).detach().numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("test_unique_sorted_without_axis", r"R\.unique"),
        ("test_string_concat", "StringConcat has no form"),
        ("test_sequence_insert_at_back", "no type in Relay"),
        ("test_optional_get_element_sequence", "no type in Relay"),
        ("test_resize_upsample_sizes_nearest_not_larger", "an attribute depends on a symbolic dimension"),
    ],
)
def test_what_relay_has_no_values_for_is_refused_by_name(suite, name, says):
    refuses(error.UnsupportedOperator, says, relay.frontend.from_onnx, suite[name].model)


def test_what_is_refused():
    with pytest.raises(error.InvalidArgument, match="described by its name and shape"):
        relay.frontend.from_pytorch(Net(), [(1, 3, 8, 8)])
    mod = weft.IRModule({"main": weft.te.create_prim_func([weft.te.placeholder((2,))])})
    refuses(error.UnsupportedOperator, "only Relax functions", weft.relay.import_relax.import_relax, mod)
