"""Small tools that tests and examples build Relax programs with."""

from weft.relax.testing import nn

__all__ = ["nn"]
