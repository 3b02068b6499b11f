"""The PyTorch importer: exported programs in, Relax out. PyTorch itself is loaded when one is converted.

Read in this order: ``exported_program``, ``graph``, ``symbols``, ``node``, ``registry``, ``control``, then one file per
operator family, ``fx``, ``backend``.
"""

from typing import Any

from weft._aliases import names_of
from weft.frontend.torch import (  # each registers its converters
    create,
    elementwise,
    fused,
    geometry,
    index,
    iterated,
    linalg,
    linear,
    manipulate,
    norm,
    order,
    pool,
    quant,
    random,
    recurrent,
    reduce,
    regions,
    resize,
    special,
)
from weft.frontend.torch.exported_program import from_exported_program
from weft.frontend.torch.fx import dynamo_capture_subgraphs, from_fx
from weft.frontend.torch.registry import supported_operators

__all__ = ["dynamo_capture_subgraphs", "from_exported_program", "from_fx", "supported_operators"]


def __getattr__(name: str) -> Any:
    if name == "relax_dynamo":  # loads PyTorch
        from weft.frontend.torch.backend import relax_dynamo

        return relax_dynamo
    return _alias(name)


_alias = names_of("weft.frontend.torch")
