"""The order of the tests."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Proofs, then what else is slow: with several processes the small ones fill what is left at the end."""
    items.sort(key=lambda item: [item.get_closest_marker(name) is None for name in ("proof", "slow")])
