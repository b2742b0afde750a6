"""The six verbs, with one meaning for every surface: set, get, rm, cp, mv, update.

Tags of a model, calls over the socket, commands and code all come here and leave the same rows; only the
writer's tier differs, and with it what is allowed. A verb is one durable transaction: an error leaves nothing
half-written. Call it outside of any other. In a run every verb leaves one log entry (`actions`) and changes
what that run sees (`views`); a person outside of a run changes content alone. A model's change of a file
waits for a decision. What is a file on the disk is changed there first (`files`); an error after that leaves the file
changed and the proposal open, and accepting it again finds the work done. Not here: modes of approval, ending a loop.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from appliance.clock import monotonic_s
from appliance.errors import BadInput, Conflict, DeadlineExceeded, NotFound, OwlError, Refused
from appliance.knowledge.action_log import Actions, Proposal, Waiting, since_proposed
from appliance.knowledge.change_log import By, Verb
from appliance.knowledge.entries import Content, Entries, Entry
from appliance.knowledge.entry_writes import EntryWrites
from appliance.knowledge.files import Files, NoFiles
from appliance.knowledge.schemes import REFUSED, Schemes, is_file
from appliance.knowledge.selection import SelectedEntry, Selection, limit_lines, plain_start, render_lines, render_matches, window
from appliance.knowledge.verb_arguments import (
    FIELDS,
    KNOWLEDGE_TOKENS,
    WHOLE,
    Look,
    Write,
    check_hash,
    check_knowledge,
    check_run,
    check_visibility,
    checked,
    rewrite,
)
from appliance.knowledge.views import Actor, View, Views, Visibility
from appliance.records import Outcome
from appliance.store.database import Store
from appliance.text.references import parse_ref, scheme_of, unique_slug
from appliance.text.tokens import estimate

STATUSES = (102, 200, 204, 422)  # of an update
TOLD = (400, 403, 404, 409, 413, 504)  # what is an outcome; anything else is trouble and raised
HELD_S = 20  # for all entries of a pattern: meanwhile nobody else can write, and they wait 25 s at most
MAX_SUBJECT = 500  # characters of a reference that a log entry repeats


class _Done(Struct, frozen=True):
    """The result for one entry; `proposal` is where its change waits."""

    path: str
    text: str
    proposal: str = ""
    warnings: tuple[str, ...] = ()


class Verbs:
    """Does what models, people and plugins ask for."""

    def __init__(
        self,
        store: Store,
        entries: Entries,
        views: Views,
        schemes: Schemes,
        *,
        is_file_change_proposed: bool = True,
        files: Files | None = None,
        knowledge_tokens: int = KNOWLEDGE_TOKENS,
    ) -> None:
        self._store = store
        self._entries = entries
        self._views = views
        self._schemes = schemes
        self._is_proposing = is_file_change_proposed
        self._knowledge_tokens = knowledge_tokens
        self._files = files or NoFiles()
        self.writes = EntryWrites(entries, views, schemes, self._files)
        self._selection = Selection(store, entries, views, schemes)
        self.actions = Actions(entries, views)

    # -- the six ------------------------------------------------------------------------------------

    def set(self, actor: Actor, ref: str, write: Write) -> Outcome:
        """Write an entry, every entry of a pattern, or only how the run sees them."""
        return self._run_verb(actor, "set", ref, lambda: self._set_entries(actor, ref, write))

    def get(self, actor: Actor, ref: str, look: Look = WHOLE) -> Outcome:
        """The text of an entry, which the run sees in full from now on; of a pattern a listing."""
        return self._run_verb(actor, "get", ref, lambda: self._get_entries(actor, ref, look))

    def rm(self, actor: Actor, ref: str, look: Look = WHOLE) -> Outcome:
        """Remove an entry or every entry of a pattern; content that other runs see stays."""
        return self._run_verb(actor, "rm", ref, lambda: self._remove_entries(actor, ref, look))

    def cp(self, actor: Actor, source: str, target: str, visibility: Visibility | None = None, look: Look = WHOLE) -> Outcome:
        """Copy an entry to another path, or every entry of a pattern below a folder."""
        return self._run_verb(actor, "cp", source, lambda: self._transfer_entries(actor, "cp", source, target, visibility, look))

    def mv(self, actor: Actor, source: str, target: str, visibility: Visibility | None = None, look: Look = WHOLE) -> Outcome:
        """Move an entry to another path, or every entry of a pattern below a folder."""
        return self._run_verb(actor, "mv", source, lambda: self._transfer_entries(actor, "mv", source, target, visibility, look))

    def update(self, actor: Actor, text: str, status: int = 102) -> Outcome:
        """Record how the run stands: 102 goes on, 200 and 204 are done, 422 cannot be done."""
        return self._run_verb(actor, "update", text, lambda: self._update_status(actor, text, status))

    # -- what waits ---------------------------------------------------------------------------------

    def record(self, actor: Actor, kind: str, subject: str, text: str, attributes: Mapping[str, Any] | None = None) -> Outcome:
        """Record an action that somebody must allow first, such as a command: status 202 until it is resolved."""
        check_run(actor, kind)
        outcome = Outcome(202, "proposed", text)
        with self._store.write(run=actor.run, durable=True):
            path = self.actions.record_action(actor, kind, subject, outcome, attributes)
        return replace(outcome, data={"paths": [], "proposals": [path], "warnings": []})

    def resolve(self, actor: Actor, ref: str, is_accepted: bool, body: str | None = None) -> Outcome:
        """Accept or reject what waits in the actor's run, with what is to be stored for it; 409 when the file has changed since."""
        return self._run_verb(
            actor, "resolve", ref, lambda: self._resolve_proposal(actor, parse_ref(ref), is_accepted, body), is_noted=False
        )

    def refuse(self, actor: Actor, ref: str, outcome: Outcome) -> None:
        """Mark a waiting change of the actor's run as failed; the outcome becomes its body."""
        with self._store.write(run=actor.run, durable=True):
            view = self.actions.open(actor.run, parse_ref(ref))
            self.actions.decide(actor, view, "failed", outcome.status, outcome.outcome, body=outcome.message)

    def override(self, actor: Actor, why: str) -> None:
        """The updates of the actor's turn that claimed an end are void: stored as a conflict."""
        with self._store.write(run=actor.run, durable=True):
            for view in self._views.views_of(actor.run, prefix=f"update://turn_{actor.turn}/"):
                if view.status in STATUSES[1:]:
                    self._views.resolve(actor.run, view.entry, "failed", 409, "conflict")
            for view in self._views.views_of(actor.run, prefix=f"log://turn_{actor.turn}/update/", state="resolved"):
                self.actions.decide(actor, view, "failed", 409, "conflict", body=why)

    def waiting(self, run: str = "", limit: int = 100) -> list[Waiting]:
        """The proposals that wait for a decision, oldest first: of one run, or of all."""
        return self.actions.list_waiting(run, limit)

    def perform(self, actor: Actor, verb: str, given: Mapping[str, Any]) -> Outcome:
        """A verb or `resolve` with its arguments by name, for surfaces that take them from outside."""
        ref = str(given.get("ref", ""))
        if verb == "set":
            names = [name for name in Write.__struct_fields__ if name != "content"]
            content = Content(**{name: given[name] for name in FIELDS if name in given})
            return self.set(actor, ref, Write(**{n: given[n] for n in names if n in given}, content=content))
        look = Look(**{name: given[name] for name in Look.__struct_fields__ if name in given})
        if verb in ("get", "rm"):
            return self.get(actor, ref, look) if verb == "get" else self.rm(actor, ref, look)
        if verb in ("cp", "mv"):
            do = self.cp if verb == "cp" else self.mv
            return do(actor, ref, str(given.get("target", "")), given.get("visibility"), look)
        if verb == "update":
            return self.update(actor, str(given.get("text", "")), int(given.get("status", 102)))
        if verb == "resolve":
            return self.resolve(actor, ref, bool(given.get("is_accepted")))
        raise BadInput(f"there is no verb {verb!r}", hint="use set, get, rm, cp, mv or update")

    # -- set ----------------------------------------------------------------------------------------

    def _set_entries(self, actor: Actor, ref: str, write: Write) -> Outcome:
        write, warnings = checked(actor, write)
        path = self._knowledge_path(actor, ref, write) if write.kind == "known" else parse_ref(ref)
        self.writes.look_at(path)
        matches = None
        if self._selection.is_many(actor, path) or write.wanted:
            matches = self._match_several(actor, path, write)
        if write.is_preview:
            matches = self._selection.select_matches(actor, path, write.wanted)[0] if matches is None else matches
            found = f"PREVIEW\n{render_matches(matches)}"
            return self._show_result(actor, path, found, found, self._outcome_data([match.path for match in matches]))
        with self._store.write(run=actor.run, durable=True):
            if matches is None:
                done = [self._set_one(actor, path, self._selection.find(actor, path), write)]
            else:
                done = [self._set_one(actor, entry.path, entry, write) for entry in self._iterate_entries(matches)]
            return self._finish_verb(actor, "set", path, done, warnings)

    def _match_several(self, actor: Actor, path: str, write: Write) -> list[SelectedEntry] | None:
        """The entries of a pattern; None for a new name that only looks like one."""
        if write.expected_hash is not None:
            raise BadInput(f"an expected hash for the pattern {path}", hint="name one entry")
        if not write.wanted and write.has_content and not any(letter in path for letter in "*?{"):
            if not self._selection.matching(actor, path):
                return None
        return self._selection.select_matches(actor, path, write.wanted)[0]

    def _set_one(self, actor: Actor, path: str, entry: Entry | None, write: Write) -> _Done:
        if not write.has_content:
            if entry is None:
                raise NotFound(f"no entry {path}", hint="set it with a body first")
            self._show_entry(actor, entry.id, write.visibility, write.summary)
            return _Done(path, f"{path}: {write.visibility or 'described'}")
        self._check_write(actor, path, entry)
        check_hash(path, entry, write.expected_hash)
        if self._needs_decision(actor, path):
            return self._propose_text(actor, path, entry, write)
        edited = rewrite(path, None if entry is None else entry.body, write)
        if edited is not None:
            check_knowledge(path, edited.text, self._knowledge_tokens)
            if entry is None and (asked := self._find_question(actor, path, edited.text)) is not None:
                self._views.wrote(actor, asked.id)
                self._show_entry(actor, asked.id, write.visibility, write.summary)
                return _Done(asked.path, f"{asked.path}: asks this already")
        content = replace(write.content, body=None if edited is None else edited.text, blob=None)
        stored = self.writes.put(actor, path, entry, content, "set" if entry is None or edited is None else "edit")
        self._show_entry(actor, stored.id, write.visibility, write.summary)
        return _Done(
            path,
            f"{path}: {'written' if entry is None else 'changed'}, {estimate(stored.body)} tokens",
            "",
            () if edited is None else edited.warnings,
        )

    def _find_question(self, actor: Actor, path: str, body: str) -> Entry | None:
        """The open question with this text that the actor's run sees under another path: a question is stored once."""
        if self._schemes.find_scheme(path).category != "unknown":
            return None
        views = self._views.views_of(actor.run, prefix=f"{scheme_of(path)}://")
        found = (self._entries.find(view.path, scope=view.scope) for view in views)
        return next((entry for entry in found if entry is not None and entry.body == body), None)

    def _propose_text(self, actor: Actor, path: str, entry: Entry | None, write: Write) -> _Done:
        known = self.actions.waiting(actor.run, path)
        before = known[1] if known else None
        text = before.after if before else None if entry is None else entry.body
        edited = rewrite(path, text, write)
        content = {name: value for name in FIELDS if (value := getattr(write.content, name)) is not None}
        if known is None and not content and entry is not None and edited is not None and edited.text == text:
            return _Done(path, f"{path}: it says so already")
        proposal = Proposal(
            "set",
            path,
            actor.tier,
            before=before.before if before else entry.body if entry else "",
            before_hash=before.before_hash if before else entry.hash if entry else "",
            after=(text or "") if edited is None else edited.text,
            content={**(before.content if before else {}), **content},
            visibility=write.visibility or (before.visibility if before else None),
            summary=write.summary or (before.summary if before else None),
        )
        if entry is not None:
            self._show_entry(actor, entry.id, write.visibility, write.summary)
        where = self.actions.propose(actor, proposal)
        return _Done(path, f"{path}: waits for a decision as {where}", where, () if edited is None else edited.warnings)

    def _knowledge_path(self, actor: Actor, ref: str, write: Write) -> str:
        """`known://` before a bare path; without one a name made of the summary or the text."""
        if ref.strip():
            return parse_ref(ref if scheme_of(ref.strip()) else f"known://{ref.strip()}")
        name = (write.summary or (write.body or "").strip().partition("\n")[0]).replace(", ", ",")

        def is_taken(slug: str) -> bool:
            found = self._selection.find(actor, f"known://{slug}")
            return found is not None and found.body != write.body

        return f"known://{unique_slug(name, is_taken)}"

    # -- get ----------------------------------------------------------------------------------------

    def _get_entries(self, actor: Actor, ref: str, look: Look) -> Outcome:
        is_part = look.line is not None or look.limit is not None
        if is_part and (look.wanted or self._selection.is_many(actor, ref)):
            raise BadInput(f"lines of {ref}, which may be many entries", hint="name one entry, without a filter")
        matches, is_search = self._selection.select_matches(actor, ref, look.wanted)
        data = self._outcome_data([m.path for m in matches]) | {"tokens": sum(m.tokens for m in matches)}
        found = render_matches(matches)
        if look.is_preview:
            return self._show_result(actor, ref, f"PREVIEW\n{found}", f"PREVIEW\n{found}", data)
        if is_search:
            return self._show_result(actor, ref, found, found, data, matches)
        entry = self._entries.get(matches[0].path, scope=matches[0].scope)
        data |= {"title": entry.title, "mime": entry.mime, "hash": entry.hash, "is_textual": entry.is_textual}
        if not entry.is_textual:
            text = f"{entry.path} holds no text: {entry.mime}"
            return self._show_result(actor, ref, text, text, data, matches)
        if is_part:
            part = window(entry.body, look.line, look.limit)
            text = f"{part.header()}\n{part.text}"
            data |= {"line": part.first, "last": part.last, "total_lines": part.total}
            return self._show_result(actor, ref, text, f"{entry.path} {text}", data)
        return self._show_result(actor, ref, entry.body, found, data, matches)

    def _show_result(
        self, actor: Actor, ref: str, text: str, told: str, data: dict[str, Any], shown: list[SelectedEntry] | None = None
    ) -> Outcome:
        """What a run has read becomes visible, and its log says so; reading outside of one writes nothing."""
        if actor.run:
            with self._store.write(run=actor.run, durable=True):
                if shown is not None:
                    self._views.promote(actor, [match.id for match in shown])
                self.actions.record_action(actor, "get", ref, Outcome(200, "ok", told), {"paths": data["paths"][:100]})
        return Outcome(200, "ok", text, data=data)

    # -- rm, cp, mv ---------------------------------------------------------------------------------

    def _remove_entries(self, actor: Actor, ref: str, look: Look) -> Outcome:
        self.writes.look_at(ref)
        matches, _ = self._selection.select_matches(actor, ref, look.wanted)
        if look.is_preview:
            found = f"PREVIEW\n{render_matches(matches)}"
            return self._show_result(actor, ref, found, found, self._outcome_data([match.path for match in matches]))
        with self._store.write(run=actor.run, durable=True):
            done = [self._rm_one(actor, entry) for entry in self._iterate_entries(matches)]
            return self._finish_verb(actor, "rm", ref, done)

    def _rm_one(self, actor: Actor, entry: Entry) -> _Done:
        self._check_write(actor, entry.path, entry)
        if self._needs_decision(actor, entry.path):
            where = self.actions.propose(actor, Proposal("rm", entry.path, actor.tier, entry.body, entry.hash))
            return _Done(entry.path, f"{entry.path}: its removal waits for a decision as {where}", where)
        is_gone = self._take_away(actor, entry, "rm")
        return _Done(entry.path, f"{entry.path}: removed" if is_gone else f"{entry.path}: removed here, others still see it")

    def _take_away(self, actor: Actor, entry: Entry, verb: Verb) -> bool:
        """Remove an entry from what the run sees, and its content when no other run sees it."""
        has_others = False
        if actor.run and not self.writes.is_on_disk(actor, entry.path, entry):  # no run has a disk of its own
            self._views.remove_views(actor.run, [entry.id])
            has_others = bool(self._views.watchers(entry.id, beside=actor.run))
            if has_others and entry.scope != f"run:{actor.run}":
                return False
            self.writes.part(entry, actor.run)  # a fork keeps what it saw
        self.writes.remove(actor, entry, verb)
        return not has_others

    def _transfer_entries(
        self, actor: Actor, verb: Verb, source: str, target: str, visibility: Visibility | None, look: Look
    ) -> Outcome:
        check_visibility(actor, visibility)
        if not target.strip():
            raise BadInput(f"{verb} {source} to nowhere", hint="name the destination, as attribute or as body")
        path, source_path = parse_ref(target), parse_ref(source)
        if self._selection.is_many(actor, path):
            raise BadInput(f"{verb} to the pattern {path}", hint="name one destination")
        if is_many := self._selection.is_many(actor, source):
            if not path.endswith("/"):
                hint = f"end the destination with /, as in {path}/, and each is put below it"
                raise BadInput(f"{verb} of the pattern {source} to the one name {path}", hint=hint)
        elif path.endswith("/"):
            path += source_path.rstrip("/").rpartition("/")[2]
        self.writes.look_at(source, path)
        names = [source_path]
        if is_many or look.wanted or look.is_preview:
            names = list(dict.fromkeys(match.path for match in self._selection.select_matches(actor, source, look.wanted)[0]))
        folder = plain_start(source_path).rpartition("/")[0] + "/" if "/" in plain_start(source_path) else ""
        pairs = {name: path + name.removeprefix(folder) if is_many else path for name in names}
        if is_many and (both := sorted(pairs.keys() & set(pairs.values()))):
            raise BadInput(f"{both[0]} is source and target", hint="name another destination")
        if look.is_preview:
            found = "\n".join(["PREVIEW", *render_lines([f"* {name} -> {to}" for name, to in pairs.items()])])
            return self._show_result(actor, source, found, found, self._outcome_data(list(pairs.values())))
        with self._store.write(run=actor.run, durable=True):
            done = [self._transfer_one(actor, verb, name, to, visibility) for name, to in pairs.items()]
            return self._finish_verb(actor, verb, source_path, done)

    def _transfer_one(self, actor: Actor, verb: Verb, source: str, path: str, visibility: Visibility | None) -> _Done:
        entry = self._selection.get(actor, source)
        if entry.is_folder:
            raise BadInput(f"{entry.path} is a folder", hint="name an entry in it")
        if entry.path == path:
            raise BadInput(f"{path} is source and target", hint="name another destination")
        there = self._selection.find(actor, path)
        self._check_write(actor, path, there)
        if verb == "mv":
            self._check_write(actor, entry.path, entry)
        if self._needs_decision(actor, path) or (verb == "mv" and self._needs_decision(actor, entry.path)):
            done = self._propose_transfer(actor, verb, entry, there, path, visibility)
        else:
            self._transfer_now(actor, verb, entry, there, path, visibility)
            done = _Done(path, f"{entry.path}: {'moved' if verb == 'mv' else 'copied'} to {path}")
        if there is None:
            return done
        return replace(done, warnings=(f"{path} was there and {'would be' if done.proposal else 'is'} overwritten",))

    def _propose_transfer(
        self, actor: Actor, verb: Verb, entry: Entry, there: Entry | None, path: str, visibility: Visibility | None
    ) -> _Done:
        proposal = Proposal(
            verb,
            path,
            actor.tier,
            before=there.body if there else "",
            before_hash=there.hash if there else "",
            after=entry.body,
            source=entry.path,
            source_hash=entry.hash,
            visibility=visibility,
        )
        where = self.actions.propose(actor, proposal)
        return _Done(path, f"{path}: waits for a decision as {where}", where)

    def _transfer_now(
        self, actor: Actor, verb: Verb, entry: Entry, there: Entry | None, path: str, visibility: Visibility | None
    ) -> None:
        check_knowledge(path, entry.body, self._knowledge_tokens)
        others = self._views.watchers(entry.id, beside=actor.run)
        is_file = self.writes.is_on_disk(actor, entry.path, entry)
        if verb == "mv" and there is None and not others and not is_file and entry.scope == self.writes.scope(actor, path):
            moved = self._entries.move(entry.path, path, By(actor.tier, actor.run, verb), scope=entry.scope)
            if actor.run:
                self._views.wrote(actor, moved.id)
        else:
            made = self.writes.put(actor, path, there, self.writes.whole(entry), verb, like=entry.path)
            moved = self._entries.marks.inherit(made, entry)
            if verb == "mv":
                self._take_away(actor, entry, verb)
        self._show_entry(actor, moved.id, visibility, None)

    # -- update and resolve -------------------------------------------------------------------------

    def _update_status(self, actor: Actor, text: str, status: int) -> Outcome:
        check_run(actor, "update")
        if status not in STATUSES:
            raise BadInput(f"status {status}", hint=f"use one of {', '.join(map(str, STATUSES))}")
        with self._store.write(run=actor.run, durable=True):
            folder, scope = f"update://turn_{actor.turn}/", f"run:{actor.run}"
            name = unique_slug(text, lambda slug: self._entries.find(folder + slug, scope=scope) is not None)
            self._schemes.check_write(folder + name, actor.tier)
            content = Content(body=text, attributes={"status": status})
            entry = self._entries.put(folder + name, content, By(actor.tier, actor.run), scope=scope)
            self._views.show(actor, entry.id, "visible", "resolved", status)
        return Outcome(200, "ok", f"noted with {status}", data={"paths": [entry.path], "status": status, "warnings": []})

    def _resolve_proposal(self, actor: Actor, path: str, is_accepted: bool, body: str | None) -> Outcome:
        check_run(actor, "resolve")
        if actor.tier == "model":
            raise Refused(f"{actor.tier} may not decide about {path}", hint="a person decides")
        if is_accepted and (about := self.actions.proposal(self.actions.open(actor.run, path))) is not None:
            self._files.refresh_files(
                [name for name in (about.target, about.source) if name]
            )  # somebody may have edited the file itself
        with self._store.write(run=actor.run, durable=True):
            view = self.actions.open(actor.run, path)
            data = {"paths": [path], "warnings": []}
            if not is_accepted:
                self.actions.decide(actor, view, "failed", 403, "rejected", body=body)
                return Outcome(200, "ok", f"{path}: rejected", data=data)
            if reason := self._find_veto(view):
                self.actions.decide(actor, view, "failed", 403, "permission")
                return Outcome(403, REFUSED, f"{path}: {reason}", "the constraint can be released", data=data)
            reason = self._accept_proposal(actor, view)
            if reason:
                self.actions.decide(actor, view, "failed", 409, "conflict", body=reason)
                return Outcome(409, "conflict", f"{path}: {reason}", "ask for the change again", data=data)
            self.actions.decide(actor, view, "resolved", 200, body=body)
            return Outcome(200, "ok", f"{path}: accepted", data=data)

    def _find_veto(self, view: View) -> str:
        """Why what was proposed may not be done, "" when it may; what is only read of another file is no change of it."""
        proposal = self.actions.proposal(view)
        if proposal is None:
            return ""
        changed = [proposal.target, *([proposal.source] if proposal.verb == "mv" and proposal.source else [])]
        return next((why for path in changed if (why := self._files.veto(path))), "")

    def _accept_proposal(self, actor: Actor, view: View) -> str:
        """Do what was proposed; the reason when that is not possible any more."""
        proposal = self.actions.proposal(view)
        if proposal is None:
            return ""  # a command: whoever recorded it runs it
        author = replace(actor, tier=proposal.author)
        there = self._selection.find(author, proposal.target)
        source = self._selection.find(author, proposal.source) if proposal.source else None
        is_done = proposal.is_done("" if there is None else there.hash)  # and was cut off before that was noted
        for name, entry, known in (
            (proposal.target, there, proposal.before_hash),
            (proposal.source, source, proposal.source_hash),
        ):
            now = entry.hash if entry else ""
            if now != known and not (is_done and (name == proposal.target or not now)):
                return since_proposed(name, known, now)
            if name and self.writes.is_on_disk(actor, name, entry) and (reason := self._files.changed(name)):
                return reason
        self._schemes.check_write(proposal.target, author.tier)
        if proposal.verb == "rm" and there is not None:
            self.writes.remove(author, there)
        elif proposal.verb in ("cp", "mv") and source is not None:
            verb: Verb = "cp" if proposal.verb == "cp" else "mv"
            self._transfer_now(author, verb, source, there, proposal.target, proposal.visibility)
        elif proposal.after is not None:
            content = Content(body=proposal.after, **proposal.content)
            stored = self.writes.put(author, proposal.target, there, content, "set" if there is None else "edit")
            self._show_entry(author, stored.id, proposal.visibility if there is None else None, proposal.summary)
        return ""

    # -- inside -------------------------------------------------------------------------------------

    def _run_verb(self, actor: Actor, verb: str, subject: str, work: Callable[[], Outcome], *, is_noted: bool = True) -> Outcome:
        """The outcome of some work: errors that a caller can do something about are outcomes, and are noted in the run."""
        try:
            return work()
        except OwlError as error:
            if error.status not in TOLD:
                raise
            outcome = Outcome(error.status, REFUSED if isinstance(error, Refused) else error.outcome, error.message, error.hint)
        if actor.run and is_noted:
            subject = subject[:MAX_SUBJECT].encode("utf-8", "replace").decode()
            message = outcome.message.encode("utf-8", "replace").decode()
            with self._store.write(run=actor.run, durable=True):
                self.actions.record_action(actor, verb, subject, replace(outcome, message=message))
        return outcome

    @staticmethod
    def _outcome_data(paths: list[str]) -> dict[str, Any]:
        """The data of an outcome about these entries; `count` tells when there are more than `paths` names."""
        return {"paths": limit_lines(paths), "count": len(paths), "warnings": []}

    def _finish_verb(self, actor: Actor, verb: str, subject: str, done: list[_Done], warnings: tuple[str, ...] = ()) -> Outcome:
        """One outcome and, in a run, one log entry for everything that was done; what waits has its own."""
        proposals = [d.proposal for d in done if d.proposal]
        warnings = (*warnings, *(warning for d in done for warning in d.warnings))
        notes = [f"warning: {warning}" for warning in warnings]
        data = self._outcome_data([d.path for d in done]) | {"proposals": limit_lines(proposals), "warnings": limit_lines(warnings)}
        at_once = [d for d in done if not d.proposal]
        if actor.run and at_once:
            text = "\n".join([*(d.text for d in at_once), *notes])
            self.actions.record_action(actor, verb, subject, Outcome(200, "ok", text))
        message = "\n".join([*render_lines([d.text for d in done]), *render_lines(notes)])
        return Outcome(202 if proposals else 200, "proposed" if proposals else "ok", message, data=data)

    def _iterate_entries(self, matches: Sequence[SelectedEntry]) -> Iterator[Entry]:
        """The entries of these matches that are still there, one at a time: together their texts may be more than memory."""
        until_s = monotonic_s() + HELD_S
        for match in matches:
            if monotonic_s() > until_s:
                raise DeadlineExceeded(f"{len(matches)} entries took longer than {HELD_S} s", hint="name fewer entries at once")
            entry = self._entries.find(match.path, scope=match.scope)
            if entry is not None:
                yield entry

    def _check_write(self, actor: Actor, path: str, entry: Entry | None) -> None:
        """Refused for what the actor may not write, Conflict for what waits: writing to it would look like a decision."""
        self._schemes.check_write(path, actor.tier)
        if actor.run and entry is not None and self._views.is_waiting(actor.run, entry.id):
            raise Conflict(f"{path} waits for a decision", hint="leave it until it is accepted or rejected")

    def _needs_decision(self, actor: Actor, path: str) -> bool:
        """Whether a change of this path waits for a decision: a model's, of a file. Refused where its run may change none."""
        is_waiting = self._is_proposing and actor.tier == "model" and bool(actor.run) and is_file(path)
        if is_waiting and actor.bars_files:
            hint = "wait_task tells a person" if "approval" in actor.bars_files else "say what should be changed instead"
            raise Refused(f"{path} was not changed: {actor.bars_files}", hint=hint)
        return is_waiting

    def _show_entry(self, actor: Actor, entry: int, visibility: Visibility | None, summary: str | None) -> None:
        if visibility is not None:
            self._views.set_visibility(actor, [entry], visibility)
        if summary is not None:
            self._views.summarize(actor, [entry], summary)
