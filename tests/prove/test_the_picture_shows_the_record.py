"""The picture of sizes on the page is drawn from what the record has."""

from __future__ import annotations

from tests.prove import report
from tests.prove.phases import PICTURE, TOP


def test_the_picture_has_each_model_and_its_true_size() -> None:
    rows = report.read(TOP / "tests" / "prove" / "record.json")["memory"].figures
    drawing = (TOP / PICTURE).read_text()

    assert len(rows) == 30
    assert [row for row in rows if f">{row['model']}  {row['true']}<" not in drawing] == []
