"""StableHLO's complex numbers against NumPy: operations, Fourier transforms, and programs with control flow."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.frontend.stablehlo.test_stablehlo import computed, f32, parts, program, run, same

X, Y = (f32(4, 6) + 1j * f32(4, 6) for _ in range(2))


@pytest.mark.parametrize(
    ("name", "fn"),
    [
        ("exponential", np.exp),
        ("log", np.log),
        ("sqrt", np.sqrt),
        ("sine", np.sin),
        ("cosine", np.cos),
        ("tan", np.tan),
        ("tanh", np.tanh),
        ("abs", np.abs),
        ("negate", np.negative),
        ("real", np.real),
        ("imag", np.imag),
        ("sign", lambda x: x / abs(x)),
        ("rsqrt", lambda x: x**-0.5),
        ("add", np.add),
        ("subtract", np.subtract),
        ("power", np.power),
        ("multiply", np.multiply),
        ("divide", np.divide),
        ("compare NE,", lambda x, y: x != y),
    ],
)
def test_complex_numbers(name: str, fn: Callable[..., np.ndarray]) -> None:
    given = (X, Y)[: 1 + (name in ("add", "subtract", "power", "multiply", "divide", "compare NE,"))]
    computed(f"stablehlo.{name}", "", fn(*given), *given)


@pytest.mark.parametrize("length", [1, 6, 70])
def test_fourier_transforms(length: int) -> None:
    x = f32(3, length) + 1j * f32(3, length)
    fft = np.fft
    half, rest = fft.rfft2(x.real), f", length = [3, {length}]"
    computed("stablehlo.fft", f", type = FFT{rest}", fft.fft2(x).astype("complex64"), x)
    computed("stablehlo.fft", f", type = IFFT, length = [{length}]", fft.ifft(x).astype("complex64"), x)
    computed("stablehlo.fft", f", type = RFFT{rest}", half.astype("complex64"), x.real.copy())
    computed("stablehlo.fft", f", type = IRFFT{rest}", x.real.copy(), half.astype("complex64"))


def test_complex_numbers_in_loops_choices_and_constants() -> None:
    c, z = "tensor<2xcomplex<f32>>", "tensor<complex<f32>>"
    body = f"""
    %k = stablehlo.constant dense<[(0.0,1.0), (0x7F800000,2.0)]> : {c}
    %one = stablehlo.constant dense<(1.0,0.0)> : {z}
    %0:2 = stablehlo.while(%i = %p, %v = %x) : tensor<i1>, {c}
    cond {{ stablehlo.return %i : tensor<i1> }} do {{
      %1 = stablehlo.multiply %v, %v : {c}
      %2 = stablehlo.not %i : tensor<i1>
      stablehlo.return %2, %1 : tensor<i1>, {c}
    }}
    %3 = "stablehlo.if"(%p) ({{ stablehlo.return %0#1 : {c} }}, {{ stablehlo.return %k : {c} }}) : (tensor<i1>) -> {c}
    %4 = stablehlo.reduce(%3 init: %one) applies stablehlo.multiply across dimensions = [0] : ({c}, {z}) -> {z}
    return %3, %4 : {c}, {z}"""
    text, x = program(f"%x: {c}, %p: tensor<i1>", body, f"{c}, {z}"), X[0, :2].copy()
    found = run(text, parts(x), np.array(True))
    same(found[0], parts(x * x))
    same(found[1], parts((x * x).prod()))
    same(run(text, parts(x), np.array(False))[0], np.float32([[0, 1], [np.inf, 2]]))
