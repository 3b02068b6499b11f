"""Loop and Scan against ONNX Runtime: conditions and counts as data, states that grow, axes and directions."""

import resource
import signal

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import weft
from tests.arrays import floats
from tests.refusals import refuses
from weft.error import ModelImportError
from weft.frontend.onnx import from_onnx

F, B, L = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64
x = floats(np.random.default_rng(5))
value, node = helper.make_tensor_value_info, helper.make_node
GO_ON = [value("i", L, []), value("c", B, [])]


def loop_model(nodes, inputs, outputs, weights=()):
    tensors = [numpy_helper.from_array(np.asarray(w), k) for k, w in weights]
    graph = helper.make_graph(nodes, "g", inputs, [value(o, t, s) for o, t, s in outputs], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check(nodes, inputs, outputs, feeds, weights=()):
    model = loop_model(nodes, inputs, outputs, weights)
    session, oracle = weft.Session(model), onnxruntime.InferenceSession(model.SerializeToString())
    for feed in feeds:
        for found, expected in zip(session.run(feed), oracle.run(None, feed), strict=True):
            assert found.shape == expected.shape
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5)


def test_count_is_data():
    """The state keeps its shape, a weight from around is used, an output a step is stacked."""
    body = helper.make_graph(
        [node("MatMul", ["s", "w"], ["p"]), node("Tanh", ["p"], ["t"]), node("Identity", ["c"], ["d"])],
        "body",
        [*GO_ON, value("s", F, ["n", 4])],
        [value("d", B, []), value("t", F, None), value("p", F, None)],
    )
    check(
        [node("Loop", ["k", "", "x"], ["last", "all"], body=body)],
        [value("k", L, []), value("x", F, ["n", 4])],
        [("last", F, ["n", 4]), ("all", F, ["k", "n", 4])],
        [{"k": np.array(k), "x": x(n, 4)} for k, n in ((1, 2), (7, 3), (300, 1))],
        [("w", x(4, 4))],
    )


@pytest.mark.parametrize("trips", [5, 3000])
def test_condition_is_data(trips):
    """Written out where the count is small and known, unless the condition depends on data."""
    body = helper.make_graph(
        [
            node("Add", ["s", "one"], ["t"]),
            node("ReduceSum", ["t"], ["u"], keepdims=0),
            node("Less", ["u", "lim"], ["d"]),
        ],
        "body",
        [*GO_ON, value("s", F, [4])],
        [value("d", B, []), value("t", F, [4])],
    )
    check(
        [node("Loop", ["k", "yes", "x"], ["last"], body=body)],
        [value("x", F, [4]), value("lim", F, [])],
        [("last", F, [4])],
        [{"x": x(4), "lim": np.array(v, np.float32)} for v in (-50, 8, 9000)],
        [("k", np.int64(trips)), ("yes", np.array(True)), ("one", np.ones(4, np.float32))],
    )


def test_known_count_is_written_out():
    body = helper.make_graph(
        [node("Cast", ["i"], ["f"], to=F), node("Add", ["s", "f"], ["t"]), node("Identity", ["c"], ["d"])],
        "body",
        [*GO_ON, value("s", F, ["n"])],
        [value("d", B, []), value("t", F, None), value("t", F, None)],
    )
    loop = node("Loop", ["k", "", "x"], ["last", "all"], body=body)
    weights = [("k", np.int64(4))]
    check([loop], [value("x", F, ["n"])], [("last", F, ["n"]), ("all", F, [4, "n"])], [{"x": x(3)}], weights)
    model = loop_model([loop], [value("x", F, ["n"])], [("all", F, [4, "n"])], weights)
    assert "loop" not in from_onnx(model).script()


def test_state_grows():
    body = helper.make_graph(
        [
            node("ReduceMean", ["s"], ["m"], axes=[0], keepdims=1),
            node("Concat", ["s", "m"], ["t"], axis=0),
            node("Identity", ["c"], ["d"]),
        ],
        "body",
        [*GO_ON, value("s", F, ["q", 3])],
        [value("d", B, []), value("t", F, ["r", 3])],
    )
    check(
        [node("Loop", ["k", "", "x"], ["last"], body=body), node("Relu", ["last"], ["y"])],
        [value("k", L, []), value("x", F, ["n", 3])],
        [("y", F, ["m", 3])],
        [{"k": np.array(k), "x": x(2, 3)} for k in (0, 6)],
    )


