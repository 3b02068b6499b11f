"""Programs built by calls, in the words of TVMScript: ``with IRBuilder() as b: with relax.function(): ...``."""

from weft.relax.script.building import IRBuilder
from weft.script.ir_builder import ir, relax

__all__ = ["IRBuilder", "ir", "relax"]
