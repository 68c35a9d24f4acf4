"""`python -m shoal` is the command `shoal`."""

import sys

from shoal.cli import main

sys.exit(main())
