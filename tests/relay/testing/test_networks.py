"""The networks have the types and the numbers of parameters that they are known for, in both layouts."""

from typing import Any

import numpy as np
import pytest

from tests.refusals import refuses
from weft import IRModule, error, relay
from weft.relay.testing import init

# Arguments, the shape of the result, and how many numbers the parameters have together, where that is known.
NETWORKS: list[tuple[str, tuple[Any, ...], tuple[int, ...], int | None]] = [
    ("mlp", (3,), (3, 10), 784 * 128 + 128 + 128 * 64 + 64 + 640 + 10),
    ("resnet", (1, 10, 20, (3, 28, 28)), (1, 10), None),
    ("resnet", (2, 10, 50, (64, 64, 3), "NHWC"), (2, 10), None),
    ("resnet_3d", (1, 5, 18, (3, 8, 32, 32)), (1, 5), None),
    ("mobilenet", (1, 1000), (1, 1000), 4_231_976 + 21_888),
    ("mobilenet", (1, 10, (64, 64, 3), "float32", "NHWC"), (1, 10), None),
    ("lstm", (3, 8, 2), (2, 8), 3 * 2 * (32 * 8 + 32)),
    ("dcgan", (2, (3, 64, 64), 16), (2, 3, 64, 64), None),
    ("dcgan", (1, (64, 64, 3), 16, 100, "NHWC"), (1, 64, 64, 3), None),
    ("synthetic", (), (1, 9, 24, 12), 144 + 9 * 27 + 9),
    ("dqn", (1,), (1, 18), 1_693_362),
    ("squeezenet", (1, 1000), (1, 1000), 1_248_424),
    ("squeezenet", (1, 1000, "1.1"), (1, 1000), 1_235_496),
    ("densenet", (121, 1000, 1), (1, 1000), 7_978_856 + 83_648),
    ("inception_v3", (1, 10), (1, 10), None),
]


@pytest.mark.parametrize(("name", "args", "shape", "numbers"), NETWORKS)
def test_networks(name: str, args: tuple[Any, ...], shape: tuple[int, ...], numbers: int | None) -> None:
    mod, params = getattr(relay.testing, name).get_workload(*args)
    assert mod["main"].ret_type == relay.TensorType(shape, "float32")
    wanted = {p.name_hint for p in mod["main"].params} - {"data"}
    assert set(params) == wanted
    assert all(p.ty.concrete_shape == params[p.name_hint].shape for p in mod["main"].params if p.name_hint != "data")
    if numbers is not None:
        assert sum(v.numpy().size for v in params.values()) == numbers


def test_deep_networks_type_check() -> None:
    for depth in (18, 34, 50, 101):
        net = relay.testing.resnet.get_net(1, 1000, depth)
        assert relay.transform.InferType()(IRModule.from_expr(net))["main"].ret_type.concrete_shape == (1, 1000)
    net = relay.testing.vgg.get_net(1, (3, 224, 224), 1000, "float32", 16, batch_norm=True)
    assert relay.transform.InferType()(IRModule.from_expr(net))["main"].ret_type.concrete_shape == (1, 1000)


def test_unknown_sizes_are_errors() -> None:
    refuses(error.InvalidArgument, "resnet", relay.testing.resnet.get_net, 1, 10, 19)
    refuses(error.InvalidArgument, "vgg", relay.testing.vgg.get_net, 1, (3, 224, 224), 10, "float32", 12)
    refuses(error.InvalidArgument, "squeezenet", relay.testing.squeezenet.get_net, 1, (3, 224, 224), 10, "2", "float32")


def test_initial_values() -> None:
    _, params = relay.testing.mlp.get_workload(1)
    again = relay.testing.mlp.get_workload(1)[1]
    assert all(np.array_equal(params[k].numpy(), again[k].numpy()) for k in params)
    weight = params["fc1_weight"].numpy()
    assert abs(weight).max() <= np.sqrt(3 / ((784 + 128) / 2)) + 1e-6
    assert abs(weight).max() > 0.9 * np.sqrt(3 / ((784 + 128) / 2))
    assert not params["fc1_bias"].numpy().any()
    x = relay.var("data", shape=(2, 3))
    _, params = relay.testing.create_workload(relay.nn.dense(x, relay.var("weight"), units=4), init.Constant(0.5))
    assert (params["weight"].numpy() == 0.5).all()
    refuses(error.InvalidArgument, "scale", relay.testing.create_workload, relay.add(x, relay.var("scale", shape=(3,))))


def test_the_interpreter_runs_a_network() -> None:
    mod, params = relay.testing.mlp.get_workload(2)
    x = np.random.default_rng(1).normal(size=(2, 1, 28, 28)).astype("float32")
    found = relay.create_executor("debug", mod).evaluate()(x, **params).numpy()
    y = x.reshape(2, -1)
    for i in (1, 2, 3):
        y = y @ params[f"fc{i}_weight"].numpy().T + params[f"fc{i}_bias"].numpy()
        y = np.maximum(y, 0) if i < 3 else np.exp(y - y.max(-1, keepdims=True))
    np.testing.assert_allclose(found, y / y.sum(-1, keepdims=True), rtol=1e-4)


@pytest.mark.parametrize("name", ["mlp", "synthetic"])
@pytest.mark.parametrize("kind", ["vm", "graph", "aot"])
def test_networks_are_compiled(kind: str, name: str) -> None:
    args = {"mlp": (3,), "synthetic": ()}[name]
    mod, params = getattr(relay.testing, name).get_workload(*args)
    data = next(p.ty for p in mod["main"].params if p.name_hint == "data")
    x = np.random.default_rng(3).normal(size=data.concrete_shape).astype("float32")
    expected = relay.create_executor("debug", mod).evaluate()(x, **params).numpy()
    found = relay.create_executor(kind, mod, params=params).evaluate()(x).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_the_lstm_is_an_lstm() -> None:
    mod, params = relay.testing.lstm.get_workload(2, 4, batch_size=3)
    rng = np.random.default_rng(2)
    params = {k: rng.normal(size=v.shape).astype("float32") for k, v in params.items()}
    given = {id(p): rng.normal(size=(3, 4)).astype("float32") for p in mod["main"].params if p.name_hint == "data"}
    args = [given[id(p)] if id(p) in given else params[p.name_hint] for p in mod["main"].params]
    found = relay.create_executor("debug", mod).evaluate()(*args).numpy()
    h = c = np.zeros((3, 4))
    sigmoid = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
    for i, x in enumerate(given.values()):
        gates = x @ params[f"i2h_{i}_weight"].T + params[f"i2h_{i}_bias"]
        gates = gates + h @ params[f"h2h_{i}_weight"].T + params[f"h2h_{i}_bias"]
        a, f, g, o = np.split(gates, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(a) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
    np.testing.assert_allclose(found, h, rtol=1e-4, atol=1e-5)
