"""Training: a model's function, a loss and an optimizer become a module that trains, and a trainer that runs it.

Read in this order: ``loss``, ``optimizer``, ``append_loss``, ``setup_trainer``, ``trainer``.
"""

from weft.relax.gradient_rules import register_te_gradient
from weft.relax.training import loss, optimizer, trainer
from weft.relax.training.append_loss import AppendLoss
from weft.relax.training.setup_trainer import SetupTrainer
from weft.relax.training.trainer import Trainer
