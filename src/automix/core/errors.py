"""The exception for users' mistakes, and messages of other exceptions in one line."""

LONGEST = 1000  # characters of a line


class AutomixError(ValueError):
    """A mistake in what the caller passed: one line that says what is wrong and what is accepted.

    The command line prints it without a traceback and exits with code 2. Any exception with an ``exit_code`` is
    treated like that.
    """

    exit_code = 2


def one_line(error: BaseException | str) -> str:
    """Put a message into one printable line, whatever stands in a file's name or in a library's error.

    Args:
        error: An exception, or a message.

    Returns:
        The message without line breaks and control characters; the name of the exception's class if it has no
        message. Of a very long message, the beginning and the end.
    """
    words = " ".join(str(error).split()) or (type(error).__name__ if isinstance(error, BaseException) else "")
    line = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in words)
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"
