"""Factors of matrices by the LAPACK that NumPy is linked with, one call for each matrix of a stack.

Source: the routines of these names in LAPACK 3.12; operands and results are those of XLA's calls.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from weft.error import InvalidArgument, UnsupportedOperator
from weft.runtime.host.registry import host_operator


class _Routine(NamedTuple):
    """How a routine is called.

    `given` names operands and their sizes, `made` what it fills: ``s:k:real`` has k numbers, the least of m and n.
    `call` has its arguments in order: ``/a`` is the leading dimension of `a`, ``a+`` is `a` from its second element,
    W, R and I are memory to work in, lr and li how much, ``-`` is no function. `holds` says whether all fits.
    """

    given: str
    made: str
    call: str
    found: str
    holds: Callable[[dict[str, Any]], bool] = lambda v: True


def _side(v: dict[str, Any]) -> bool:
    return v["q"] == v["m" if v["side"] == "L" else "n"] and v.get("j", 0) <= v["q"]


def _pivots(v: dict[str, Any]) -> bool:
    """Whether rows are exchanged with rows that there are."""
    rows = v.get("m", v["n"])
    return len(v["p"]) <= rows and all(1 <= i <= rows for i in v["p"].tolist())


_ROUTINES = {
    "getrf": _Routine("a:m,n", "p:k:int", "m n a /a p info", "a p info"),
    "getrs": _Routine("a:n,n p:n b:n,j", "", "trans n j a /a p b /b info", "b", _pivots),
    "laswp": _Routine("a:m,n p:j", "", "n a /a first j p step", "a", _pivots),
    "potrf": _Routine("a:n,n", "", "uplo n a /a info", "a info"),
    "trsm": _Routine("a:q,q b:m,n", "", "side uplo trans_x diag m n one a /a b /b", "b", _side),
    "geqrf": _Routine("a:m,n", "t:k", "m n a /a t W info", "a t"),
    "geqp3": _Routine("a:m,n p:n", "t:k", "m n a /a p t W R info", "a p t"),
    "orgqr": _Routine("a:m,n t:j", "", "m n j a /a t W info", "a", lambda v: v["m"] >= v["n"] >= v["j"]),
    "ormqr": _Routine("a:q,j t:j c:m,n", "", "side trans m n j a /a t c /c W info", "c", _side),
    "syevd": _Routine("a:n,n", "w:n:real", "mode uplo n a /a w W R lr I li info", "a w info"),
    "gesdd": _Routine("a:m,n", "s:k:real u:m,f v:g,n", "mode m n a /a s u /u v /v W R I info", "a s u v info"),
    "geev": _Routine(
        "a:n,n", "w:n x:n:imag l:n,n r:n,n", "compute_left compute_right n a /a w x l /l r /r W R info", "w x l r info"
    ),
    "gees": _Routine(
        "a:n,n", "c::int w:n x:n:imag z:n,n", "mode sort - n a /a c w x z /z W R I info", "a z w x c info"
    ),
    "gehrd": _Routine(
        "a:n,n",
        "t:e",
        "n low high a /a t W info",
        "a t info",
        lambda v: 1 <= v["low"] and min(v["low"], v["n"]) <= v["high"] <= v["n"],
    ),
    "sytrd": _Routine("a:n,n", "d:n:real o:e:real t:e", "uplo n a /a d o t W info", "a d o t info"),
    "gtsv": _Routine("l:n d:n h:n b:n,j", "", "n j l+ d h b /b info", "l d h b info"),
}


_HERMITIAN = {"orgqr": "ungqr", "ormqr": "unmqr", "syevd": "heevd", "sytrd": "hetrd"}


@lru_cache(maxsize=128)
def _linked(routine: str, letter: str) -> tuple[Any, Any]:
    """A routine of the library, and the type of its integers."""
    name = letter + (_HERMITIAN.get(routine, routine) if letter in "cz" else routine)
    library = ctypes.CDLL(np.linalg._umath_linalg.__file__)  # finds what it is linked with
    for symbol, integer in ((f"scipy_{name}_64_", np.int64), (f"{name}_64_", np.int64), (f"{name}_", np.int32)):
        if hasattr(library, symbol):
            return getattr(library, symbol), integer
    raise UnsupportedOperator(
        "NumPy is linked with no LAPACK that has a routine",
        expected=name,
        help="pip install --force-reinstall numpy: its wheels have OpenBLAS",
    )


def _one(name: str, given: list[np.ndarray], options: dict[str, Any]) -> list[np.ndarray]:
    """Call a routine for one matrix."""
    spec, dtype, real = _ROUTINES[name], given[0].dtype, np.finfo(given[0].dtype).dtype
    call, integer = _linked(name, {"f": "s", "d": "d", "F": "c", "D": "z"}[dtype.char])
    values: dict[str, Any] = {k: v.upper() if isinstance(v, str) else v for k, v in options.items()}
    values |= {"one": np.ones(1, dtype), "info": np.zeros((), integer), "-": None}
    fits = True
    for (word, _, dims), x in zip((w.partition(":") for w in spec.given.split()), given, strict=True):
        fits = fits and all(values.setdefault(d, n) == n for d, n in zip(dims.split(","), x.shape, strict=True))
        values[word] = np.array(x, integer if x.dtype.kind == "i" else dtype, order="F")
    n, m = values["n"], values.get("m", values["n"])
    if not (fits and spec.holds(values)):
        raise InvalidArgument(f"{name}: matrices do not belong together", found=", ".join(str(x.shape) for x in given))
    full, k = values.get("full") or values.get("mode") == "A", min(m, n)
    values |= {"k": k, "e": max(n - 1, 0), "f": m if full else k, "g": n if full else k}
    absent = {"x"} if dtype.kind == "c" else {"R", "lr"}
    for word, dims, kind in ((w + "::").split(":")[:3] for w in spec.made.split()):
        shape = [values[d] for d in dims.split(",") if d]
        unit = np.eye(*shape) if len(shape) == 2 else np.zeros(shape)
        values[word] = np.array(unit, {"int": integer, "real": real}.get(kind, dtype), order="F")
    most = max(m, n) + 1
    values |= {"R": np.zeros(8 * most + k * (5 * k + 2 * most), real), "I": np.zeros(8 * most, integer)}
    values |= {"lr": len(values["R"]), "li": len(values["I"])}
    words = [w for w in spec.call.split() if w not in absent]
    values["W"] = np.zeros(1, dtype)
    if "W" in words:  # how much is needed
        _called(call, integer, words, values, -1)
        values["W"] = np.zeros(max(int(values["W"][0].real), 1), dtype)
    _called(call, integer, words, values, len(values["W"]))
    if name == "geev" and dtype.kind != "c":
        values |= {side: _paired(values[side], values["x"]) for side in "lr"}
    found = [values[w] for w in spec.found.split() if w not in absent]
    return [x.astype(np.int32) if x.dtype.kind == "i" else x for x in found]


def _called(call: Any, integer: Any, words: list[str], values: dict[str, Any], memory: int) -> None:
    """Call with arguments by reference, then the lengths of letters."""
    args: list[Any] = []
    for word in words:
        value = values[word[1:]] if word[0] == "/" else values[word.rstrip("+")]
        value = max(value.shape[0], 1) if word[0] == "/" else value[1:].copy() if word[-1] == "+" else value
        args += [value, memory] if word == "W" else [value]
    held = [np.array(a, integer) if isinstance(a, int) else a.encode() if isinstance(a, str) else a for a in args]
    given = [ctypes.c_void_p(a.ctypes.data) if isinstance(a, np.ndarray) else a for a in held]
    call(*given, *(ctypes.c_size_t(1) for a in args if isinstance(a, str)))


def _paired(vectors: np.ndarray, imaginary: np.ndarray) -> np.ndarray:
    """Vectors of conjugate values, which stand as real and imaginary part, as complex numbers."""
    first, made = np.flatnonzero(imaginary > 0), vectors.astype(np.result_type(vectors, np.complex64))
    made[:, first] += 1j * vectors[:, first + 1]
    made[:, first + 1] = made[:, first].conj()
    return made


@host_operator("Lapack")
def _lapack(*arrays: Any, routine: str, paired: list[bool], batch: int, refusal: str = "", **options: Any) -> Any:
    """Call a routine for each matrix; numbers that are complex have both parts in a last dimension of 2.

    With a `refusal`, what the routine has no answer for ends the call, with this as the reason.
    """
    given = [a.view(f"c{2 * a.itemsize}")[..., 0] if c else a for a, c in zip(arrays, paired, strict=True)]
    lead = given[0].shape[:batch]
    if any(a.shape[:batch] != lead for a in given):
        raise InvalidArgument(f"{routine}: stacks differ", found=", ".join(str(a.shape) for a in given))
    found = [_one(routine, [a[at] for a in given], options) for at in np.ndindex(lead)]
    if refusal and any(f[-1] != 0 for f in found):
        raise InvalidArgument(f"{routine}: {refusal}")
    like = found[0] if found else _one(routine, [np.ones(a.shape[batch:], a.dtype) for a in given], options)
    made = [np.array([f[i] for f in found], x.dtype).reshape(lead + x.shape) for i, x in enumerate(like)]
    return tuple(np.stack([np.real(x), np.imag(x)], -1) if x.dtype.kind == "c" else x for x in made)
