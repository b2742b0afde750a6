"""The offer of a better local model: said once, fetched beside everything else when a person says yes, used when it is good enough.

Offered is the catalogue's best model that fits the memory, the disk and the pace of this computer, and only in place of a model
of the catalogue that nobody chose by name. What was offered, declined and wanted is kept in `models/offer.json`. The file is
fetched by `catalogue` (resumed, verified, within the room of the disk) and put in place with a time that keeps the present model
answering. It is measured (`local_models`) behind what people ask meanwhile, and becomes the newest, which is the one that
answers, when it does as well. Every step is told in one line.
"""

import json
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Struct
from msgspec.structs import asdict, replace

from appliance.clock import CancelToken, now_ms
from appliance.errors import Busy, Cancelled, Conflict, DiskFull, NotFound, OwlError, Unavailable
from appliance.models import catalogue
from appliance.models.catalogue import MB, Model
from appliance.runtime.methods import Call, method
from appliance.runtime.paths import Home
from appliance.runtime.settings import LOCAL, Config
from appliance.runtime.users import caller_name
from appliance.service.local_models import LocalModels

LOG = logging.getLogger(__name__)
FILE = "offer.json"
RESERVE_BYTES = 300 * MB  # of the disk, that stay free
UNMEASURED_BYTES = 300 * MB  # of a model's file for each core, while nothing is known of this computer's pace
PATIENT = 3.0  # words a second that a model is expected to write, or it is not offered
SLOW = 1.5  # that it must write once it is here
LEAST = 0.6  # of the everyday requests, that must go well
QUALIFYING_S = 1800.0
TRIES, PAUSE_S = 40, 30.0  # while people's questions go first
FIRST_PAUSE_S, LONGEST_PAUSE_S = 300.0, 6 * 3600.0  # between attempts while there is no network

State = Literal["none", "offered", "declined", "fetching", "waiting", "trying"]
Tell = Callable[[str, str], object]  # a person, and a line for them


class Kept(Struct, frozen=True):
    """What is remembered; `wanted` is fetched on behalf of `person`, `told` says to whom which model was offered."""

    wanted: str = ""
    person: str = ""
    declined: tuple[str, ...] = ()
    told: dict[str, str] = {}
    is_told_of_network: bool = False


