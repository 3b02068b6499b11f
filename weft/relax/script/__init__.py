"""Relax as text (``R``): ``printing`` has the print rules.

``language`` the names, ``parsing`` the parse rules of programs.

Importing this package registers the print rules only; ``weft.script.relax`` is the face of the rest.
"""

from weft.relax.script import printing
