"""Verifies the installation: the same as `shoal doctor`. Ends in ALL TESTS PASSED!"""

import sys

from shoal.cli import main

sys.exit(main(["doctor"]))
