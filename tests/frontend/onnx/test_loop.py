"""Loop and Scan against ONNX Runtime: conditions and counts as data, states that grow, axes and directions."""

import resource
import signal

import numpy as np
import onnxruntime
import pytest
from onnx import numpy_helper, parser

import weft
from tests.arrays import floats
from tests.refusals import refuses
from weft.error import ModelImportError
from weft.frontend.onnx import from_onnx

x = floats(np.random.default_rng(5))


def loop_model(inputs, outputs, nodes, weights=()):
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => ({outputs}) {{ {nodes} }}')
    made.graph.initializer.extend(numpy_helper.from_array(np.asarray(w), k) for k, w in weights)
    return made


def check(inputs, outputs, nodes, feeds, weights=()):
    model = loop_model(inputs, outputs, nodes, weights)
    session, oracle = weft.Session(model), onnxruntime.InferenceSession(model.SerializeToString())
    for feed in feeds:
        for found, expected in zip(session.run(feed), oracle.run(None, feed), strict=True):
            assert found.shape == expected.shape
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5)


def test_count_is_data():
    """The state keeps its shape, a weight from around is used, an output a step is stacked."""
    body = """b (int64 i, bool c, float[n, 4] s) => (bool d, float[] t, float[] p) {
        p = MatMul(s, w) t = Tanh(p) d = Identity(c) }"""
    check(
        "int64 k, float[n, 4] x",
        "float[n, 4] last, float[k, n, 4] all",
        f"last, all = Loop<body = {body}>(k, , x)",
        [{"k": np.array(k), "x": x(n, 4)} for k, n in ((1, 2), (7, 3), (300, 1))],
        [("w", x(4, 4))],
    )


def test_counts_of_one_dimension():
    """A trip's number and the condition have the rank that the body declares; a state may become a vector of one."""
    body = """b (int64[1] i, bool[1] c, int64 s) => (bool d, int64[] t, int64[] o) <int64 top = {60}> {
        t = Add(s, i) o = Concat<axis = 0>(i, i) m = Less(t, top) d = And(m, c) }"""
    check(
        "int64 k, int64 n",
        "int64[] last, int64[k, 2] all",
        f"last, all = Loop<body = {body}>(k, , n)",
        [{"k": np.array(k), "n": np.array(5)} for k in (1, 7, 30)],
    )


@pytest.mark.parametrize("trips", [5, 3000])
def test_condition_is_data(trips):
    """Written out where the count is small and known, unless the condition depends on data."""
    body = """b (int64 i, bool c, float[4] s) => (bool d, float[4] t) {
        t = Add(s, one) u = ReduceSum<keepdims = 0>(t) d = Less(u, lim) }"""
    check(
        "float[4] x, float lim",
        "float[4] last",
        f"last = Loop<body = {body}>(k, yes, x)",
        [{"x": x(4), "lim": np.array(v, np.float32)} for v in (-50, 8, 9000)],
        [("k", np.int64(trips)), ("yes", np.array(True)), ("one", np.ones(4, np.float32))],
    )


def test_known_count_is_written_out():
    body = """b (int64 i, bool c, float[n] s) => (bool d, float[] t, float[] t) {
        f = Cast<to = 1>(i) t = Add(s, f) d = Identity(c) }"""
    parts = "float[n] x", "float[n] last, float[4, n] all", f"last, all = Loop<body = {body}>(k, , x)"
    check(*parts, [{"x": x(3)}], [("k", np.int64(4))])
    assert "loop" not in from_onnx(loop_model(*parts, [("k", np.int64(4))])).script()


def test_state_grows():
    body = """b (int64 i, bool c, float[q, 3] s) => (bool d, float[r, 3] t) {
        m = ReduceMean<axes = [0], keepdims = 1>(s) t = Concat<axis = 0>(s, m) d = Identity(c) }"""
    check(
        "int64 k, float[n, 3] x",
        "float[m, 3] y",
        f"last = Loop<body = {body}>(k, , x) y = Relu(last)",
        [{"k": np.array(k), "x": x(2, 3)} for k in (0, 6)],
    )


