"""Progress bars of long evaluations: every evaluator takes one as `track`."""

import sys
import time
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Protocol, TypeVar

Item = TypeVar("Item")

SECONDS_BETWEEN_LINES = 10.0


class Track(Protocol):
    """Pass items on and show how many of them are done."""

    def __call__(self, items: Iterable[Item], total: int, what: str) -> Iterable[Item]:
        """Wrap an iterable.

        Args:
            items: What is iterated over.
            total: How many items there will be.
            what: A few words for the person who waits.

        Returns:
            The same items.
        """


def no_progress(items: Iterable[Item], total: int, what: str) -> Iterable[Item]:
    """Show nothing.

    Args:
        items: What is iterated over.
        total: Ignored.
        what: Ignored.

    Returns:
        `items`.
    """
    return items


def progress_bar(items: Iterable[Item], total: int, what: str) -> Iterable[Item]:
    """Show a bar in the terminal that disappears at the end.

    Args:
        items: What is iterated over.
        total: How many items there will be.
        what: The words beside the bar.

    Returns:
        The same items.
    """
    from rich.progress import track

    return track(items, description=what, total=total, transient=True)


def progress_lines(items: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    """Print lines on stderr, for output that is not a terminal: at the start, every ten seconds, and at the end.

    Args:
        items: What is iterated over.
        total: How many items there will be.
        what: The words at the beginning of the line.

    Yields:
        The same items.
    """
    start = last = time.monotonic()
    _print_line(f"{what}: 0 of {total}")
    for done, item in enumerate(items):
        now = time.monotonic()
        if done and now - last >= SECONDS_BETWEEN_LINES:
            last = now
            left = timedelta(seconds=round((now - start) / done * (total - done)))
            _print_line(f"{what}: {done} of {total}, {left} left")
        yield item
    _print_line(f"{what}: {total} of {total} in {timedelta(seconds=round(time.monotonic() - start))}")


def _print_line(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
