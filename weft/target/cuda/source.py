"""Device functions to CUDA C: functions and programs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from weft import error, tir
from weft.ir import CallIntrin, IRModule, PrimExpr, Var, const, find
from weft.target.cuda.emitter import Emitter
from weft.target.cuda.prelude import HALF, PRELUDE
from weft.target.gpu import AXES, lower_for_gpu
from weft.target.target import Target

_RESIDENT = 512  # threads that a multiprocessor has room for: registers of each may be up to 128


class Kernel(NamedTuple):
    """A kernel: its text, the host's variables that it takes in order (pointers and scalars), and its launch."""

    name: str
    source: str
    params: tuple[Var, ...]
    grid: tuple[PrimExpr, PrimExpr, PrimExpr]
    block: tuple[PrimExpr, PrimExpr, PrimExpr]


def emit_function(func: tir.PrimFunc, max_threads: int = 1024) -> str:
    """Write a device function, as ``lower_for_gpu`` makes them, without the prelude."""
    s = Emitter()
    sizes = s.bounds(func, max_threads)
    params = s.function(func, restrict=" __restrict__")
    threads = math.prod(sizes or ())
    bounds = f" __launch_bounds__({threads}, {max(1, _RESIDENT // max(1, threads))})" if sizes is not None else ""
    head = f'extern "C" __global__ void{bounds} {func.attrs["global_symbol"]}({params}) {{'
    shared = ["  extern __shared__ __align__(16) unsigned char weft_shared[];"] if s.dynamic_shared else []
    return "\n".join([head, *shared, *s.declared, *s.lines, "}", ""])


def emit_cuda(functions: Mapping[str, tir.PrimFunc], max_threads: int = 1024) -> str:
    """Write device functions as one program of CUDA C; a block of a kernel may have `max_threads` threads."""
    body = "\n".join(emit_function(f.with_attr("global_symbol", name), max_threads) for name, f in functions.items())
    return "\n".join([PRELUDE, *([HALF] if "float16" in body else []), body])


def emit_kernel(func: tir.PrimFunc) -> Kernel:
    """Lower a function that is one nest of thread-bound loops and write it as CUDA C.

    Parameters
    ----------
    func : PrimFunc
        In block form or lowered, scheduled with ``bind``.

    Raises
    ------
    CodegenError
        When a loop is not bound to threads, or for what target cuda does not express yet.
    """
    symbol = func.attrs.get("global_symbol") or "main"
    host, device = lower_for_gpu(IRModule({symbol: func}), Target("cuda"))
    if len(device) != 1:
        raise error.CodegenError(
            f"'{symbol}' is not one kernel", found=f"{len(device)} nests of bound loops", where=func.span
        )
    ((name, kernel),) = device.items()
    (call,) = [n for n in find(host[symbol], CallIntrin) if getattr(n.args[0], "value", "") == name]
    given, params = call.args[1:], len(kernel.params)
    extents = dict(zip(kernel.attrs["tir.kernel_launch_params"], given[params:], strict=True))
    axes = [extents.get(tag, const(1, "int32")) for tag in AXES]
    return Kernel(name, emit_cuda(device), tuple(given[:params]), tuple(axes[:3]), tuple(axes[3:]))
