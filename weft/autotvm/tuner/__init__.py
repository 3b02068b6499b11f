"""Tuners: which configuration to measure next.

Read in this order: ``tuner``, ``index_based_tuner``, ``ga_tuner``, ``droplet_tuner``, ``xgboost_cost_model``,
``xgboost_tuner``, ``callback``.
"""

from weft.autotvm.tuner import callback
from weft.autotvm.tuner.droplet_tuner import DropletTuner
from weft.autotvm.tuner.ga_tuner import GATuner
from weft.autotvm.tuner.index_based_tuner import GridSearchTuner, RandomTuner
from weft.autotvm.tuner.tuner import Tuner
from weft.autotvm.tuner.xgboost_tuner import XGBTuner
