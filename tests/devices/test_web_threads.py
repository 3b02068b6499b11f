"""Kernels' parallel loops on workers that share memory, in Node.js and in a page that other origins cannot reach."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.devices.test_web import ISOLATED, ROOT, _devices, node, opened_in_browser  # noqa: F401 - the fixture is for all here
from weft import relax, script

SOURCE = """
@I.ir_module
class Module:
    @T.prim_func
    def told(x: T.Buffer((40000,), "float32")):
        for i in T.parallel(40000):
            T.evaluate(T.call_packed("test.tell", i))
    @R.function
    def main(x: R.Tensor(("n", 96), "float32"), w: R.Tensor((96, 130), "float32")):
        y = R.nn.softmax(R.matmul(x, w))
        return (y, R.cumsum(x, axis=1), R.exp(R.permute_dims(x)))
"""
ROWS = (1, 0, 257, 64, 3)
RUN = """
await weft.start(undefined, { threads: 3 });
const main = (await weft.load(await read("model.wasm"))).getFunction("main");
const f32 = async (n) => new Float32Array((await read(n)).buffer);
const w = weft.tensor(await f32("w"), [96, 130]), found = [];
for (const rows of [1, 0, 257, 64, 3, 257]) {
  const x = weft.tensor((await f32("x")).slice(0, 96 * rows), [rows, 96]);
  for (let k = 0; k < 20; ++k) found[rows] = main(x, w).map((t) => Array.from(t.data));
}
const result = [found, weft.threadPieces()];
"""
IN_NODE = "const read = async (n) => Uint8Array.from(readFileSync(n));"
PAGE = f"""<script type="module">
import * as weft from "/web/src/index.js";
const read = async (n) => new Uint8Array(await (await fetch("/" + n)).arrayBuffer());
let answer = null;
try {{ {RUN} answer = result; }} catch (e) {{ answer = String(e); }}
await fetch("/page", {{ method: "POST", body: JSON.stringify(answer) }});
</script>"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("threads")
    relax.build(script.from_source(SOURCE), "wasm32 -num-cores=3").export_library(folder / "model.wasm")
    for name, shape in (("x", (257, 96)), ("w", (96, 130))):
        np.random.default_rng(3).standard_normal(shape, np.float32).tofile(folder / name)
    return folder


def compare(folder: Path, answer: object) -> None:
    assert isinstance(answer, list), answer
    found, pieces = answer
    assert len(pieces) == 3 and sum(pieces) > 100 and sum(pieces[1:]) > 0
    x, w = (np.fromfile(folder / n, np.float32).astype(float).reshape(-1, k) for n, k in (("x", 96), ("w", 130)))
    for rows in ROWS:
        e = np.exp((y := x[:rows] @ w) - y.max(1, keepdims=True))
        expected = (e / e.sum(1, keepdims=True), x[:rows].cumsum(1), np.exp(x[:rows].T))
        for got, array in zip(found[rows], expected, strict=True):
            np.testing.assert_allclose(np.reshape(got, array.shape), array, rtol=2e-4, atol=2e-5)


def test_threads_of_node_share_loops(model: Path) -> None:
    compare(model, node(model, IN_NODE + RUN + "answer(result);"))


def test_schedules_for_one_core_have_no_loops_to_share(tmp_path: Path, model: Path) -> None:
    shutil.copytree(model, tmp_path, dirs_exist_ok=True)
    scheduled = script.from_source(SOURCE.replace("R.cumsum(x, axis=1)", "x"))  # without loops that are written by hand
    relax.build(scheduled, "wasm32").export_library(tmp_path / "model.wasm")
    assert node(tmp_path, IN_NODE + RUN + "answer(result[1]);") == [0, 0, 0]


def test_two_threads_halve_the_work_of_the_first(model: Path) -> None:
    """By its own clock, which does not count what other programs take; once, as a busy machine may start no second."""

    def seconds(threads: int) -> float:
        taken = node(
            model,
            IN_NODE
            + f"""
await weft.start(undefined, {{ threads: {threads} }});
const main = (await weft.load("model.wasm")).getFunction("main");
const x = weft.zeros([257, 96]), w = weft.zeros([96, 130]);
const clock = () => Number(readFileSync(`/proc/self/task/${{process.pid}}/schedstat`, "utf8").split(" ")[0]);
for (let i = 0; i < 100; ++i) main(x, w);
const before = clock();
for (let i = 0; i < 200; ++i) main(x, w);
answer(clock() - before);""",
        )
        assert isinstance(taken, int)
        return taken / 200e9

    assert any(seconds(2) < 0.75 * seconds(1) for _ in range(5))


def test_what_threads_cannot_do_is_refused(model: Path) -> None:
    """Numbers that are none, and loops that call functions of JavaScript, which one thread has."""
    wrong, stopped = node(
        model,
        """
const wrong = await raisedLater(() => weft.start(undefined, { threads: 0 }));
await weft.start(undefined, { threads: 2 });
weft.registerFunction("test.tell", (i) => {
  for (const t = performance.now(); i % 2500 === 0 && performance.now() < t + 20;);
});
const f = (await weft.load("model.wasm")).getFunction("told"), x = weft.zeros([40000]);
answer([wrong, raised(() => f(x))]);""",
    )
    assert wrong[1] == "InvalidArgument" and "from 1 to 64, found 0" in wrong[2]
    assert stopped[1] == "InternalError" and "packed function" in stopped[2]


@pytest.mark.parametrize("isolated", [True, False])
def test_workers_of_a_page_share_loops(model: Path, tmp_path: Path, isolated: bool) -> None:
    shutil.copytree(ROOT / "web", model / "web", dirs_exist_ok=True)
    (model / "index.html").write_text(PAGE)
    with opened_in_browser(model, tmp_path / "profile", sent=ISOLATED if isolated else ()) as answer:
        found = answer()
    if isolated:
        return compare(model, found)
    assert "Cross-Origin-Opener-Policy" in str(found)
