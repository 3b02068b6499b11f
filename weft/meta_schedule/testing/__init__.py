"""Objects that stand in for builders, runners and mutators in tests of tuning."""

from weft.meta_schedule.testing import dummy_object

__all__ = ["dummy_object"]
