"""LAPACK's routines as JAX calls them, for every element type, beside what defines their results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontend.stablehlo.test_stablehlo import parts, program, run
from weft.error import UnsupportedOperator, WeftError
from weft.frontend.stablehlo import from_stablehlo

NAMES = {"f": "f32", "d": "f64", "F": "complex<f32>", "D": "complex<f64>", "i": "i32"}
UNITARY = {"orgqr": "ungqr", "ormqr": "unmqr", "syevd": "heevd", "sytrd": "hetrd"}
TYPES = pytest.mark.parametrize("char", "fdFD")
INFO = ((2,), "i")


def drawn(char: str, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(len(shape))
    x = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if char in "FD" else 0)
    return x.astype(char)


def tensor(shape: Any, char: str) -> str:
    return "tensor<" + "".join(f"{n}x" for n in shape) + NAMES[char] + ">"


def text(name: str, results: list[Any], *given: np.ndarray, **config: Any) -> str:
    """A program of one call; results are shapes with the letter of an element type."""
    char = given[0].dtype.char
    callee = f"lapack_{'sdcz'['fdFD'.index(char)]}{UNITARY.get(name, name) if char in 'FD' else name}_ffi"
    types, made = [tensor(x.shape, x.dtype.char) for x in given], [tensor(*r) for r in results]
    options = ", ".join(
        f"{k} = {str(v).lower() if isinstance(v, bool) else f'{ord(v)} : ui8' if isinstance(v, str) else f'{v} : i32'}"
        for k, v in config.items()
    )
    many = f":{len(made)}" if len(made) > 1 else ""
    names = [f"%x{i}" for i in range(len(given))]
    found = ", ".join([f"%0#{i}" for i in range(len(made))] if many else ["%0"])
    call = f"stablehlo.custom_call @{callee}({', '.join(names)}) {{mhlo.backend_config = {{{options}}}}}"
    body = f"%0{many} = {call} : ({', '.join(types)}) -> ({', '.join(made)})\nreturn {found} : {', '.join(made)}"
    return program(", ".join(map("{}: {}".format, names, types)), body, ", ".join(made))


def called(name: str, results: list[Any], *given: np.ndarray, **config: Any) -> list[np.ndarray]:
    found = run(text(name, results, *given, **config), *map(parts, given))
    found = [found] if isinstance(found, np.ndarray) else list(found)
    return [f[..., 0] + 1j * f[..., 1] if char in "FD" else f for f, (_, char) in zip(found, results, strict=True)]


def close(found: Any, expected: Any) -> None:
    wide = {np.asarray(x).dtype.char for x in (found, expected)} <= {"d", "D"}
    np.testing.assert_allclose(found, expected, rtol=1e-9 if wide else 1e-3, atol=1e-10 if wide else 1e-4)


def turned(x: np.ndarray) -> np.ndarray:
    return x.conj().swapaxes(-1, -2)


@TYPES
def test_triangular_factors(char: str) -> None:
    a, r = drawn(char, 2, 4, 4), drawn(char, 2, 5, 3)
    packed, pivots, info = called("getrf", [((2, 5, 3), char), ((2, 3), "i"), INFO], r)
    for rows, order, factors in zip(r.copy(), pivots, packed, strict=True):
        for k, p in enumerate(order):
            rows[[k, p - 1]] = rows[[p - 1, k]]
        close((np.tril(factors, -1) + np.eye(5, 3)) @ np.triu(factors[:3]), rows)
    assert not info.any()
    positive = np.stack([a[0] @ turned(a[0]) + np.eye(4), -np.eye(4)]).astype(char)
    low, info = called("potrf", [((2, 4, 4), char), INFO], positive, uplo="L")
    close(np.tril(low[0]) @ turned(np.tril(low[0])), positive[0])
    assert info.tolist() == [0, 1]
    for side, lower, turn, unit in (("L", "L", "N", "N"), ("R", "U", "C", "U"), ("L", "U", "T", "N")):
        b = drawn(char, 2, *((4, 3) if side == "L" else (3, 4)))
        (x,) = called("trsm", [(b.shape, char)], a, b, side=side, uplo=lower, trans_x=turn, diag=unit)
        half = np.tril(a) if lower == "L" else np.triu(a)
        half = half - np.einsum("bii->bi", half)[..., None] * np.eye(4) + np.eye(4) if unit == "U" else half
        half = {"N": half, "T": half.swapaxes(-1, -2), "C": turned(half)}[turn]
        np.testing.assert_allclose(half @ x if side == "L" else x @ half, b, rtol=1e-2, atol=1e-3)
    d, b = drawn(char, 2, 4) + 4, drawn(char, 2, 4, 3)
    sides = [d * 0 + 1, d * 0 - 1]
    *_, x, info = called("gtsv", [((2, 4), char)] * 3 + [(b.shape, char), INFO], sides[0], d, sides[1], b)
    close(np.stack([np.diag(row) + np.eye(4, k=-1) - np.eye(4, k=1) for row in d]) @ x, b)


@TYPES
def test_orthogonal_factors(char: str) -> None:
    real, a, r = char.lower(), drawn(char, 2, 4, 4), drawn(char, 2, 5, 3)
    packed, tau = called("geqrf", [((2, 5, 3), char), ((2, 3), char)], r)
    (q,) = called("orgqr", [((2, 5, 3), char)], packed.astype(char), tau.astype(char))
    close(q @ np.triu(packed[:, :3]), r)
    c = drawn(char, 2, 5, 2)
    (x,) = called("ormqr", [(c.shape, char)], packed.astype(char), tau.astype(char), c, left=True, transpose=True)
    close(x[:, :3], turned(q) @ c)
    moved, order, tau = called("geqp3", [(r.shape, char), ((2, 3), "i"), ((2, 3), char)], r, np.zeros((2, 3), "int32"))
    (q,) = called("orgqr", [((2, 5, 3), char)], moved.astype(char), tau.astype(char))
    close(q @ np.triu(moved[:, :3]), np.take_along_axis(r, order[:, None].astype("int64") - 1, 2))
    for mode, full in (("A", True), ("S", False)):
        u, v = ((2, 5, 5), (2, 3, 3)) if full else ((2, 5, 3), (2, 3, 3))
        _, s, u, v, _ = called("gesdd", [(r.shape, char), ((2, 3), real), (u, char), (v, char), INFO], r, mode=mode)
        close(u[..., :3] * s[:, None] @ v, r)
    h = (a + turned(a)).astype(char)
    v, w, _ = called("syevd", [(h.shape, char), ((2, 4), real), INFO], h, mode="V", uplo="L")
    close(v * w[:, None] @ turned(v), h)
    values = [((2, 4), char)] * (1 if char in "FD" else 2)
    pair = {"f": "F", "d": "D"}.get(char, char)
    made = [*values, (a.shape, pair), (a.shape, pair), INFO]
    *w, left, right, _ = called("geev", made, a, compute_left="V", compute_right="V")
    w = w[0] if char in "FD" else w[0] + 1j * w[1]
    close(a @ right, right * w[:, None])
    close(turned(left) @ a, turned(left) * w[..., None])
    t, z, *_ = called("gees", [(a.shape, char), (a.shape, char), *values, INFO, INFO], a, mode="V", sort="N")
    close(z @ t @ turned(z), a)
    packed, tau, _ = called("gehrd", [(a.shape, char), ((2, 3), char), INFO], a, low=1, high=4)
    close(np.einsum("bii->b", packed), np.einsum("bii->b", a))
    made = [(a.shape, char), ((2, 4), real), ((2, 3), real), ((2, 3), char), INFO]
    _, d, e, _, _ = called("sytrd", made, h, uplo="L")
    near = np.stack([np.diag(x) + np.diag(y, 1) + np.diag(y, -1) for x, y in zip(d, e, strict=True)])
    close(np.linalg.eigvalsh(near), np.linalg.eigvalsh(h))


def test_stacks_of_nothing_and_what_does_not_belong_together() -> None:
    low, info = called("potrf", [((0, 3, 3), "f"), ((0,), "i")], drawn("f", 0, 3, 3), uplo="L")
    assert (low.shape, info.shape) == ((0, 3, 3), (0,))
    a, b = drawn("f", 2, 3, 3), drawn("f", 2, 4, 2)
    wrong = text("trsm", [(b.shape, "f")], a, b, side="L", uplo="L", trans_x="N", diag="N")
    with pytest.raises((WeftError, RuntimeError), match="belong together"):
        run(wrong, a, b)
    with pytest.raises(UnsupportedOperator, match="open sizes"):
        from_stablehlo(text("potrf", [((2, 3, 3), "f"), INFO], a, uplo="L").replace("2x3x3", "2x?x?"))
