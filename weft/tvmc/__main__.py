"""``python -m weft.driver.tvmc``."""

import sys

from weft.tvmc.main import main

sys.exit(main())
