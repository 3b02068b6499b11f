"""Where a model's time goes, and how near its kernels come to the machine's limits.

Read in this order: ``ceilings`` (what the machine can do), ``model`` (the profile), ``page`` (as HTML).
"""

from weft.profile.ceilings import fma_peak, read_bandwidth
from weft.profile.model import KernelProfile, ModelProfile, profile_model
from weft.profile.page import write_page
