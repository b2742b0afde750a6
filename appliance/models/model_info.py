"""Everything that is known of one model: from the catalogue and, when the file is here, from the file itself.

For `owlbox model info`. Not promised: that the memory told here is free when the model is loaded.
"""

import hashlib
from pathlib import Path
from typing import Any

from appliance.errors import OwlError
from appliance.models import catalogue
from appliance.models.catalogue import MB, CatalogueModel
from appliance.models.tiers import BASES, Tiers
from appliance.providers import chat_template, gguf, memory_room
from appliance.records import to_plain
from appliance.runtime.paths import Home
from appliance.runtime.settings import Config

# ggml tensor types by the names people know.
QUANTISATIONS = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K",
    13: "Q5_K", 14: "Q6_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S",
    23: "IQ4_XS", 29: "IQ1_M", 30: "BF16", 39: "MXFP4",
}  # fmt: skip
EMPTY: dict[str, Any] = {"tier": "", "architecture": "", "quantisation": "", "trained_window": 0, "window": 0, "memory_mb": 0,
                         "free_mb": 0, "has_template": False, "template_sha256": "", "dialect": ""}  # fmt: skip


def is_in_use(home: Home, settings: Config, model: CatalogueModel) -> bool:
    """Whether a model answers, or finds by meaning."""
    path = home.models / model.file
    if not model.is_installed:
        return False
    if model.kind == "embedding":
        return catalogue.in_use(home, settings.models.embedding, "embedding") == path
    return path in [catalogue.in_use(home, name) for name in catalogue.local_names(settings)]


def describe(home: Home, settings: Config, name: str, progress: catalogue.Progress) -> dict[str, Any]:
    """A model by its name, or a file anywhere by its path; one in models/ is the model of that name."""
    path = Path(name).expanduser()
    own = home.models / path.name
    if path.is_file() and not (own.exists() and path.samefile(own)):
        model = catalogue.described(path)
        known = next((entry for entry in catalogue.entries(home).values() if entry.file == path.name), None)
        facts = {"is_installed": False, "is_in_use": False, "source": "", "figures": known.figures if known else ""}
    else:
        model = catalogue.find(home, path.name if path.is_file() else name)
        path, known = home.models / model.file, catalogue.entries(home).get(model.name)
        source = (known.url or f"package {known.package}") if known else "dropped into models/"
        facts = {"is_in_use": is_in_use(home, settings, model), "source": source}
    is_here = path.is_file()
    found = {**to_plain(model), **EMPTY, **facts, "licence": model.licence or "not said", "path": str(path) if is_here else ""}
    found |= {"sha256": known.sha256 if known else "", "is_verified": False, "is_known": known is not None}
    return _inspect_file(found, path, settings, progress) if is_here else found


def _inspect_file(found: dict[str, Any], path: Path, settings: Config, progress: catalogue.Progress) -> dict[str, Any]:
    """With what the file itself says, and whether it is the catalogue's to the byte."""
    sha256, keys = catalogue.digest(path, "verify", progress), settings.models
    found |= {"is_verified": bool(found["sha256"]) and sha256 == found["sha256"], "sha256": sha256}
    try:
        header = gguf.read(path)
        family = chat_template.find_family(header.chat_template) if found["kind"] == "chat" else "none"
    except OwlError as error:
        return {**found, "problem": error.message}
    limit = keys.memory_mb * MB or memory_room.free_bytes()
    window = header.choose_window(keys.context, keys.cache_type, limit)
    sizes: dict[str, int] = {}
    for tensor in header.tensors:
        name = QUANTISATIONS.get(tensor.type, f"type {tensor.type}")
        sizes[name] = sizes.get(name, 0) + (tensor.size_bytes or 0)
    template = header.chat_template.encode("utf-8")
    return found | {
        "tier": _describe_tier(Tiers(path.parent, lambda: keys.tier), path) if found["kind"] == "chat" else "",
        "architecture": header.architecture,
        "quantisation": max(sizes, key=lambda name: sizes[name], default=""),
        "trained_window": header.context_length,
        "window": window,
        "memory_mb": round(header.needed_bytes(window, keys.cache_type) / MB),
        "free_mb": limit // MB,
        "has_template": bool(template),
        "template_sha256": hashlib.sha256(template).hexdigest() if template else "",
        "dialect": family or "grammar",
    }


def _describe_tier(tiers: Tiers, path: Path) -> str:
    """The tier, by what it is known, and what a measurement came to."""
    name, basis = tiers.of_file(path)
    measured = tiers.measured(path) if basis == "measured" else None
    if measured is None:
        return f"{name}, {BASES[basis]}"
    return f"{name}, {BASES[basis]}: {measured.calls} % of function calls"
