"""TIR as text (``T``): ``printing`` has the print rules.

``language`` the names, ``parsing`` the parse rules of programs.

Importing this package registers the print rules only; ``weft.script.tir`` is the face of the rest.
"""

from weft.tir.script import printing
