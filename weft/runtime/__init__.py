"""What runs a compiled model: devices, tensors, modules, executables, the virtual machine, the disk cache.

Reading order: `device`, `tensor`, `module` (with `link` and `timing`), `opcodes`, `bytecode`, `executable` (with
`disassemble`), `vm`, `kv_cache`, `params`, `tensor_cache`, `cache`. Nothing here imports a compiler package. Relay's
machine is `weft.runtime.relay_vm` (`relay_instruction`, `relay_executable`, `relay_vm`), graphs are run by
`weft.runtime.graph_executor`; both are imported when they are asked for.
"""

from typing import TYPE_CHECKING

from weft._aliases import names_of
from weft.ffi import PackedFunc, convert, register_on_demand
from weft.runtime import cache, opcodes
from weft.runtime.bytecode import VMFuncInfo
from weft.runtime.container import Object, ShapeTuple, String
from weft.runtime.device import Device, cpu, cuda, device, enabled, opencl, vulkan
from weft.runtime.elf import is_foreign
from weft.runtime.executable import Executable, VMExecutable, dtype_constant, shape_constant
from weft.runtime.loading import (
    jit_module,
    load_module,
    load_static_library,
    placed_module,
    register_file_loader,
    system_lib,
)
from weft.runtime.module import Module, object_code
from weft.runtime.regular_file import file_identity, finished_file, open_regular, read_regular, write_file
from weft.runtime.tensor import DType, Tensor, aligned, array, constant_view, empty, from_dlpack, numpy_dtype, tensor
from weft.runtime.threads import num_threads, set_num_threads
from weft.runtime.vm import VirtualMachine, VMInstrumentReturnKind, arguments_in_order
from weft.runtime.weight_file import map_file, weights_in_files

if TYPE_CHECKING:
    from weft.runtime import tensor_cache as tensor_cache
    from weft.runtime.kv_cache import AttentionKVCache
    from weft.runtime.link import register_object_loader
    from weft.runtime.numpy_file import read_arrays
    from weft.runtime.params import load_param_dict, load_param_dict_from_file, save_param_dict, save_param_dict_to_file
    from weft.runtime.profiler import Report
    from weft.runtime.timing import BenchmarkResult, time_function

NDArray = Tensor
for _kind in (Module, ShapeTuple, Tensor):
    Object.register(_kind)

__all__ = [
    "AttentionKVCache",
    "BenchmarkResult",
    "DType",
    "Device",
    "Executable",
    "Module",
    "NDArray",
    "Object",
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
    "aligned",
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
    "file_identity",
    "finished_file",
    "from_dlpack",
    "is_foreign",
    "jit_module",
    "load_module",
    "load_static_library",
    "load_param_dict",
    "load_param_dict_from_file",
    "map_file",
    "num_threads",
    "open_regular",
    "numpy_dtype",
    "opcodes",
    "object_code",
    "opencl",
    "vulkan",
    "placed_module",
    "read_arrays",
    "read_regular",
    "register_file_loader",
    "register_object_loader",
    "save_param_dict",
    "save_param_dict_to_file",
    "set_num_threads",
    "shape_constant",
    "system_lib",
    "tensor",
    "time_function",
    "weights_in_files",
]

# A process that runs a model imports no more than that takes.
_PARAMS = ("load_param_dict", "load_param_dict_from_file", "save_param_dict", "save_param_dict_to_file")
_LATER = {
    "DataType": "weft.ir.dtype",
    **dict.fromkeys(
        "aot_executor debug_executor disassemble graph_executor host instrument kv_cache link params".split(), ""
    ),
    **dict.fromkeys("profiler relay_executable relay_instruction relay_vm tensor_cache".split(), ""),
    **dict.fromkeys(_PARAMS, "weft.runtime.params"),
    "AttentionKVCache": "weft.runtime.kv_cache",
    "BenchmarkResult": "weft.runtime.timing",
    **dict.fromkeys(("ObjectPath", "ObjectPathPair"), "weft.runtime.object_path"),
    "Report": "weft.runtime.profiler",
    "read_arrays": "weft.runtime.numpy_file",
    "register_object_loader": "weft.runtime.link",
    "time_function": "weft.runtime.timing",
}
__getattr__ = names_of("weft.runtime", _LATER)

register_on_demand("weft.runtime.host.call", {"weft.host": "host"})
register_on_demand(
    "weft.runtime.kv_cache",
    {
        f"vm.builtin.attention_kv_cache_{name}": name
        for name in ("append", "create", "view", "window_override", "window_override_with_sinks")
    },
)
register_on_demand(
    "weft.runtime.tensor_cache",
    {
        f"vm.builtin.{cache_name}.{name}": name
        for cache_name in ("ndarray_cache", "tensor_cache")
        for name in ("clear", "get", "load", "remove", "update")
    }
    | {
        f"vm.builtin.param_array_from_cache{ending}": name
        for ending, name in (("", "array"), ("_by_name", "by_name"), ("_by_name_unpacked", "by_name_unpacked"))
    },
)
