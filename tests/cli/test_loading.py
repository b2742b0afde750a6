"""Loading modules without looking for garbage."""

import gc
import sys
from collections.abc import Iterator

import pytest

from appliance.console import garbage


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    """Nothing is frozen before and after."""
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_nothing_is_looked_through_while_modules_load_and_what_is_there_then_never_again() -> None:
    with garbage.loading():
        assert not gc.isenabled()
        sys.modules["a_module_that_was_loaded"] = sys
        kept = [[] for _ in range(1000)]
    del sys.modules["a_module_that_was_loaded"]
    assert gc.isenabled() and gc.get_freeze_count() > len(kept) and not any(one is kept for one in gc.get_objects())


def test_where_nothing_is_loaded_garbage_is_still_found() -> None:
    with garbage.loading():
        pass
    assert gc.isenabled() and gc.get_freeze_count() == 0


def test_a_module_that_cannot_be_loaded_leaves_python_looking_again() -> None:
    with pytest.raises(ImportError), garbage.loading():
        import appliance.cli.no_such_module  # noqa: F401
    assert gc.isenabled()
