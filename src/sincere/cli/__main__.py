"""`python -m sincere.cli` is `sincere`."""

import sys

from sincere.cli import main

sys.exit(main())
