"""Asking whether there is a newer version: at the configured source, or on a disk that is plugged in.

Nothing is asked of the network unless `updates.enabled` says so or a person asks; what was found is kept in the home for the
doctor. An address has `latest.json` and its signature `latest.sig`, as `image-build/bundle.py` writes them, beside the bundle.
"""

from pathlib import Path
from urllib.parse import urljoin

from appliance.clock import monotonic_s, now_ms
from appliance.errors import NotFound, OwlError, Unavailable
from appliance.models import download
from appliance.runtime.host_lookup import Deadline
from appliance.runtime.http_client import HttpSession
from appliance.runtime.paths import Home
from appliance.runtime.settings import DAY_MS
from appliance.text import urls
from appliance.upkeep.updates import bundle, last_check
from appliance.upkeep.updates.bundle import Manifest
from appliance.upkeep.updates.last_check import Check

PLUGGED = ("/media", "/run/media", "/mnt")
INDEX, SIGNATURE = "latest.json", "latest.sig"
LARGEST_INDEX = 1_000_000


def check(home: Home, source: str, key: bytes, version: str, limit_s: float) -> Check:
    """Ask the source, or look at what is plugged in where none is configured; what was found is kept."""
    try:
        if source.startswith(("https://", "http://")):
            found, place = read_index(source, key, limit_s), source
        else:
            path = bundle.find(Path(source), key) if source else find_plugged(key)
            place = str(path)
            with bundle.opened(path, key) as (manifest, _):
                found = manifest
        bundle.require_usable(found, version, place)
        done = Check(now_ms(), found.version, place)
    except OwlError as error:
        is_newest = "which runs" in error.message or "is the one that runs" in error.message
        done = Check(now_ms(), problem="" if is_newest else error.message)
    last_check.write_check(home, done)
    return done


def is_due(home: Home, now: int) -> bool:
    """Whether a day has passed since the last check."""
    last = last_check.read_check(home)
    return last is None or not 0 <= now - last.at_ms < DAY_MS


def find_plugged(key: bytes) -> Path:
    """The newest bundle in the upper folders of disks that are plugged in."""
    folders = [one for root in PLUGGED for one in (*Path(root).glob("*"), *Path(root).glob("*/*")) if one.is_dir()]
    refused: NotFound | None = None
    for folder in folders:
        if any(folder.glob("owlbox-*.bundle")):
            try:
                return bundle.find(folder, key)
            except NotFound as error:
                refused = error  # another disk may have the right one
    if refused is not None:
        raise refused
    raise Unavailable("updates.source is empty and no disk with a bundle is plugged in", hint="updates.source, or a file")


def read_index(source: str, key: bytes, limit_s: float) -> Manifest:
    """The manifest that a source offers as its newest one."""
    data, signature = (_fetch_small(_below(source, name), limit_s) for name in (INDEX, SIGNATURE))
    return bundle.read_manifest(data, signature, key, source)


def fetch(source: str, key: bytes, folder: Path, progress: download.Progress, limit_s: float) -> Path:
    """Bring the newest bundle of a source into a folder; its contents are checked when it is applied."""
    found = read_index(source, key, limit_s)
    name = f"owlbox-{found.version}-{found.platform}.bundle"
    digest = _fetch_small(_below(source, f"{name}.sha256"), limit_s).decode("ascii", "replace").split()[0]
    target = folder / name
    download.fetch(download.WantedFile(_below(source, name), digest), target, progress)
    return target


def _below(source: str, name: str) -> str:
    return urljoin(source if source.endswith("/") else f"{source}/", name)


def _fetch_small(url: str, limit_s: float) -> bytes:
    download.require_safe(url)
    deadline = Deadline(monotonic_s() + limit_s, f"asking {url}")
    with HttpSession(is_proxied=True).ask(urls.parse(url), {"User-Agent": "owlbox"}, by=deadline) as answer:
        if answer.status_code != 200:
            raise Unavailable(f"{url} answers {answer.status_code}", hint="is updates.source the right address?")
        data, is_more = answer.body(LARGEST_INDEX)
    if is_more:
        raise Unavailable(f"{url} is larger than an index of versions", hint="is updates.source the right address?")
    return data
