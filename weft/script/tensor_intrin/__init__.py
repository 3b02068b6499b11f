"""Instructions of processors for ``Schedule.tensorize``, under the names by which programs ask for them."""

from weft._aliases import names_of
from weft.script.tensor_intrin import arm_cpu, cuda, dot_product_common, hexagon, rocm, x86

__all__ = ["arm_cpu", "cuda", "dot_product_common", "hexagon", "rocm", "x86"]

__getattr__ = names_of("weft.script.tensor_intrin")
