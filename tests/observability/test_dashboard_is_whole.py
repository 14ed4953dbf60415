"""The dashboard can be imported as it is: Grafana's own types read it, nothing overlaps, each panel explains itself."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.observability.files import Panel, dashboard, panels

MOST_PANELS = 26
COLUMNS = 24


def lost(given: Any, kept: Any, path: str = "") -> list[str]:
    """What is in the one and not, or otherwise, in the other."""
    if isinstance(given, dict) and isinstance(kept, dict):
        return [found for key in given for found in (lost(given[key], kept[key], f"{path}/{key}") if key in kept else [f"{path}/{key}"])]
    if isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        return [found for number, pair in enumerate(zip(given, kept, strict=True)) for found in lost(*pair, f"{path}/{number}")]
    return [] if given == kept else [path]


def test_grafanas_types_know_every_field() -> None:
    """A field that is misspelt, or has the wrong type, would be lost."""
    register_default_plugins()

    kept = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(dashboard())))

    assert lost(dashboard(), kept) == []


def test_the_data_source_is_chosen_where_it_is_imported() -> None:
    """And no dashboard of another Grafana is replaced."""
    board = dashboard()
    text = json.dumps(board)

    assert {json.dumps(found) for found in re.findall(r'"uid": "([^"]*)"', text)} == {'"${datasource}"'}
    assert "id" not in board
    assert "uid" not in board
    assert board["schemaVersion"] >= 38
    assert [variable["name"] for variable in board["templating"]["list"]] == ["datasource", "namespace", "runtime", "pod"]


def test_places_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        columns, rows = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        cells = set(itertools.product(columns, rows))
        assert not cells & taken, panel["title"]
        assert columns.stop <= COLUMNS
        taken |= cells


def test_ids_and_titles_are_unique() -> None:
    found = dashboard()["panels"]

    assert len({panel["id"] for panel in found}) == len({panel["title"] for panel in found}) == len(found)
    assert len(panels()) <= MOST_PANELS


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel.title)
def test_a_panel_explains_itself(panel: Panel) -> None:
    """One sentence, a unit, the chosen pods alone."""
    assert re.fullmatch(r"[A-Z][^.]+\.", panel.raw["description"])
    assert panel.unit
    assert all('namespace=~"$namespace",pod=~"$pod"' in query.expression for query in panel.queries)
    assert panel.lines <= {query.legend for query in panel.queries}


@pytest.mark.parametrize(
    ("pod", "runtime"),
    [
        ("modelmesh-serving-triton-2.x-5d8f7c9b6d-x2x9q", "triton-2.x"),
        ("modelmesh-serving-my-triton-5d8f7c9b6d-x2x9q", "my-triton"),
        ("laptop", None),
    ],
)
def test_the_runtime_is_read_from_the_pods_name(pod: str, runtime: str | None) -> None:
    """And picks the pods of that runtime, and of no other whose name begins alike; where there is none, all pods."""
    variables = {variable["name"]: variable for variable in dashboard()["templating"]["list"]}
    pattern = variables["runtime"]["regex"].strip("/")
    chosen = re.findall(r'pod=~"([^"]+)"', variables["pod"]["query"]["query"])[0]

    match = re.fullmatch(pattern, pod)
    assert (match and match[1]) == runtime
    assert re.fullmatch(chosen.replace("$runtime", re.escape(runtime) if runtime else variables["runtime"]["allValue"]), pod)
    assert not re.fullmatch(chosen.replace("$runtime", "triton"), pod)
