"""Mutants of a module: copies of its source in which one place is wrong.

    python benchmarks/mutants.py src/automix/core/blend.py      lists them

Left alone are annotations, docstrings, f-strings, decorators, assertions and the texts of errors.
"""

import ast
import copy
import hashlib
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.RShift: ast.LShift,
}  # fmt: skip
MESSAGES = ("AutomixError", "warn", "TypeError", "ValueError")
"""Calls whose strings are texts for people; so is the first argument of ``check_...``, the name of an argument."""

UNSEEN = ("device", "non_blocking", "strict")
"""Keywords that no test in this process can miss: those of other devices, whose tests run in processes of their own,
and ``zip(strict=True)``, an assertion."""


@dataclass(frozen=True)
class Mutant:
    """One wrong place.

    Args:
        key: Names it, whatever the line: module, function, operator, the code before and after, and a number where a
            function has the same code twice.
        operator: What was done, in words.
        line: Where it is.
        lines: Lines of which a test must run one to notice it; empty for code that importing runs.
        body: Digest of the function or statement that has it; a result is valid as long as this does not change.
        source: The source of the module with it.
    """

    key: str
    operator: str
    line: int
    lines: tuple[int, ...]
    body: str
    source: str


@dataclass(frozen=True)
class _Place:
    """A piece of code that can be replaced."""

    node: ast.AST
    operator: str
    after: str
    function: str
    lines: tuple[int, ...]
    root: ast.stmt


def find_mutants(module: str, source: str) -> list[Mutant]:
    """Make every mutant of a module.

    Args:
        module: Its name, such as ``"automix.core.blend"``.
        source: Its source.

    Returns:
        The mutants, in the order of their lines.
    """
    counted: Counter[str] = Counter()
    found = []
    for place in _places(ast.parse(source)):
        before = " ".join(ast.unparse(place.node).split())
        name = f"{module}.{place.function}" if place.function else module
        key = f"{name}: {place.operator}: {before} -> {' '.join(place.after.split())}"
        counted[key] += 1
        key += f" (#{counted[key]})" if counted[key] > 1 else ""
        body = hashlib.sha256(ast.dump(place.root).encode()).hexdigest()[:12]
        mutated = _replace(source, place.node, place.after)
        compile(mutated, module, "exec")
        line: int = place.node.lineno  # type: ignore[attr-defined]
        found.append(Mutant(key, place.operator, line, place.lines, body, mutated))
    return sorted(found, key=lambda mutant: mutant.line)


def _replace(source: str, node: ast.AST, text: str) -> str:
    """Put `text` in the place of a node; positions of ast count bytes of UTF-8."""
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    whole = b"".join(lines)
    begin = starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
    end = starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
    return (whole[:begin] + text.encode() + whole[end:]).decode()


def _places(tree: ast.Module) -> Iterator[_Place]:
    """Every place of a module."""
    for statement in tree.body:
        yield from _of_statement(statement, (), None, statement)


def _of_statement(
    statement: ast.stmt, names: tuple[str, ...], owner: ast.FunctionDef | None, root: ast.stmt
) -> Iterator[_Place]:
    """The places of a statement and those inside of it; `owner` is the function it is in."""
    if isinstance(statement, ast.Import | ast.ImportFrom | ast.Raise | ast.Assert):
        return
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return  # a docstring
    if isinstance(statement, ast.FunctionDef):
        inside = (*names, statement.name)
        root = statement if owner is None else root
        for default in (*statement.args.defaults, *(d for d in statement.args.kw_defaults if d is not None)):
            yield from _of_expression(default, inside, _lines_of(*statement.body), root, "default changed")
        for part in statement.body:
            yield from _of_statement(part, inside, statement, root)
        return
    if isinstance(statement, ast.ClassDef):
        for part in statement.body:
            yield from _of_statement(part, (*names, statement.name), owner, part)
        return
    if _is_type(statement):
        return
    lines = _lines_of(*_header(statement)) if owner is not None else ()
    function = ".".join(names)
    if owner is not None:
        yield from _of_whole(statement, function, lines, root)
    for expression in _header(statement):
        yield from _of_expression(expression, names, lines, root)
    for field in ("body", "orelse", "finalbody"):
        for part in getattr(statement, field, []):
            yield from _of_statement(part, names, owner, root)
    for handler in getattr(statement, "handlers", []):
        for part in handler.body:
            yield from _of_statement(part, names, owner, root)


