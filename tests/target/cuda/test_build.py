"""Building for CUDA and launching, against the stand-in for the driver."""

from pathlib import Path

import pytest

from tests.target.cuda.stand_in import build_stub, run

FADD = """
def fadd(n=None, target="cuda -arch=sm_90"):
    n = te.var("n") if n is None else n
    A, B = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    C = te.compute(A.shape, lambda i: A[i] + B[i], name="C")
    s = te.create_schedule(C.op)
    block, thread = s[C].split(C.op.axis[0], factor=64)
    s[C].bind(block, te.thread_axis("blockIdx.x"))
    s[C].bind(thread, te.thread_axis("threadIdx.x"))
    return weft.build(s, [A, B, C], target, name="fadd")
rng = np.random.default_rng(0)
"""


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_stub(tmp_path_factory.mktemp("cuda"))


def test_fadd(stub: Path, tmp_path: Path) -> None:
    run(
        FADD
        + """
f = fadd()
for n in (1, 63, 64, 1000, 0):
    x, y = rng.random((2, n), "float32")
    a, b, c = put(x, y, np.zeros(n, "float32"))
    f(a, b, c)
    dev.sync()
    np.testing.assert_array_equal(c.numpy(), x + y)
calls = log()
assert calls.count("load") == 1, calls
launches = [c for c in calls if c.startswith("launch")]
assert launches == ["launch:%d,1,1:64,1,1:0:0" % g for g in (1, 1, 1, 16)], launches
""",
        stub,
        tmp_path,
    )
