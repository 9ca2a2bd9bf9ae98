"""A person edits the file of a track while it is active: each version is kept once, and acted upon once.

    quiet and different -> sessions/<id>/edits/<number>.json (from here on it counts)
                        -> the inbox, where the harness can be steered; else the next brief
                        -> limits.json, when the minutes of the budget were changed

What the daemon writes into the file itself (its block, results, questions) is no edit. A message has its name in the
inbox from the record, so a crash between the two steps neither loses nor repeats it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from adapters import session as live
from adapters.errors import AdapterError
from adapters.ports import Capabilities, Harness, NotStarted, Running
from daemon.errors import DocumentError, NotNow
from daemon.faults import may_pass, passes
from daemon.kernel.claimed import as_claimed, spec, status_of
from daemon.kernel.clock import Now, stamp
from daemon.kernel.memory import Edit
from daemon.kernel.parts import Parts
from daemon.kernel.projects import understood
from daemon.spool import claim as claiming
from daemon.spool.sessions import Claim, encode, read_json
from daemon.spool.states import ACTIVE
from daemon.spool.store import Entry
from daemon.tracks import thread
from daemon.tracks.changes import Contract, compare, contract
from daemon.tracks.machine import Edited
from daemon.tracks.track import Loaded

FOLDER = "edits"


def edits_of(parts: Parts, session: str) -> tuple[Edit, ...]:
    """What was saved while it was open, oldest first. Only once is it read from disk."""
    known = parts.memory.edits.get(session)
    if known is None:
        known = parts.memory.edits[session] = tuple(_stored(parts, session))
        if known and known[-1].message and not known[-1].briefed:
            text = parts.sessions.path(session) / "inbox/text" / f"{known[-1].name}.json"
            if not os.path.lexists(text) and isinstance(status_of(parts, session), Running):
                parts.memory.undelivered.add(session)
    return known


def text_of(parts: Parts, known: Claim) -> bytes:
    """The file as the person left it last, as far as the daemon has seen it. Raises OSError."""
    edits = edits_of(parts, known.session)
    return edits[-1].data if edits else spec(parts, known)


def loaded(parts: Parts, known: Claim) -> Loaded:
    """The track as it is asked for now: as claimed, and edited since. Raises OSError, DocumentError."""
    return understood(text_of(parts, known), known)


def contract_of(parts: Parts, known: Claim) -> Contract | None:
    """How the checks differ from those that this stay in ``active/`` began with. Raises OSError, DocumentError."""
    earlier = _contract(known.extra.get("contract"))
    claimed, edits = as_claimed(parts, known), edits_of(parts, known.session)
    if not edits:
        return earlier
    # What an edit says of itself is a hint for the time: the agent can write there, too.
    changed = next((edit for edit in edits if "done_when" in edit.keys), edits[-1])
    now = contract(claimed.track, loaded(parts, known).track, changed.at)
    if now is None or earlier is None:
        return now or earlier
    return Contract(earlier.at, earlier.was, earlier.only_added and now.only_added)


def encoded_contract(changed: Contract | None) -> dict[str, Any]:
    """As a claim keeps it, for the sessions that follow."""
    if changed is None:
        return {}
    return {"contract": {"at": changed.at, "was": list(changed.was), "only_added": changed.only_added}}


def _contract(raw: object) -> Contract | None:
    match raw:
        case {"at": str(at), "was": [*was], "only_added": bool(only_added)}:
            return Contract(at, tuple(map(str, was)), only_added)
    return None


def unheard(parts: Parts, known: Claim) -> int:
    """How many messages of a person, in the file or typed into the pane, this session has not got."""
    messages = [edit.name for edit in edits_of(parts, known.session) if edit.message and not edit.briefed]
    path = parts.sessions.path(known.session)
    try:
        delivered = {message.name for message in live.delivered(path)}
        typed = {message.name for message in live.waiting(path) if message.by == "viewer" and message.text}
    except OSError:
        return len(messages)
    return len([name for name in messages if name not in delivered]) + len(typed)


def refused(edits: Sequence[Edit]) -> list[str]:
    """What a person changed while it ran and nothing came of, as sentences."""
    said = []
    if asked := [edit.harness for edit in edits if edit.harness]:
        said.append(f"You asked for {asked[-1]} while it ran: it stayed where it was.")
    if idle := sorted({key for edit in edits for key in edit.idle}):
        said.append(f"Changed while it ran, without effect: {', '.join(idle)}.")
    return said


class Edits:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def seen(self, known: Claim) -> None:
        """The daemon has just written the file itself, and nothing of a person's is new in it."""
        entry = self._parts.store.entries(ACTIVE).get(known.name)
        if entry is not None:
            self._parts.memory.seen[known.session] = entry.signature

    def seen_again(self, known: Claim) -> None:
        """The same, where a person may have saved in between: then it is looked at as usual."""
        path = self._parts.store.path(ACTIVE, known.name)
        try:
            if self._same(known, self._parts.files.read(path, claiming.FILE_LIMIT)):
                self.seen(known)
        except (NotNow, OSError):
            return  # looked at again by the next tick

    def look(self, known: Claim, entry: Entry, now: Now) -> Edited | None:
        """Whether a person has changed it since it was looked at last; reads it only when something has.

        Raises OSError where the disk refuses the last look before it is settled.
        """
        parts, memory, session = self._parts, self._parts.memory, known.session
        path = parts.store.path(ACTIVE, known.name)
        edits_of(parts, session)
        if memory.seen.get(session) == entry.signature:
            return Edited() if session in memory.undelivered else None
        if claiming.odd(entry, parts.uid):
            return None
        # A swap file says only that it is open in an editor, as a thread in use is: what counts is the save.
        still = parts.stillness.judge(entry, now.mono, now.wall, None)
        try:
            data = parts.files.read(path, claiming.FILE_LIMIT)
            same = self._same(known, data)
        except FileNotFoundError:
            return None
        except (NotNow, OSError) as error:
            if session in memory.concluded and isinstance(error, OSError) and may_pass(error, path):
                memory.waiting_since.pop(session, None)  # it is not the file that does not come to rest
                raise
            return Edited(now.mono + 1.0)
        if isinstance(still, claiming.Stirring):
            # What is read now may be half of a save: it is looked at again, and holds up nothing if it is as it was.
            return None if same else Edited(still.until)
        if not same:
            return Edited()
        memory.seen[session] = entry.signature
        return Edited() if session in memory.undelivered else None

    def _same(self, known: Claim, data: bytes) -> bool:
        """Whether a person's part of it is as it was; what cannot be read changes nothing."""
        try:
            return thread.own_text(data) == thread.own_text(text_of(self._parts, known))
        except DocumentError:
            return True

    def take(self, known: Claim, now: Now) -> None:
        """Keep what was saved, and act upon it. Raises NotNow, OSError."""
        try:
            self._take(known, now)
        except OSError as error:
            if passes(error):
                self._parts.memory.waiting_since.pop(known.session, None)
            raise

    def _take(self, known: Claim, now: Now) -> None:
        parts, memory, session = self._parts, self._parts.memory, known.session
        path = parts.store.path(ACTIVE, known.name)
        try:
            with parts.files.opened(path) as opened:
                opened.lease()
                data = opened.read(claiming.FILE_LIMIT)
                signature = (opened.stat.st_ino, opened.stat.st_ctime_ns, opened.stat.st_size)
                if opened.lease_broken():
                    raise NotNow(f"{path.name} is being saved in another program")
        except FileNotFoundError as error:
            raise NotNow(f"{path.name} has been moved away") from error
        try:
            after = understood(data, known)
            change = compare(loaded(parts, known), after)
        except DocumentError as error:
            parts.log.warning("edit cannot be read", track=known.item, why=str(error))
            memory.seen[session] = signature
            self._deliver(known)  # what was kept before is still to be told
            return
        if change and not after.is_empty:
            status = status_of(parts, session)
            edit = Edit(
                number=len(edits_of(parts, session)) + 1,
                at=stamp(now.wall),
                data=data,
                message=change.message,
                name=live.message_name(parts.sessions.path(session)) if change.message else "",
                # A runner may be on its way with the brief that is written.
                briefed=isinstance(status, NotStarted)
                and session not in memory.starting
                and not os.path.lexists(parts.sessions.path(session) / "brief.md"),
                keys=change.keys,
                idle=change.idle,
                harness=change.harness,
            )
            self._keep(session, edit)
            if "done_when" in change.keys:
                memory.concluded.pop(session, None)  # judged by checks that do not count any more
        memory.seen[session] = signature
        self._deliver(known)

    def _keep(self, session: str, edit: Edit) -> None:
        parts = self._parts
        folder = parts.sessions.path(session) / FOLDER
        parts.files.make_dirs(folder)
        parts.files.publish(folder / f"{edit.number:04}.json", _encoded(edit))
        parts.memory.edits[session] = (*edits_of(parts, session), edit)
        parts.memory.undelivered.add(session)
        parts.log.info(
            "edited",
            session=session,
            number=edit.number,
            message=len(edit.message),
            keys=edit.keys,
            idle=edit.idle,
            harness=edit.harness,
        )

    def _deliver(self, known: Claim) -> None:
        """Every message into the inbox, once, if the harness takes them now; and the minutes of the budget.

        What it never gets is in the next brief.
        """
        parts, session = self._parts, known.session
        kept = edits_of(parts, session)
        if kept and isinstance(status_of(parts, session), Running):
            if any("budget" in edit.keys for edit in kept):
                self._limit(known)
            harness, path = self._steered(known), parts.sessions.path(session)
            for edit in kept:
                if harness is not None and edit.message and not edit.briefed:
                    live.message(path, harness.encode(edit.message), edit.message, "file", edit.name)
        parts.memory.undelivered.discard(session)

    def _steered(self, known: Claim) -> Harness | None:
        harness = self._harness(known)
        return harness if harness is not None and harness.capabilities().steer else None

    def _harness(self, known: Claim) -> Harness | None:
        try:
            return self._parts.harnesses.get(str(known.extra.get("harness", "")))
        except AdapterError:
            return None

    def capabilities(self, known: Claim) -> Capabilities | None:
        harness = self._harness(known)
        return harness.capabilities() if harness is not None else None

    def _limit(self, known: Claim) -> None:
        try:
            asked = loaded(self._parts, known).track.budget.minutes
        except DocumentError:
            return  # what was kept was damaged since
        minutes = asked or float(self._parts.settings.limits.minutes)
        live.limit(self._parts.sessions.path(known.session), minutes * 60.0)