class ModelOffers:
    """What is offered to the people of one home, and the fetching of what they want."""

    def __init__(
        self, home: Home, settings: Callable[[], Config], local: LocalModels, tell: Tell, *, is_lasting: bool = True
    ) -> None:
        """`is_lasting`: this core stays, and fetches in the background what is wanted."""
        self._is_lasting = is_lasting
        self._home = home
        self._settings = settings
        self._local = local
        self._tell = tell
        self._guard = threading.Lock()
        self._stop = CancelToken()
        self._bell = threading.Event()
        self._thread: threading.Thread | None = None
        self._done = (0, 0)  # bytes of the download
        self._state: State = "none"

    # -- asking -----------------------------------------------------------------------------------

    @method("model.offer")
    def view(self) -> dict[str, Any]:
        """What is offered or being fetched: {state, name, text, done, total}.

        `state` is none, offered, declined, fetching, waiting (for the network, or for a core that stays) or trying.
        """
        kept = self._kept()
        if kept.wanted:
            done, total = self._done
            state: State = self._state if self._state in ("fetching", "trying") else "waiting"
            return {"state": state, "name": kept.wanted, "text": self._progress(kept.wanted, state), "done": done, "total": total}
        model = self._best(kept)
        if model is None:
            return {"state": "none", "name": "", "text": "", "done": 0, "total": 0}
        state = "declined" if model.name in kept.declined else "offered"
        return {"state": state, "name": model.name, "text": self._said(model), "done": 0, "total": model.size_bytes}

    @method("model.first_offer", is_quiet=True)
    def first_for_caller(self, call: Call) -> dict[str, str]:
        """The line of an offer that the caller was not made yet, "" for none: each is made once."""
        return {"text": self.first(caller_name(call))}

    @method("model.answer_offer")
    def answer(self, is_wanted: Annotated[bool, "false: this model is not offered again"], *, call: Call) -> dict[str, Any]:
        """Say yes or no. With `is_left` nothing fetches it by itself: call model.fetch_offer."""
        if not is_wanted:
            return {"text": self.decline(), "is_left": False}
        return {"text": self.accept(caller_name(call), is_lasting=self._is_lasting), "is_left": not self._is_lasting}

    @method("model.fetch_offer", is_long=True)
    def fetch_for_caller(self, call: Call) -> dict[str, str]:
        """Fetch what was said yes to, here and now, try it, and let it answer when it does as well as the present one.

        Streams `progress` {step, done, steps} with bytes. Cancelled when the caller leaves; what came is kept.
        """

        def show(step: str, done: int, total: int) -> None:
            if call.cancel.is_set():
                raise Cancelled("the download was stopped", hint="owlbox model offer yes goes on with it")
            call.notify("progress", {"step": step, "done": done, "steps": total})

        return {"text": self.fetch(show)}

    def first(self, person: str) -> str:
        """The line of an offer that this person was not made yet, "" for none: each model is offered to each once."""
        kept = self._kept()
        if kept.wanted or (known := catalogue.in_use(self._home, "")) is None or kept.told.get(person) == known.name:
            return ""
        model = self._best(kept)
        told = kept.told | {person: known.name}
        if model is None or model.name in kept.declined:
            return ""
        self._keep(replace(kept, told=told))
        return self._said(model)

    def decline(self) -> str:
        """Never offer this model again; what it was."""
        kept = self._kept()
        name = kept.wanted or self._offered(kept).name
        self._keep(replace(kept, wanted="", person="", declined=tuple(dict.fromkeys((*kept.declined, name)))))
        self._bell.set()
        return f"{name} is not offered again; owlbox model add {name} fetches it all the same"

    def accept(self, person: str, *, is_lasting: bool) -> str:
        """Fetch what is offered on behalf of a person; `is_lasting` in the background, otherwise `fetch` is called next."""
        kept = self._kept()
        if kept.wanted and self._state in ("fetching", "trying"):
            raise Busy(f"{kept.wanted} is being fetched already", hint="owlbox model offer says how far it is")
        model = catalogue.find(self._home, kept.wanted) if kept.wanted else self._offered(kept)
        declined = tuple(name for name in kept.declined if name != model.name)
        self._keep(replace(kept, wanted=model.name, person=person, declined=declined, is_told_of_network=False))
        if is_lasting:
            self.start()
        return f"{model.name} is being fetched ({model.size_bytes // MB} MB); {self._present()} goes on answering meanwhile"

    # -- fetching ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Go on in the background with what is wanted, if anything is; for a core that stays."""
        with self._guard:
            if self._kept().wanted and not self._stop.is_set():
                self._bell.set()
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="model-offer", daemon=True)
                    self._thread.start()

    def close(self) -> None:
        """End the thread; what came of a download is kept for the next start."""
        self._stop.set()
        self._bell.set()
        if (thread := self._thread) is not None:
            thread.join(5)

    def fetch(self, progress: catalogue.Progress) -> str:
        """Fetch what is wanted, try it, and let it answer when it does as well; the last line that there is to say about it.

        Unavailable while there is no network: it is still wanted then. After every other error it is not.
        """
        kept = self._kept()
        if not kept.wanted:
            raise NotFound("no model is wanted", hint="owlbox model offer shows what is offered")
        name = kept.wanted
        model = catalogue.find(self._home, name)

        def note(stage: str, done: int, total: int) -> None:
            self._done = (done, total)
            if self._stop.is_set() or self._kept().wanted != name:
                raise Cancelled(f"download of {name} stopped")
            progress(stage, done, total)

        try:
            self._state = "fetching"
            self._require_room(model)
            path = catalogue.add(self._home, name, note, at_s=self._before_all())
            self._state = "trying"
            said = self._try(model, path)
        except OwlError as error:
            if isinstance(error, DiskFull) or not isinstance(error, (Unavailable, Cancelled)):
                self._forget()  # waiting would not help
            raise
        finally:
            self._state = "none"
        self._forget()
        return said

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._stop.is_set():
            self._bell.clear()
            kept = self._kept()
            if not kept.wanted:
                self._bell.wait()
                continue
            try:
                self._say(kept.person, self.fetch(_unseen))
                pause_s = FIRST_PAUSE_S
            except Cancelled:
                LOG.info("the download of %s was stopped", kept.wanted)
            except DiskFull as error:
                self._say(kept.person, f"{kept.wanted} is not fetched: {error}. {self._present()} goes on answering.")
            except Unavailable as error:
                LOG.info("%s is not fetched yet: %s", kept.wanted, error)
                if not kept.is_told_of_network:
                    self._say(
                        kept.person,
                        f"{kept.wanted} cannot be fetched now ({error.message}). {self._present()} goes on "
                        "answering; it is tried again by itself.",
                    )
                    self._keep(replace(self._kept(), is_told_of_network=True))
                self._bell.wait(pause_s)
                pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)
            except OwlError as error:
                self._say(kept.person, f"{kept.wanted} is not fetched: {error}. {self._present()} goes on answering.")

    def _try(self, model: Model, path: Path) -> str:
        """Measure what was fetched, and let it answer from now on unless it does worse."""
        before = self._local.status()
        old = self._local.tiers.measured(self._home.models / f"{before.get('model', '')}.gguf")
        for attempt in range(TRIES):
            try:
                found = self._local.bench(path.stem, QUALIFYING_S, _unseen, self._stop, is_background=True)
                break
            except Cancelled:
                raise
            except OwlError as error:
                if not isinstance(error, Busy) or attempt + 1 == TRIES:
                    return f"{model.name} is here but could not be tried ({error.message}): {self._present()} goes on answering."
                self._stop.wait(PAUSE_S)  # somebody is being answered, and another model is in memory
        new = self._local.tiers.measured(path)
        stays = f"{self._present()} goes on answering; owlbox model use {model.name} takes it all the same"
        if new is None:
            return f"{model.name} is here but answered too little to be judged: {stays}."
        numbers = f"{new.passed} of {new.asked} everyday requests, {new.words_per_s:.0f} words/s"
        if 0 < new.words_per_s < SLOW:
            return f"{model.name} is here but writes only {new.words_per_s:.1f} words/s: {stays}."
        if new.passed < LEAST * new.asked or (old is not None and new.passed < old.passed - 1):
            return f"{model.name} is here but does worse ({numbers}): {stays}."
        self._switch(path)
        back = f"owlbox model use {self._present_name(before)} goes back"
        return f"{model.name} answers from now on: {numbers}, used as {found['tier']}. {back}."

    def _switch(self, path: Path) -> None:
        """Make it the newest file, which is the one that answers."""
        os.utime(path)

    # -- inside -----------------------------------------------------------------------------------

    def _best(self, kept: Kept) -> Model | None:
        """The best model for this computer, None when nothing better is known or somebody chose by name."""
        settings = self._settings()
        routes = settings.pools[settings.models.pool]
        if settings.models.script or settings.models.default or not routes or routes[0] != LOCAL:
            return None
        path = catalogue.in_use(self._home, "")
        known = catalogue.listing(self._home)
        present = next((m for m in known if path is not None and m.file == path.name), None)
        if path is None or present is None or present.name not in catalogue.entries(self._home):
            return None
        better = [m for m in known if m.kind == "chat" and m.score > present.score and m.fits == "yes" and not m.is_installed]
        return max(
            (m for m in better if self._has_room(m) and self._is_quick(m, present, path)), key=lambda m: m.score, default=None
        )

    def _offered(self, kept: Kept) -> Model:
        model = self._best(kept)
        if model is None:
            raise Conflict(
                "no better model is offered for this computer", hint="owlbox model list shows all; model add fetches any"
            )
        return model

    def _is_quick(self, model: Model, present: Model, path: Path) -> bool:
        """Whether it may be expected to write fast enough here: the time of a word grows with the size of the file."""
        measured = self._local.tiers.measured(path)
        if measured is not None and measured.words_per_s:
            return measured.words_per_s * present.size_bytes / model.size_bytes >= PATIENT
        return model.size_bytes <= UNMEASURED_BYTES * (os.cpu_count() or 1)

    def _has_room(self, model: Model) -> bool:
        folder = catalogue.cache_folder()
        while not folder.is_dir():
            folder = folder.parent
        disk = os.statvfs(folder)
        return bool(disk.f_bavail * disk.f_frsize >= model.size_bytes + RESERVE_BYTES)

    def _require_room(self, model: Model) -> None:
        if not self._has_room(model) and not (catalogue.cache_folder() / model.file).exists():
            needed = (model.size_bytes + RESERVE_BYTES) // MB
            raise DiskFull(f"{needed} MB of disk are needed", hint="free some space, then owlbox model offer yes goes on")

    def _before_all(self) -> float:
        """A time before that of every model that is here, so that the new one does not answer yet."""
        times = [p.stat().st_mtime for p in self._home.models.glob("*.gguf") if p.exists()]
        return min(times, default=now_ms() / 1000) - 60

    def _said(self, model: Model) -> str:
        size = f"{model.size_bytes / 1000 / MB:.1f} GB" if model.size_bytes >= 1000 * MB else f"{model.size_bytes // MB} MB"
        return f"A more capable model fits this computer: {model.name} ({size} to fetch, {model.licence})."

    def _progress(self, name: str, state: State) -> str:
        done, total = self._done
        if state == "trying":
            return f"{name} is here and is being tried; {self._present()} goes on answering."
        if state == "waiting":
            return f"{name} is wanted and not here yet; it is fetched while a core runs."
        part = f"{100 * done // total} % of {total // MB} MB" if total else f"{done // MB} MB"
        return f"{name} is being fetched: {part}."

    def _present(self) -> str:
        return self._present_name(self._local.status())

    def _present_name(self, status: dict[str, Any]) -> str:
        file = f"{status.get('model', '')}.gguf"
        return next((e.name for e in catalogue.entries(self._home).values() if e.file == file), status.get("model") or "the model")

    def _say(self, person: str, text: str) -> None:
        LOG.info("%s", text)
        try:
            self._tell(person, text)
        except OwlError as error:
            LOG.warning("nobody was told: %s", error)

    def _kept(self) -> Kept:
        try:
            raw = json.loads((self._home.models / FILE).read_text(encoding="utf-8"))
            told = {str(who): str(what) for who, what in raw["told"].items()}
            declined = tuple(map(str, raw["declined"]))
            return Kept(str(raw["wanted"]), str(raw["person"]), declined, told, bool(raw["is_told_of_network"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return Kept()

    def _keep(self, kept: Kept) -> None:
        place = self._home.models / FILE
        written = place.with_suffix(".new")
        try:
            written.write_text(json.dumps(asdict(kept), indent=1, sort_keys=True) + "\n", encoding="utf-8")
            written.replace(place)
        except OSError as error:
            raise Unavailable(f"{place}: {error.strerror or error}", hint="check that the folder can be written") from None

    def _forget(self) -> None:
        self._keep(replace(self._kept(), wanted="", person=""))


def _unseen(stage: str, done: int, total: int) -> None:
    """Nobody looks on: how far it is can be asked."""
