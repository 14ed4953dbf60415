"""`python -m adapter` is `modelmesh-triton-adapter`."""

import sys

from adapter.cli import main

sys.exit(main())
