"""The command line: one module a command, a typed function whose docstring is its help; `main` puts them together."""

from automix.cli.main import run

__all__ = ["run"]
