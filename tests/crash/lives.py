"""The lives that are gone through: what is dropped, what a person does meanwhile, what must come of it."""

from __future__ import annotations

from collections.abc import Callable

from daemon.tracks import requests
from tests.crash.stage import Part
from tests.crash.world import Deed, Life, World


def track(body: str, **keys: str) -> bytes:
    lines = [f"{key}: {value}" for key, value in {"harness_id": "fake", **keys}.items()]
    return "\n".join(["---", *lines, "---", f"# {body}", "", f"words of {body}", ""]).encode()


def _save_by_rename(stem: str, word: str) -> Callable[[World], None]:
    def do(world: World) -> None:
        path = world.workspace.active / f"{stem}.md"
        world.put(f"active/{stem}.md", path.read_bytes() + f"\n{word}\n".encode(), word)

    return do


def _overwrite(stem: str, word: str) -> Callable[[World], None]:
    def do(world: World) -> None:
        path = world.workspace.active / f"{stem}.md"
        data = path.read_bytes() + f"\n{word}\n".encode()
        with open(path, "wb") as file:
            file.write(data)
        world.words.append((stem, word))

    return do


def _reply_and_requeue(world: World) -> None:
    path = world.workspace.done / "again.md"
    path.write_bytes(path.read_bytes() + b"\nplease once more\n")
    world.words.append(("again", "please once more"))
    world.move("done/again.md", "queued/again.md")


def _interrupt(stem: str) -> Callable[[World], None]:
    def do(world: World) -> None:
        requests.write(world.workspace.requests, world.workspace.tmp, "interrupt", track=stem, why="enough")

    return do


def _zombie(world: World) -> None:
    settled = next(world.workspace.sessions.glob("zombie-*"))
    spec = (settled / "spec.md").read_bytes()
    world.put("active/zombie.md", spec + b"\nsaved from an old buffer\n", "saved from an old buffer")


def _changed_in_queued(world: World) -> None:
    settled = next(world.workspace.sessions.glob("late-*"))
    spec = (settled / "spec.md").read_bytes()
    world.put("queued/late.md", spec + b"\nand a correction\n", "and a correction")


def _requeue_afresh(world: World) -> None:
    requests.write(world.workspace.requests, world.workspace.tmp, "fresh", track="dead")
    world.move("failed/dead.md", "queued/dead.md")


def _copy(world: World) -> None:
    data = (world.workspace.done / "model.md").read_bytes() + b"\nand now this\n"
    world.put("queued/copy.md", data, "and now this")


def _move(old: str, new: str) -> Callable[[World], None]:
    def do(world: World) -> None:
        world.move(old, new)

    return do


def _delete(*names: str) -> Callable[[World], None]:
    def do(world: World) -> None:
        for name in names:
            (world.workspace.active / name).unlink()

    return do


def _write_at_end(place: str, word: str) -> Callable[[World], None]:
    """As `mh reply` does: one write at the end of the file."""

    def do(world: World) -> None:
        path = world.workspace.tracks / place
        with open(path, "ab") as file:
            file.write(f"\n{word}\n".encode())
        world.words.append((path.stem, word))
        world.saves[path.stem] += 1

    return do


def _change_contract(world: World) -> None:
    path = world.workspace.active / "loose.md"
    data = path.read_bytes().replace(b"exists: out.txt", b"exists: '*'")
    assert b"exists: '*'" in data
    world.saves["loose"] += 1  # on a disk that refuses it is seen when the checks have run
    path.write_bytes(data)


def _asks(stem: str) -> Callable[[World], bool]:
    """Its question stands in the file, and the daemon has written it."""

    def holds(world: World) -> bool:
        path = world.workspace.active / f"{stem}.md"
        try:
            return b"megaharness: question" in path.read_bytes()
        except FileNotFoundError:
            return False

    return holds


