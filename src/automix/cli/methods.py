"""`automix methods`: the mixing methods, each with the first line of its docstring."""

import inspect

from automix.cli._arguments import new_parser, parse
from automix.cli._tables import print_table
from automix.methods import find_method, methods


def run(arguments: list[str]) -> None:
    parse(new_parser("methods", "", "List the mixing methods."), arguments)
    rows = [(name, (inspect.getdoc(find_method(name)) or "").splitlines()[0]) for name in methods()]
    print_table(("method", "what it does"), rows)