@pytest.mark.parametrize(("axes", "back"), [((0, 0), (0, 0)), ((1, 1), (1, 0)), ((1, 2), (0, 1))])
def test_scan(axes, back):
    body = """b (float[n, 5] h, float[n, 3] xt) => (float[n, 5] g, float[n, 5] y) {
        a = MatMul(xt, w) b = MatMul(h, u) p = Add(a, b) g = Tanh(p) y = Identity(g) }"""
    attrs = f"""num_scan_inputs = 1, scan_input_axes = [{axes[0]}], scan_output_axes = [{axes[1]}],
        scan_input_directions = [{back[0]}], scan_output_directions = [{back[1]}]"""
    check(
        f"float[n, 5] h, float[{('t, n', 'n, t')[axes[0]]}, 3] x",
        "float[n, 5] last, float[p, q, r] all",
        f"last, all = Scan<body = {body}, {attrs}>(h, x)",
        [{"h": x(2, 5), "x": x(*((9, 2), (2, 9))[axes[0]], 3)}],
        [("w", x(3, 5)), ("u", x(5, 5) / 3)],
    )


def counting(inputs, limit=None):
    """Add one a trip, and put the sums out; stop at a limit if there is one."""
    body = f"""b (int64 i, bool c, float[1] s) => (bool d, float[1] t, float[1] o)
        <float one = {{1.0}}, float lim = {{{limit or 0}.0}}> {{
        t = Add(s, one) o = Identity(t) u = Squeeze(t) d = {"Less(u, lim)" if limit else "Identity(c)"} }}"""
    return f"last, all = Loop<body = {body}>({inputs}, x)"


@pytest.mark.parametrize("dims", ["", "[1]", "[1, 1]"])
def test_counts_as_in_onnx_runtime(dims):
    check(
        f"int64{dims} k, float[1] x",
        "float[1] last, float[n, 1] all",
        counting("k, "),
        [{"k": np.full([1] * dims.count("1"), k), "x": x(1)} for k in (3, 0, -1, -(2**63))],
    )


