"""What runs a compiled model: devices, tensors, modules, executables, the virtual machine, the disk cache.

Reading order: `device`, `tensor`, `module` (with `link` and `timing`), `opcodes`, `executable` (with `disassemble`),
`vm`, `kv_cache`, `cache`. Nothing here imports a compiler package. Relay's machine is `weft.runtime.relay_vm`
(`relay_instruction`, `relay_executable`, `relay_vm`), which is imported when it is asked for.
"""

from weft.ffi import PackedFunc, convert
from weft.runtime import cache, opcodes
from weft.runtime.container import ShapeTuple, String
from weft.runtime.device import Device, cpu, cuda, device, opencl
from weft.runtime.executable import Executable, VMExecutable, VMFuncInfo, dtype_constant, shape_constant
from weft.runtime.kv_cache import AttentionKVCache
from weft.runtime.link import register_object_loader
from weft.runtime.module import Module, enabled, jit_module, load_module, system_lib
from weft.runtime.profiler import Report
from weft.runtime.tensor import DType, Tensor, array, constant_view, empty, from_dlpack, numpy_dtype, tensor
from weft.runtime.threads import num_threads, set_num_threads
from weft.runtime.timing import BenchmarkResult
from weft.runtime.vm import VirtualMachine, VMInstrumentReturnKind, arguments_in_order

NDArray = Tensor

__all__ = [
    "AttentionKVCache",
    "BenchmarkResult",
    "DType",
    "Device",
    "Executable",
    "Module",
    "NDArray",
    "PackedFunc",
    "Report",
    "ShapeTuple",
    "String",
    "Tensor",
    "VMExecutable",
    "VMFuncInfo",
    "VMInstrumentReturnKind",
    "VirtualMachine",
    "arguments_in_order",
    "array",
    "cache",
    "constant_view",
    "convert",
    "cpu",
    "cuda",
    "device",
    "dtype_constant",
    "empty",
    "enabled",
    "from_dlpack",
    "jit_module",
    "load_module",
    "num_threads",
    "numpy_dtype",
    "opcodes",
    "opencl",
    "register_object_loader",
    "set_num_threads",
    "shape_constant",
    "system_lib",
    "tensor",
]
