"""Rules for GPUs, from the most special to the one that takes everything."""

from weft.dlight.gpu.fallback import Fallback
from weft.dlight.gpu.matmul import Matmul
from weft.dlight.gpu.reduction import GEMV, GeneralReduction, LowBatchGEMV, Reduction, RMSNorm
from weft.dlight.gpu.schedule import gpu_schedule
from weft.dlight.gpu.transpose import Transpose
