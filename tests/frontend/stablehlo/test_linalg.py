"""LAPACK's routines as JAX calls them, for every element type, beside what defines their results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontend.stablehlo.test_stablehlo import parts, program, run
from weft.error import UnsupportedOperator, WeftError
from weft.frontend.stablehlo import from_stablehlo
from weft.runtime.host.call import OPERATORS

NAMES = {"f": "f32", "d": "f64", "F": "complex<f32>", "D": "complex<f64>", "i": "i32"}
UNITARY = {"orgqr": "ungqr", "ormqr": "unmqr", "syevd": "heevd", "sytrd": "hetrd"}
TYPES = pytest.mark.parametrize("char", "fdFD")


def drawn(char: str, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(len(shape))
    x = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if char in "FD" else 0)
    return x.astype(char)


def text(name: str, *given: np.ndarray, **config: Any) -> tuple[str, str]:
    """A program of one call for stacks of three, and which results are complex, by letters."""
    char = given[0].dtype.char
    options = {"side": "L", "trans": "C" if char in "FD" else "T"} if name == "ormqr" else config
    options = {"full": config["mode"] == "A", **config} if name == "gesdd" else options
    made = OPERATORS["Lapack"](*map(parts, given), routine=name, batch=1, **options,
                               paired=[x.dtype.kind == "c" for x in given])  # fmt: skip
    chars = [x.dtype.char if x.dtype.kind == "i" or x.shape[-1] != 2 else x.dtype.char.upper() for x in made]
    shapes = [x.shape[: x.ndim - c.isupper()] for x, c in zip(made, chars, strict=True)]
    results, types = (
        ["tensor<" + "".join(f"{n}x" for n in shape) + NAMES[c] + ">" for shape, c in pairs]
        for pairs in (zip(shapes, chars, strict=True), [(x.shape, x.dtype.char) for x in given])
    )
    letters = {str: lambda v: f"{ord(v)} : ui8", bool: lambda v: str(v).lower(), int: lambda v: f"{v} : i32"}
    config = {k: letters[type(v)](v) for k, v in config.items()}
    callee = f"lapack_{'sdcz'['fdFD'.index(char)]}{UNITARY.get(name, name) if char in 'FD' else name}_ffi"
    names, count = [f"%x{i}" for i in range(len(given))], len(made)
    given_options = ", ".join(map(" = ".join, config.items()))
    call = f"stablehlo.custom_call @{callee}({', '.join(names)}) {{mhlo.backend_config = {{{given_options}}}}}"
    found = ", ".join(f"%0#{i}" for i in range(count)) if count > 1 else "%0"
    body = f"%0{f':{count}' * (count > 1)} = {call} : ({', '.join(types)}) -> ({', '.join(results)})"
    body += f"\nreturn {found} : {', '.join(results)}"
    return program(", ".join(map("{}: {}".format, names, types)), body, ", ".join(results)), "".join(chars)


def called(name: str, *given: np.ndarray, **config: Any) -> list[np.ndarray]:
    code, chars = text(name, *given, **config)
    found = run(code, *map(parts, given))
    found = [found] if isinstance(found, np.ndarray) else list(found)
    return [(f[..., 0] + 1j * f[..., 1]).astype(c) if c in "FD" else f for f, c in zip(found, chars, strict=True)]


def close(found: Any, expected: Any) -> None:
    wide = {np.asarray(x).dtype.char for x in (found, expected)} <= {"d", "D"}
    np.testing.assert_allclose(found, expected, rtol=1e-9 if wide else 1e-3, atol=1e-10 if wide else 1e-4)


def turned(x: np.ndarray) -> np.ndarray:
    return x.conj().swapaxes(-1, -2)


@TYPES
def test_triangular_factors(char: str) -> None:
    a, r = drawn(char, 3, 4, 4), drawn(char, 3, 5, 3)
    packed, pivots, info = called("getrf", r)
    for rows, order, factors in zip(r.copy(), pivots, packed, strict=True):
        for k, p in enumerate(order):
            rows[[k, p - 1]] = rows[[p - 1, k]]
        close((np.tril(factors, -1) + np.eye(5, 3)) @ np.triu(factors[:3]), rows)
    assert not info.any()
    positive = np.stack([a[0] @ turned(a[0]) + np.eye(4), -np.eye(4), np.eye(4)]).astype(char)
    low, info = called("potrf", positive, uplo="L")
    close(np.tril(low[0]) @ turned(np.tril(low[0])), positive[0])
    assert info.tolist() == [0, 1, 0]
    a = a + 4 * np.eye(4, dtype=char)
    for side, lower, turn in (("L", "L", "N"), ("R", "U", "C"), ("L", "U", "T")):
        b, half = drawn(char, 3, *((4, 3) if side == "L" else (3, 4))), np.tril(a) if lower == "L" else np.triu(a)
        (x,) = called("trsm", a, b, side=side, uplo=lower, trans_x=turn, diag="N")
        half = {"N": half, "T": half.swapaxes(-1, -2), "C": turned(half)}[turn]
        close(half @ x if side == "L" else x @ half, b)
    d, b = drawn(char, 3, 4) + 4, drawn(char, 3, 4, 3)
    *_, x, info = called("gtsv", d * 0 + 1, d, d * 0 - 1, b)
    close(np.stack([np.diag(row) + np.eye(4, k=-1) - np.eye(4, k=1) for row in d]) @ x, b)


@TYPES
def test_orthogonal_factors(char: str) -> None:
    a, r, c = drawn(char, 3, 4, 4), drawn(char, 3, 5, 3), drawn(char, 3, 5, 1)
    packed, tau = called("geqrf", r)
    (q,) = called("orgqr", packed, tau)
    close(q @ np.triu(packed[:, :3]), r)
    close(called("ormqr", packed, tau, c, left=True, transpose=True)[0][:, :3], turned(q) @ c)
    moved, order, tau = called("geqp3", r, np.zeros((3, 3), "int32"))
    close(called("orgqr", moved, tau)[0] @ np.triu(moved[:, :3]), np.take_along_axis(r, order[:, None] - 1, 2))
    for mode in "AS":
        _, s, u, v, _ = called("gesdd", r, mode=mode)
        close(u[..., :3] * s[:, None] @ v, r)
    h = (a + turned(a)).astype(char)
    v, w, _ = called("syevd", h, mode="V", uplo="L")
    close(v * w[:, None] @ turned(v), h)
    *w, left, right, _ = called("geev", a, compute_left="V", compute_right="V")
    w = w[0] if char in "FD" else w[0] + 1j * w[1]
    close(a @ right, right * w[:, None])
    close(turned(left) @ a, turned(left) * w[..., None])
    t, z, *_ = called("gees", a, mode="V", sort="N")
    close(z @ t @ turned(z), a)
    packed, tau, _ = called("gehrd", a, low=1, high=4)
    close(np.linalg.norm(np.triu(packed, -1)), np.linalg.norm(a))
    _, d, e, _, _ = called("sytrd", h, uplo="L")
    near = np.stack([np.diag(x) + np.diag(y, 1) + np.diag(y, -1) for x, y in zip(d, e, strict=True)])
    close(np.linalg.eigvalsh(near), np.linalg.eigvalsh(h))


def test_stacks_of_nothing_and_what_does_not_belong_together() -> None:
    low, info = called("potrf", drawn("f", 0, 3, 3), uplo="L")
    assert (low.shape, info.shape) == ((0, 3, 3), (0,))
    code = text("trsm", drawn("f", 3, 4, 4), drawn("f", 3, 4, 1), side="L", uplo="L", trans_x="N", diag="N")[0]
    with pytest.raises(WeftError, match="belong together"):
        run(code.replace("3x4x4xf32", "3x5x5xf32"), drawn("f", 3, 5, 5), drawn("f", 3, 4, 1))
    with pytest.raises(UnsupportedOperator, match="open sizes"):
        from_stablehlo(code.replace("3x4x4xf32", "3x?x?xf32").replace("3x4x1xf32", "3x?x1xf32"))
