"""Modules in the style of PyTorch that trace themselves into Relax.

Read in this order: ``tensor``, ``parameter``, ``effect``, ``kv_cache``, ``spec``, ``exporter``, ``subroutine``,
``jit``, ``module``, ``containers``, ``op/``, ``extern``, ``modules``, ``visitor``.
"""

from weft._aliases import names_of
from weft.frontend.nn import op, spec
from weft.frontend.nn.containers import ModuleDict, ModuleList, ParameterDict, ParameterList
from weft.frontend.nn.effect import Effect, IOEffect
from weft.frontend.nn.exporter import Exporter
from weft.frontend.nn.extern import ExternModule, ObjectModule, SourceModule, add_extern
from weft.frontend.nn.kv_cache import KVCache
from weft.frontend.nn.module import Module
from weft.frontend.nn.modules import (
    GELU,
    Attention,
    Conv1D,
    Conv2D,
    Conv3D,
    ConvTranspose1D,
    Embedding,
    GroupNorm,
    Identity,
    LayerNorm,
    Linear,
    ReLU,
    RMSNorm,
    SiLU,
    TimestepEmbedding,
    Timesteps,
)
from weft.frontend.nn.op import *  # noqa: F403 - one function an operation
from weft.frontend.nn.parameter import Parameter
from weft.frontend.nn.subroutine import SubroutineMixin
from weft.frontend.nn.tensor import Object, Tensor, get_default_dtype, set_default_dtype
from weft.frontend.nn.visitor import Mutator

__getattr__ = names_of("weft.frontend.nn")
