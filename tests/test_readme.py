"""What the README says is so."""

from __future__ import annotations

from pathlib import Path

from supervisor import provider_names
from supervisor.adapters import find_adapter
from tests.conformance.conftest import PINNED
from tests.conformance.table import FAILED, Table, scenarios, table_in, with_table

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_table_of_the_real_clis_is_current() -> None:
    """A new scenario, or another version, has to be run before it stands there."""
    head, _, *rows = table_in(README).splitlines()
    assert [cell.strip() for cell in head.strip("|").split("|")[1:]] == list(PINNED)
    names = [row.strip("|").split("|")[0].strip() for row in rows]
    assert names == scenarios(ROOT / "tests" / "conformance")
    cells = [cell.strip() for row in rows for cell in row.strip("|").split("|")[1:]]
    assert FAILED not in cells
    assert "" not in cells


def test_the_pinned_versions_are_those_that_the_adapters_name() -> None:
    pairs = [tuple(name.split()) for name in PINNED]
    named = [(n, v) for n in provider_names() for v in find_adapter(n).tested_versions]
    assert sorted(pairs) == sorted(named)


def test_a_table_is_written_and_read() -> None:
    table = Table(("a 1", "b 2"))
    table.enter("test_it_works", "a 1", passed=True, note=None)
    table.enter("test_it_works", "a 1", passed=True, note="refused")
    table.enter("test_it_works", "b 2", passed=False, note=None)
    table.enter("test_it_works", "b 2", passed=True, note=None)
    assert "| it works | refused | NO |" in table.markdown()
    assert table_in(with_table(README, table.markdown())) == table.markdown()
