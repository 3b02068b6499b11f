"""Names of generated modules."""

from weft.error import InvalidArgument


def mangle_module_name(mod_name: str | None) -> str:
    """Return a module's name with the prefix ``tvmgen``, which C compilers take."""
    if not mod_name:
        return "tvmgen"
    if not mod_name.isascii():
        raise InvalidArgument("the name of a module is ASCII", found=repr(mod_name))
    return f"tvmgen_{mod_name}"
