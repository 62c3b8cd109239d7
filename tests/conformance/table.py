"""The table CLI x scenario: collected while the tests run, printed at the end, kept in the README.

A row is a test function that takes the `cli` fixture, a column is a pinned CLI. A cell is "yes" where
all of the function's cases passed, or the word that a test noted with the `cell` fixture where another
outcome is the right one for that CLI ("refused" before the start, or the code of the error), and "NO"
where one failed.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

BEGIN = "<!-- conformance table: written by scripts/conformance --write-table -->"
END = "<!-- end of the conformance table -->"
FAILED = "NO"
FILES = ("test_answer_mode.py", "test_requests_real.py")
"""Whose scenarios are the rows."""


def scenarios(folder: Path) -> list[str]:
    """The names of the rows, as the test files have them."""
    found = []
    for name in FILES:
        for node in ast.parse((folder / name).read_text()).body:
            if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef):
                arguments = [argument.arg for argument in node.args.args]
                if node.name.startswith("test_") and "cli" in arguments:
                    found.append(row_name(node.name))
    return found


def row_name(function: str) -> str:
    """A test function's name as a sentence."""
    return function.removeprefix("test_").replace("_", " ")


@dataclass
class Table:
    """Cells by row and column."""

    columns: Sequence[str]
    cells: dict[str, dict[str, str]] = field(default_factory=dict)

    def enter(self, function: str, column: str, *, passed: bool, note: str | None) -> None:
        """Add the outcome of one case; a failure stays, and a note stands over a plain yes."""
        row = self.cells.setdefault(row_name(function), {})
        before = row.get(column)
        if not passed or before == FAILED:
            row[column] = FAILED
        elif note is not None or before is None:
            row[column] = note or "yes"

    def markdown(self) -> str:
        """The table as Markdown."""
        lines = [
            f"| scenario | {' | '.join(self.columns)} |",
            f"|---|{'---|' * len(self.columns)}",
        ]
        for row, cells in self.cells.items():
            shown = (cells.get(column, "") for column in self.columns)
            lines.append(f"| {row} | {' | '.join(shown)} |")
        return "\n".join(lines)


def table_in(text: str) -> str:
    """The table that a document holds."""
    found = re.search(f"{re.escape(BEGIN)}\n(.*?)\n{re.escape(END)}", text, re.DOTALL)
    assert found is not None, "the document has no place for the table"
    return found[1].strip()


def with_table(text: str, table: str) -> str:
    """A document with another table in its place."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{table}\n\n{END}{tail}"
