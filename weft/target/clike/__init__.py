"""What languages like C have in common: state of emission, rules for expressions and statements, arithmetic.

A language derives from :class:`Emitter` with its tables, and extends the rules: see ``weft.target.c`` for hosts and
``weft.target.cuda``, ``weft.target.opencl``, ``weft.target.vulkan`` and ``weft.target.webgpu`` for devices.
"""

from weft.target.clike.arithmetic import arithmetic
from weft.target.clike.device import DEVICE_STMT, DeviceEmitter, let
from weft.target.clike.emitter import Emitter, string
from weft.target.clike.expr import EXPR, SUBROUTINE
from weft.target.clike.stmt import STMT
