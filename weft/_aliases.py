"""TVM's second vocabulary: names of modules that the documents use and that are other modules here.

One table serves attributes (``weft.nd``) and import statements (``from weft.relax.frontend.onnx import from_onnx``). An
alias is the very module it stands for.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MODULES = {
    "container": "weft.runtime.container",
    "contrib.graph_executor": "weft.runtime.graph_executor",
    "contrib.graph_runtime": "weft.runtime.graph_executor",
    "contrib.nvcc": "weft.target.cuda.nvrtc",
    "contrib": "weft.support",
    "driver.build_module": "weft.driver",
    "frontend.nn.core": "weft.frontend.nn",
    "ir.base": "weft.ir",
    "nd": "weft.runtime",
    "parser": "weft.relay.text",
    "relax.frontend": "weft.frontend",
    "relax.op.base": "weft.relax.gradient_rules",
    "relax.training.utils": "weft.relax.training",
    "relax.transform.transform": "weft.relax.transform",
    "relay.base": "weft.ir",
    "relay.op.algorithm": "weft.relay.op",
    "relay.op.tensor": "weft.relay.op",
    "relay.op.transform": "weft.relay.op",
    "relay.ty": "weft.relay.types",
    "runtime.executor": "weft.runtime.aot_executor",
    "s_tir": "weft.tir",
    "script.parser": "weft.script",
    "script.tirx": "weft.script.tir",
    "target.datatype": "weft.tir.custom_datatype",
    "tir.expr": "weft.tir",
    "tirx": "weft.tir",
    "topi.nn.pooling": "weft.topi.nn",
    "transform": "weft.ir.pass_decorators",
}


def find(name: str) -> str | None:
    """The module that ``weft.<name>`` stands for, also for what lies inside an alias; None where it is no alias."""
    for alias, module in MODULES.items():
        if name == alias or name.startswith(alias + "."):
            meant = (module + name[len(alias) :]).removeprefix("weft.")
            return find(meant) or f"weft.{meant}"
    return None


def names_of(module: str) -> Callable[[str], ModuleType]:
    """Make the ``__getattr__`` of a module that aliases lie inside of, such as ``weft.relax.frontend``."""
    own = [module.removeprefix("weft."), *(alias for alias, meant in MODULES.items() if meant == module)]

    def __getattr__(name: str) -> ModuleType:
        for alias in own:
            if f"{alias}.{name}" in MODULES:
                return importlib.import_module(f"weft.{alias}.{name}")
        raise AttributeError(f"module '{module}' has no attribute '{name}'")

    return __getattr__


class _AliasFinder(MetaPathFinder, Loader):
    """Finds aliases for import statements and puts the module that is meant in their place."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if not fullname.startswith("weft.") or find(fullname[5:]) is None:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        meant = find(module.__name__[5:])
        assert meant is not None
        sys.modules[module.__name__] = importlib.import_module(meant)


# First, because a package that an alias has loaded lets the path finder load its modules a second time.
sys.meta_path.insert(0, _AliasFinder())
