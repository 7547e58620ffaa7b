"""SIGTERM and Ctrl-C: finish the step, save, leave. A second Ctrl-C leaves at once.

Before the first step there is nothing to save, and reading the data may take longer than whoever asks will wait: until
then any of them leaves at once.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Whether somebody asked the run to end, and by which signal."""

    signal: int | None = None
    heeded: bool = False  # steps are under way, each of which looks here
    agreed: bool = False  # all processes of the run know of it

    @property
    def asked(self) -> bool:
        self.heeded = True
        return self.signal is not None


class Stopped(Exception):  # noqa: N818 (no error: somebody asked for it)
    """The run ended early on request; its state is saved."""

    def __init__(self, message: str, number: int | None) -> None:
        super().__init__(message)
        # 128 + signal is the convention of shells; without a number, another process of the run was signalled
        self.exit_code = 128 + (number or signal.SIGTERM)


@contextmanager
def listening() -> Iterator[Stop]:
    """Note the signals instead of dying from them; afterwards they act as before."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # Python delivers signals to the main thread only
        return
    process = os.getpid()

    def note(number: int, frame: FrameType | None) -> None:
        again, stop.signal = stop.signal is not None, number
        if os.getpid() != process:  # a worker that reads images, and ends when its run does
            return
        if again and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not stop.heeded:
            raise Stopped("stopped before the first step; nothing is lost", number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
