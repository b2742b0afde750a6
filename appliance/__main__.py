"""`python -m appliance` is `owlbox`: every process of ours begins here."""

import gc
import sys

from appliance.cli import main as cli

GC_THRESHOLD = 10_000  # new objects between two looks for garbage


def main() -> int:
    """Run the command line, with fewer looks for garbage: what loading modules makes stays, and a tenth of a start went there."""
    gc.set_threshold(GC_THRESHOLD)
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
