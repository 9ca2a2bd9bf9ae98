"""Every file and directory that megaHarness makes, as data: docs/reference/files.md is made from it.

`WORKSPACE` is relative to the workspace, `SESSION` to ``sessions/<session-id>/``,
`STATE` to the state directory outside the workspace.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """path: `/` at its end for a directory, `<...>` for what varies. goes: when it is removed, and by whom."""

    path: str
    writer: str
    content: str
    goes: str = "never"


WORKSPACE = (
    Entry("megaharness.toml", "you", "the settings, see [settings](settings.md)"),
    Entry(
        ".gitignore",
        "`mh init`",
        "keeps sessions and machine state out of git; yours from then on",
        "is yours",
    ),
    Entry("md-db/", "you", "the Markdown database; a starter is copied where there is none"),
    Entry(
        "md-db/instructions/", "you", "what agents are told, see [documents](documents.md); subfolders count"
    ),
    Entry("md-db/instructions/router-policy.md", "you", "what must not be started, and why"),
    Entry(
        "md-db/instructions/harness-translation-<from>-<to>.md",
        "you",
        "told when a track goes over from one harness to another",
    ),
    Entry("md-db/projects/<id>.md", "you", "a project: its brief, and what each of its tracks must pass"),
    Entry("md-db/skills/", "you", "`<name>/SKILL.md`, with whatever else lies there, or `<name>.md`"),
    Entry("md-db/sidecar/", "you", "rules for a later version; `mh doctor` checks them"),
    Entry(
        ".git/refs/megaharness/md-db",
        "daemon",
        "the newest commit that holds documents as sessions were told them, where yours do not (`mh mddb log`); "
        "git may keep it in `.git/packed-refs`. Nothing else of your repository is touched",
    ),
    Entry("md-db/evals/", "daemon", "the eval rows"),
    Entry(
        "md-db/evals/<yyyy-mm>.jsonl", "daemon", "one row for each session, appended once; unknown is null"
    ),
    Entry("tracks/", "", "the root of the queue; the four folders must be on one file system"),
    Entry(
        "tracks/queued/",
        "you, `mh drop`",
        "tracks that wait; the daemon never writes here, it renames out, and back in when you ask for it. "
        "What is saved under the name of a track that runs is an edit of it; the same up to a minute after its "
        "end goes on with the changed text, or, unchanged, is not run again. Another text is a track of its own",
        "a file goes when it is claimed",
    ),
    Entry("tracks/active/", "daemon", "claimed tracks", "a file goes when its track is settled"),
    Entry(
        "tracks/done/", "daemon", "settled tracks with the result appended; never overwritten (`name~2.md`)"
    ),
    Entry(
        "tracks/failed/",
        "daemon",
        "the same for what failed; refused files lie here with their bytes untouched",
    ),
    Entry(
        "tracks/failed/<name>.md.why.txt",
        "daemon",
        "why a file was refused: line, key, value and way out",
        "when its .md has gone",
    ),
    Entry(
        "tracks/requests/",
        "the command line",
        "what is asked of the daemon: `interrupt`, `fresh`, `down`; one small JSON file each, put there by rename",
        "a file goes when it has been carried out",
    ),
    Entry(
        "tracks/journal.jsonl",
        "daemon",
        "every transition: at, id, name, session, from, to, by, why, termination; a reader skips a torn last line",
    ),
    Entry(
        "tracks/.tmp/",
        "daemon, `mh drop`",
        "temps of what is renamed into the watched tree",
        "leftovers of a crash: after ten minutes, at the next start",
    ),
    Entry(
        "tracks/.displaced/",
        "daemon",
        "`<session>.<hash of ours>.<hash of what was read>.<random>.md`: what came out when a file was rewritten; "
        "it can hold what an editor saved at that very moment",
        "after it was quiet for three seconds and what it held has been merged",
    ),
    Entry("sessions/", "", "one directory for each session, see below", "never by the daemon"),
    Entry("sessions/<session-id>/", "", "`<track id>-<attempt>-<12 hex digits>`; never used again"),
    Entry("runs/", "", "empty: runs are not part of this version"),
    Entry(".megaharness/", "daemon", "state of this machine"),
    Entry(
        ".megaharness/lock",
        "daemon",
        "held with `flock` for the daemon's life; its content (pid, boot, start) is only information",
    ),
    Entry(
        ".megaharness/daemon.json",
        "daemon",
        "what the views show: pid, phase, slots, running, waiting, why it is degraded; a rendering, losing it "
        "costs nothing",
    ),
    Entry(".megaharness/wake/", "daemon", "where runners knock"),
    Entry(
        ".megaharness/wake/<session-id>",
        "runner",
        "touched when something happened in a session",
        "when the session is settled",
    ),
    Entry(".megaharness/holds/", "", "empty: holds are not part of this version"),
    Entry(".megaharness/events/", "", "empty: events from other programs are not part of this version"),
    Entry(".megaharness/log/", "daemon", "logs"),
    Entry(
        ".megaharness/log/daemon.jsonl",
        "daemon",
        "the daemon's log, one JSON object a line; `.1` to `.5` are older",
        "each at most 5 MB, five older ones are kept",
    ),
    Entry(
        ".megaharness/log/up.log",
        "`mh up -d`",
        "what a detached daemon printed",
        "overwritten at the next start",
    ),
    Entry(".megaharness/tmux/", "daemon", "the private tmux server's"),
    Entry(".megaharness/tmux/socket", "daemon", "the path of its socket, as text"),
    Entry(
        ".megaharness/tmux/tmux.conf",
        "daemon",
        "its configuration",
        "rewritten whenever the server is started",
    ),
)

SESSION = (
    Entry(
        "claim.json",
        "daemon",
        "the authority that this track is claimed: session, item, name, attempt, round, claimed_at, and in `extra` "
        "harness, model, route, title, the hash of spec.md, what its project demands; "
        "durable before anything is started",
    ),
    Entry(
        "spec.md", "daemon", "the track's file, byte for byte as it was claimed: the contract is frozen here"
    ),
    Entry(
        "edits/",
        "daemon",
        "`NNNN.json`: each version of the track's file that a person saved while the session was open: its text, "
        "the message that came of it and its name in the inbox, the keys that were changed, another harness that was "
        "asked for",
    ),
    Entry(
        "limits.json",
        "daemon",
        "the minutes as a person changed them while it ran; the runner reads it with its heartbeat",
    ),
    Entry(
        "vanished.json",
        "daemon",
        "its file vanished together with others, so it was not deleted by a person",
        "when the file is back",
    ),
    Entry(
        "place.json", "daemon", "where it works: path, branch, and the commit that the diff is taken against"
    ),
    Entry("brief.md", "daemon", "exactly what the harness got"),
    Entry(
        "instructions.md",
        "daemon",
        "what the database says, for a harness that takes it apart from the brief",
    ),
    Entry("skills/", "daemon", "the skills that apply, one folder each, as they were when it started"),
    Entry(
        "launch.json",
        "daemon",
        "how it is started: argv, cwd, names (never values) of the environment, limits, how it is ended; and under "
        "`instruction` each document that it was told, with its content id and the clause that matched, those that "
        "came nearest, and the commit that holds them all",
    ),
    Entry(
        "env.json",
        "daemon",
        "the environment's values, mode 0600",
        "the runner removes it as soon as it was read",
    ),
    Entry(
        "lock", "runner", "held with `flock` by the runner until `exit.json` is on disk: held means running"
    ),
    Entry(
        "started.json",
        "runner, or who cancels",
        "the start gate, made by `link()`: `by: runner` with pid, start ticks and boot id, or `by: cancelled` with why",
    ),
    Entry(
        "interrupt.json", "daemon, `mh interrupt`, viewer", "why it is being ended; durable before any signal"
    ),
    Entry(
        "heartbeat.json",
        "runner",
        "every ten seconds: phase, pid of the harness, bytes so far, time of the last output",
    ),
    Entry("events.jsonl", "runner", "the harness's standard output, byte for byte"),
    Entry("stderr.log", "runner", "its standard error, byte for byte; both are capped at 1 GiB"),
    Entry("runner.log", "runner", "the runner's own troubles; empty as a rule"),
    Entry("blocks/", "harness `shell`", "the code blocks that were run, one file each"),
    Entry("inbox/", "viewer, daemon", "messages for the harness's standard input, one file each, by rename"),
    Entry("inbox/delivered/", "runner", "messages that were written to it, moved here afterwards"),
    Entry("inbox/text/", "viewer, daemon", "`<name>.json`: the same messages as a person typed them"),
    Entry(
        "exit.json",
        "runner",
        "how it ended, once, durably: code or signal, reason, times, bytes, strays. The only source of the outcome",
    ),
    Entry(
        "leftovers.json", "daemon", "what was not committed when the harness had ended, before the checks ran"
    ),
    Entry(
        "receipts/", "daemon", "`NN.json`: one for each check: exit, seconds, commit, the end of its output"
    ),
    Entry("outcome.json", "daemon", "the commit, the files that differ from the base, the diff stat"),
    Entry("result.md", "daemon", "the result as it is appended to the track's file"),
    Entry(
        "settle.json",
        "daemon",
        "the intent: termination (`blocked`: it asks), why, destination (done, failed, queued, stays), the eval row; "
        "a session with it is over for ever",
    ),
    Entry(
        "*.odd-N",
        "daemon",
        "what stood where the daemon's own file belongs, and was not the daemon's",
    ),
    Entry(
        "settled",
        "daemon",
        "the marker that the intent was carried out: where the file lies, under which name",
    ),
    Entry(
        "late-save-<hash>.md",
        "daemon",
        "a person's text that was saved into an already rewritten file and could not be merged by itself",
    ),
)

STATE = (
    Entry(
        "scratch/<track-id>/",
        "the agent",
        "the git repository in which a track works, on branch `mh/<track-id>`; `<track-id>--2` after `requeue --fresh`",
        "never by the daemon",
    ),
    Entry("worktrees/<track-id>/", "", "not made in this version: tracks have no projects yet"),
)
