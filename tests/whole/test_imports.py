"""What importing a module costs: seldom used engines are loaded when they are first needed."""

import subprocess
import sys


def test_importing_patterns_brings_no_engine():
    code = "import appliance.text.patterns, sys; print([m for m in ('regex', 'jsonpath', 'elementpath') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
