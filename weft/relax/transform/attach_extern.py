"""AttachExternModules: a program brings functions of external modules along."""

from collections.abc import Sequence
from typing import Any

from weft.ir import IRModule, Pass

EXTERNAL_MODULES = "external_mods"


def AttachExternModules(extern_modules: Sequence[Any]) -> Pass:
    """Make the pass that loads external modules and has the build link them with the program.

    Parameters
    ----------
    extern_modules : list of nn.ExternModule
        Things whose ``load()`` returns a module of the runtime.
    """

    def run(mod: IRModule) -> IRModule:
        """Load the modules and attach them."""
        loaded = tuple(m.load() for m in extern_modules)
        return mod.with_attr(EXTERNAL_MODULES, (*mod.attrs.get(EXTERNAL_MODULES, ()), *loaded)) if loaded else mod

    return Pass("AttachExternModules", run, 0, AttachExternModules.__doc__)
