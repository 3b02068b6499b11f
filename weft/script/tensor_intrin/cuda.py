"""Products of small matrices by the threads of a warp of NVIDIA's GPUs: ``wmma`` fragments, ``ldmatrix`` and ``mma``.

Each name says what is computed and how it is called, for ``Schedule.tensorize``. No code is made for the calls: they
are refused by name then.
"""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from weft import tir
from weft.ffi import register_global_func
from weft.script import tir as script
from weft.script.tensor_intrin.register import Operand, adds, fills_zero, register_instruction, runs
from weft.tir.schedule import TensorIntrin

Place = tir.PrimExpr | int
"""An index, known or not."""

T: Any = script
_WMMA = {"float16": "f16", "float32": "f32", "int8": "s8", "int32": "s32", "int4": "s4"}
_MMA = {**_WMMA, "int8": "i8", "int32": "i32"}
_DYN = {"shared": "", "shared.dyn": "_dyn"}


def shared_16x16_to_ldmatrix_32x8_layout(i: Place, j: Place) -> tuple[Any, Any]:
    """Return the thread and the place in it of an element of 16 x 16 of 16 bits, or of a result."""
    return 4 * (i % 8) + (j % 8) // 2, 4 * (j // 8) + (i // 8) * 2 + (j % 2)


def shared_16x32_to_ldmatrix_32x16_layout(i: Place, j: Place) -> tuple[Any, Any]:
    """Return the thread and the place in it of an element of 16 x 32 bytes."""
    return 4 * (i % 8) + (j % 16) // 4, 8 * (j // 16) + (i // 8) * 4 + j % 4


def shared_32x16_to_ldmatrix_32x16_layout(i: Place, j: Place) -> tuple[Any, Any]:
    """Return the thread and the place in it of an element of 32 x 16 bytes."""
    return (i % 16) // 4 + 4 * (j % 8), 8 * (j // 8) + (i // 16) * 4 + i % 4


