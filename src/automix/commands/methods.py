"""`automix methods`: the mixing methods, each with the first line of its docstring."""

import inspect
from importlib import import_module

import automix
from automix.commands.arguments import new_parser, parse
from automix.commands.tables import print_table


def run(arguments: list[str]) -> None:
    parse(new_parser("methods", "", "List the mixing methods."), arguments)
    places = {"automix": "automix.learned.automix"}
    rows = [(name, _about(places.get(name, f"automix.methods.{name}"))) for name in automix.methods()]
    print_table(("method", "what it does"), rows)


def _about(module: str) -> str:
    return (inspect.getdoc(import_module(module)) or "").splitlines()[0]
