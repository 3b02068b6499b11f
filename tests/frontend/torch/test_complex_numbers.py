"""Complex tensors, which Weft keeps as two real ones, and Fourier transforms, beside PyTorch."""

import pytest
import torch
from torch import nn
from torch.export import Dim

import weft
from tests.frontend.torch.programs import Call, exported, machine, runner
from weft.frontend.torch import from_exported_program
from weft.frontend.torch.backend import weft_backend


def real(x):
    return torch.view_as_real(x.resolve_conj()).contiguous() if x.is_complex() else x


def check(fn, *args, dynamic=True, tolerance=2e-6):
    """Import a function of tensors, each dimension of which is open; compare each result in its parts."""
    dims = tuple({i: Dim.AUTO for i in range(x.ndim)} for x in args)
    function = runner(from_exported_program(exported(Call(fn), args, (dims,) if dynamic else None)))
    found = function(*(weft.runtime.from_dlpack(real(x)) for x in args))
    expected = fn(*args)
    for f, e in zip(found, expected, strict=True):
        torch.testing.assert_close(torch.from_dlpack(f), real(e), rtol=1e-5, atol=tolerance)


def numbers(*shape):
    return torch.randn(*shape, dtype=torch.complex64)


def test_arithmetic():
    def fn(x, y):
        return (x * y + 1j, x / y, x - y.real, 2 / y, x.reciprocal(), x.conj() * 0.5, x**3, x == x, x != y, -x)

    check(fn, numbers(3, 5), numbers(3, 5))


def test_factors_and_what_is_made_of_real_numbers():
    def fn(x, y):
        sums = torch.add(x, y, alpha=2j), torch.sub(x, y.real, alpha=1 + 1j), torch.rsub(x, y, alpha=-2j)
        made = (
            torch.ones_like(x) + x,
            x.new_ones(2),
            torch.eye(3, dtype=x.dtype),
            x.clone().fill_(1),
            x.new_full((2,), 3.0),
        )
        read = x.any(), x.logical_not(), x.nonzero(), x.var(1), torch.linalg.vector_norm(x, 3)
        return *sums, *made, *read, nn.functional.pad(x, (1, 1), mode="reflect")

    check(fn, numbers(3, 4), numbers(3, 4), dynamic=False)


def test_parts_and_functions():
    check(
        lambda x: (x.real, x.imag, x.abs(), x.angle(), x.exp(), x.log(), torch.polar(x.real.abs(), x.imag)),
        numbers(4, 3),
    )


def test_functions_of_the_circle_and_the_hyperbola():
    names = "sqrt rsqrt log2 log10 sin cos tan sinh cosh tanh sgn isnan isinf isfinite".split()
    check(lambda x: [getattr(x, name)() for name in names], numbers(5, 3))
    ends = torch.tensor([0j, -4, 4, -4j, 100 + 1j, -100 + 1j, complex(float("nan"), 1), complex(1, float("inf"))])
    check(lambda x: (x[:6].sqrt(), x[:6].tanh(), x[:6].sgn(), x.isnan(), x.isinf(), x.isfinite()), ends)


def test_powers():
    check(
        lambda x, y: (x**2.5, x**-1, x**y, x**0, 2**x, x.abs() ** y, torch.pow(x * 0, y * y.conj())),
        numbers(4, 3),
        numbers(4, 3),
        tolerance=1e-5,
    )


def test_layers():
    layer = nn.Linear(4, 3, dtype=torch.complex64)

    def fn(x, y):
        return layer(x), torch.addmm(x[:, :3], x, y, alpha=2), torch.baddbmm(x[None], x[None], (y @ x[:3])[None])

    with torch.no_grad():
        check(fn, numbers(5, 4), numbers(4, 3), dynamic=False)


