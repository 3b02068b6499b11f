"""Device functions to OpenCL C: functions and programs."""

from __future__ import annotations

from collections.abc import Mapping

from weft import error, tir
from weft.ir import CallIntrin, Op, as_int, find
from weft.target.clike import arithmetic
from weft.target.gpu import DeviceCode, rewritten
from weft.target.opencl.emitter import TYPES, Emitter
from weft.target.target import Target

_HALF = """\
static inline float weft_from_float16(ushort bits) { return vload_half(0, (const half*)&bits); }
static inline ushort weft_to_float16(float v) {
  ushort bits;
  vstore_half_rte(v, 0, (half*)&bits);
  return bits;
}
static inline float weft_float16(float v) { return weft_from_float16(weft_to_float16(v)); }
static inline float weft_from_bfloat16(ushort bits) { return as_float((uint)bits << 16); }
static inline ushort weft_to_bfloat16(float v) {
  uint b = as_uint(v);
  return v != v ? 0x7fc0 : (b + 0x7fff + (b >> 16 & 1)) >> 16;
}
static inline float weft_bfloat16(float v) { return weft_from_bfloat16(weft_to_bfloat16(v)); }
"""
# Lanes are counted within `width` neighbours of a sub-group; one that would be outside gets its own value. The size of
# sub-groups is the driver's choice but where one can ask for it.
_SHUFFLE = """\
#ifdef cl_intel_required_subgroup_size
#define WEFT_SUB_GROUPS(n) __attribute__((intel_reqd_sub_group_size(n)))
#else
#error "shuffles need sub-groups of a size that a device is asked for (cl_intel_required_subgroup_size)"
#endif
#define weft_lane get_sub_group_local_id()
#define weft_shuffle(v, lane, width) sub_group_shuffle(v, (weft_lane & ~((width) - 1)) + ((lane) & ((width) - 1)))
#define weft_shuffle_up(v, by, width) \\
  sub_group_shuffle(v, (weft_lane & ((width) - 1)) >= (by) ? weft_lane - (by) : weft_lane)
#define weft_shuffle_down(v, by, width) \\
  sub_group_shuffle(v, (weft_lane & ((width) - 1)) + (by) < (width) ? weft_lane + (by) : weft_lane)
"""


def _function(func: tir.PrimFunc, max_threads: int) -> str:
    """Write a device function, as ``lower_for_gpu`` makes them, without the prelude."""
    s = Emitter()
    sizes = s.bounds(func, max_threads)
    params = s.function(func, restrict=" restrict")
    bounds = f"__attribute__((reqd_work_group_size({', '.join(map(str, sizes))}))) " if sizes is not None else ""
    lanes = _lanes(func, sizes)
    bounds += f"WEFT_SUB_GROUPS({lanes}) " if lanes is not None else ""
    # Drivers align the memory that a launch gives as the type that its parameter points to.
    shared = [f"{s.shared_space}uint4* weft_shared_memory"] if s.dynamic_shared else []
    begin = [f"  {s.shared_space}uchar* weft_shared = ({s.shared_space}uchar*)weft_shared_memory;"] if shared else []
    head = f"__kernel {bounds}void {func.attrs['global_symbol']}({', '.join([*filter(None, [params]), *shared])}) {{"
    return "\n".join([head, *begin, *s.declared, *s.lines, "}", ""])


def _lanes(func: tir.PrimFunc, sizes: list[int] | None) -> int | None:
    """The threads of a warp of a device function that exchanges values between them, of which each row has some."""
    names = [(n, n.op.name if isinstance(n.op, Op) else str(n.op)) for n in find(func.body, CallIntrin)]
    widths = {as_int(n.args[3]) for n, name in names if name.startswith("tir.tvm_warp_shuffle")}
    warps = any(name == "tir.tvm_storage_sync" and getattr(n.args[0], "value", "") == "warp" for n, name in names)
    if not widths and not warps:
        return None
    if sizes is None or not widths or None in widths or any(sizes[0] % w for w in widths if w):
        raise error.CodegenError(
            "target opencl has no code for these warps",
            where=func.span,
            expected="shuffles of a constant width, and a multiple of it threads along threadIdx.x",
            found=f"widths {sorted(map(str, widths))}, threads {sizes}",
        )
    return max(w for w in widths if w is not None)


def emit_opencl(functions: Mapping[str, tir.PrimFunc], max_threads: int = 256) -> str:
    """Write device functions as one program of OpenCL C; a block of a kernel may have `max_threads` threads.

    What a device may lack (doubles, sub-groups) is in the program only where a kernel needs it.
    """
    body = "\n".join(_function(f.with_attr("global_symbol", name), max_threads) for name, f in functions.items())
    doubles, shuffles = "double" in body or "float64" in body, "weft_shuffle" in body
    types = {dtype: of for dtype, of in TYPES.items() if doubles or dtype != "float64"}
    extensions = [*(["cl_khr_fp64"] if doubles else []), *(["cl_khr_subgroup_shuffle"] if shuffles else [])]
    prelude = [
        *(f"#pragma OPENCL EXTENSION {name} : enable" for name in extensions),
        arithmetic(types, "static inline", popcount="popcount", clz="clz", long="L", suffix="").rstrip(),
        *([_HALF.rstrip()] if "float16" in body else []),
        *([_SHUFFLE.rstrip()] if shuffles else []),
    ]
    return "\n".join([*prelude, body])


def opencl_code(functions: Mapping[str, tir.PrimFunc], target: Target) -> DeviceCode:
    """Make OpenCL C, which each device's driver compiles; ``tvm_callback_opencl_postproc`` may rewrite it."""
    return DeviceCode.of_text(rewritten(emit_opencl(functions, target.max_num_threads), target), "cl")
