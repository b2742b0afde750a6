"""Loading modules without looking for garbage."""

import gc

import pytest

from appliance.cli.console import garbage


def test_nothing_is_looked_through_while_modules_load_and_what_is_there_then_never_again() -> None:
    with garbage.loading():
        assert not gc.isenabled()
        kept = [[] for _ in range(1000)]
    try:
        assert gc.isenabled() and gc.get_freeze_count() > len(kept) and not any(one is kept for one in gc.get_objects())
    finally:
        gc.unfreeze()


def test_a_module_that_cannot_be_loaded_leaves_python_looking_again() -> None:
    with pytest.raises(ImportError), garbage.loading():
        import appliance.cli.no_such_module  # noqa: F401
    gc.unfreeze()
    assert gc.isenabled()
