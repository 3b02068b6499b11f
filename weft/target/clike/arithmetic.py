"""Arithmetic as text: what C leaves open means the same in all its languages, and on all targets.

Division by zero gives 0, minimum and maximum pass NaN on, float to integer saturates and turns NaN into 0, shifts by
too many bits leave zeros or the sign.
"""

from collections.abc import Mapping

_INTEGER = r"""#define WEFT_INT(N, T, U, BITS, LOW, HIGH) \
  FN T weft_div_##N(T a, T b) { return b == 0 ? (T)0 : (T)-1 < 0 && b == (T)-1 ? (T)(0 - (U)a) : (T)(a / b); } \
  FN T weft_mod_##N(T a, T b) { return b == 0 || ((T)-1 < 0 && b == (T)-1) ? (T)0 : (T)(a - a / b * b); } \
  FN T weft_floormod_##N(T a, T b) { \
    T r = weft_mod_##N(a, b); return r != 0 && (r < 0) != (b < 0) ? (T)(r + b) : r; } \
  FN T weft_floordiv_##N(T a, T b) { \
    T r = weft_mod_##N(a, b), q = weft_div_##N(a, b); return r != 0 && (r < 0) != (b < 0) ? (T)(q - 1) : q; } \
  FN T weft_min_##N(T a, T b) { return a < b ? a : b; } \
  FN T weft_max_##N(T a, T b) { return a > b ? a : b; } \
  FN T weft_abs_##N(T a) { return a < 0 ? (T)(0 - (U)a) : a; } \
  FN T weft_shift_left_##N(T a, T b) { return (WEFT_U64)b < BITS ? (T)((U)a << b) : (T)0; } \
  FN T weft_shift_right_##N(T a, T b) { return (WEFT_U64)b < BITS ? (T)(a >> b) : a < 0 ? (T)-1 : (T)0; } \
  FN T weft_popcount_##N(T a) { return (T)(WEFT_POPCOUNT((WEFT_U64)((U)a))); } \
  FN T weft_clz_##N(T a) { return (T)(a == 0 ? BITS : WEFT_CLZ((WEFT_U64)((U)a)) - (64 - BITS)); } \
  FN T weft_pow_##N(T a, T n) { \
    U r = (U)1, b = (U)a, k = (U)n; \
    if (n < 0) return a == 1 ? (T)1 : a != (T)-1 ? (T)0 : (k & (U)1) != 0 ? (T)-1 : (T)1; \
    for (; k != 0; k >>= 1, b *= b) if ((k & (U)1) != 0) r *= b; \
    return (T)r; }
#define WEFT_SATURATE(N, T, LOW, HIGH, NAME, F) \
  FN T NAME##_##N(F v) { return v != v ? (T)0 : v >= (F)HIGH ? HIGH : v <= (F)LOW ? LOW : (T)v; }
"""

_FLOAT = r"""#define WEFT_FLOAT(N, T, S) \
  FN T weft_div_##N(T a, T b) { return a / b; } \
  FN T weft_mod_##N(T a, T b) { return fmod##S(a, b); } \
  FN T weft_floormod_##N(T a, T b) { \
    T m = fmod##S(a, b); if (m == 0) return copysign##S((T)0, b); return (m < 0) != (b < 0) && m == m ? m + b : m; } \
  FN T weft_floordiv_##N(T a, T b) { \
    if (b == 0) return a / b; \
    T m = fmod##S(a, b), q = (a - m) / b; \
    if (m == m && m != 0 && (m < 0) != (b < 0)) q -= 1; \
    if (q == 0) return copysign##S((T)0, a / b); \
    T f = floor##S(q); return q - f > (T)0.5f ? f + 1 : f; } \
  FN T weft_min_##N(T a, T b) { return a != a || a < b ? a : b; } \
  FN T weft_max_##N(T a, T b) { return a != a || a > b ? a : b; } \
  FN T weft_abs_##N(T a) { return fabs##S(a); } \
  FN T weft_rsqrt_##N(T a) { return 1 / sqrt##S(a); } \
  FN T weft_sigmoid_##N(T a) { return 1 / (1 + exp##S(-a)); } \
  FN bool weft_isnan_##N(T a) { return a != a; } \
  FN bool weft_isfinite_##N(T a) { return a - a == 0; } \
  FN bool weft_isinf_##N(T a) { return a == a && a - a != 0; }
"""

_BOOL = """FN bool weft_min_bool(bool a, bool b) { return a && b; }
FN bool weft_max_bool(bool a, bool b) { return a || b; }
FN bool weft_abs_bool(bool a) { return a; }
"""


def arithmetic(
    types: Mapping[str, str], functions: str, popcount: str, clz: str, long: str = "LL", suffix: str = "f"
) -> str:
    """Write the functions that emitted expressions call: ``weft_div_int32`` and so on.

    Parameters
    ----------
    types : mapping of str to str
        The language's name of each dtype; without float64, its functions are left out.
    functions : str
        What stands before a function.
    popcount, clz : str
        Functions of 64 bits.
    long : str
        The ending of a literal of 64 bits.
    suffix : str
        The ending of functions of ``<math.h>`` for float32.
    """
    floats = [(d, types[d], suffix if d == "float32" else "") for d in ("float32", "float64") if d in types]
    lines = [
        f"#define FN {functions}",
        f"#define WEFT_U64 {types['uint64']}",
        f"#define WEFT_POPCOUNT {popcount}",
        f"#define WEFT_CLZ {clz}",
        _INTEGER.rstrip(),
    ]
    for bits in (8, 16, 32, 64):
        for sign in ("", "u"):
            name = f"{sign}int{bits}"
            high = f"({types[name]})0x{(1 << (bits - (sign == ''))) - 1:x}{'U' if sign else ''}{long}"
            low = f"({types[name]})(-0x{(1 << (bits - 1)) - 1:x}{long} - 1)" if not sign else f"({types[name]})0"
            lines.append(f"WEFT_INT({name}, {types[name]}, {types[f'uint{bits}']}, {bits}, {low}, {high})")
            lines += [
                f"WEFT_SATURATE({name}, {types[name]}, {low}, {high}, weft_saturate_{d}, {of})" for d, of, _ in floats
            ]
    lines += [_FLOAT.rstrip(), *(f"WEFT_FLOAT({d}, {of}, {s})" for d, of, s in floats), _BOOL]
    return "\n".join(lines)