CHECK = "{exists: out.txt}"
LIVES = (
    Life(
        "checks",
        {
            "queued/good.md": track("good", done_when=f"[{CHECK}]"),
            "queued/bad.md": b"---\nharness_id: [\n---\nx\n",
        },
        {"done/good.md": 1, "failed/bad.md": 0},
        {"good": Part(writes="out.txt", delay=2)},
        refused=frozenset({"bad"}),
    ),
    Life(
        "attempts",
        {"queued/stubborn.md": track("stubborn", done_when=f"[{CHECK}]")},
        {"failed/stubborn.md": 2},
    ),
    Life(
        "after",
        {"queued/second.md": track("second", after="first"), "queued/first.md": track("first")},
        {"done/first.md": 1, "done/second.md": 1},
    ),
    Life(
        "dropped into active",
        {"active/direct.md": track("direct"), "active/broken.md": b"---\nafter: {\n---\nx\n"},
        {"done/direct.md": 1, "failed/broken.md": 0},
        refused=frozenset({"broken"}),
    ),
    Life(
        "requeued afresh",
        {"queued/dead.md": track("dead")},
        {"failed/dead.md": 2},
        {"dead": Part(dies=True)},
        deeds=(Deed(lambda w: w.exists("failed/dead.md") and not w.parts.sessions.open(), _requeue_afresh),),
    ),
    Life(
        "copied",
        {"queued/model.md": track("model")},
        {"done/model.md": 1, "done/copy.md": 1},
        deeds=(Deed(lambda w: w.exists("done/model.md") and not w.parts.sessions.open(), _copy),),
    ),
    Life(
        "requeued",
        {"queued/again.md": track("again")},
        {"done/again.md": 2},
        deeds=(
            Deed(lambda w: w.exists("done/again.md") and not w.parts.sessions.open(), _reply_and_requeue),
        ),
    ),
    Life(
        "interrupted",
        {"queued/long.md": track("long")},
        {"failed/long.md": 1},
        {"long": Part(lasts=None)},
        deeds=(Deed(lambda w: w.running("long"), _interrupt("long")),),
    ),
    Life(
        "interrupted before it started",
        {"queued/slow.md": track("slow")},
        {"failed/slow.md": 0},
        {"slow": Part(delay=25)},
        deeds=(Deed(lambda w: bool(w.stage._coming), _interrupt("slow")),),
    ),
    Life(
        "edited",
        {"queued/edit.md": track("edit")},
        {"done/edit.md": 1},
        {"edit": Part(lasts=25)},
        deeds=(
            Deed(lambda w: w.running("edit"), _save_by_rename("edit", "saved by rename")),
            Deed(lambda w: w.running("edit"), _overwrite("edit", "saved in place")),
        ),
    ),
    Life(
        "name taken",
        {"queued/twice.md": track("twice"), "done/twice.md": b"somebody else's\n"},
        {"done/twice.md": -1, "done/twice~2.md": 1},
    ),
    Life("lost", {"queued/dead.md": track("dead")}, {"failed/dead.md": 1}, {"dead": Part(dies=True)}),
    Life(
        "saved late into active",
        {"queued/zombie.md": track("zombie")},
        {"done/zombie.md": 1},
        deeds=(Deed(lambda w: w.exists("done/zombie.md"), _zombie),),
    ),
    Life(
        "changed in queued just after",
        {"queued/late.md": track("late")},
        {"done/late.md": 2},
        deeds=(Deed(lambda w: w.exists("done/late.md") and not w.parts.sessions.open(), _changed_in_queued),),
        alone=True,
    ),
    Life(
        "deleted while it ran",
        {"queued/gone.md": track("gone")},
        {"failed/gone.md": 1},
        {"gone": Part(lasts=None)},
        deeds=(Deed(lambda w: w.running("gone"), _delete("gone.md")),),
        alone=True,
    ),
    Life(
        "two vanish at once",
        {"queued/one.md": track("one"), "queued/two.md": track("two")},
        {"done/one.md": 1, "done/two.md": 1},
        {"one": Part(lasts=20), "two": Part(lasts=22)},
        deeds=(Deed(lambda w: w.running("one") and w.running("two"), _delete("one.md", "two.md")),),
        alone=True,
    ),
    Life(
        "asked and answered",
        {"queued/asks.md": track("asks")},
        {"done/asks.md": 2},
        {"asks": Part(asks="which colour?")},
        deeds=(Deed(_asks("asks"), _write_at_end("active/asks.md", "make it blue")),),
        heard={"asks": "make it blue"},
    ),
    Life(
        "asked and thrown away",
        {"queued/asks.md": track("asks")},
        {"failed/asks.md": 1},
        {"asks": Part(asks="which colour?")},
        deeds=(Deed(_asks("asks"), _move("active/asks.md", "failed/asks.md")),),
        alone=True,
    ),
    Life(
        "said to be done",
        {"queued/enough.md": track("enough")},
        {"done/enough.md": 1},
        {"enough": Part(lasts=None)},
        deeds=(Deed(lambda w: w.running("enough"), _move("active/enough.md", "done/enough.md")),),
        alone=True,
    ),
    Life(
        "sent back while it ran",
        {"queued/back.md": track("back")},
        {"done/back.md": 2},
        {"back": Part(lasts=6)},
        deeds=(Deed(lambda w: w.running("back"), _move("active/back.md", "queued/back.md")),),
        alone=True,
    ),
    Life(
        "thrown away while it ran",
        {"queued/away.md": track("away")},
        {"failed/away.md": 1},
        {"away": Part(lasts=None)},
        deeds=(Deed(lambda w: w.running("away"), _move("active/away.md", "failed/away.md")),),
        alone=True,
    ),
    Life(
        "told while it ran",
        {"queued/told.md": track("told")},
        {"done/told.md": 1},
        {"told": Part(lasts=12)},
        deeds=(Deed(lambda w: w.running("told"), _write_at_end("active/told.md", "and in blue")),),
        heard={"told": "and in blue"},
    ),
    Life(
        "told too late",
        {"queued/late.md": track("late")},
        {"done/late.md": 1},
        {"late": Part(lasts=2)},
        deeds=(Deed(lambda w: w.running("late"), _write_at_end("active/late.md", "and in red")),),
        heard={"late": "and in red"},
        alone=True,
    ),
    Life(
        "contract changed",
        {"queued/loose.md": track("loose", done_when=f"[{CHECK}]")},
        {"done/loose.md": 1},
        {"loose": Part(writes="other.txt", lasts=6)},
        deeds=(Deed(lambda w: w.running("loose"), _change_contract),),
        alone=True,
    ),
    Life(
        "not met",
        {"queued/twice.md": track("twice")},
        {"done/twice.md": 2},
        deeds=(
            Deed(
                lambda w: w.exists("done/twice.md") and not w.parts.sessions.open(),
                _move("done/twice.md", "queued/twice.md"),
            ),
        ),
        labels=frozenset({("twice", "not met")}),
        alone=True,
    ),
)