@pytest.mark.parametrize(("axes", "back"), [((0, 0), (0, 0)), ((1, 1), (1, 0)), ((1, 2), (0, 1))])
def test_scan(axes, back):
    body = helper.make_graph(
        [
            node("MatMul", ["xt", "w"], ["a"]),
            node("MatMul", ["h", "u"], ["b"]),
            node("Add", ["a", "b"], ["p"]),
            node("Tanh", ["p"], ["g"]),
            node("Identity", ["g"], ["y"]),
        ],
        "body",
        [value("h", F, ["n", 5]), value("xt", F, ["n", 3])],
        [value("g", F, ["n", 5]), value("y", F, ["n", 5])],
    )
    scan = node(
        "Scan",
        ["h", "x"],
        ["last", "all"],
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[axes[0]],
        scan_output_axes=[axes[1]],
        scan_input_directions=[back[0]],
        scan_output_directions=[back[1]],
    )
    dims = ["n", 3]
    dims.insert(axes[0], "t")
    shape = {"n": 2, "t": 9, 3: 3}
    check(
        [scan],
        [value("h", F, ["n", 5]), value("x", F, dims)],
        [("last", F, ["n", 5]), ("all", F, ["p", "q", "r"])],
        [{"h": x(2, 5), "x": x(*(shape[d] for d in dims))}],
        [("w", x(3, 5)), ("u", x(5, 5) / 3)],
    )


def counting(count, condition="", limit=None):
    """Add one a trip, and put the sums out; stop at a limit if there is one."""
    test = [node("Less", ["u", "lim"], ["d"])] if limit else [node("Identity", ["c"], ["d"])]
    body = helper.make_graph(
        [node("Add", ["s", "one"], ["t"]), node("Identity", ["t"], ["o"]), node("Squeeze", ["t"], ["u"]), *test],
        "body",
        [*GO_ON, value("s", F, [1])],
        [value("d", B, []), value("t", F, [1]), value("o", F, [1])],
        [numpy_helper.from_array(np.array(v, np.float32), k) for k, v in (("one", 1), ("lim", limit or 0))],
    )
    return node("Loop", [count, condition, "x"], ["last", "all"], body=body)


@pytest.mark.parametrize("shape", [[], [1], [1, 1]])
def test_counts_as_in_onnx_runtime(shape):
    check(
        [counting("k")],
        [value("k", L, shape), value("x", F, [1])],
        [("last", F, [1]), ("all", F, ["n", 1])],
        [{"k": np.full(shape, k), "x": x(1)} for k in (3, 0, -1, -(2**63))],
    )


@pytest.mark.parametrize("inputs", [("", "go"), ("k", "go"), ("k", ""), ("", "")])
def test_counts_and_conditions_may_be_missing(inputs):
    """Conditions end loops that have no other end in reach; outputs are as many as trips were made."""
    declared = [v for v in (value("k", L, []), value("go", B, [])) if v.name in inputs]
    feeds = [{"k": np.array(2**63 - 1), "go": np.array(go), "x": np.zeros(1, np.float32)} for go in (True, False)]
    check(
        [counting(*inputs, limit=700)],
        [*declared, value("x", F, [1])],
        [("last", F, [1]), ("all", F, ["n", 1])],
        [{k: v for k, v in f.items() if k in (*inputs, "x")} for f in feeds],
    )


@pytest.mark.parametrize(
    ("i", "bad"),
    [
        ("k", np.array([3, 4])),
        ("k", np.zeros(0, np.int64)),
        ("k", np.int32(3)),
        ("go", np.array([True, True])),
        ("go", np.int64(1)),
    ],
)
def test_refused_counts_and_conditions(i, bad):
    weights = {"k": np.int64(300), "go": np.array(True), i: bad}
    model = loop_model([counting("k", "go")], [value("x", F, [1])], [("all", F, None)], weights.items())
    with pytest.raises(
        ModelImportError, match=r"Loop: its (trip count|condition) is not one value|Loop: input .* has a wrong"
    ):
        from_onnx(model)


@pytest.mark.parametrize("outer", [2, 300])
def test_nested_loops(outer):
    inner = helper.make_graph(
        [node("Add", ["s2", "f"], ["t2"]), node("Identity", ["c2"], ["d2"]), node("Identity", ["t2"], ["o2"])],
        "inner",
        [value("j", L, []), value("c2", B, []), value("s2", F, [])],
        [value("d2", B, []), value("t2", F, []), value("o2", F, [])],
    )
    body = helper.make_graph(
        [
            node("Cast", ["i"], ["f"], to=F),
            node("Loop", ["m", "", "s"], ["t", "row"], body=inner),
            node("ReduceSum", ["row"], ["q"], keepdims=0),
            node("Identity", ["c"], ["d"]),
        ],
        "body",
        [*GO_ON, value("s", F, [])],
        [value("d", B, []), value("t", F, []), value("row", F, None), value("q", F, [])],
    )
    one = np.array(1, np.float32)
    check(
        [node("Loop", ["k", "", "x"], ["y", "rows", "sums"], body=body)],
        [value("k", L, []), value("m", L, []), value("x", F, [])],
        [("y", F, []), ("rows", F, None), ("sums", F, None)],
        [{"k": np.array(k), "m": np.array(m), "x": one} for k, m in ((outer, 5), (0, 3), (outer, 0))],
    )


