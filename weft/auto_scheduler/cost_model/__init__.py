"""Cost models: guesses how fast states are."""

from weft._aliases import names_of
from weft.auto_scheduler.cost_model.models import CostModel, PythonBasedModel, RandomModel, XGBModel

__all__ = ["CostModel", "PythonBasedModel", "RandomModel", "XGBModel"]

__getattr__ = names_of("weft.auto_scheduler.cost_model")
