"""Products on bfloat16 operands: what is stored narrow, what stays, and how near results are."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from tests.relax_models import computing, model
from weft import error, relax
from weft.relax.analysis import well_formed
from weft.relax.pipeline import default_passes, get_pipeline
from weft.relax.rewriter import all_bindings
from weft.relax.transform import ProductsInBfloat16, fold_constant
from weft.target import Target

FORMS = (("bfloat16", "bfloat16", "float32", 16),)
RNG = np.random.default_rng(3)


def weights(*shape):
    return relax.const((RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32))


def residual_network(batch=1):
    """Convolutions with a shortcut, pooling, and a head."""
    op = relax.op

    def layers(x):
        y = op.nn.relu(op.nn.conv2d(x, weights(24, 3, 3, 3), padding=1))
        y = op.nn.max_pool2d(y, (3, 3), (2, 2), (1, 1))
        z = op.nn.relu(op.nn.conv2d(y, weights(10, 24, 1, 1)))
        z = op.nn.conv2d(z, weights(24, 10, 3, 3), padding=1)
        y = op.mean(op.nn.relu(op.add(z, y)), (2, 3))
        return op.add(op.matmul(y, weights(24, 7)), weights(7))

    return model(layers, (batch, 3, 17, 15))


def transformer_block(length):
    """Norms, heads, and an MLP."""
    op = relax.op

    def heads(x):
        p = op.reshape(op.add(op.matmul(x, weights(32, 32)), weights(32)), (2, length, 4, 8))
        return op.permute_dims(p, (0, 2, 1, 3))

    def layers(x):
        q, k, v = (heads(x) for _ in range(3))
        s = op.nn.softmax(op.matmul(q, op.permute_dims(k, (0, 1, 3, 2))))
        h = op.reshape(op.permute_dims(op.matmul(s, v), (0, 2, 1, 3)), (2, length, 32))
        h = op.nn.layer_norm(op.add(op.matmul(h, weights(32, 32)), x), weights(32), weights(32), axes=[-1])
        return op.add(op.matmul(op.nn.gelu(op.matmul(h, weights(32, 48))), weights(48, 32)), h)

    return model(layers, (2, length, 32))


def run(mod, x, precision, target="llvm"):
    return computing(mod, target, precision)(x)


def operand_types(func, name):
    return [
        [a.ty.dtype for a in b.value.args[:2]]
        for b in all_bindings(func)
        if getattr(getattr(b.value, "op", None), "name", "") == f"relax.{name}"
    ]


@pytest.mark.parametrize("batch", [1, 3, "n"])
def test_convolutions_stay_near(batch):
    size = 2 if batch == "n" else batch
    mod = residual_network(weft.tir.Var("n", "int64") if batch == "n" else batch)
    x = RNG.standard_normal((size, 3, 17, 15)).astype(np.float32)
    found, wanted = run(mod, x, "bf16"), run(mod, x, "float32")
    assert found.dtype == np.float32
    assert np.abs(found - wanted).max() < 2e-2 * np.abs(wanted).max()
    if any(form[:3] == FORMS[0][:3] for form in Target("llvm").dot_forms):
        assert (found != wanted).any()


@pytest.mark.parametrize("length", [5, 16, "n"])
def test_transformers_stay_near(length):
    mod = transformer_block(weft.tir.Var("n", "int64") if length == "n" else length)
    x = RNG.standard_normal((2, 13 if length == "n" else length, 32)).astype(np.float32)
    found, wanted = run(mod, x, "bfloat16"), run(mod, x, "float32")
    assert np.abs(found - wanted).max() < 2e-2 * np.abs(wanted).max()


def test_what_products_read_is_stored_narrow():
    new = ProductsInBfloat16(dot_forms=FORMS)(residual_network())
    well_formed(new)
    assert operand_types(new["main"], "nn.conv2d") == [["bfloat16", "bfloat16"]] * 3
    assert operand_types(new["main"], "matmul") == [["bfloat16", "bfloat16"]]
    pools = [b for b in all_bindings(new["main"]) if "max_pool2d" in str(getattr(b.value, "op", ""))]
    assert [b.value.args[0].ty.dtype for b in pools] == ["bfloat16"]
    means = operand_types(new["main"], "mean")
    assert means == [["float32"]]  # sums are taken in float32
    assert new["main"].ret_ty.dtype == "float32"
    assert ProductsInBfloat16(dot_forms=FORMS)(new)["main"] is new["main"]
    wide, narrow = ["float32"] * 2, ["bfloat16"] * 2
    eights = ProductsInBfloat16(dot_forms=FORMS, channels=8)(residual_network())["main"]
    assert operand_types(eights, "nn.conv2d") == [wide, narrow, wide]  # of 3, 24 and 10 channels
    assert operand_types(eights, "matmul") == [narrow]


def test_products_of_variables_and_of_groups_stay():
    def product(x):
        a = relax.op.nn.conv2d(x, weights(8, 1, 3, 3), groups=8)
        return relax.op.matmul(a, a)

    mod = model(product, (1, 8, 6, 6))
    assert ProductsInBfloat16(dot_forms=FORMS)(mod)["main"] is mod["main"]


def test_targets_without_bfloat16_say_so():
    x = RNG.standard_normal((1, 3, 17, 15)).astype(np.float32)
    mod = residual_network()
    with pytest.warns(RuntimeWarning, match="no dot products of bfloat16"):
        found = run(mod, x, "bf16", "llvm -mcpu=x86-64-v3")
    np.testing.assert_array_equal(found, run(mod, x, "float32", "llvm -mcpu=x86-64-v3"))


def test_unknown_precisions():
    refuses(error.InvalidArgument, "unknown precision 'fp8'", default_passes, Target("llvm"), "fp8")
    refuses(error.InvalidArgument, "computes in float32", get_pipeline, "zero", Target("llvm"), "bf16")


def test_embeddings_and_constants():
    table = weights(11, 16)
    mod = model(lambda ids: relax.op.matmul(relax.op.take(table, ids, axis=0), weights(16, 4)), (5,), dtype="int64")
    new = fold_constant()(ProductsInBfloat16(dot_forms=FORMS)(mod))
    assert operand_types(new["main"], "take") == [["bfloat16", "int64"]]


def relu_operands(mod):
    """The types of what relu is applied to behind the pass."""
    bindings = all_bindings(ProductsInBfloat16(dot_forms=FORMS)(mod)["main"])
    calls = [b.value for b in bindings if getattr(getattr(b.value, "op", None), "name", "").endswith("nn.relu")]
    return {str(v.args[0].ty.dtype) for v in calls}


def test_relu_comes_before_rounding():
    assert relu_operands(residual_network()) == {"float32"}


def test_relu_of_a_value_that_others_read_moves_what_is_rounded():
    def both(x):
        y = relax.op.nn.conv2d(x, weights(8, 8, 1, 1))
        return relax.op.add(relax.op.nn.conv2d(relax.op.nn.relu(y), weights(8, 8, 1, 1)), y)

    assert relu_operands(model(both, (1, 8, 5, 5))) == {"bfloat16"}
