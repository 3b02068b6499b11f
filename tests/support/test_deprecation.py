"""Deprecated names work, warn where they are used, and stay for two minor versions."""

import inspect
import warnings

import pytest

from weft.error import InvalidArgument
from weft.support import deprecated, deprecation_of, deprecations


@deprecated(since="7.1", remove="7.3", instead="new_name(x)")
def old_name(x, scale=2):
    """Scale."""
    return x * scale


def test_function_warns_at_the_line_that_calls_it():
    text = r"old_name is deprecated since Weft 7.1 and will be removed in 7.3; use new_name\(x\)"
    with pytest.warns(DeprecationWarning, match=text) as caught:
        assert old_name(3, scale=5) == 15
    assert caught[0].filename == __file__
    assert str(inspect.signature(old_name)) == "(x, scale=2)" and old_name.__doc__ == "Scale."


def test_class_warns_when_it_is_made_and_stays_a_class():
    @deprecated(since="7.1", remove="8.0", instead="New")
    class Old:
        def __init__(self, x):
            self.x = x

    class Child(Old):
        pass

    with pytest.warns(DeprecationWarning, match="use New"):
        assert isinstance(Old(3), Old) and inspect.isclass(Old)
    assert deprecation_of(Old).remove == "8.0" and deprecation_of(Child) is None and deprecation_of(3) is None


def test_what_is_not_deprecated_is_silent():
    with warnings.catch_warnings(action="error"):
        assert deprecation_of(old_name) in deprecations()
        assert deprecation_of(len) is None


@pytest.mark.parametrize(("since", "remove"), [("7.1", "7.2"), ("7.1", "7.1"), ("7.1.4", "7.2.9"), ("7.1", "6.9")])
def test_two_minor_versions_lie_between(since, remove):
    with pytest.raises(InvalidArgument, match="two minor versions") as e:
        deprecated(since=since, remove=remove, instead="x")
    assert e.value.found == remove
