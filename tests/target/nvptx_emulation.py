"""Run kernels on the host: the LLVM IR that becomes PTX, compiled for this CPU, with one thread for each GPU thread.

Thread indices, barriers and shuffles are Python functions; everything else is the code that the device would run.
"""

import ctypes
import itertools
import re
import shutil
import subprocess
import threading

import llvmlite.binding as llvm
import numpy as np

from tests.threads import at_once
from weft.target.cuda import emit_nvvm, emit_ptx
from weft.target.cuda.nvptx import device_functions
from weft.target.llvm import emit_object  # noqa: F401 - makes LLVM's targets known

_INT = ctypes.CFUNCTYPE(ctypes.c_int)
_VOID = ctypes.CFUNCTYPE(None, ctypes.c_int)
_SHUFFLE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int)
_SCALARS = {"int32": ctypes.c_int32, "int64": ctypes.c_int64, "float32": ctypes.c_float, "bool": ctypes.c_bool}


class _Block:
    """The threads of one block."""

    def __init__(self, threads):
        self.barrier = threading.Barrier(threads, timeout=60)
        self.shown = [0] * threads

    def shuffle(self, mode, me, value, delta):
        """Exchange a value among all threads of the block, of which there is one warp."""
        self.shown[me] = value
        self.barrier.wait()
        at = {"idx": delta, "up": me - delta, "down": me + delta}[mode]
        result = self.shown[at] if 0 <= at < len(self.shown) else value
        self.barrier.wait()
        return result


class Emulator:
    """The kernels of an LLVM module, compiled for this machine."""

    def __init__(self, text):
        self.now = threading.local()
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        text = re.sub(r'target triple = ".*"', f'target triple = "{llvm.get_process_triple()}"', text)
        text = re.sub(r'"(target-cpu|target-features|nvvm\.maxntid)"="[^"]*"', "", text)
        text = text.replace("ptx_kernel ", "").replace("@llvm.nvvm.", "@emulated.")
        self.module = llvm.parse_assembly(text)
        features = ",".join(("+" if on else "-") + f for f, on in llvm.get_host_cpu_features().items())
        machine = llvm.Target.from_default_triple().create_target_machine(features=features, jit=True)
        self.callbacks = self._callbacks()
        self.engine = llvm.create_mcjit_compiler(self.module, machine)
        for name, callback in self.callbacks.items():
            if any(f.name == name for f in self.module.functions):
                address = ctypes.cast(callback, ctypes.c_void_p).value
                self.engine.add_global_mapping(self.module.get_function(name), address)
        self.engine.finalize_object()

    def _callbacks(self):
        made = {}
        for i, (register, axis) in enumerate(itertools.product(("ctaid", "tid"), "xyz")):
            made[f"emulated.read.ptx.sreg.{register}.{axis}"] = _INT(lambda i=i: self.now.at[i])
        wait = _VOID(lambda _: self.now.block.barrier.wait() and None)
        made["emulated.barrier.cta.sync.aligned.all"] = made["emulated.bar.warp.sync"] = wait
        for mode in ("idx", "up", "down"):
            made[f"emulated.shfl.sync.{mode}.i32"] = _SHUFFLE(
                lambda mask, value, lane, clamp, mode=mode: self.now.block.shuffle(mode, self.now.me, value, lane)
            )
        made["emulated.activemask"] = _INT(lambda: -1)
        return made

    def run(self, name, args, grid, block):
        """Run a kernel on NumPy arrays and ``(dtype, number)`` pairs."""
        values = [ctypes.c_void_p(a.ctypes.data) if isinstance(a, np.ndarray) else _SCALARS[a[0]](a[1]) for a in args]
        address = self.engine.get_function_address(name)
        assert address, f"there is no kernel '{name}'"
        kernel = ctypes.CFUNCTYPE(None, *(type(v) for v in values))(address)

        def one(team, at, me):
            self.now.block, self.now.at, self.now.me = team, at, me
            kernel(*values)

        for b in itertools.product(*map(range, grid)):
            places = [t[::-1] for t in itertools.product(*map(range, block[::-1]))]
            team = _Block(len(places))
            at_once(lambda me: one(team, (*b, *places[me]), me), len(places))  # noqa: B023 - they end before the next


def emulate(functions, values, grid, block, target="nvptx -mcpu=sm_80"):
    """Run the only kernel of some functions here, after its PTX went through the assembler where there is one.

    Values stand by the names of buffers and scalars.
    """
    ((name, kernel),) = device_functions(functions).items()
    buffers = {id(p): b.name for p, b in kernel.buffer_map}
    ptx = assembled(functions, target)
    args = [values[buffers.get(id(p), p.name)] for p in kernel.params]
    Emulator(emit_nvvm(functions, target)).run(name, args, grid, block)
    return ptx


def assembled(functions, target="nvptx -mcpu=sm_80"):
    """Return the PTX of functions, which NVIDIA's assembler takes if it is here."""
    ptx = emit_ptx(functions, target)
    assembler = shutil.which("ptxas")
    if assembler is not None:
        arch = re.search(r"\.target (\w+)", ptx)[1]
        arch = {"sm_60": "sm_75", "sm_70": "sm_75"}.get(arch, arch)  # newer assemblers take old PTX for newer machines
        done = subprocess.run(
            [assembler, f"-arch={arch}", "-o", "/dev/null", "-"], input=ptx, text=True, capture_output=True
        )
        assert done.returncode == 0, done.stderr + ptx
    return ptx
