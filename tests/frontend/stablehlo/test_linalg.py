"""LAPACK's routines, for every element type, beside what defines their results; and as JAX calls them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontend.stablehlo.test_stablehlo import computed, parts
from weft.error import WeftError
from weft.runtime.host.call import OPERATORS

TYPES = pytest.mark.parametrize("char", "fdFD")


def drawn(char: str, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(len(shape))
    return (rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if char in "FD" else 0)).astype(char)


def called(routine: str, *given: np.ndarray, **options: Any) -> list[np.ndarray]:
    """For stacks of three; no other dimension is 2."""
    is_complex = [x.dtype.kind == "c" for x in given]
    found = OPERATORS["Lapack"](*map(parts, given), routine=routine, paired=is_complex, batch=1, **options)
    return [f[..., 0] + 1j * f[..., 1] if f.shape[-1] == 2 else f for f in found]


def close(found: Any, expected: Any) -> None:
    wide = {np.asarray(x).dtype.char for x in (found, expected)} <= {"d", "D"}
    np.testing.assert_allclose(found, expected, rtol=1e-9 if wide else 1e-3, atol=1e-10 if wide else 2e-4)


def turned(x: np.ndarray) -> np.ndarray:
    return x.conj().swapaxes(-1, -2)


@TYPES
def test_triangular_factors(char: str) -> None:
    a, r, b = drawn(char, 3, 4, 4) + 4 * np.eye(4, dtype=char), drawn(char, 3, 5, 3), drawn(char, 3, 4, 3)
    packed, pivots, info = called("getrf", r)
    for rows, order, factors in zip(r.copy(), pivots, packed, strict=True):
        for k, p in enumerate(order):
            rows[[k, p - 1]] = rows[[p - 1, k]]
        close((np.tril(factors, -1) + np.eye(5, 3)) @ np.triu(factors[:3]), rows)
    positive = np.stack([a[0] @ turned(a[0]), -np.eye(4), np.eye(4)]).astype(char)
    low, bad = called("potrf", positive, uplo="L")
    close(np.tril(low[0]) @ turned(np.tril(low[0])), positive[0])
    assert [*info, *bad] == [0, 0, 0, 0, 1, 0]
    close(np.tril(a) @ called("trsm", a, b, side="L", uplo="L", trans_x="N", diag="N")[0], b)
    close(called("trsm", a, turned(b), side="R", uplo="U", trans_x="C", diag="N")[0] @ turned(np.triu(a)), turned(b))
    d = drawn(char, 3, 4) + 4
    x = called("gtsv", d * 0 + 1, d, d * 0 - 1, b)[3]
    close(np.stack([np.diag(row) + np.eye(4, k=-1) - np.eye(4, k=1) for row in d]) @ x, b)


@TYPES
def test_orthogonal_factors(char: str) -> None:
    a, r, c = drawn(char, 3, 4, 4), drawn(char, 3, 5, 3), drawn(char, 3, 5, 1)
    packed, tau = called("geqrf", r)
    (q,) = called("orgqr", packed, tau)
    close(q @ np.triu(packed[:, :3]), r)
    (x,) = called("ormqr", packed, tau, c, side="L", trans="C" if char in "FD" else "T")
    close(x[:, :3], turned(q) @ c)
    moved, order, tau = called("geqp3", r, np.zeros((3, 3), "int32"))
    (q,) = called("orgqr", moved, tau)
    close(q @ np.triu(moved[:, :3]), np.take_along_axis(r, order[:, None] - 1, 2))
    for mode in "AS":
        _, s, u, v, _ = called("gesdd", r, mode=mode, full=False)
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
    close(np.linalg.norm(np.triu(called("gehrd", a, low=1, high=4)[0], -1)), np.linalg.norm(a))
    _, d, e, _, _ = called("sytrd", h, uplo="L")
    near = np.stack([np.diag(x) + np.diag(y, 1) + np.diag(y, -1) for x, y in zip(d, e, strict=True)])
    close(np.linalg.eigvalsh(near), np.linalg.eigvalsh(h))


@pytest.mark.parametrize(("batch", "columns"), [(3, 2), (0, 2), (3, 0)])
def test_calls_of_programs_and_what_does_not_belong_together(batch: int, columns: int) -> None:
    a, b = drawn("F", batch, 4, 4) + 4 * np.eye(4, dtype="F"), drawn("F", batch, 4, columns)
    config = " {mhlo.backend_config = {side = 76 : ui8, uplo = 76 : ui8, trans_x = 78 : ui8, diag = 78 : ui8}}"
    computed("stablehlo.custom_call @lapack_ctrsm_ffi", config, np.linalg.solve(np.tril(a), b), a, b)
    config = " {mhlo.backend_config = {left = true, transpose = true}}"  # by no reflections
    computed("stablehlo.custom_call @lapack_cunmqr_ffi", config, b, a[:, :, :2], a[:, 0, :2] * 0, b)
    with pytest.raises(WeftError, match="belong together"):
        computed("stablehlo.custom_call @lapack_cunmqr_ffi", config, b, a[:, :3, :2], a[:, 0, :2] * 0, b)
