"""Programs built by calls, in the words of TVMScript: ``with IRBuilder() as b: with relax.function(): ...``."""

import sys

from weft.ir.text.building import IRBuilder
from weft.script.ir_builder import ir, relax, tir

tirx = tir

__all__ = ["IRBuilder", "ir", "relax", "tir", "tirx"]

base = sys.modules[__name__]  # TVM's name of the module that has IRBuilder