def cut(end):
    """Give a part of a weight each trip, whose length is data."""
    body = helper.make_graph(
        [
            node("Add", ["i", "one"], ["e"]),
            node("Reshape", ["e", "one"], ["next"]),
            node("Slice", ["w", "zero", end], ["o"]),
            node("Identity", ["c"], ["d"]),
        ],
        "body",
        GO_ON,
        [value("d", B, []), value("o", F, None)],
        [numpy_helper.from_array(np.array([v]), k) for k, v in (("one", 1), ("zero", 0))],
    )
    inputs = [value("k", L, []), value("n", L, [1]), value("w", F, ["a", 3])]
    return node("Loop", ["k", ""], ["all"], body=body), inputs


def test_shapes_of_outputs_known_at_the_first_trip():
    loop, inputs = cut("n")
    feed = {"n": np.array([2]), "w": x(5, 3)}
    check([loop], inputs, [("all", F, None)], [{**feed, "k": np.array(k)} for k in (1, 4)])
    session = weft.Session(loop_model([loop], inputs, [("all", F, None)]))
    assert session.run({**feed, "k": np.array(0)})[0].shape == (0, 0, 3)


def test_outputs_of_different_shapes_are_refused():
    loop, inputs = cut("next")
    session = weft.Session(loop_model([loop], inputs, [("all", F, None)]))
    feed = {"n": np.array([2]), "w": x(5, 3)}
    assert session.run({**feed, "k": np.array(1)})[0].shape == (1, 1, 3)
    with pytest.raises(ValueError, match=r"output of shape \[2, 3\], the ones before it \[1, 3\]"):
        session.run({**feed, "k": np.array(2)})


def scan_of_two(a, b):
    body = helper.make_graph(
        [node("Sub", ["p", "q"], ["o"]), node("Add", ["h", "o"], ["g"])],
        "body",
        [value(i, F, [2]) for i in "hpq"],
        [value("g", F, [2]), value("o", F, [2])],
    )
    scan = node(
        "Scan",
        ["h", "a", "b"],
        ["last", "all"],
        body=body,
        num_scan_inputs=2,
        scan_input_axes=[0, -1],
        scan_input_directions=[1, 0],
        scan_output_axes=[-1],
        scan_output_directions=[1],
    )
    return [scan], [value("h", F, [2]), value("a", F, a), value("b", F, b)], [("last", F, [2]), ("all", F, None)]


def test_scan_of_two_inputs():
    feeds = [{"h": x(2), "a": x(n, 2), "b": x(2, n)} for n in (1, 6, 300)]
    check(*scan_of_two(["t", 2], [2, "u"]), feeds)
    check(*scan_of_two([300, 2], [2, 300]), feeds[2:])
    session = weft.Session(loop_model(*scan_of_two(["t", 2], [2, "u"])))
    assert session.run({"h": x(2), "a": x(0, 2), "b": x(2, 0)})[1].shape == (2, 0)
    for n in (3, 5):
        refuses(ValueError, f"must be 4 .*found {n}", session.run, {"h": x(2), "a": x(4, 2), "b": x(2, n)})
    refuses(ModelImportError, "must agree", from_onnx, loop_model(*scan_of_two([4, 2], [2, 3])))


@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
def test_many_trips_take_constant_memory(exec_mode):
    """Neither the stack nor the heap grows with trips, and outputs take a little more than their own size."""
    inputs, outputs = [value("k", L, []), value("x", F, [1])], [("last", F, [1]), ("all", F, None)]
    for n_outputs in (1, 2):
        mod = from_onnx(loop_model([counting("k")], inputs, outputs[:n_outputs]))
        vm = weft.relax.VirtualMachine(weft.compile(mod, target="llvm", exec_mode=exec_mode), weft.cpu())
        go = lambda k, vm=vm: vm["main"](*map(weft.runtime.tensor, (np.array(k), np.zeros(1, np.float32))))  # noqa: E731
        go(10_000)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found = go(400_000)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8192  # KiB
    assert found[1].numpy()[:, 0].tolist() == list(range(1, 400_001))


@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
def test_an_endless_loop_can_be_interrupted(exec_mode):
    body = helper.make_graph(
        [node("Identity", ["c"], ["d"]), node("Add", ["s", "s"], ["t"])],
        "body",
        [*GO_ON, value("s", F, [])],
        [value("d", B, []), value("t", F, [])],
    )
    mod = from_onnx(loop_model([node("Loop", ["", "", "x"], ["y"], body=body)], [value("x", F, [])], [("y", F, [])]))
    vm = weft.relax.VirtualMachine(weft.compile(mod, target="llvm", exec_mode=exec_mode), weft.cpu())

    def stop(*_):
        raise KeyboardInterrupt

    handler = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            vm["main"](weft.runtime.tensor(np.float32(1)))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
