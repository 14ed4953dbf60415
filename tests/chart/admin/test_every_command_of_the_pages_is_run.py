"""No block of commands stands in a page for admins that no test runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chart.admin.pages import Step, steps

PAGES = ("install.md", "replace.md", "drop-in-image.md", "upgrade.md", "uninstall.md")
OPENING = "Install"
"""Names for the shell, which the tests choose themselves."""


def is_run(step: Step, sources: list[str]) -> bool:
    """Whether a test of the page follows the section, or the one block of it."""
    blocks = [each for each in steps(step.page) if each.heading == step.heading]
    words = (f'"{step.heading}"', f'"{step.heading}:{blocks.index(step)}"')
    return any(f'PAGE = "{step.page}"' in source and any(word in source for word in words) for source in sources)


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_the_page_is_run(page: str) -> None:
    sources = [path.read_text() for path in Path(__file__).parent.glob("test_a_cluster_admin_*.py")]
    found = [step for step in steps(page) if step.heading != OPENING]

    assert found
    assert [(step.heading, step.script) for step in found if not is_run(step, sources)] == []
