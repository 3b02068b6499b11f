"""The kind ``vulkan``: any device that has a driver of Vulkan 1.2 or later."""

from weft.target.gpu import register_gpu
from weft.target.vulkan.source import vulkan_code

VULKAN = register_gpu("vulkan", "glsl", vulkan_code)
