"""Classes of users that stand in for a compiler's own; here any subclass does, and none needs to be wrapped."""

from typing import Any


def derived_object(cls: object) -> Any:
    """Return a class as it is.

    Programs decorate subclasses of ``PyDatabase``, ``PyBuilder`` and the like with it, and call ``self._outer()`` for
    the object that the compiler knows, which is itself.

    Raises
    ------
    TypeError
        When it is no class, or none that derives from another.
    """
    if not isinstance(cls, type) or cls.__mro__[1] is object:
        raise TypeError(f"derived_object takes a class that derives from another, found {cls!r}")
    if not hasattr(cls, "_outer"):
        cls._outer = lambda self: self
    return cls
