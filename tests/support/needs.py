"""What a test needs of the machine besides Python: programs, or root.

On a person's machine a test that lacks something is left out, and the summary says why; in CI (the
variable CI is set) nothing is left out: there the lack is a failure.
"""

import os
import shutil

import pytest

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def lack(*programs: str, root: bool = False) -> str:
    """What is missing here, or ""."""
    missing = [name for name in programs if shutil.which(name, path=PATH) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    return "needs root" if root and os.geteuid() != 0 else ""


def needs(*programs: str, root: bool = False) -> pytest.MarkDecorator:
    """A mark that leaves a test out where something is missing, but not in CI."""
    reason = lack(*programs, root=root)
    return pytest.mark.skipif(bool(reason) and not os.environ.get("CI"), reason=reason or "everything is here")


def leave_out(reason: str) -> None:
    """Leave the running test out, or fail it in CI."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
