"""TVM's second vocabulary: names of modules that the documents use and that are other modules here.

One table serves attributes (``weft.nd``) and import statements (``from weft.relax.frontend.onnx import from_onnx``). An
alias is the very module it stands for.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import TYPE_CHECKING, Any

from weft import _absent

if TYPE_CHECKING:
    from importlib.abc import Loader
else:
    Loader = object  # the import of its module takes longer than all of this package's

MODULES = {
    **dict.fromkeys(("backend.cuda.op", "s_tir", "target.cuda.op", "tir.expr", "tir.op", "tirx"), "weft.tir"),
    **dict.fromkeys(("contrib.debugger", "ffi.runtime_ctypes", "nd", "runtime.ndarray"), "weft.runtime"),
    **{
        f"relax.backend.{place}{library}": "weft.relax.backend.libraries"
        for place, libraries in {
            "contrib": ".cublas .cudnn .cutlass .hipblas",
            "cuda": ".cublas .cudnn .cutlass",
            "rocm": ".hipblas",
        }.items()
        for library in (*libraries.split(), "")
    },
    **{
        f"relax.backend.{device}": "weft.relax.backend.accelerators"
        for device in "contrib.example_npu contrib.nnapi contrib.tensorrt metal.coreml metal".split()
    },
    "_ffi": "weft.ffi",
    "auto_scheduler.cost_model.cost_model": "weft.auto_scheduler.cost_model.models",
    "auto_scheduler.cost_model.xgb_model": "weft.auto_scheduler.cost_model.models",
    "auto_scheduler.relay_integration": "weft.relay.auto_scheduler",
    "auto_scheduler.utils": "weft.auto_scheduler.workload_key",
    "autotvm.task.relay_integration": "weft.relay.autotvm",
    "backend": "weft.target",
    "container": "weft.runtime.container",
    "contrib.cblas": "weft.topi.cblas",
    "contrib.debugger.debug_executor": "weft.runtime.debug_executor",
    "contrib.graph_executor": "weft.runtime.graph_executor",
    "contrib.graph_runtime": "weft.runtime.graph_executor",
    "contrib.nvcc": "weft.target.cuda.nvrtc",
    "contrib.sparse": "weft.topi.compressed_array",
    "contrib.target": "weft.target",
    "contrib.target.onnx": "weft.relay.to_onnx",
    "contrib.tedd": "weft.te.tedd",
    "contrib.torch": "weft.frontend.torch.as_torch",
    "contrib.tvmjs": "weft.runtime.tensor_cache",
    "ffi.base": "weft.error",
    "ir.op": "weft.ir",
    "relax.relax_to_pyfunc_converter": "weft.relax.base_py_module",
    "relax.struct_info": "weft.relax",
    "relax.testing.relay_translator": "weft.relay.build_module",
    "relax.type": "weft.relax",
    "support.nvcc": "weft.target.cuda.nvrtc",
    "contrib.relay_viz": "weft.relay.viz",
    "contrib": "weft.support",
    "driver.build_module": "weft.driver",
    **dict.fromkeys(("driver.tvmc.result_utils", "driver.tvmc.model"), "weft.tvmc.model"),
    "driver.tvmc.shape_parser": "weft.tvmc.frontends",
    "driver.tvmc.target": "weft.tvmc.compiler",
    "driver.tvmc.tracker": "weft.tvmc.main",
    "driver.tvmc": "weft.tvmc",
    "frontend.nn.core": "weft.frontend.nn",
    "frontend.torch.dynamo": "weft.frontend.torch.backend",
    "frontend.torch.exported_program_translator": "weft.frontend.torch.exported_program",
    "frontend.torch.fx_translator": "weft.frontend.torch.fx",
    "instrument": "weft.ir.instrument",
    "ir.base": "weft.ir",
    "ir.transform": "weft.ir.pass_decorators",
    "ir.utils": "weft.support.derived",
    "libinfo": "weft.ffi.native",
    "meta_schedule.extracted_task": "weft.meta_schedule.tune_context",
    "meta_schedule.relax_integration": "weft.relax.meta_schedule",
    "meta_schedule.relay_integration": "weft.relay.meta_schedule",
    "meta_schedule.tir_integration": "weft.meta_schedule.tune",
    "meta_schedule.utils": "weft.support.derived",
    "parser": "weft.relay.text",
    **dict.fromkeys(("relax.backend.cpu_generic", "relax.backend.gpu_generic"), "weft.relax.pipeline"),
    **dict.fromkeys(("relax.backend.dispatch_sampling", "relax.backend.dispatch_sort_scan"), "weft.relax.backend"),
    "relax.backend.utils": "weft.relax.backend.patterns",
    "relax.exec_builder": "weft.relax.vm.exec_builder",
    "relax.op.base": "weft.relax.gradient_rules",
    "relax.training.utils": "weft.relax.training",
    "relax.transform.transform": "weft.relax.transform",
    "relax.utils": "weft.relax.rename",
    "relax.frontend": "weft.frontend",
    "relay.op.algorithm": "weft.relay.op",
    "relay.op.tensor": "weft.relay.op",
    "relay.op.transform": "weft.relay.op",
    "relay.backend.executor": "weft.relay.build_options",
    "relay.backend.runtime": "weft.relay.build_options",
    "relay.base": "weft.ir",
    "relay.frontend.change_datatype": "weft.frontend.relay",
    "relay.frontend": "weft.frontend.relay",
    "relay.transform.infer_layout_utils": "weft.relay.transform.infer_layout",
    "relay.ty": "weft.relay.types",
    "runtime.relax_vm": "weft.runtime",
    "runtime.executor": "weft.runtime.aot_executor",
    "runtime.script_printer": "weft.script.printer.config",
    "runtime.profiling": "weft.runtime.profiler",
    "script.ir_builder.base": "weft.script.ir_builder",
    "script.ir_builder.tir.ir": "weft.script.ir_builder.tir",
    "script.ir_builder.tirx": "weft.script.ir_builder.tir",
    "script.ir_builder.relax.ir": "weft.script.ir_builder.relax",
    "script.parser": "weft.script",
    "script.tirx": "weft.script.tir",
    "target.datatype": "weft.tir.custom_datatype",
    **dict.fromkeys(("target.tag", "target.tag_registry", "target.tag_registry.registry"), "weft.target"),
    "testing.utils": "weft.testing",
    "dlight.analysis": "weft.dlight.base.analysis",
    "dlight.base.schedule_rule": "weft.dlight.base",
    "dlight.gpu.base": "weft.dlight.base",
    "dlight.gpu.utils": "weft.dlight.base",
    "tir.block_scope": "weft.tir.schedule.stmt_refs",
    "tir.dlight": "weft.dlight",
    "tir.expr_functor": "weft.tir.functor",
    "tir.meta_schedule": "weft.meta_schedule",
    "tir.sblock_scope": "weft.tir.schedule.stmt_refs",
    "tir.tensor_intrin": "weft.script.tensor_intrin",
    "tir.transform.transform": "weft.tir.transform",
    "topi.nn.pooling": "weft.topi.nn",
    "topi.nn.qnn": "weft.topi.quant",
    "topi.nn.utils": "weft.topi.convolutions",
    "topi.reduction": "weft.topi",
    "topi.sparse.utils": "weft.topi.sparse",
    "topi.tensor": "weft.topi",
    "topi.testing": "weft.op.testing",
    "topi.transform": "weft.topi",
    "topi.utils": "weft.topi.known_values",
    "transform": "weft.ir.pass_decorators",
    **{
        f"topi.{kind}{inside}": "weft.topi.schedules"
        for kind in "arm_cpu generic hls x86".split()
        for inside in (".nn", "")
    },
    **{f"topi.{kind}": "weft.topi.cuda" for kind in "bifrost gpu intel_graphics mali".split()},
    **{f"topi.cuda.{inside}": "weft.topi.cuda" for inside in ("conv3d_winograd", "nms")},
}


def find(name: str) -> str | None:
    """The module that ``weft.<name>`` stands for, also for what lies inside an alias; None where it is no alias."""
    alias = name
    while alias not in MODULES:
        alias = alias.rpartition(".")[0]
        if not alias:
            return None
    meant = (MODULES[alias] + name[len(alias) :]).removeprefix("weft.")
    return find(meant) or f"weft.{meant}"


_NOTHING: Mapping[str, str] = {}


def names_of(module: str, later: Mapping[str, str] = _NOTHING, *, listed: bool = False) -> Callable[[str], Any]:
    """Make the ``__getattr__`` of a module that aliases lie inside of, such as ``weft.relax.frontend``.

    What costs time to import is loaded when it is asked for: `later` says where a name is, "" for a module inside;
    `listed` where these are among the names of the module for all who list them.
    """

    def __getattr__(name: str) -> Any:
        if name in later:
            if not later[name]:
                return importlib.import_module(f"{module}.{name}")
            value = getattr(importlib.import_module(later[name]), name)
            setattr(sys.modules[module], name, value)
            return value
        if alias := inside(module, name):
            return importlib.import_module(alias)
        raise AttributeError(f"module '{module}' has no attribute '{name}'")

    if listed:
        own = sys.modules[module].__dict__
        own["__later__"], own["__dir__"] = later, lambda: sorted({*own, *later})
    return __getattr__


def inside(module: str, name: str) -> str | None:
    """The alias that is attribute `name` of a module under its own name or one that it is an alias under."""
    spellings = [module, *(f"weft.{alias}" for alias, meant in MODULES.items() if meant == module)]
    return next((f"{s}.{name}" for s in spellings if f"{s}.{name}".removeprefix("weft.") in MODULES), None)


class _AliasFinder(Loader):
    """Finds aliases for import statements and puts the module that is meant in their place."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if not fullname.startswith("weft."):
            return None
        if find(fullname[5:]) is not None:
            return ModuleSpec(fullname, self, is_package=not fullname.endswith(".__main__"))
        spec = PathFinder.find_spec(fullname, path)
        if spec is None:
            explanation = _absent.module_explanation(fullname)
            if explanation:
                raise ModuleNotFoundError(f"No module named '{fullname}'; {explanation}", name=fullname)
        elif type(spec.loader) is SourceFileLoader:
            spec.loader = _WatchingLoader(fullname, spec.loader.path)
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        meant = find(module.__name__[5:])
        assert meant is not None
        sys.modules[module.__name__] = importlib.import_module(meant)

    def get_code(self, name: str) -> Any:
        """The code that ``python -m weft.driver.tvmc`` runs."""
        meant = find(name[5:])
        assert meant is not None
        spec = importlib.util.find_spec(meant)
        assert spec is not None and isinstance(spec.loader, SourceFileLoader)
        return spec.loader.get_code(meant)


class _WatchingLoader(SourceFileLoader):
    """Loads a module as always; its errors about names that TVM has say so."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        _absent.watch(module)


# First, because a package that an alias has loaded lets the path finder load its modules a second time.
sys.meta_path.insert(0, _AliasFinder())
