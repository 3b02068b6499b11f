"""TVM's driver, ``weft.driver.tvmc``: a model file is loaded, tuned, compiled to a package and run.

Read in this order: ``model``, ``frontends``, ``transform``, ``compiler``, ``runner``, ``autotuner``, ``main``. It is
thin over ``weft.relay``, the executors and the tuners; ``weft.Session`` and the ``weft`` command are the short way.
"""

from weft.tvmc import autotuner, compiler, frontends, main, model, runner, transform
from weft.tvmc.autotuner import tune_model as tune
from weft.tvmc.compiler import compile_model as compile
from weft.tvmc.frontends import load_model as load
from weft.tvmc.model import TVMCException, TVMCImportError, TVMCModel, TVMCPackage, TVMCResult
from weft.tvmc.runner import run_module as run

__all__ = [
    "TVMCException",
    "TVMCImportError",
    "TVMCModel",
    "TVMCPackage",
    "TVMCResult",
    "autotuner",
    "compile",
    "compiler",
    "frontends",
    "load",
    "main",
    "model",
    "run",
    "runner",
    "transform",
    "tune",
]
