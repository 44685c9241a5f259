"""`python -m workseal_host`: the `workseal` command."""

import sys

from workseal.cli import main

sys.exit(main())
