"""The bundled model in a home of its own, fetched once per machine. Import `model_home` where it is needed."""

from pathlib import Path

import pytest

from appliance.models import catalogue
from appliance.runtime.paths import Home

# Two threads of one answer spin while they wait for each other on a busy machine.
ONE_THREAD = {"OWLBOX__MODELS__THREADS": "1"}


@pytest.fixture(scope="session")
def model_home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with SmolLM2 in models/ (a hard link into the user's cache: copy it before damaging it)."""
    home = Home(tmp_path_factory.mktemp("model-home"))
    catalogue.add(home, "smollm2", lambda stage, done, total: None)
    home.config.write_text("", encoding="utf-8")
    return home


@pytest.fixture(scope="session")
def model_file(model_home: Home) -> Path:
    """The GGUF file itself; do not change it."""
    return model_home.models / catalogue.entries()["smollm2"].file
