"""Programs that JAX writes, against JAX: families of functions, and networks."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from weft import environment

if environment.DEVICES.read() == "1":
    import jax
else:
    jax = pytest.importorskip("jax")

import weft
from tests.refusals import refuses
from weft.error import ParseError
from weft.frontend.stablehlo import from_stablehlo
from weft.relax.interpreter import evaluate

jnp, lax, nn = jax.numpy, jax.lax, jax.nn
RNG = np.random.default_rng(0)


def f32(*shape: int) -> Any:
    return jnp.asarray(RNG.standard_normal(shape).astype(np.float32))


def i32(*shape: int) -> Any:
    return jnp.asarray(RNG.integers(-50, 50, shape).astype(np.int32))


def check(fn: Callable[..., Any], *args: Any, compiled: bool = False) -> None:
    """Compare what JAX computes with what its program's text computes here."""
    text = jax.jit(fn).lower(*args).as_text()
    want = [np.asarray(v) for v in jax.tree_util.tree_leaves(jax.jit(fn)(*args))]
    given = [np.asarray(jnp.asarray(v)) for v in jax.tree_util.tree_leaves(args)]
    got = _compiled(text, given) if compiled else evaluate(from_stablehlo(text), *given)
    for a, b in zip(got, want, strict=True):
        assert (np.shape(a), a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=2e-4, atol=2e-5)


def _compiled(text: str, given: list[np.ndarray]) -> list[np.ndarray]:
    vm = weft.relax.VirtualMachine(weft.compile(from_stablehlo(text), "llvm"), weft.cpu())
    found = vm["main"](*map(weft.runtime.tensor, given))
    return [x.numpy() for x in ([found] if hasattr(found, "numpy") else found)]


def of(module: Any, names: str) -> list[Callable[..., Any]]:
    """Functions of a module by their names."""
    return [getattr(module, name) for name in names.split()]


def each(operands: Sequence[Any], *fns: Callable[..., Any]) -> None:
    """Compare what each function makes of the operands; they are one program."""
    check(lambda *args: [fn(*args) for fn in fns], *operands)


def test_of_one_operand() -> None:
    each(
        [abs(f32(3, 5)) + 0.1],
        *of(jnp, "abs ceil cos exp expm1 floor isfinite log1p negative round sign sin sqrt tan tanh"),
        *of(jnp, "cbrt arctan sinh square log isnan isinf trunc"),
        *of(nn, "sigmoid relu softplus gelu"),
        lax.rsqrt,
    )
    each(
        [f32(3, 5) * 0.3],
        *of(jnp, "arcsin arccos arctanh arcsinh cosh"),
        *of(lax, "erf erfc"),
        *of(nn, "silu elu log_softmax hard_swish"),
        lambda v: nn.gelu(v, approximate=False),
        lambda v: jnp.clip(v, -0.2, 0.3),
        lambda v: lax.round(v * 7, lax.RoundingMethod.AWAY_FROM_ZERO),
        lambda v: lax.erfc(v * 6),
    )


def test_of_two_operands() -> None:
    each(
        [f32(3, 5), f32(3, 5)],
        *of(jnp, "add subtract multiply divide maximum minimum arctan2 remainder fmod"),
        *of(jnp, "floor_divide greater equal hypot logaddexp copysign"),
        lambda x, y: jnp.power(abs(x), y),
    )
    each(
        [i32(3, 5), i32(3, 5) + 51],
        *of(jnp, "add floor_divide remainder bitwise_and bitwise_or bitwise_xor"),
        *of(lax, "div rem"),
        lambda x, y: ~x,
        lambda x, y: x << 2,
        lambda x, y: x >> 1,
        lambda x, y: x << abs(y),
        lambda x, y: lax.shift_right_logical(x, abs(y)),
        lambda x, y: lax.shift_right_arithmetic(x, abs(y)),
        lambda x, y: x.astype(jnp.float32),
        lambda x, y: lax.bitcast_convert_type(y, jnp.float32),
        lambda x, y: x.astype(jnp.int8),
        jnp.not_equal,
    )
    each(
        [f32(3, 5) > 0, f32(3, 5) > 0],
        *of(jnp, "logical_and logical_or logical_xor equal"),
        lambda x, y: ~x,
        lambda x, y: jnp.any(x, 1),
        lambda x, y: jnp.all(x, 0),
        lambda x, y: jnp.sum(x),
    )


