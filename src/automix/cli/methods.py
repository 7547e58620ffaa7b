"""`automix methods`: the mixing methods, each with the first line of its docstring."""

import inspect

from automix.cli._output import print_table


def methods() -> None:
    """List the mixing methods."""
    from automix.methods import find_method
    from automix.methods import methods as names

    rows = [(name, (inspect.getdoc(find_method(name)) or "").splitlines()[0]) for name in names()]
    print_table(("method", "what it does"), rows)
