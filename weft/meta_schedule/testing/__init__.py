"""What tests of tuning need: computations to tune, and objects that stand in for builders, runners and mutators."""

from weft.meta_schedule.testing import dummy_object, space_generation, te_workload
