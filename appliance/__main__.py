"""`python -m appliance` is `owlbox`."""

import sys

from appliance.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
