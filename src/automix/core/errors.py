"""The one exception for a user's mistake, and other people's errors in one line."""


class AutomixError(ValueError):
    """A mistake in what the caller passed: one line that says what is wrong and what is accepted.

    The command line prints it without a traceback and exits with code 2.
    """


def one_line(error: BaseException) -> str:
    """Put the message of any exception into one line, for use inside a message of ours.

    Args:
        error: The exception.

    Returns:
        Its message without line breaks; the name of its class if it has no message.
    """
    return " ".join(str(error).split()) or type(error).__name__
