"""Names for records that have none."""

from __future__ import annotations


def own(*fields: object) -> str:
    """A key made of a record's own fields: the same record written again has the same key.

    So have two records that say the same: a count by such keys is a lower
    bound, and its reader says so with `Silent`. Keys hold within one process.
    """
    try:
        return f"own {hash(repr(fields)):x}"
    except RecursionError:
        return "own, nested too deeply"
