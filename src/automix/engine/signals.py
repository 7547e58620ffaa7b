"""SIGTERM and Ctrl-C: finish the step, save, leave. A second Ctrl-C leaves at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Whether somebody asked the run to end, and by which signal."""

    signal: int | None = None
    agreed: bool = False  # all processes of the run know of it

    @property
    def asked(self) -> bool:
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

    def note(number: int, frame: FrameType | None) -> None:
        if stop.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.signal = number

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
