"""The chart's README is what helm-docs makes; `scripts/render` writes it."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.chart import install, readme, render
from tests.real import parts

ROW = re.compile(r"^\| `(?P<value>[\w.]+)` \| (?P<default>.*) \| (?P<meaning>.*) \|$", re.MULTILINE)


@pytest.fixture(scope="module")
def made() -> str:
    parts.or_skip(install.helm_docs)
    return readme.made()


def test_it_is_what_helm_docs_makes(made: str) -> None:
    assert readme.path().read_text() == made


def test_each_value_has_a_row_that_says_something(made: str) -> None:
    rows = {row["value"]: row["meaning"].strip() for row in ROW.finditer(made.partition("## Values")[2])}

    assert [value for value, meaning in rows.items() if not meaning] == []
    assert len(rows) <= 60
    assert {value.partition(".")[0] for value in rows} == set(yaml.safe_load((render.CHART / "values.yaml").read_text()))
