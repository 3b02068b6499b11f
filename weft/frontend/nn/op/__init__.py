"""Operations on tensors of modules (``nn.op``).

Read in this order: ``elementwise``, ``manipulate``, ``reduce``, ``linear``, ``sample``, ``call``.
"""

from weft.frontend.nn.op import call, elementwise, linear, manipulate, reduce, sample
from weft.frontend.nn.op.call import *  # noqa: F403 - one function an operation
from weft.frontend.nn.op.elementwise import *  # noqa: F403
from weft.frontend.nn.op.linear import *  # noqa: F403
from weft.frontend.nn.op.manipulate import *  # noqa: F403
from weft.frontend.nn.op.reduce import *  # noqa: F403
from weft.frontend.nn.op.sample import *  # noqa: F403
from weft.frontend.nn.tensor import wrap_nested

__all__ = ["wrap_nested"]
__all__ += call.__all__
__all__ += elementwise.__all__
__all__ += linear.__all__
__all__ += manipulate.__all__
__all__ += reduce.__all__
__all__ += sample.__all__
