"""The functions that modules become, binding by binding, as those of Apache TVM are."""

import pytest
from weft.relax.frontend import nn
from weft.relax.frontend.nn import op, spec

from tests.frontend.nn.tracing import trace
from weft.ir import assert_structural_equal
from weft.script import ir as I
from weft.script import relax as R
from weft.script import tir as T


@I.ir_module
class Linear:
    @R.function
    def _initialize_effect() -> R.Tuple(R.Object):
        with R.dataflow():
            _io = R.null_value()
            lv: R.Tuple(R.Object) = (_io,)
            gv: R.Tuple(R.Object) = lv
            R.output(gv)
        return gv

    @R.function
    def forward(
        x: R.Tensor((1, 4), "float32"),
        _io: R.Object,
        weight: R.Tensor((8, 4), "float32"),
        bias: R.Tensor((8,), "float32"),
    ):
        R.func_attr({"num_input": 2})
        with R.dataflow():
            permute_dims = R.permute_dims(weight, axes=None)
            matmul = R.matmul(x, permute_dims, out_dtype="void")
            add = R.add(matmul, bias)
            gv1 = add, (_io,)
            R.output(gv1)
        return gv1


@I.ir_module
class Conv2D:
    @R.function
    def forward(
        x: R.Tensor((1, 3, 32, 32), "float32"),
        packed_params: R.Tuple(R.Tensor((32, 3, 3, 3), "float32"), R.Tensor((32,), "float32")),
    ):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            weight: R.Tensor((32, 3, 3, 3), "float32") = packed_params[0]
            bias: R.Tensor((32,), "float32") = packed_params[1]
            lv1 = R.nn.conv2d(
                x,
                weight,
                strides=[2, 2],
                padding=[1, 1, 1, 1],
                dilation=[1, 1],
                groups=1,
                data_layout="NCHW",
                kernel_layout="OIHW",
                out_layout="NCHW",
                out_dtype="void",
            )
            lv2 = R.reshape(bias, R.shape([1, 32, 1, 1]))
            conv2d = R.add(lv1, lv2)
            gv1 = conv2d
            R.output(gv1)
        return gv1


@I.ir_module
class Embedding:
    @R.function
    def forward(x: R.Tensor((1, 4), "int32"), weight: R.Tensor((6, 8), "float32")):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            reshape = R.reshape(x, R.shape([4]))
            take = R.take(weight, reshape, axis=0)
            reshape1 = R.reshape(take, R.shape([1, 4, 8]))
            gv1 = reshape1
            R.output(gv1)
        return gv1


class Cached(nn.Module):
    def __init__(self):
        self.cache = nn.KVCache(8, [2, 4])

    def forward(self, x, total):
        self.cache.append(x)
        return self.cache.view(total)


@I.ir_module
class KVCache:
    @R.function
    def _initialize_effect() -> R.Tuple(R.Object):
        with R.dataflow():
            lv: R.Tensor((8, 2, 4), "float32") = R.zeros(R.shape([8, 2, 4]), dtype="float32")
            cache: R.Object = R.call_pure_packed(
                "vm.builtin.attention_kv_cache_create", lv, R.shape([8, 2, 4]), R.prim_value(0), ty_args=(R.Object,)
            )
            lv1: R.Tuple(R.Object) = (cache,)
            gv: R.Tuple(R.Object) = lv1
            R.output(gv)
        return gv

    @R.function
    def forward(x: R.Tensor((2, 2, 4), "float32"), total: R.Shape(["total_1"]), cache: R.Object):
        total_1 = T.int64(is_size_var=True)
        R.func_attr({"num_input": 3})
        with R.dataflow():
            lv2: R.Object = R.call_inplace_packed(
                "vm.builtin.attention_kv_cache_append", cache, x, inplace_indices=[0], ty_args=(R.Object,)
            )
            lv3: R.Tensor((total_1, 2, 4), "float32") = R.call_pure_packed(
                "vm.builtin.attention_kv_cache_view",
                lv2,
                R.shape([total_1, 2, 4]),
                ty_args=(R.Tensor((total_1, 2, 4), "float32"),),
            )
            gv1 = lv3, (lv2,)
            R.output(gv1)
        return gv1


@pytest.mark.parametrize(
    ("module", "specs", "debug", "want"),
    [
        (nn.Linear(4, 8), {"x": spec.Tensor([1, 4], "float32")}, True, Linear),
        (
            nn.Conv2D(3, 32, 3, stride=2, padding=1),
            {"x": spec.Tensor([1, 3, 32, 32], "float32"), "$": {"param_mode": "packed"}},
            False,
            Conv2D,
        ),
        (nn.Embedding(6, 8), {"x": spec.Tensor([1, 4], "int32")}, False, Embedding),
        (Cached(), {"x": spec.Tensor([2, 2, 4], "float32"), "total": int}, False, KVCache),
    ],
)
def test_module(module, specs, debug, want):
    assert_structural_equal(module.export_tvm({"forward": specs}, debug=debug)[0], want)


def test_operations():
    @R.function
    def forward(x: R.Tensor((2, 4, 4), "float32")):
        R.func_attr({"num_input": 1, "global_symbol": "forward"})
        with R.dataflow():
            a = R.sum(x, axis=[1], keepdims=True)
            b = R.expand_dims(a, axis=[0])
            c = R.squeeze(b, axis=[0])
            d = R.nn.relu6(c)
            e = R.split(x, indices_or_sections=2, axis=-1)
            e0 = e[0]
            e1 = e[1]
            f = R.multiply(e0, R.const(2, "float32"))
            gv = (d, f, e1)
            R.output(gv)
        return gv

    def model(x):
        y = op.relu6(op.squeeze(op.unsqueeze(op.sum(x, 1, keepdims=True), 0), 0))
        first, second = op.split(x, 2, axis=-1)
        return y, first * 2, second

    assert_structural_equal(trace(model, x=[2, 4, 4])["forward"], forward)
