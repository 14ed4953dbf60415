"""`python -m tests.simulation --help`."""

import os
import sys

from tests.simulation.seeds import main

if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of a set of names is part of a history
        os.execve(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main())
