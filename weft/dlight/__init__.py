"""Default schedules: rules that know one kind of function each, applied to those of a module that nobody scheduled.

Read in this order: ``base`` (rules and the pass), ``base.analysis`` (what blocks are), ``inline``; then the rules of
``gpu`` and ``cpu``.
"""

from weft.dlight import cpu, gpu
from weft.dlight.base import ApplyDefaultSchedule, ScheduleRule
from weft.dlight.base.analysis import BlockInfo, IterInfo, normalize_prim_func
from weft.dlight.inline import try_inline, try_inline_contiguous_spatial

SBlockInfo = BlockInfo
