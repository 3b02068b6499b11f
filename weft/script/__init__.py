"""TVMScript: programs as Python text.

``ir`` (``I``), ``tir`` (``T``) and ``relax`` (``R``) are the languages; ``ir_module`` and ``from_source`` read
programs.
"""

from weft._aliases import names_of
from weft.ir.text.parser import LANGUAGES, from_source, ir_module
from weft.script import ir, ir_builder, relax, tir

LANGUAGES.update(I=ir, T=tir, R=relax)
tirx = tir

__all__ = ["from_source", "ir", "ir_builder", "ir_module", "relax", "tir", "tirx"]

__getattr__ = names_of("weft.script")
