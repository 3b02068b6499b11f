"""tvm.contrib.torch: kernels and compiled models as modules of PyTorch, which are saved and loaded."""

import io

import pytest

torch = pytest.importorskip("torch")

from weft.contrib.torch import as_torch, optimize_torch  # noqa: E402

from tests.refusals import refuses  # noqa: E402
from weft import error  # noqa: E402
from weft.script import ir as I  # noqa: E402
from weft.script import tir as T  # noqa: E402


def saved(module):
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@as_torch
def matmul(M: int, N: int, K: int, dtype: str):
    @T.prim_func
    def main(a: T.handle, b: T.handle, c: T.handle) -> None:
        A, B, C = T.match_buffer(a, [M, K], dtype), T.match_buffer(b, [N, K], dtype), T.match_buffer(c, [M, N], dtype)
        for i, j, k in T.grid(M, N, K):
            with T.block():
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vj, vk]

    return main


@as_torch
@I.ir_module
class Inverse:
    @T.prim_func
    def main(X: T.Buffer((8, 8), "bool"), Y: T.Buffer((8, 8), "bool")) -> None:
        for i, j in T.grid(8, 8):
            with T.block():
                vi, vj = T.axis.remap("SS", [i, j])
                Y[vi, vj] = not X[vi, vj]


@pytest.mark.parametrize(("m", "n", "k"), [(5, 7, 3), (16, 16, 33)])
def test_a_kernel_writes_into_its_last_tensor(m, n, k):
    module, a, b = matmul(m, n, k, "float32"), torch.randn(m, k), torch.randn(n, k, requires_grad=True)
    module.tune(max_trials_global=2, seed=1)
    for each in (module, saved(module), matmul(m, n, k, "float32")):
        c = torch.zeros(m, n)
        assert each(a, b, c)[2] is c
        torch.testing.assert_close(c.double(), a.double() @ b.detach().double().T, rtol=1e-5, atol=1e-5)
    refuses(error.WeftError, "", module, a, b)
    refuses(error.InvalidArgument, "as_torch takes a program", as_torch, 3)


def test_a_module_of_booleans():
    x, y = torch.rand(8, 8) > 0.5, torch.zeros(8, 8, dtype=torch.bool)
    Inverse(x, y)
    assert torch.equal(y, ~x) and "def main" in Inverse.script()


def test_models_and_functions():
    net, x = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 5), torch.nn.ReLU()), torch.randn(3, 1, 10, 9)
    found = optimize_torch(net, x)
    for each in (found, saved(found)):
        torch.testing.assert_close(each(x), net(x).detach(), rtol=1e-5, atol=1e-5)
    first = found(x)
    found(torch.zeros_like(x))
    torch.testing.assert_close(first, net(x).detach(), rtol=1e-5, atol=1e-5)  # results are nobody else's
    pair = optimize_torch(lambda a, b: (a @ b, a.sum()), (x[0, 0], x[1, 0].T.contiguous()), max_trials_global=2)
    for got, want in zip(pair(x[0, 0], x[1, 0].T), (x[0, 0] @ x[1, 0].T, x[0, 0].sum()), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    ones = torch.ones(16).bool()
    assert int(optimize_torch(lambda a: a.size(0) - torch.sum(a.int()), ones)(ones)) == 0
