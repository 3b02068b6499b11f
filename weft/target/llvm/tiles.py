"""Emission of matrix tiles as AMX instructions, whose tile numbers are in the instruction."""

from weft.error import CodegenError
from weft.ir import CallIntrin, StringImm, as_int
from weft.target.llvm.emitter import FunctionEmitter
from weft.target.llvm.intrin import on
from weft.tir import TILE_BYTES, TILE_COUNT, TILE_ROWS

_PRODUCTS = {
    "bf16": ("tdpbf16ps", "amx-bf16"),
    "uint8int8": ("tdpbusd", "amx-int8"),
    "int8int8": ("tdpbssd", "amx-int8"),
}


def _need(e: CallIntrin, s: FunctionEmitter, feature: str) -> None:
    if feature not in s.module.target.features:
        raise CodegenError(
            f"the target has no {feature}", where=e.span, help=f"schedule without tiles, or add -mattr=+{feature}"
        )


def _number(e: CallIntrin, at: int) -> int:
    t = as_int(e.args[at])
    if t is None or not 0 <= t < TILE_COUNT:
        raise CodegenError("the number of a tile is a constant", where=e.span, expected="0..7", found=str(e.args[at]))
    return t


def _call(s: FunctionEmitter, name: str, types: str, args: str) -> str:
    s.module.declare(f"llvm.x86.{name}", f"declare void @llvm.x86.{name}({types})")
    s.emit(f"call void @llvm.x86.{name}({args})")
    return "0"


@on("tile_configure")
def _configure(e: CallIntrin, s: FunctionEmitter) -> str:
    """Load the shapes of tiles: byte 0 is the palette, 16-bit widths begin at byte 16, rows at byte 48."""
    _need(e, s, "amx-tile")
    numbers = [as_int(a) for a in e.args]
    shapes = list(zip(numbers[::2], numbers[1::2], strict=True))
    bad = [n for n in shapes if None in n or not (0 < n[0] <= TILE_ROWS and 0 < n[1] <= TILE_BYTES)]  # type: ignore[operator]
    if len(shapes) > TILE_COUNT or bad:
        raise CodegenError(
            "tile_configure: no such tiles", where=e.span, expected="8 of 16 rows of 64 bytes", found=str(shapes)
        )
    table = bytearray(64)
    table[0] = 1
    for t, (rows, width) in enumerate(shapes):
        assert rows is not None and width is not None
        table[16 + 2 * t : 18 + 2 * t] = width.to_bytes(2, "little")
        table[48 + t] = rows
    text = "".join(f"\\{b:02X}" for b in table)
    name = f"@.tiles.{'.'.join(f'{r}x{w}' for r, w in shapes)}"
    line = f'{name} = private unnamed_addr constant [64 x i8] c"{text}", align 64'
    if line not in s.module.globals:
        s.module.globals.append(line)
    return _call(s, "ldtilecfg", "ptr", f"ptr {name}")


@on("tile_release")
def _release(e: CallIntrin, s: FunctionEmitter) -> str:
    _need(e, s, "amx-tile")
    return _call(s, "tilerelease", "", "")


@on("tile_zero")
def _zero(e: CallIntrin, s: FunctionEmitter) -> str:
    _need(e, s, "amx-tile")
    return _call(s, "tilezero", "i8 immarg", f"i8 {_number(e, 0)}")


@on("tile_load", "tile_store")
def _move(e: CallIntrin, s: FunctionEmitter) -> str:
    _need(e, s, "amx-tile")
    name = "tileloadd64" if e.op.name == "tir.tile_load" else "tilestored64"
    t, address, stride = _number(e, 0), s.expr(e.args[1]), s.expr(e.args[2])
    _call(s, name, "i8 immarg, ptr, i64", f"i8 {t}, ptr {address}, i64 {stride}")
    s.forget()
    return "0"


@on("tile_dot")
def _dot(e: CallIntrin, s: FunctionEmitter) -> str:
    kind = e.args[0].value if isinstance(e.args[0], StringImm) else ""
    if kind not in _PRODUCTS:
        raise CodegenError(f"there is no tile product of kind '{kind}'", where=e.span, expected=", ".join(_PRODUCTS))
    name, feature = _PRODUCTS[kind]
    _need(e, s, feature)
    numbers = ", ".join(f"i8 {_number(e, at)}" for at in (1, 2, 3))
    return _call(s, name, "i8 immarg, i8 immarg, i8 immarg", numbers)
