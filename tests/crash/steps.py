"""Random stories in the crash world: what a person does, in any order, and where the daemon is stopped meanwhile.

A rule is a gesture. It is made between two ticks or at any file operation of the next one, and with it the daemon
may be killed, stopped in the middle of a write, or refused by the disk. After each rule nothing may be lost or
doubled; at the end the world is run to rest and held against the ledger.

To add a gesture: a method of `Steps` under `@gesture(...)` that picks a file, does it with `save`, `remove` or
`shift`, and tells the ledger what may come of it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import secrets
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import FlakyFailure
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from daemon.errors import DocumentError
from daemon.spool import frontmatter
from daemon.spool.sessions import STAYS, read_json
from daemon.spool.states import STATES
from daemon.tracks import requests, thread
from tests.crash.cases import memory_dir
from tests.crash.ledger import ENDS, KINDS, LEAST, MOST, ByKind, Ledger, Task, mark_of, words
from tests.crash.stage import Part
from tests.crash.world import (
    MAX_STEPS,
    REAL,
    Crash,
    Fault,
    Life,
    Mutant,
    Pin,
    World,
    litter,
    rows,
    sessions_wrong,
)

#: Rules of one story.
RULES = 40
#: An editor's file descriptor that found its inode before the daemon's hand, and how long it keeps it open (points).
HOLDS = (0, 15, 60)


@dataclass(frozen=True)
class Trouble:
    """What goes wrong `after` so many file operations, counted from the next one.

    ``crash``: the machine stops. ``kill``: only the daemon does; its windows live on. ``torn``: it stops in the
    middle of the next write. ``disk``: `lasts` operations more are refused.
    """

    kind: str
    after: int
    errno: int = 0
    lasts: int = 0

    def __str__(self) -> str:
        more = f" {os.strerror(self.errno)} x{self.lasts + 1}" if self.errno else ""
        return f"{self.kind} after {self.after}{more}"


class Slip(BaseException):
    """A mistake of the story itself, made inside an operation of the daemon: nothing may swallow it."""


@dataclass(frozen=True)
class Doc:
    """A file in one of the folders."""

    state: str
    name: str
    path: Path
    data: bytes

    @property
    def place(self) -> str:
        return f"{self.state}/{self.name}"


class Scene(World):
    """The crash world, played by rules: it ticks when it is told to, and remembers what a person is owed."""

    def __init__(self, root: Path, mutant: Mutant = REAL) -> None:
        super().__init__(root, Life("steps", {}, {}, ByKind()), mutant)
        self.ledger = Ledger()
        self.restless = True
        self.up = False
        #: What was done since this was last told, for the story.
        self.did: list[str] = []
        self.trouble: Trouble | None = None
        self._seen = 0
        self._gesture: Callable[[], None] | None = None
        self._gesture_in = 0
        self._windows_live = False
        #: Files that the person has removed or written over while an editor of theirs may have them open.
        self._torn_away: set[int] = set()
        self._answered: set[str] = set()

    # the daemon

    def boot(self, fault: Fault | None) -> None:
        self._seen = 0
        super().boot(fault)

    def tick(self) -> None:
        """One step of the world; a daemon that is down comes up first. A crash leaves it down."""
        try:
            if not self.up:
                self.boot(None)
                self.up = True
            self.step()
        except Crash:
            self.look_at_queue()
            self.go_down(windows=self._windows_live)
        self.make_gesture()

    def go_down(self, *, windows: bool) -> None:
        self.up = False
        self.mono += 1.0
        if not windows:
            self.stage.lose_windows()

    def at(self, points: int, gesture: Callable[[], None]) -> None:
        """Make this gesture after so many file operations, or at the end of the tick."""
        self._gesture, self._gesture_in = gesture, points

    def make_gesture(self) -> None:
        gesture, self._gesture = self._gesture, None
        if gesture is not None:
            try:
                gesture()
            except Exception as error:
                raise Slip(f"{type(error).__name__}: {error}") from error

    def on_point(self) -> None:
        self._editors()
        number = len(self.files.points)
        if number == self._seen:
            return
        self._seen = number
        if self._gesture is not None:
            self._gesture_in -= 1
            if self._gesture_in < 0:
                self.make_gesture()
        self._arm(number - 1)

    def _arm(self, number: int) -> None:
        trouble = self.trouble
        if trouble is None:
            return
        if trouble.after > 0:
            self.trouble = Trouble(trouble.kind, trouble.after - 1, trouble.errno, trouble.lasts)
            return
        if trouble.kind == "torn" and self.files.points[number] != "before write":
            return
        self.trouble = None
        self._windows_live = trouble.kind == "kill"
        kind = {"kill": "crash", "disk": "errno"}.get(trouble.kind, trouble.kind)
        self.files._fault = Fault(number, kind, trouble.errno, trouble.lasts)  # type: ignore[arg-type]

    # editors that write in place

    def _editors(self) -> None:
        for pin in list(self.pins):
            self.pins, others = [pin], [other for other in self.pins if other is not pin]
            facts, content = os.fstat(pin.fd), _content(pin.fd)
            super().on_point()
            written = not self.pins
            self.pins = [*others, *self.pins]
            if not written:
                continue
            if facts.st_nlink == 0:
                if facts.st_ino not in self._torn_away:
                    self.faults.append(f"a file was removed that an editor had open: {pin.data!r}")
                continue
            self.did.append(f"{pin.data.splitlines()[-1].decode()} written by an editor")
            self.ledger.saved(content, pin.data, (doc.data for doc in self.docs() if doc.data != pin.data))
            self._not_its_own(self.ledger.of(pin.data), content, pin.data)
            for name, (inode, _) in list(self.queued.items()):
                if inode == facts.st_ino:
                    self.queued[name] = (inode, pin.data)

    def _not_its_own(self, task: Task, content: bytes, written: bytes) -> None:
        """What an editor has written over a file that was moved meanwhile may not say any more whose it is."""
        if not task.bad and thread.block_session(content) != thread.block_session(written):
            task.rough = task.loose = True
            task.perhaps(files=1, claims=1)

    def open_in_editor(self, doc: Doc, holds: int) -> None:
        """An editor has found the file, opens it when it may, and writes what it has and a word into it."""
        data = doc.data + b"\n" + self.ledger.word() + b"\n"
        self.did.append(f"{doc.place} opened")
        self.pins.append(Pin(os.open(doc.path, os.O_PATH | os.O_NOFOLLOW), data, holds))
        self._editors()

    # the person

    def docs(self, *states: str) -> list[Doc]:
        found = []
        for state in states or STATES:
            folder = self.workspace.tracks / state
            for name in sorted(os.listdir(folder)):
                if name.endswith(".md"):
                    found.append(Doc(state, name, folder / name, (folder / name).read_bytes()))
        return found

    def pick(self, which: int, *states: str) -> Iterator[Doc]:
        """One file of these folders, if there is one."""
        if found := self.docs(*states):
            yield found[which % len(found)]

    def save(self, place: str, data: bytes) -> None:
        """An editor saves by rename: whatever lies there is written over."""
        path = self.workspace.tracks / place
        before = self._tear_away(path)
        others = [doc.data for doc in self.docs() if doc.path != path]
        self.put(place, data)
        self.did.append(f"{place} saved")
        self.ledger.saved(before, data, others)
        self.tell(path)

    def remove(self, doc: Doc) -> None:
        self._tear_away(doc.path)
        os.unlink(doc.path)
        self.did.append(f"{doc.place} removed")
        self.ledger.saved(doc.data, b"", (other.data for other in self.docs()))
        self.queued.pop(doc.name, None) if doc.state == "queued" else None
        self.tell(doc.path)

    def shift(self, doc: Doc, new: str) -> None:
        """Move a file by hand."""
        self.move(doc.place, new)
        self.did.append(f"{doc.place} moved to {new}")
        self.tell(doc.path)
        self.tell(self.workspace.tracks / new)

    def _tear_away(self, path: Path) -> bytes:
        try:
            self._torn_away.add(path.stat().st_ino)
            return path.read_bytes()
        except FileNotFoundError:
            return b""

    def tell(self, path: Path) -> None:
        """What the watcher would: this path is looked at in the next tick."""
        if self.up:
            self.supervisor._notes.paths.add(path)

    def look_at_queue(self) -> None:
        """An old buffer that was saved where the file had been is merged into it, if it waits to be done again."""
        for name, (_, data) in list(self.queued.items()):
            with contextlib.suppress(FileNotFoundError):
                path = self.workspace.queued / name
                there = path.read_bytes()
                if words(there) > words(data) and mark_of(data) == mark_of(there):
                    self.queued[name] = (path.stat().st_ino, there)
        super().look_at_queue()

    def ask(self, verb: requests.Verb, track: str) -> None:
        requests.write(self.workspace.requests, self.workspace.tmp, verb, track=track, why="enough")

    def withdraw(self, doc: Doc) -> None:
        """Who deletes a file wants nothing of its track any more."""
        for request in requests.load(self.workspace.requests):
            if isinstance(request, requests.Request) and b"id: " + request.track.encode() + b"\n" in doc.data:
                request.path.unlink()

    def free(self, place: str) -> bool:
        return not os.path.lexists(self.workspace.tracks / place)

    def worked_on(self, name: str) -> str | None:
        """The open session whose file has this name."""
        for session in self.session_dirs():
            if os.path.lexists(session / "settled"):
                continue
            claim = read_json(session / "claim.json")
            if claim is not None and claim.get("name") == name:
                return session.name
        return None

    def task_of(self, name: str) -> Task | None:
        """What is worked on under this name."""
        session = self.worked_on(name)
        spec = self.workspace.sessions / (session or "") / "spec.md"
        return self.ledger.of(spec.read_bytes()) if session and spec.exists() else None

    def strays(self, task: Task) -> bool:
        """Whether a file of it lies in queued/ or active/ on which no session works."""
        return any(
            mark_of(doc.data) == task.mark and not (doc.state == "active" and self.worked_on(doc.name))
            for doc in self.docs("queued", "active")
        )

    def strays_or_runs(self, task: Task) -> bool:
        """Whether a session of it is open, or a file of it waits for one."""
        return self.strays(task) or any(
            mark_of((session / "spec.md").read_bytes()) == task.mark
            for session in self.session_dirs()
            if not os.path.lexists(session / "settled") and (session / "spec.md").exists()
        )

    def session_dirs(self) -> list[Path]:
        return sorted(self.workspace.sessions.iterdir())

    # what must hold

    def look(self) -> list[str]:
        """Every invariant that does not hold at this very moment."""
        wrong = list(self.faults)
        wrong += [f"{name} ran {count} times" for name, count in self.stage.runs.items() if count > 1]
        docs = self.docs()
        wrong += [f"{doc.place} has a second name" for doc in docs if doc.path.stat().st_nlink != 1]
        for mark, count in Counter(mark_of(doc.data) for doc in docs).items():
            if mark not in self.ledger.tasks:
                wrong.append(
                    f"a file that nobody dropped: {[doc.place for doc in docs if mark_of(doc.data) == mark]}"
                )
            elif count > self.ledger.tasks[mark].files.high:
                places = [doc.place for doc in docs if mark_of(doc.data) == mark]
                wrong.append(
                    f"too many files of {mark!r}: {places}, at most {self.ledger.tasks[mark].files.high}"
                )
        missing = self._missing(self.ledger.owed, (doc.data for doc in docs))
        for place in (self._displaced, self._beside):
            missing = self._missing(missing, place()) if missing else missing
        return wrong + [f"lost: {word!r}" for word in sorted(missing)]

    def _missing(self, owed: set[bytes], texts: Iterable[bytes]) -> set[bytes]:
        return owed - {word for text in texts for word in words(text)}

    def _displaced(self) -> Iterator[bytes]:
        for path in self.workspace.displaced.iterdir():
            yield path.read_bytes()

    def _beside(self) -> Iterator[bytes]:
        for session in self.workspace.sessions.iterdir():
            for path in (*session.glob("late-save-*.md"), *session.glob("inbox/**/*")):
                if path.is_file():
                    yield path.read_bytes()

    def rest(self) -> list[str]:
        """Let everything come to its end. Returns what is not as the ledger has it."""
        self.trouble = None
        self.files._fault = None
        for runner in (*self.stage._coming, *self.stage._running):
            runner.part = Part(writes=runner.part.writes, dies=runner.part.dies)
        for _ in range(MAX_STEPS):
            self.tick()
            if self.idle():
                break
            self._answer()
            if wrong := self.look():
                return wrong
            for runner in self.stage._running:
                runner.part.lasts = runner.part.lasts or 1
        else:
            return [f"it does not come to an end: {self._why()}; {[doc.place for doc in self.docs()]}"]
        # Long afterwards: whatever lies around now is left for ever.
        self.mono += 3600.0
        self.boot(None)
        for _ in range(3):
            self.step()
        return self.look() + self._against_the_ledger()

    def _answer(self) -> None:
        """Every question gets a word, once."""
        for doc in self.docs("active"):
            session = self.worked_on(doc.name)
            if session is None or session in self._answered:
                continue
            settle = read_json(self.workspace.sessions / session / "settle.json")
            if settle is not None and settle["termination"] == "blocked" and b"question, attempt" in doc.data:
                self._answered.add(session)
                self.save(doc.place, doc.data + b"\n" + self.ledger.word() + b"\n")
        for session in self.supervisor.parts.memory.together - self._answered:
            self._answered.add(session)
            self.ledger.of((self.workspace.sessions / session / "spec.md").read_bytes()).interrupted = True
            self.ask("interrupt", session.rsplit("-", 2)[0])

    def _against_the_ledger(self) -> list[str]:
        if wrong := [*sessions_wrong(self), *litter(self)]:
            return wrong
        docs, ledger = self.docs(), self.ledger
        journal = rows(self.workspace.journal)
        claims: Counter[bytes] = Counter()
        rounds: Counter[tuple[bytes, str, int]] = Counter()
        for session in self.session_dirs():
            task = ledger.of((session / "spec.md").read_bytes())
            claim, started = read_json(session / "claim.json"), read_json(session / "started.json")
            settle = read_json(session / "settle.json")
            assert claim is not None
            assert settle is not None
            claims[task.mark] += claim["attempt"] == claim["round"]
            rounds[task.mark, claim["item"], claim["round"]] += 1
            ran = self.stage.runs[session.name]
            if ran != (started is not None and started["by"] == "runner"):
                wrong.append(f"{session.name} ran {ran} times, and its gate says {started}")
            marker = b"<!-- megaharness: result, attempt %d, %b -->" % (
                claim["attempt"],
                session.name.encode(),
            )
            marks = [doc.data.count(marker) for doc in docs]
            if max(marks, default=0) > 1:
                wrong.append(f"{session.name}: its result stands twice in a file")
            if settle["destination"] != STAYS and not task.rough and not any(marks):
                wrong.append(f"{session.name}: its result stands nowhere")
            if not task.interrupted:
                if ran != 1:
                    wrong.append(f"{session.name} ran {ran} times")
                end = ENDS.get(task.kind, "done")
                if end and settle["destination"] not in (end, STAYS):
                    wrong.append(
                        f"{session.name} ended as {settle['termination']} in {settle['destination']}"
                    )
        for (mark, item, number), count in rounds.items():
            task = ledger.tasks[mark]
            # What a person wrote and it had not heard is worth one more.
            most = MOST.get(task.kind, 1) + (len(task.saved) > 1)
            least = LEAST.get(task.kind, 1)
            if count > most or (count < least and not task.interrupted):
                wrong.append(
                    f"{item}: {count} sessions for the claim at attempt {number}, not {least} to {most}"
                )
        for task in ledger.tasks.values():
            own = [doc for doc in docs if mark_of(doc.data) == task.mark]
            if len(own) not in task.files:
                wrong.append(f"{task.mark!r}: files {[doc.place for doc in own]}, expected {task.files}")
            if claims[task.mark] not in task.claims:
                wrong.append(f"{task.mark!r}: {claims[task.mark]} claims, expected {task.claims}")
            for doc in own:
                wrong += self._doc_wrong(doc, task, journal)
        texts = (*(doc.data for doc in docs), *self._beside(), *self._specs())
        return wrong + [f"lost: {word!r}" for word in sorted(self._missing(ledger.kept, texts))]

    def _specs(self) -> Iterator[bytes]:
        for session in self.session_dirs():
            yield (session / "spec.md").read_bytes()

    def _doc_wrong(self, doc: Doc, task: Task, journal: list[dict[str, Any]]) -> Iterator[str]:
        reason = doc.path.with_name(f"{doc.name}.why.txt")
        if task.bad:
            if doc.data not in task.saved:
                yield f"{doc.place}: a refused file was changed"
            if not reason.exists():
                yield f"{doc.place}: no reason beside it"
            if not any(
                row.get("termination") == "refused" and row.get("file") == doc.name for row in journal
            ):
                yield f"{doc.place}: no row of its refusal"
            return
        if reason.exists():
            yield f"{doc.place}: refused: {reason.read_text()}"
        try:
            block = frontmatter.read(doc.data).meta.get(thread.BLOCK)
        except DocumentError as error:
            yield f"{doc.place} cannot be read: {error}"
            return
        if not task.rough and (not isinstance(block, dict) or block.get("status") != doc.state):
            yield f"{doc.place}: its block says {block}"


@contextlib.contextmanager
def opened(mutant: Mutant = REAL) -> Iterator[Scene]:
    """A scene whose daemon is up and has nothing to do."""
    umask = os.umask(0o077)
    # A story is played again to shorten it: the same names each time, as names decide orders.
    token_hex, source = secrets.token_hex, random.Random(0)
    secrets.token_hex = lambda size=32: source.randbytes(size).hex()
    root = Path(tempfile.mkdtemp(prefix="mh-steps-", dir=memory_dir()))
    scene = Scene(root / "w", mutant)
    try:
        scene.tick()
        yield scene
    finally:
        secrets.token_hex = token_hex
        os.umask(umask)
        for pin in scene.pins:
            os.close(pin.fd)
            if pin.writer >= 0:
                os.close(pin.writer)
        for runner in scene.stage._running:
            os.close(runner.lock)
        shutil.rmtree(root)


def _content(fd: int) -> bytes:
    with open(f"/proc/self/fd/{fd}", "rb") as file:
        return file.read()


# -- rules -----------------------------------------------------------------------------------------

WHICH = st.integers(0, 7)
#: None: between two ticks; else at this file operation of the next tick.
WHEN = st.one_of(st.none(), st.integers(0, 40))
AFTER = st.integers(0, 60)
TROUBLE = st.one_of(
    st.none(),
    st.none(),
    st.builds(Trouble, st.sampled_from(("crash", "kill", "torn")), AFTER),
    st.builds(Trouble, st.just("disk"), AFTER, st.sampled_from((28, 5, 13, 30)), st.sampled_from((0, 6, 40))),
)


@dataclass
class Tally:
    """What was tried. tripped: how often each kind of trouble struck."""

    steps: int = 0
    lives: int = 0
    crashes: int = 0
    rules: Counter[str] = field(default_factory=Counter)


def gesture(**draws: st.SearchStrategy[Any]) -> Callable[[Callable[..., bool | None]], Any]:
    """A rule: something that a person does, now or at a file operation of the next tick, with or without trouble.

    The method returns False when there was nothing to do it with; such a rule does not count.
    """

    def make(do: Callable[..., bool | None]) -> Any:
        @functools.wraps(do)
        def step(self: Steps, when: int | None, trouble: Trouble | None, **drawn: Any) -> None:
            self.play(do.__name__, functools.partial(do, self, **drawn), when, trouble, drawn)

        return rule(when=WHEN, trouble=TROUBLE, **draws)(step)

    return make


class Steps(RuleBasedStateMachine):
    """One story."""

    def __init__(self, mutant: Mutant = REAL, tally: Tally | None = None) -> None:
        super().__init__()
        self.tally = tally or Tally()
        self.tally.lives += 1
        self.story: list[str] = []
        self._stack = contextlib.ExitStack()
        self.scene = self._stack.enter_context(opened(mutant))
        self.ledger = self.scene.ledger

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:
                self.story.append("the world is run to rest")
                self.hold(self.scene.rest())
        finally:
            self._stack.close()

    def play(
        self,
        name: str,
        do: Callable[[], bool | None],
        when: int | None,
        trouble: Trouble | None,
        drawn: dict[str, Any],
    ) -> None:
        scene = self.scene
        if trouble is not None:
            scene.trouble = trouble
        done = []
        moment = "" if when is None else f" at operation {when}"
        shown = ", ".join(f"{key}={value}" for key, value in drawn.items())
        self.story.append(f"{name}({shown}){moment}{f'; {trouble}' if trouble else ''}")
        if when is None:
            done.append(do())
        else:
            scene.at(when, lambda: done.append(do()))
            self._tick()
        self._note()
        if done != [False]:
            self.tally.steps += 1
            self.tally.rules[name] += 1
        else:
            self.story[-1] += ": nothing to do it with"
        self.hold(scene.look())

    def _note(self) -> None:
        self.story += [f"    {line}" for line in self.scene.did]
        self.scene.did.clear()

    def _tick(self) -> None:
        self.scene.tick()
        self._note()
        if not self.scene.up:
            self.story.append("    the daemon is down")
            self.tally.crashes += 1

    def hold(self, wrong: list[str]) -> None:
        if wrong:
            raise AssertionError("\n".join([*self.story, *(f"    {each}" for each in wrong[:8])]))

    # what is dropped

    @gesture(
        kind=st.sampled_from((*sorted(KINDS), "bad")), state=st.sampled_from(("queued", "queued", "active"))
    )
    def drop(self, kind: str, state: str) -> None:
        task = self.ledger.new(kind, bad=kind == "bad")
        task.more(files=1, claims=not task.bad)
        self.scene.save(f"{state}/{kind}-{self.ledger.number()}.md", self.ledger.text(task))

    @gesture(which=WHICH)
    def drop_under_a_name_in_use(self, which: int) -> bool | None:
        for doc in self.scene.pick(which, "active", "done", "failed"):
            if not self.scene.free(f"queued/{doc.name}"):
                continue
            old = self.ledger.of(doc.data)
            task = self.ledger.new(old.kind, bad=old.bad)
            task.more(files=1, claims=not task.bad)
            return self.scene.save(f"queued/{doc.name}", self.ledger.text(task))
        return False

    @gesture(which=WHICH)
    def copy(self, which: int) -> bool | None:
        for doc in self.scene.pick(which, "done", "failed"):
            task = self.ledger.of(doc.data)
            task.more(files=1, claims=not task.bad)
            return self.scene.save(f"queued/{task.kind}-{self.ledger.number()}.md", self._with_word(doc.data))
        return False

    # editing

    def _with_word(self, data: bytes) -> bytes:
        return data + b"\n" + self.ledger.word() + b"\n"

    @gesture(which=WHICH)
    def save_by_rename(self, which: int) -> bool | None:
        for doc in self.scene.pick(which):
            return self.scene.save(doc.place, self._with_word(doc.data))
        return False

    @gesture(which=WHICH, holds=st.sampled_from(HOLDS))
    def save_in_place(self, which: int, holds: int) -> bool | None:
        for doc in self.scene.pick(which):
            return self.scene.open_in_editor(doc, holds)
        return False

    @gesture(which=WHICH, version=WHICH)
    def save_an_old_buffer(self, which: int, version: int) -> bool | None:
        """Over the file, where it lies now."""
        for doc in self.scene.pick(which):
            task = self.ledger.of(doc.data)
            task.rough = True
            if self.scene.strays_or_runs(task):
                # The old buffer may say that it is another file of the task, or not that it is the one that was moved.
                task.loose = True
                task.perhaps(files=1, claims=not task.bad)
            return self.scene.save(doc.place, self._old(task, version))
        return False

    @gesture(which=WHICH, version=WHICH, state=st.sampled_from(("queued", "active")))
    def save_an_old_buffer_where_it_was(self, which: int, version: int, state: str) -> bool | None:
        """To a place that the file has left."""
        for doc in self.scene.pick(which, "active", "done", "failed"):
            if not self.scene.free(f"{state}/{doc.name}"):
                continue
            task = self.ledger.of(doc.data)
            task.rough = task.loose = True
            task.perhaps(files=1, claims=not task.bad)
            if state == "active" and (other := self.scene.task_of(doc.name)) not in (None, task):
                # Its file was deleted a moment ago: what lies there now is taken for its edit.
                other.rough = other.loose = True
                other.perhaps(files=-1)
            return self.scene.save(f"{state}/{doc.name}", self._old(task, version))
        return False

    def _old(self, task: Task, version: int) -> bytes:
        versions = sorted(task.saved, key=lambda data: (len(data), data))
        return self._with_word(versions[version % len(versions)])

    # moving and deleting

    @gesture(which=WHICH)
    def delete(self, which: int) -> bool | None:
        for doc in self.scene.pick(which):
            task = self.ledger.of(doc.data)
            open_session = self.scene.worked_on(doc.name)
            if doc.state == "queued":
                task.less(files=1, claims=not task.bad)
            elif doc.state == "active" and open_session is None:
                task.perhaps(files=-1, claims=-(not task.bad))
                task.interrupted = True  # where its claim was about to be written
            elif doc.state == "active":
                task.interrupted = True  # unless others vanish with it
            elif open_session is None:
                task.less(files=1)
            elif doc.state != "active":
                # A copy of it that waits is then what it was moved to.
                task.perhaps(files=-1, claims=-(not task.bad))
            task.rough = True
            self.scene.withdraw(doc)
            return self.scene.remove(doc)
        return False

    @gesture(which=WHICH, reply=st.booleans(), fresh=st.booleans())
    def requeue(self, which: int, reply: bool, fresh: bool) -> bool | None:
        for doc in self.scene.pick(which, "done", "failed"):
            if not self.scene.free(f"queued/{doc.name}"):
                continue
            task = self.ledger.of(doc.data)
            if reply:
                self.scene.save(doc.place, self._with_word(doc.data))
            if self.scene.worked_on(doc.name) or self.scene.strays(task):
                task.loose = True
                task.perhaps(claims=not task.bad)
            else:
                task.more(claims=not task.bad)
            if fresh and (track := thread.block_id(doc.data) if not task.bad else None):
                self.scene.ask("fresh", track)
            return self.scene.shift(doc, f"queued/{doc.name}")
        return False

    @gesture(which=WHICH, to=st.sampled_from(("done", "failed", "queued")))
    def take_from_active(self, which: int, to: str) -> bool | None:
        """What is worked on: done as the person says, or to be ended, or to be done again."""
        for doc in self.scene.pick(which, "active"):
            if not self.scene.free(f"{to}/{doc.name}") or self.scene.worked_on(doc.name) is None:
                continue
            task = self.ledger.of(doc.data)
            task.interrupted = task.loose = True
            # What an old buffer had been saved over does not say any more whose it is.
            task.perhaps(files=int(task.rough), claims=not task.bad)
            return self.scene.shift(doc, f"{to}/{doc.name}")
        return False

    @gesture(which=WHICH)
    def interrupt(self, which: int) -> bool | None:
        found = [
            path
            for path in self.scene.session_dirs()
            if (path / "claim.json").exists() and not (path / "settled").exists()
        ]
        if not found:
            return False
        session = found[which % len(found)]
        self.ledger.of((session / "spec.md").read_bytes()).interrupted = True
        self.scene.ask("interrupt", session.name.rsplit("-", 2)[0])
        return None

    # the world goes on

    @rule(ticks=st.integers(1, 12), trouble=TROUBLE, again=st.sampled_from(("", "", "restarted", "rebooted")))
    def run(self, ticks: int, trouble: Trouble | None, again: str) -> None:
        """again: the daemon, or the daemon and the terminal's windows, end and begin anew before."""
        if again:
            self.scene.go_down(windows=again == "restarted")
        self.play("run", lambda: None, None, trouble, {"ticks": ticks, "again": again})
        for _ in range(ticks):
            self._tick()
            self.hold(self.scene.look())


def tell(size: int, number: int, mutant: Mutant = REAL, *, shorten: bool = True) -> tuple[Tally, list[str]]:
    """Stories until `size` rules were played. Returns the shortest story that broke something, if one did."""
    tally, batch = Tally(), 0
    while tally.steps < size:
        ways = settings(
            # Each batch begins with the simplest story, which is not worth much: few batches.
            max_examples=max(5, (size - tally.steps) * 10 // (7 * RULES)),
            stateful_step_count=RULES,
            database=None,
            deadline=None,
            derandomize=False,
            phases=(Phase.generate, Phase.shrink) if shorten else (Phase.generate,),
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
            print_blob=False,
        )

        @seed(number * 1_000_003 + batch)
        def story() -> Steps:
            return Steps(mutant, tally)

        try:
            run_state_machine_as_test(story, settings=ways)
        except FlakyFailure as error:
            return tally, [f"not each time: {each}" for each in error.exceptions]
        except AssertionError as error:
            return tally, [str(error)]
        batch += 1
    return tally, []
