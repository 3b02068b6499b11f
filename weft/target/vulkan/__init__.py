"""The target ``vulkan``: devices of any maker, from GLSL by SPIR-V.

Read in this order: ``emitter``, ``source``, ``assemble``, ``kind``. What all GPUs share is in ``weft.target.gpu``.
"""

from weft.target.vulkan.kind import VULKAN
from weft.target.vulkan.source import emit_glsl
