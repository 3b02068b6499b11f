"""Small tools that tests and examples build Relax programs with."""

from weft.relax.testing import nn
from weft.relax.testing.ast_printer import dump_ast