def test_reductions_windows_and_orders() -> None:
    each(
        [f32(3, 5, 7)],
        *of(jnp, "sum min argmax var"),
        jnp.linalg.norm,
        lambda x: x.mean((0, 2)),
        lambda x: x.max(1),
        lambda x: x.prod(0),
        lambda x: jnp.argmin(x, 1),
        lambda x: nn.logsumexp(x, 1),
        lambda x: jnp.median(x, 1),
        lambda x: jnp.cumsum(x, 0),
        lambda x: jnp.cumprod(x, 1),
        lambda x: lax.cummax(x, 1),
        lambda x: lax.cumsum(x, 2, reverse=True),
    )
    each(
        [f32(2, 9, 8, 3)],
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
        lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 2, 3, 1), (1, 1, 2, 1), "VALID"),
        lambda x: lax.reduce_window(x, jnp.inf, lax.min, (1, 3, 2, 1), (1,) * 4, "SAME", window_dilation=(1, 2, 1, 1)),
        lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1,) * 4, "VALID", base_dilation=(1, 2, 3, 1)),
    )
    each(
        [f32(5, 6), i32(5, 6)],
        lambda x, y: jnp.sort(x, 0),
        lambda x, y: jnp.sort(x, descending=True),
        lambda x, y: jnp.argsort(x, 1),
        lambda x, y: lax.sort((x, y), dimension=1, num_keys=1),
        lambda x, y: lax.top_k(x, 3),
        lambda x, y: jnp.argsort(y, 1),
    )
    special = jnp.array([[1.0, jnp.nan, 3.0], [jnp.inf, -jnp.inf, -0.0]])
    each(
        [special],
        lambda x: jnp.maximum(x, 0),
        lambda x: jnp.max(x, -1),
        jnp.sort,
        jnp.argsort,
        lambda x: jnp.argmax(x, -1),
        jnp.nanmax,
    )
    each([f32(0, 3)], lambda x: x.sum(0), lambda x: jnp.concatenate([x, jnp.ones((2, 3))]))


def test_places_of_elements() -> None:
    each(
        [f32(6, 5), jnp.array([4, -1]), jnp.array([0, 9])],
        lambda x, i, j: x[i],
        lambda x, i, j: x[:, j],
        lambda x, i, j: x[i, j],
        lambda x, i, j: x[1:3, ::2],
        lambda x, i, j: jnp.take(x, i, 0),
        lambda x, i, j: lax.dynamic_slice(x, (i[0], j[0]), (2, 3)),
        lambda x, i, j: x[:, None, ::-1],
        lambda x, i, j: lax.dynamic_index_in_dim(x, i[1], 0),
        lambda x, i, j: jax.vmap(lambda r, k: lax.dynamic_slice(r, (k,), (2,)))(x[:2], j[:2]),
        lambda x, i, j: jax.vmap(lambda r, k: r[k])(x[:2], j[:2]),
    )
    each(
        [f32(6, 5), jnp.array([4, 0]), f32(2, 5)],
        lambda x, i, u: x.at[i].set(u),
        lambda x, i, u: x.at[i].add(u),
        lambda x, i, u: x.at[i].mul(u),
        lambda x, i, u: x.at[i].max(u),
        lambda x, i, u: x.at[:, i].set(1.0),
        lambda x, i, u: x.at[i, i].add(2.0),
        lambda x, i, u: x.at[1:3].set(0.0),
        lambda x, i, u: x.at[jnp.array([77])].set(5.0, mode="drop"),
        lambda x, i, u: jax.vmap(lambda r, k: r.at[k].set(7.0))(x[:2], i),
    )
    each(
        [f32(4, 6)],
        lambda x: jnp.pad(x, ((1, 2), (0, 1)), constant_values=3.0),
        lambda x: lax.pad(x, 0.5, ((1, -1, 2), (-1, 2, 0))),
        jnp.flip,
        lambda x: jnp.roll(x, 2, 1),
        lambda x: jnp.tile(x, (2, 3)),
        lambda x: jnp.repeat(x, 2, 0),
        jnp.triu,
        lambda x: jnp.stack([x, x], 1),
        lambda x: jnp.pad(x, 1, mode="reflect"),
        lambda x: jnp.pad(x, 1, mode="edge"),
        lambda x: jnp.diag(x[:4, :4]),
        jnp.transpose,
    )


