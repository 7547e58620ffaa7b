"""What went wrong, as one line on stderr, whatever stands in a file's name or a setting."""

import sys

LONGEST = 1000  # characters


def complain(message: str) -> None:
    """`message` in one line without control characters; of a very long one the beginning and the end."""
    line = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in " ".join(message.split()))
    if len(line) > LONGEST:
        line = f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"
    sys.stderr.write(f"automix: {line}\n")
