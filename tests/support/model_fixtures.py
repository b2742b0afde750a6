"""The bundled model in a home of its own, fetched once per machine. Import `model_home` where it is needed.

`shallow_home` and `shallow_file` are the first two layers of it: they read twenty times as fast and write four times as fast,
with the same vocabulary, template and library, and talk nonsense. For tests of all that is around what a model says.
"""

import struct
from pathlib import Path

import pytest

from appliance.models import catalogue
from appliance.providers import gguf
from appliance.runtime.paths import Home

# Two threads of one answer spin while they wait for each other on a busy machine.
ONE_THREAD = {"OWLBOX__MODELS__THREADS": "1"}
LAYERS = 2
ALIGNMENT = 32


@pytest.fixture(scope="session")
def model_home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with SmolLM2 in models/ (a hard link into the user's cache: copy it before damaging it)."""
    return _with_model(tmp_path_factory.mktemp("model-home"))


@pytest.fixture(scope="session")
def model_file(model_home: Home) -> Path:
    """The GGUF file itself; do not change it."""
    return _file_of(model_home)


@pytest.fixture(scope="session")
def shallow_home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """The same home, where a file of the same name has two layers."""
    made = _with_model(tmp_path_factory.mktemp("shallow-home"))
    cut = first_layers(_file_of(made))
    _file_of(made).unlink()  # a link, whose other name stays as it is
    _file_of(made).write_bytes(cut)
    return made


@pytest.fixture(scope="session")
def shallow_file(shallow_home: Home) -> Path:
    """Its file; do not change it either."""
    return _file_of(shallow_home)


def _with_model(folder: Path) -> Home:
    home = Home(folder)
    catalogue.add(home, "smollm2", lambda stage, done, total: None)
    home.config.write_text("", encoding="utf-8")
    return home


def _file_of(home: Home) -> Path:
    return home.models / catalogue.entries()["smollm2"].file


def first_layers(path: Path) -> bytes:
    """A GGUF file without the layers that follow the first ones."""
    tensors = gguf.read(path).tensors
    with path.open("rb") as file:
        head = file.read(min(one.offset for one in tensors) + (16 << 20))
        at = head.index(struct.pack("<Q", len(tensors[0].name)) + tensors[0].name.encode())
        facts, infos, bodies, size = head[:at], [], [], 0
        for tensor in tensors:
            rank = struct.unpack_from("<I", head, at + 8 + len(tensor.name))[0]
            end = at + 8 + len(tensor.name) + 4 + 8 * rank + 4 + 8
            if not tensor.name.startswith("blk.") or int(tensor.name.split(".")[1]) < LAYERS:
                infos.append(head[at : end - 8] + struct.pack("<Q", size))
                bodies.append(tensor)
                size += _padded(tensor.size_bytes or 0)
            at = end
        begin, parts = _padded(at), []
        for tensor in bodies:
            file.seek(begin + tensor.offset)
            parts.append(file.read(tensor.size_bytes or 0).ljust(_padded(tensor.size_bytes or 0), b"\0"))
    key = b"llama.block_count" + struct.pack("<I", 4)
    place = facts.index(key) + len(key)
    facts = facts[:8] + struct.pack("<Q", len(bodies)) + facts[16:place] + struct.pack("<I", LAYERS) + facts[place + 4 :]
    words = facts + b"".join(infos)
    return words.ljust(_padded(len(words)), b"\0") + b"".join(parts)


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
