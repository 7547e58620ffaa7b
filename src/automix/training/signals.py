"""SIGTERM and Ctrl-C: finish the step, save a checkpoint, leave. A second Ctrl-C leaves at once.

An evaluation is broken off after the batch; the resumed run begins with it.
Before the first step there is nothing to save, and reading data may take long: until then a signal leaves at once.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """A request to end the run early, made by a signal.

    Attributes:
        signal: The signal that this process received, if any.
        is_polled: Whether steps have started, each of which polls; from then on signals are noted instead of raised.
        is_agreed: Whether all processes of the run know of a request.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self.is_polled = False
        self.is_agreed = False

    @property
    def is_requested(self) -> bool:
        """Whether this process or, as far as it knows, another one of the run was asked to stop."""
        return self.is_agreed or self.signal is not None

    def poll(self) -> bool:
        """Ask whether this process should stop.

        Returns:
            Whether it has received a signal.
        """
        self.is_polled = True
        return self.signal is not None


class Stopped(Exception):  # noqa: N818 (a request, not an error)
    """A signal ended the run early; its state is saved.

    Args:
        message: One line for the user.
        number: The signal; None if another process of the run received it.
    """

    def __init__(self, message: str, number: int | None) -> None:
        super().__init__(message)
        self.exit_code = 128 + (number or signal.SIGTERM)  # the convention of shells


@contextmanager
def catch_signals() -> Iterator[StopRequest]:
    """Note SIGINT and SIGTERM instead of dying from them; afterwards they act as before.

    Yields:
        The request, which the training loop polls.
    """
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # Python delivers signals to the main thread only
        return
    process = os.getpid()

    def note(number: int, frame: FrameType | None) -> None:
        is_second, stop.signal = stop.signal is not None, number
        if os.getpid() != process:  # a worker that reads images, and ends when its run does
            return
        if is_second and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not stop.is_polled:
            raise Stopped("stopped before the first step; nothing is lost", number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
