"""What will keep a file from running, told to who has just queued it."""

from __future__ import annotations

import time

from daemon.cli import finding
from daemon.cli.group import complain
from daemon.errors import DocumentError, Problem, SettingsError
from daemon.layout import Workspace
from daemon.spool.claim import FILE_LIMIT
from daemon.spool.states import FAILED
from daemon.tracks.ids import is_id, slug
from daemon.tracks.track import Loaded, Time, TrackId, load, parse_after


def understand(place: Workspace, data: bytes, name: str) -> tuple[Loaded, list[Time | TrackId]]:
    """The track and what it waits for. Raises `DocumentError` with all for which the daemon would refuse it."""
    from daemon.assembly import library
    from daemon.durable import Files
    from daemon.kernel.projects import refusals, with_address

    database = library(place, Files(), looking=True)
    loaded = with_address(load(data, name), database)
    if problems := tuple(refusals(loaded, database)):
        raise DocumentError(*problems)
    # Only whether it is a time matters here: it is counted from when the file was saved.
    predecessors = [parse_after(entry, time.time()) for entry in loaded.track.after]
    if loaded.is_empty:
        raise DocumentError(Problem("there is no text", hint="write what is to be done"))
    if len(data) > FILE_LIMIT:
        raise DocumentError(Problem(f"{len(data)} bytes are more than {FILE_LIMIT}"))
    return loaded, predecessors


def warn(place: Workspace, name: str, loaded: Loaded, predecessors: list[Time | TrackId]) -> None:
    """Say why tracks/queued/NAME will not run soon. Not an error: what is missing may come."""
    from adapters.registry import Registry
    from daemon.assembly import library
    from daemon.config import Settings
    from daemon.durable import Files
    from daemon.kernel.projects import misspelt
    from daemon.kernel.route import NoRoute, Router

    database = library(place, Files(), looking=True)
    try:
        settings = Settings.load(place.settings)
    except SettingsError as error:
        complain(
            f"it will wait until the settings can be used:\n{error}",
            error.hint or "correct them; `mh doctor` checks them",
        )
    else:
        router = Router(Registry(settings.tables()), settings.prefer, database)
        route = router.route(loaded.track, time.monotonic())
        if isinstance(route, NoRoute):
            complain(f"it will wait: {route.why}", route.unblock)
    if said := misspelt(loaded, database):
        complain(said, "")
    wanted = dict.fromkeys(moment.id for moment in predecessors if isinstance(moment, TrackId))
    if not wanted:
        return
    own = {slug(name.removesuffix(".md"))}
    if is_id(claimed := loaded.track.block.get("id", "")):
        own.add(claimed)
    sessions, names = finding.newest_sessions(place), finding.everything(place)
    for track in wanted:
        if track in own:
            complain("it waits for itself", "take it out of `after`")
        elif track not in sessions and track not in names:
            complain(f"it waits for {track}, and there is no track with this id yet", "")
        elif finding.locate(place, track, sessions.get(track), names).state == FAILED:
            complain(
                f"it waits for {track}, which has failed",
                f"`mh why {track}`; requeue that one, or take it out of `after`",
            )
