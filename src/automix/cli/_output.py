"""What commands print: tables on stdout, one-line messages on stderr."""

import sys
from collections.abc import Iterable, Sequence

from automix.core.errors import one_line


def print_error(message: BaseException | str) -> None:
    """Print a message as one line on stderr."""
    sys.stderr.write(f"automix: {one_line(message)}\n")


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, header_in_files: bool = False) -> None:
    """Print a table on a terminal, tab-separated lines to a file or pipe, there without the header if not asked for."""
    if not sys.stdout.isatty():
        lines = [header, *rows] if header_in_files else rows
        sys.stdout.writelines("\t".join(row) + "\n" for row in lines)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(*header, box=None, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(*row)
    Console(highlight=False).print(table)