def ldmatrix_32x8_to_shared_16x16_layout(thread_id: Place, local_id: Place) -> tuple[Any, Any]:
    """Return the row and column of what a thread has at a place: the inverse of the map of 16 x 16."""
    return 8 * (local_id % 4 // 2) + thread_id // 4, 8 * (local_id // 4) + (thread_id % 4) * 2 + local_id % 2


_square, _wide = shared_16x16_to_ldmatrix_32x8_layout, shared_16x32_to_ldmatrix_32x16_layout
register_global_func("tir.index_map.shared_16x16_to_ldmatrix_32x8_layout", lambda at: list(_square(*at)), override=True)


def _copy(to: Any = lambda *at: at, of: Any = lambda *at: at) -> Callable[..., tir.Stmt]:
    """Store element `of` (i, j) at `to` (i, j)."""
    return lambda a, c, i, j: tir.BufferStore(c, a[of(i, j)], to(i, j))


def _fragment(buffer: tir.Buffer) -> tuple[Any, Any]:
    """Return a buffer's memory, and the number of its fragment there."""
    (rows, columns), at, stride = buffer.shape, buffer.elem_offset, buffer.strides[0]
    assert at is not None
    return buffer.data, at // stride // rows * (stride // columns) + at % stride // columns


def _wmma(m: int, n: int, k: int, dtype: str, out_dtypes: Sequence[str], sides: Sequence[tuple[str, bool]]) -> None:
    """Register the instructions of a product of ``(m, k)`` and ``(k, n)``, of which sides may lie transposed."""
    shape, short, parts = f"{m}x{n}x{k}", _WMMA[dtype], dict[tuple[str, bool], Operand]()
    for (side, turned), scope in product(sides, _DYN):
        size, layout = (k, n) if side == "b" else (m, k), "col_major" if turned else "row_major"
        size = size[::-1] if turned else size
        parts[side, turned] = part = Operand(size, dtype, f"wmma.matrix_{side}", size[1], True)
        register_instruction(
            f"wmma_load_{shape}_{short}_{side}{'_trans' * turned}_{scope.replace('.', '_')}",
            (part._replace(scope=scope), part),
            "SS",
            size,
            _copy(),
            lambda a, c, layout=layout: T.evaluate(
                T.tvm_load_matrix_sync(c.data, m, n, k, _fragment(c)[1], a.access_ptr("r"), a.strides[0], layout)
            ),
        )
    for out_dtype in out_dtypes:
        out, name = Operand((m, n), out_dtype, "wmma.accumulator", n, True), _WMMA[out_dtype]
        register_instruction(
            f"wmma_fill_{shape}_{name}",
            (out,),
            "SS",
            (m, n),
            fills_zero(),
            lambda c: T.evaluate(T.tvm_fill_fragment(c.data, m, n, k, _fragment(c)[1], T.float32(0))),
        )
        for scope in (*_DYN, "global"):
            register_instruction(
                f"wmma_store_{shape}_{name}_{scope.replace('.', '_')}",
                (out, out._replace(scope=scope)),
                "SS",
                (m, n),
                _copy(),
                lambda a, c: T.evaluate(
                    T.tvm_store_matrix_sync(
                        a.data, m, n, k, _fragment(a)[1], c.access_ptr("w"), c.strides[0], "row_major"
                    )
                ),
            )
        for turned in [t for side, t in sides if side == "b"]:
            register_instruction(
                f"wmma_sync_{shape}_{short}{short}{name}{'_trans' * turned}",
                (parts["a", False], parts["b", turned], out),
                "SSR",
                (m, n, k),
                lambda a, b, c, i, j, r, turned=turned: adds(c, (i, j), a[i, r], b[j, r] if turned else b[r, j]),
                lambda *f: T.evaluate(T.tvm_mma_sync(*(x for i in (2, 0, 1, 2) for x in _fragment(f[i])))),
            )


def get_wmma_intrin_group(
    load_scope: str, store_scope: str, in_dtype: str, out_dtype: str, trans_b: bool
) -> dict[str, str]:
    """Return the names of the instructions of a product of 16 x 16 x 16, by what each is for.

    Parameters
    ----------
    load_scope, store_scope : str
        ``"shared"`` or ``"shared.dyn"``; the latter also ``"global"``.
    in_dtype, out_dtype : str
        float16 to itself or float32, int8 to int32.
    """
    short, out, turned = _WMMA[in_dtype], _WMMA[out_dtype], "_trans" * trans_b
    load, store = (s.replace(".", "_") for s in (load_scope, store_scope))
    names = {
        "init": f"fill_#_{out}",
        "load_a": f"load_#_{short}_a_{load}",
        "load_b": f"load_#_{short}_b{turned}_{load}",
        "compute": f"sync_#_{short}{short}{out}{turned}",
        "store": f"store_#_{out}_{store}",
    }
    return {use: f"wmma_{name.replace('#', '16x16x16')}" for use, name in names.items()}


def _part(dtype: str, k: int = 16, factor: int = 1) -> Operand:
    """Return what the threads of a warp have of a matrix of 16 x `k`."""
    return Operand((32, k // 2), dtype, "warp", factor)


def _ldmatrix(dtype: str, k: int, side: str, turned: bool) -> None:
    size = (k, 16) if (side == "b") != turned else (16, k)
    across = size == (32, 16)  # no instruction transposes bytes: a loop needs the stride alone
    layout, columns = shared_32x16_to_ldmatrix_32x16_layout if across else _wide if k == 32 else _square, k // 2

    def call(shared: tir.Buffer, warp: tir.Buffer) -> tir.Stmt:
        def load(tx: Any) -> tir.Stmt:
            stride = shared.strides[0]
            row = 8 * (tx // 16) + tx % 8 if turned else tx % 16
            offset = stride if across else stride * row + columns * (tx % 16 // 8 if turned else tx // 16)
            place = warp.data, warp.elem_offset + columns * tx, shared.access_ptr("r"), offset
            return T.evaluate(T.ptx_ldmatrix(turned == (side == "a"), 4, ".b16", *place))

        return runs("threadIdx.x", 32, load)

    for scope, dyn in _DYN.items() if k == 16 else [("shared", "")]:
        operands = Operand(size, dtype, scope, size[1], True), _part(dtype, k, size[1])
        name = f"mma_ldmatrix_{_MMA[dtype]}_{side}{'_trans' * turned}{dyn}"
        register_instruction(name, operands, "SS", size, _copy(layout), call)


def _mma(dtype: str, out_dtype: str, k: int, turned_a: bool, turned_b: bool) -> None:
    kinds = [{"float16": "fp16", "float32": "fp32"}.get(d, d) for d in (dtype, dtype, out_dtype)]
    of_a = _wide if k == 32 else _square
    of_b = shared_32x16_to_ldmatrix_32x16_layout if k == 32 and not turned_b else of_a

    def store(a: tir.Buffer, b: tir.Buffer, c: tir.Buffer, i: Any, j: Any, r: Any) -> tir.Stmt:
        at_a, at_b = of_a(*((r, i) if turned_a else (i, r))), of_b(*((j, r) if turned_b else (r, j)))
        return adds(c, _square(i, j), a[at_a], b[at_b])

    def call(*parts: tir.Buffer) -> tir.Stmt:
        def half(tx: Any, second: int) -> tir.Stmt:
            columns = [x.shape[1] * tx + (x.shape[1] // 2 if second and x is not parts[0] else 0) for x in parts]
            places = [(x.data, x.elem_offset + n) for x, n in zip(parts, columns, strict=True)]
            return T.evaluate(T.ptx_mma(f"m16n8k{k}", "row", "col", *kinds, *sum(places, ()), T.bool(False)))

        return runs("threadIdx.x", 32, lambda tx: tir.seq(half(tx, 0), half(tx, 1)))

    operands = (
        _part(dtype, k, 16 if turned_a else k),
        _part(dtype, k, k if turned_b else 16),
        _part(out_dtype, 16, 16),
    )
    name = f"mma_{_MMA[dtype]}{_MMA[dtype]}{_MMA[out_dtype]}{'_trans_a' * turned_a}{'_trans_b' * turned_b}"
    register_instruction(name, operands, "SSR", (16, 16, k), store, call)


def _results(dtype: str, *scopes: tuple[str, bool]) -> None:
    """Register how results begin, and how they are stored: by a call, or element by element."""
    part = _part(dtype)
    register_instruction(
        f"mma_fill_16x16_{_MMA[dtype]}",
        (part,),
        "SS",
        (16, 16),
        fills_zero(_square),
        lambda c: runs("threadIdx.x", 32, lambda tx: T.evaluate(T.mma_fill(8, c.data, c.elem_offset))),
    )

    def call(a: tir.Buffer, c: tir.Buffer, simple: bool) -> tir.Stmt:
        def one(tx: Any) -> tir.Stmt:
            if not simple:
                return T.evaluate(T.mma_store(16, 16, c.access_ptr("w"), a.data, a.elem_offset, c.strides[0]))
            return runs("", 8, lambda n: tir.BufferStore(c, a[tx, n], ldmatrix_32x8_to_shared_16x16_layout(tx, n)))

        return runs("threadIdx.x", 32, one)

    for scope, simple in scopes:
        register_instruction(
            f"mma_store_16x16_{_MMA[dtype]}_{scope.replace('.', '_')}_{'simple_' * simple}",
            (part, Operand((16, 16), dtype, scope, 1, True)),
            "SS",
            (16, 16),
            _copy(of=_square),
            lambda a, c, simple=simple: call(a, c, simple),
        )


def get_mma_intrin_group(
    load_scope: str,
    store_scope: str,
    in_dtype: str,
    out_dtype: str,
    trans_a: bool,
    trans_b: bool,
    not_use_mma_store_intrinic: bool = True,
    store_to_smem_dtype: str | None = None,
) -> dict[str, str]:
    """Return the names of the instructions of a product of 16 x 16 by ``mma``, by what each is for.

    Parameters as of :func:`get_wmma_intrin_group`. Results are stored element by element, unless
    `not_use_mma_store_intrinic` is False, as `store_to_smem_dtype`, by default `out_dtype`.
    """
    short, out, dyn = _MMA[in_dtype], _MMA[out_dtype], _DYN[load_scope]
    a, b = "_trans" * trans_a, "_trans" * trans_b
    stored = f"{_MMA[store_to_smem_dtype or out_dtype]}_{store_scope.replace('.', '_')}_"
    return {
        "init": f"mma_fill_16x16_{out}",
        "load_a": f"mma_ldmatrix_{short}_a{a}{dyn}",
        "load_b": f"mma_ldmatrix_{short}_b{b}{dyn}",
        "compute": f"mma_{short}{short}{out}{a and a + '_a'}{b and b + '_b'}",
        "store": f"mma_store_16x16_{stored}{'simple_' * not_use_mma_store_intrinic}",
    }


def _constant(name: str) -> str:
    """Return the constant that holds a name: ``WMMA_FILL_16x16x16_F32_INTRIN``, ``MMA_fill_16x16_f32_INTRIN``."""
    words = name.replace("mma_ldmatrix", "ldmatrix").rstrip("_").split("_")
    if name.startswith(("mma_fill", "mma_store")):
        simple = words[-1] == "simple"
        return "_".join(["MMA", *words[1 : len(words) - simple], "INTRIN"]) + "_SIMPLE" * simple
    kept = [w for w in words if words[1] != "load" or w != "shared"]
    plain = words[1] in ("load", "fill", "store")
    return "_".join([*(w if w[0].isdigit() or (w[1:2].isdigit() and not plain) else w.upper() for w in kept), "INTRIN"])


_SIDES = [*product("ab", (False, True))]
_wmma(16, 16, 16, "float16", ("float32", "float16"), _SIDES)
_wmma(16, 16, 16, "int8", ("int32",), _SIDES)
_wmma(8, 8, 32, "int4", ("int32",), [("a", False), ("b", True)])
for _side, _turned in _SIDES:
    _ldmatrix("float16", 16, _side, _turned)
    if (_side, _turned) != ("a", True):
        _ldmatrix("int8", 32, _side, _turned)
    for _out in ("float32", "float16"):
        _mma("float16", _out, 16, _side == "a", _turned)
for _turned in (False, True):
    _mma("int8", "int32", 32, False, _turned)
_results("float32", ("global", False), ("shared.dyn", False), ("shared.dyn", True))
_results("float16", ("global", False), ("shared.dyn", True))
_results("int32", ("global", False))
NAMES = {_constant(name): name for name in TensorIntrin._registry if name.startswith(("mma_", "wmma_"))}
globals().update(NAMES)
__all__ = [  # pyright: ignore[reportUnsupportedDunderAll] - the constants are those of NAMES
    "NAMES",
    "get_mma_intrin_group",
    "get_wmma_intrin_group",
    "ldmatrix_32x8_to_shared_16x16_layout",
    "shared_16x16_to_ldmatrix_32x8_layout",
    "shared_16x32_to_ldmatrix_32x16_layout",
    "shared_32x16_to_ldmatrix_32x16_layout",
    *NAMES,
]
