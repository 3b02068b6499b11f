"""The command line: ``weft compile``, ``run``, ``inspect``, ``doctor``, ``cache``; one command a file.

Read in this order: ``main``, ``arguments``, ``screen``, then the commands.
"""

from weft.cli.main import main