@pytest.mark.parametrize("inputs", [("", "go"), ("k", "go"), ("k", ""), ("", "")])
def test_counts_and_conditions_may_be_missing(inputs):
    """Conditions end loops that have no other end in reach; outputs are as many as trips were made."""
    given = {"k": "int64 k", "go": "bool go", "x": "float[1] x"}
    feeds = [{"k": np.array(2**63 - 1), "go": np.array(go), "x": np.zeros(1, np.float32)} for go in (True, False)]
    check(
        ", ".join(given[k] for k in (*inputs, "x") if k),
        "float[1] last, float[n, 1] all",
        counting(", ".join(inputs), limit=700),
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
    model = loop_model("float[1] x", "float[] all", counting("k, go"), weights.items())
    said = r"Loop: its (trip count|condition) is not one value|Loop: input .* has a wrong"
    refuses(ModelImportError, said, from_onnx, model)


@pytest.mark.parametrize("outer", [2, 300])
def test_nested_loops(outer):
    inner = """inner (int64 j, bool c2, float s2) => (bool d2, float t2, float o2) {
        t2 = Add(s2, f) d2 = Identity(c2) o2 = Identity(t2) }"""
    body = f"""b (int64 i, bool c, float s) => (bool d, float t, float[] row, float q) {{
        f = Cast<to = 1>(i) t, row = Loop<body = {inner}>(m, , s) q = ReduceSum<keepdims = 0>(row) d = Identity(c) }}"""
    check(
        "int64 k, int64 m, float x",
        "float y, float[] rows, float[] sums",
        f"y, rows, sums = Loop<body = {body}>(k, , x)",
        [
            {"k": np.array(k), "m": np.array(m), "x": np.array(1, np.float32)}
            for k, m in ((outer, 5), (0, 3), (outer, 0))
        ],
    )


def cut(end):
    """Give a part of a weight each trip, whose length is data."""
    body = f"""b (int64 i, bool c) => (bool d, float[] o) <int64[1] one = {{1}}, int64[1] zero = {{0}}> {{
        e = Add(i, one) next = Reshape(e, one) o = Slice(w, zero, {end}) d = Identity(c) }}"""
    return "int64 k, int64[1] n, float[a, 3] w", "float[] all", f'all = Loop<body = {body}>(k, "")'


def test_shapes_of_outputs_known_at_the_first_trip():
    feed = {"n": np.array([2]), "w": x(5, 3)}
    check(*cut("n"), [{**feed, "k": np.array(k)} for k in (1, 4)])
    assert weft.Session(loop_model(*cut("n"))).run({**feed, "k": np.array(0)})[0].shape == (0, 0, 3)


def test_outputs_of_different_shapes_are_refused():
    session = weft.Session(loop_model(*cut("next")))
    feed = {"n": np.array([2]), "w": x(5, 3)}
    assert session.run({**feed, "k": np.array(1)})[0].shape == (1, 1, 3)
    with pytest.raises(ValueError, match=r"output of shape \[2, 3\], the ones before it \[1, 3\]"):
        session.run({**feed, "k": np.array(2)})


def scan_of_two(a, b):
    body = """b (float[2] h, float[2] p, float[2] q) => (float[2] g, float[2] o) { o = Sub(p, q) g = Add(h, o) }"""
    attrs = """num_scan_inputs = 2, scan_input_axes = [0, -1], scan_input_directions = [1, 0],
        scan_output_axes = [-1], scan_output_directions = [1]"""
    made = f"last, all = Scan<body = {body}, {attrs}>(h, a, b)"
    return f"float[2] h, float[{a}] a, float[{b}] b", "float[2] last, float[] all", made


def test_scan_of_two_inputs():
    feeds = [{"h": x(2), "a": x(n, 2), "b": x(2, n)} for n in (1, 6, 300)]
    check(*scan_of_two("t, 2", "2, u"), feeds)
    check(*scan_of_two("300, 2", "2, 300"), feeds[2:])
    session = weft.Session(loop_model(*scan_of_two("t, 2", "2, u")))
    assert session.run({"h": x(2), "a": x(0, 2), "b": x(2, 0)})[1].shape == (2, 0)
    for n in (3, 5):
        refuses(ValueError, f"must be 4 .*found {n}", session.run, {"h": x(2), "a": x(4, 2), "b": x(2, n)})
    refuses(ModelImportError, "must agree", from_onnx, loop_model(*scan_of_two("4, 2", "2, 3")))


@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
def test_many_trips_take_constant_memory(exec_mode):
    """Neither the stack nor the heap grows with trips, and outputs take a little more than their own size."""
    for outputs in ("float[1] last", "float[1] last, float[] all"):
        mod = from_onnx(loop_model("int64 k, float[1] x", outputs, counting("k, ")))
        vm = weft.relax.VirtualMachine(weft.compile(mod, target="llvm", exec_mode=exec_mode), weft.cpu())
        go = lambda k, vm=vm: vm["main"](*map(weft.runtime.tensor, (np.array(k), np.zeros(1, np.float32))))  # noqa: E731
        go(10_000)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found = go(400_000)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8192  # KiB
    assert found[1].numpy()[:, 0].tolist() == list(range(1, 400_001))


@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
def test_an_endless_loop_can_be_interrupted(exec_mode):
    body = "b (int64 i, bool c, float s) => (bool d, float t) { d = Identity(c) t = Add(s, s) }"
    mod = from_onnx(loop_model("float x", "float y", f"y = Loop<body = {body}>(, , x)"))
    vm = weft.relax.VirtualMachine(weft.compile(mod, target="llvm", exec_mode=exec_mode), weft.cpu())

    def stop(*_):
        raise KeyboardInterrupt

    handler = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        refuses(KeyboardInterrupt, "", vm["main"], weft.runtime.tensor(np.float32(1)))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