def _of_whole(statement: ast.stmt, function: str, lines: tuple[int, ...], root: ast.stmt) -> Iterator[_Place]:
    """A call that is left out, a value that is not returned, a branch that is taken the other way."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        if _called(statement.value) not in MESSAGES:
            yield _Place(statement, "call left out", "pass", function, lines, root)
    elif isinstance(statement, ast.AugAssign):
        yield _Place(statement, "call left out", "pass", function, lines, root)
    elif isinstance(statement, ast.Return) and statement.value is not None and not _is_none(statement.value):
        yield _Place(statement, "value not returned", "return None", function, lines, root)
    elif isinstance(statement, ast.If | ast.While) and not isinstance(statement.test, ast.Compare | ast.UnaryOp):
        after = f"(not ({ast.unparse(statement.test)}))"
        yield _Place(statement.test, "condition negated", after, function, lines, root)


def _of_expression(
    root_node: ast.expr, names: tuple[str, ...], lines: tuple[int, ...], root: ast.stmt, operator: str = ""
) -> Iterator[_Place]:
    """The places of an expression."""
    function = ".".join(names)
    for node in _walk(root_node):
        for word, changed in _changes(node):
            yield _Place(node, operator or word, changed, function, lines, root)


def _changes(node: ast.AST) -> Iterator[tuple[str, str]]:
    """What can be wrong in one node: words for it, and the code."""
    changed = copy.copy(node)
    if isinstance(node, ast.Compare):
        for number, compared in enumerate(node.ops):
            ops = [*node.ops]
            ops[number] = COMPARED[type(compared)]()
            yield "comparison changed", f"({ast.unparse(ast.Compare(node.left, ops, node.comparators))})"
    elif isinstance(node, ast.BinOp) and type(node.op) in COMPUTED:
        changed.op = COMPUTED[type(node.op)]()  # type: ignore[attr-defined]
        yield "arithmetic changed", f"({ast.unparse(changed)})"
    elif isinstance(node, ast.BoolOp):
        changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()  # type: ignore[attr-defined]
        yield "and for or", f"({ast.unparse(changed)})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub | ast.Invert):
        yield "sign or not dropped", f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.IfExp):
        yield "branches swapped", f"({ast.unparse(ast.IfExp(node.test, node.orelse, node.body))})"
    elif isinstance(node, ast.Constant) and (other := _other_constant(node.value)) is not None:
        yield "constant changed", repr(other)
    elif isinstance(node, ast.Call):
        for number, keyword in enumerate(node.keywords):
            if keyword.arg is not None and keyword.arg not in UNSEEN and not _is_message(node):
                keywords = [*node.keywords[:number], *node.keywords[number + 1 :]]
                yield "keyword left out", ast.unparse(ast.Call(node.func, node.args, keywords))


def _other_constant(value: object) -> object:
    """Another value of the same type; None for values that are left alone."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return 2 * value if value else 1.0
    return f"not {value}" if isinstance(value, str) and value else None


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of an expression that may be changed, outer ones first."""
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.keyword) and node.arg in UNSEEN):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(node, ast.Call) and child is not node.func and _is_for_people(node, child)):
            yield from _walk(child)


def _is_for_people(call: ast.Call, argument: ast.AST) -> bool:
    """Whether an argument of a call is a text: of an error, or the name of an argument or a length in a check."""
    if _called(call).startswith("check_") and argument is call.args[0]:
        return True
    return (_is_message(call) or _called(call) == "check_shape") and _is_text(argument)


def _is_message(call: ast.Call) -> bool:
    return _called(call) in MESSAGES


def _is_text(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in ast.walk(node))


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _called(call: ast.Call) -> str:
    """The last name of what is called."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _is_type(statement: ast.stmt) -> bool:
    """Whether a statement names types or exports: ``Rule = Literal[...]``, ``__all__``, ``if TYPE_CHECKING``."""
    if isinstance(statement, ast.If):
        return "TYPE_CHECKING" in ast.unparse(statement.test)
    if not isinstance(statement, ast.Assign):
        return False
    value = statement.value
    is_type = isinstance(value, ast.Subscript | ast.BinOp) and any(
        isinstance(part, ast.Name) and part.id in ("Literal", "Callable", "None") for part in ast.walk(value)
    )
    return is_type or ast.unparse(statement.targets[0]) == "__all__"


def _header(statement: ast.stmt) -> list[ast.expr]:
    """The expressions of a statement itself, without annotations, targets and the statements inside of it."""
    if isinstance(statement, ast.With):
        return [item.context_expr for item in statement.items]
    fields = ("test", "iter", "value")
    return [value for field in fields if isinstance(value := getattr(statement, field, None), ast.expr)]


def _lines_of(*nodes: ast.AST) -> tuple[int, ...]:
    """Every line of the nodes."""
    return tuple(
        sorted({line for node in nodes for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)})  # type: ignore[attr-defined]
    )


def main() -> None:
    """List the mutants of a file."""
    path = Path(sys.argv[1])
    module = ".".join(path.with_suffix("").parts[path.parts.index("automix") :])
    for mutant in find_mutants(module, path.read_text(encoding="utf-8")):
        print(f"{mutant.line}: {mutant.key}")


if __name__ == "__main__":
    main()
