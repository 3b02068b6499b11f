"""Settings of the whole suite, before any test imports Weft.

Compiled kernels go to a cache of the suite's own, so that tests never see a user's; programs that tests start find the
package as the tests do. Drawn examples are the same in every run, so that a verdict is of the code and not of luck;
``WEFT_RANDOM_TESTS=1`` draws new ones. Tests that `VALUES_ONLY` names ask what a program computes and not how its
machine code looks: they compile without LLVM's optimiser, which is a third of a compilation; whole networks, targets,
the second case of each operator and ``make sweep`` have it, and so has a test that uses the fixture `optimised`.
A test that is parametrized three times or more has the combinations in which every two values meet, and one that is
marked ``share(n, *names)`` the rows that meet each value of these parameters (of each mark, where it names none; of
none for None) and one of n of the others; ``WEFT_SWEEP=1`` and a test that is named with its values have all.
"""

import gc
import os
import signal
from collections.abc import Hashable, Iterator
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import settings

from tests.pairs import share
from weft import environment

gc.disable()  # until all tests are collected: nothing of what they are ever becomes free
ROOT = Path(__file__).resolve().parent.parent
VALUES_ONLY = {
    *(f"e2e/test_{name}.py" for name in ("bad_input", "determinism", "light_models")),
    *("auto_scheduler", "check", "examples", "exec", "frontend", "fuzz", "op", "quantize", "relax", "relay", "te"),
    *("devices/test_gpu.py", "devices/test_gpu_models.py", "target/test_out_of_tree.py", "test_docs.py"),
    *("test_gallery.py", "dlight", "tir", "topi"),
}
SWEPT = {
    *(f"relax/test_{name}.py" for name in ("control_flow", "narrow_products", "pipelines")),
    *(f"tir/schedule/test_{name}.py" for name in ("attention", "edges", "rolling_buffer", "rule_records", "rules")),
    *(f"tir/transform/test_{name}.py" for name in ("thread_orders", "transpose_tiles")),
    *(f"target/test_{name}.py" for name in ("arithmetic", "c", "instruction_sets", "math")),
    *(f"topi/test_{name}.py" for name in ("convolutions", "nn", "places", "pool", "radix", "schedules")),
    *(f"frontend/torch/test_{name}.py" for name in ("backend", "fused", "recurrent")),
    *(f"frontend/{name}.py" for name in ("onnx/test_attention", "onnx/test_learned", "test_quant")),
    *(f"{name}.py" for name in ("op/test_rnn", "quantize/test_quantize", "relax/vm/test_vmtir", "tir/test_interpret")),
    *("tir/schedule/rules/test_odd_sizes.py", "target/llvm/test_near_lanes.py", "target/cuda/test_operators.py"),
    *(f"relax/transform/test_{name}.py" for name in ("concat_in_place", "convert_layout", "few_channels", "phases")),
    *("rpc/test_graph_executor.py", "tir/schedule/rules/test_collapse.py", "relay/op/test_argwhere.py"),
}
"""Files whose tests are marked ``share(32)``, where they have no mark of their own."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # the suite runs in the background; its programs would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.setdefault("WEFT_VERIFY", "1")  # the form that each pass promises is checked after it
os.environ.setdefault("WEFT_MODEL_CACHE", "0")  # sessions compile what they are given, but in tests of that cache
os.environ.setdefault("WEFT_COMPILE_PROCESSES", "1")  # pytest keeps all cores busy
os.environ.setdefault("WEFT_CACHE_DIR", str(ROOT / "build" / "test-cache"))
_paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(_paths))

with suppress(ImportError):  # names of Hypothesis's own
    from hypothesis.internal.conjecture import providers
    from hypothesis.internal.constants_ast import Constants

    providers._get_local_constants = Constants  # not what happens to be imported, of which all files are parsed
settings.register_profile("same", derandomize=True)
settings.register_profile("new", derandomize=False)
settings.load_profile("new" if environment.RANDOM_TESTS.read() else "same")


def _settings() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k.startswith("WEFT_")}


_BEFORE = _settings()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take of a test with a mark its share, and of others with three parameters rows in which every two values meet."""
    if environment.SWEEP.read() or any("[" in named for named in config.args):
        return
    tests: dict[str, tuple[dict[str, tuple[Hashable, ...]], pytest.Mark | None]] = {}
    for item in items:
        marks = [mark.args[0] for mark in item.iter_markers("parametrize")]
        swept = item.nodeid.partition("::")[0].removeprefix("tests/") in SWEPT
        mark = item.get_closest_marker("share") or (pytest.mark.share(32).mark if swept else None)
        if isinstance(item, pytest.Function) and marks and (mark or len(marks) > 2):
            names = [[n.strip() for n in m.split(",")] if isinstance(m, str) else m for m in marks]
            names = [[name] for name in mark.args[1:] if name] if mark and mark.args[1:] else names
            values = SimpleNamespace(**item.callspec.params)
            row = tuple(tuple(_identity(attrgetter(name)(values)) for name in group) for group in names)
            tests.setdefault(item.nodeid.partition("[")[0], ({}, mark))[0][item.nodeid] = row
    kept = [share(rows, mark.args[0]) if mark else share(rows, 0, together=2) for rows, mark in tests.values()]
    left_out = {name for rows, _ in tests.values() for name in rows}.difference(*kept)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
    items[:] = [item for item in items if item.nodeid not in left_out]


def _identity(value: object) -> Hashable:
    return value if isinstance(value, (str, bool, int)) else id(value)


_FIRST: dict[Path, object] = {}


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let each test draw what it draws alone: the generator that a module's tests share begins anew."""
    generator = getattr(getattr(item, "module", None), "RNG", None)
    if generator is not None:
        generator.bit_generator.state = _FIRST.setdefault(item.path, generator.bit_generator.state)


def pytest_collection_finish() -> None:
    """Refuse test modules that change Weft's settings for every test after them."""
    assert _settings() == _BEFORE, f"a module that was collected changed {_settings().items() ^ _BEFORE.items()}"
    gc.freeze()  # or each full collection would go through thirty thousand tests
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


@pytest.fixture(autouse=True, scope="module")
def _effort(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        path = request.path.relative_to(ROOT / "tests")
        if {path.parts[0], path.as_posix()} & VALUES_ONLY and not environment.OPT_LEVEL.text:
            patch.setenv("WEFT_OPT_LEVEL", "0")
        yield


@pytest.fixture
def optimised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile with LLVM's optimiser: for tests of machine code, of time, and of how often something is compiled."""
    monkeypatch.delenv("WEFT_OPT_LEVEL", raising=False)
