"""LegalizeOps: each operator becomes a call of a kernel of its own.

Kernels are private; their parameters are tensors and scalars in the order of the operator's operands, then the results.
The default pipeline lowers groups of operators instead (``lower_ops``). Read ``common``, then ``legalize``.
"""

from weft.relax.transform.legalize_ops.common import LegalizeFunc, TEFunc, register_legalize
from weft.relax.transform.legalize_ops.legalize import FastMathTransform, LegalizeOps