def _encoded(edit: Edit) -> bytes:
    return encode(
        {
            "number": edit.number,
            "at": edit.at,
            "text": edit.data.decode(),
            "message": edit.message,
            "name": edit.name,
            "briefed": edit.briefed,
            "keys": list(edit.keys),
            "idle": list(edit.idle),
            "harness": edit.harness,
        }
    )


def _stored(parts: Parts, session: str) -> list[Edit]:
    folder = parts.sessions.path(session) / FOLDER
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    found = []
    for name in names:
        raw = read_json(folder / name) if re.fullmatch(r"[0-9]{4}\.json", name) else None
        if raw is not None and (edit := _decoded(raw)) is not None:
            found.append(edit)
    return found


def _decoded(raw: Mapping[str, Any]) -> Edit | None:
    """None: nothing that the daemon wrote."""
    match raw:
        case {
            "number": int(number),
            "at": str(at),
            "text": str(text),
            "message": str(message),
            "name": str(name),
        }:
            return Edit(
                number=number,
                at=at,
                data=text.encode("utf-8", "replace"),
                message=message,
                name=name if re.fullmatch("[0-9]{20}-[0-9a-f]{8}", name) else "",
                briefed=raw.get("briefed") is True,
                keys=_words(raw.get("keys")),
                idle=_words(raw.get("idle")),
                harness=raw["harness"] if isinstance(raw.get("harness"), str) else None,
            )
    return None


def _words(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()
