"""The PyTorch importer: exported programs in, Relax out. PyTorch itself is loaded when one is converted.

Read in this order: ``exported_program``, ``symbols``, ``node``, ``registry``, then one file per operator family.
"""

from weft.frontend.torch import (  # importing a family registers its converters
    create,
    elementwise,
    index,
    linear,
    manipulate,
    norm,
    pool,
    reduce,
    resize,
)
from weft.frontend.torch.exported_program import from_exported_program
from weft.frontend.torch.registry import supported_operators

__all__ = ["from_exported_program", "supported_operators"]
