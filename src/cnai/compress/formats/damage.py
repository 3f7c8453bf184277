"""A graph that contradicts itself: it names nodes, functions or inputs that are not there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cnai.core.errors import DataError


@contextmanager
def telling_damage(where: str) -> Iterator[None]:
    """Turn what a broken reference or number leads to into an error that says so.

    Raises:
        DataError: Something that the graph refers to is missing or makes no sense.
    """
    try:
        yield
    except (LookupError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise DataError(
            f"the model contradicts itself: {type(error).__name__} {error}",
            where=where,
            hint="the file is damaged; copy it again, or export the model anew",
        ) from error