def test_sizes_that_square_to_more_than_float32_holds():
    x = torch.tensor([3e30 + 4e30j, 3e-30 - 4e-30j, 0j])
    function = machine(from_exported_program(exported(Call(lambda x: (x.abs(), x / x)), (x,))))
    size, one = function(weft.runtime.from_dlpack(real(x)))
    torch.testing.assert_close(torch.from_dlpack(size), x.abs())
    torch.testing.assert_close(torch.from_dlpack(one)[:2], torch.tensor([[1.0, 0.0]] * 2))


def test_elements_that_only_move():
    def fn(x, places):
        wide = torch.cat([x, x.real], 0)
        chosen = x[places], wide[:, 1:3], torch.where(x.real > 0, x, 0j), x.masked_fill(x.imag > 0, 2)
        moved = wide.transpose(0, 1).reshape(-1), x.unsqueeze(0).expand(2, *x.shape), x.flip(0)
        return *chosen, *moved, x.sum(1), torch.stack([x, x * 1j])

    check(fn, numbers(3, 4), torch.tensor([2, 0]))


def test_products_of_matrices():
    check(lambda x, y: (x @ y, x[0] @ y), numbers(3, 5), numbers(5, 2))
    check(lambda x, y: (x @ y,), numbers(2, 3, 5), numbers(2, 5, 0), dynamic=False)


@pytest.mark.parametrize("length", [1, 2, 7, 12, 66, 210])
def test_transforms_of_a_known_length(length):
    def fn(x, z):
        half = torch.fft.rfft(x)
        return torch.fft.fft(z), torch.fft.ifft(z), half, torch.fft.irfft(half, n=x.shape[-1])

    check(fn, torch.randn(2, length), numbers(2, length), dynamic=False, tolerance=3e-5)


def test_transforms_of_any_length_and_of_several_axes():
    def fn(x):
        whole = torch.fft.fftn(x), torch.fft.rfft2(x, norm="ortho"), torch.fft.irfft2(torch.fft.rfft2(x))
        return *whole, torch.fft.ifft(x, dim=0, norm="forward"), torch.fft.hfft(x.to(torch.complex64))

    check(fn, torch.randn(3, 6, 8), tolerance=5e-5)


def test_spectrogram():
    def fn(x):
        return (torch.stft(x, 16, 4, window=torch.hann_window(16), return_complex=True).abs(),)

    check(fn, torch.randn(2, 100), tolerance=1e-5)


def test_rotary_embedding_with_complex_constants():
    class Rotary(nn.Module):
        def __init__(self):
            super().__init__()
            angle = torch.arange(10.0)[:, None] * torch.tensor([1.0, 0.1, 0.01])
            self.register_buffer("turns", torch.polar(torch.ones_like(angle), angle))

        def forward(self, x):
            pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
            return torch.view_as_real(pairs * self.turns[: x.shape[0]]).flatten(-2)

    module, x = Rotary(), torch.randn(7, 6)
    for keep in (False, True):
        mod = from_exported_program(exported(module, (x,), ({0: Dim("n", max=10)},)), keep_params_as_input=keep)
        held = list(mod["main"].attrs["params"]) if keep else []
        (found,) = machine(mod)(weft.runtime.from_dlpack(x), *held)
        torch.testing.assert_close(torch.from_dlpack(found), module(x))


def test_behind_torch_compile():
    def fn(x, z):
        return torch.fft.ifft(torch.fft.fft(x) * z), x * 2

    compiled, args = torch.compile(fn, backend=weft_backend), (torch.randn(3, 8), numbers(8))
    with torch.no_grad():
        for found, expected in zip(compiled(*args), fn(*args), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_what_has_no_meaning_is_refused():
    with pytest.raises(weft.error.UnsupportedOperator, match=r"aten\.atan\.default"):
        from_exported_program(exported(Call(torch.atan), (numbers(3),)))
    multiplied = Call(lambda x: x.scatter(0, torch.tensor([0, 0]), x[:2], reduce="multiply"))
    with pytest.raises(weft.error.ModelImportError, match="parts of complex numbers are combined"):
        from_exported_program(exported(multiplied, (numbers(3),)))