def test_products_and_convolutions() -> None:
    each(
        [f32(2, 3, 5), f32(2, 4, 5)],
        lambda x, y: jnp.einsum("bij,bkj->bik", x, y),
        lambda x, y: jnp.einsum("bij,bkj->ik", x, y),
        lambda x, y: jnp.tensordot(x, y, ((0, 2), (0, 2))),
        lambda x, y: x[0, 0] @ y[0, 0],
        lambda x, y: lax.dot(x[0].astype(jnp.int8), y[0].T.astype(jnp.int8), preferred_element_type=jnp.int32),
    )

    def conv(x: Any, w: Any, **attrs: Any) -> None:
        check(lambda x, w: lax.conv_general_dilated(x, w, **attrs), x, w)

    hwc = ("NHWC", "HWIO", "NHWC")
    conv(
        f32(2, 4, 11),
        f32(6, 4, 3),
        window_strides=(2,),
        padding=[(2, 1)],
        rhs_dilation=(2,),
        dimension_numbers=("NCH", "OIH", "NCH"),
    )
    conv(
        f32(1, 7, 8, 4),
        f32(3, 2, 2, 6),
        window_strides=(1, 2),
        padding="SAME",
        feature_group_count=2,
        dimension_numbers=hwc,
    )
    conv(
        f32(1, 5, 4, 3),
        f32(3, 3, 3, 2),
        window_strides=(1, 1),
        padding=[(1, 1), (2, 2)],
        lhs_dilation=(2, 2),
        dimension_numbers=hwc,
    )
    conv(f32(1, 2, 6, 6), f32(3, 2, 2, 2), window_strides=(1, 1), padding=[(-1, 0), (0, -1)])
    conv(f32(1, 2, 5, 4, 6), f32(3, 2, 2, 2, 3), window_strides=(1, 1, 1), padding="VALID")


def test_control_and_random_numbers() -> None:
    each(
        [f32(4, 3), jnp.int32(1)],
        lambda x, k: lax.fori_loop(0, 4, lambda i, v: v * 1.5 + i, x),
        lambda x, k: lax.while_loop(lambda v: v.sum() < 50, lambda v: v + 1, x),
        lambda x, k: lax.switch(k, [lambda v: v, lambda v: v * 2, lambda v: v * 3], x),
        lambda x, k: lax.cond(k > 5, jnp.sin, jnp.cos, x),
        lambda x, k: lax.map(lambda v: v.sum(), x),
        lambda x, k: lax.scan(lambda c, v: (c + v, c * v), jnp.zeros(3), x),
    )
    each(
        [jax.random.PRNGKey(3)],
        lambda k: jax.random.uniform(k, (3, 4)),
        lambda k: jax.random.normal(k, (5,)),
        jax.random.split,
        lambda k: jax.random.randint(k, (4,), 0, 100),
    )


# --- networks ---------------------------------------------------------------------------------------------------------


def perceptron(x: Any, w: Any, b: Any, v: Any) -> Any:
    return nn.softmax(nn.gelu(x @ w + b) @ v)


def pixels(x: Any, k: Any, w: Any) -> Any:
    y = lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    y = lax.reduce_window(nn.relu(y), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return y.mean((1, 2)) @ w


def encoder(x: Any, wq: Any, wk: Any, wv: Any, w1: Any, w2: Any) -> Any:
    batch, length, width = x.shape
    q, k, v = ((x @ w).reshape(batch, length, 4, width // 4).transpose(0, 2, 1, 3) for w in (wq, wk, wv))
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(width // 4)
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    x = x + jnp.einsum("bhqk,bhkd->bhqd", nn.softmax(scores), v).transpose(0, 2, 1, 3).reshape(x.shape)
    return nn.standardize(x, epsilon=1e-5) + nn.gelu(x @ w1, approximate=False) @ w2


def decoder(x: Any, keys: Any, values: Any, place: Any, wk: Any, wv: Any) -> Any:
    keys = lax.dynamic_update_slice(keys, x @ wk, (0, place, 0))
    values = lax.dynamic_update_slice(values, x @ wv, (0, place, 0))
    scores = jnp.where(jnp.arange(keys.shape[1]) <= place, jnp.einsum("bqd,bkd->bqk", x, keys), -jnp.inf)
    return nn.softmax(scores) @ values, keys, values


def recurrence(x: Any, h: Any, w: Any) -> Any:
    def step(h: Any, row: Any) -> Any:
        h = jnp.tanh(h @ w + row)
        return h, h

    return lax.scan(step, h, x)


NETWORKS = {
    "perceptron": (perceptron, [(3, 4), (4, 8), (8,), (8, 5)]),
    "pixels": (pixels, [(1, 8, 8, 3), (3, 3, 3, 4), (4, 5)]),
    "encoder": (encoder, [(2, 6, 16), (16, 16), (16, 16), (16, 16), (16, 32), (32, 16)]),
    "recurrence": (recurrence, [(5, 2, 4), (2, 4), (4, 4)]),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_network(name: str) -> None:
    fn, shapes = NETWORKS[name]
    check(fn, *(f32(*shape) for shape in shapes), compiled=True)


def test_network_with_a_cache() -> None:
    given = [f32(1, 1, 8), f32(1, 6, 8), f32(1, 6, 8), jnp.int32(3), f32(8, 8), f32(8, 8)]
    check(decoder, *given, compiled=True)


def moved(x: Any) -> Any:
    n = x.shape[0]
    return (
        x.reshape(-1, 2),
        jnp.concatenate([x, x]),
        x[1:],
        x[: n // 2],
        jnp.argmax(x, 1),
        x[::-1],
        jnp.pad(x, ((1, 2), (0, 0))),
        x[:, None].repeat(2, 1).reshape(n * 2, -1),
    )


@pytest.mark.parametrize(
    ("fn", "shapes", "sizes"),
    [
        (lambda x: nn.softmax(nn.relu(x @ jnp.ones((4, 8)) + 1)), ["b, 4"], [[(3, 4)], [(1, 4)]]),
        (
            lambda x: nn.gelu(lax.conv(x, jnp.ones((4, 3, 3, 3)), (1, 1), "SAME")).mean((2, 3)),
            ["b, 3, h, w"],
            [[(2, 3, 6, 7)], [(1, 3, 5, 5)]],
        ),
        (lambda x: lax.scan(lambda h, r: (jnp.tanh(h + r),) * 2, jnp.zeros(8), x), ["t, 8"], [[(3, 8)], [(1, 8)]]),
        (lambda x, y: x @ y + y.sum(), ["a, k", "k, c"], [[(2, 3), (3, 4)], [(1, 5), (5, 2)]]),
        (lambda x: x.reshape(-1, 4, 3).sum(1), ["4*b, 3"], [[(8, 3)], [(4, 3)]]),
        (moved, ["n, 4"], [[(3, 4)], [(6, 4)]]),
        (lambda x: encoder(x, *(jnp.eye(16) / i for i in range(1, 6))), ["b, n, 16"], [[(2, 5, 16)], [(1, 3, 16)]]),
    ],
)
def test_network_of_open_dimensions(fn: Any, shapes: list[str], sizes: list[list[tuple[int, ...]]]) -> None:
    scope = jax.export.SymbolicScope()
    specs = [jax.ShapeDtypeStruct(jax.export.symbolic_shape(s, scope=scope), "float32") for s in shapes]
    exported = jax.export.export(jax.jit(fn))(*specs)
    vm = weft.relax.VirtualMachine(weft.compile(from_stablehlo(exported), "llvm"), weft.cpu())
    for size in sizes:
        given = [np.asarray(f32(*s)) for s in size]
        found = vm["main"](*given)
        want = jax.tree_util.tree_leaves(exported.call(*given))
        for a, b in zip(found if isinstance(found, tuple) else [found], want, strict=True):
            np.testing.assert_allclose(a.numpy(), b, rtol=2e-4, atol=2e-5)


def test_forms_of_programs() -> None:
    """Text, objects, portable artifacts and MLIR's own bytecode; with what JAX says of shards, and damaged."""
    x = jnp.eye(3) + 1
    exported, own = jax.export.export(jax.jit(jnp.linalg.cholesky))(x), io.BytesIO()
    jax.jit(jnp.linalg.cholesky).lower(x).compiler_ir().operation.write_bytecode(own)
    artifact = exported.mlir_module_serialized
    for form in (artifact, own.getvalue(), exported.mlir_module(), exported):
        np.testing.assert_allclose(
            evaluate(from_stablehlo(form), np.asarray(x))[0], jnp.linalg.cholesky(x), rtol=1e-5, atol=1e-6
        )
    for damaged, said in (
        (artifact[:-9], "when only"),
        (b"ML\xefR", "end of the bytecode"),
        (b"\xff", "UnicodeDecode"),
    ):
        refuses(ParseError, said, from_stablehlo, damaged)
