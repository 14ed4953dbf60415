"""The view on a terminal and as JSON: narrow, sorted, safe to print, and it says what it does not know."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from adapter.model import ServerModel
from adapter.verbs.models import COLUMNS, as_json, text, triton_word
from adapter.verbs.tables import shown, sizes

NOW = datetime(2027, 1, 15, 8, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def a_row(name: str, state: str = "READY", reason: str = "") -> dict[str, str]:
    return {"name": name, "version": "1", "state": state, "reason": reason}


def a_record(state: str = "loaded", since: float = 100, size_bytes: int = 5 << 20, path: str = "models/m") -> dict[str, Any]:
    """What the adapter has noted, these seconds ago."""
    return {
        "state": state, "since": ago(since), "confirmed": None, "type": "onnx", "path": path, "storage_key": "s3", "size_bytes": size_bytes,
    }  # fmt: skip


def a_model(model_id: str = "m", **fields: Any) -> dict[str, Any]:
    """One that everybody agrees on, unless it is said otherwise."""
    usual: dict[str, Any] = {
        "id": model_id, "drift": None, "adapter": a_record(), "triton": [a_row(model_id)],
        "folder": {"size_bytes": 4 << 20, "placed_by_adapter": True}, "artifact": {"key": "ab" * 32, "exists": True},
    }  # fmt: skip
    return usual | fields


def a_view(*models: dict[str, Any], alive: bool = True, words: str = "ready", version: str = "2.51.0", **fields: Any) -> dict[str, Any]:
    """As `models.look` gives it; a field that ends in `_problem` is that of a place."""
    problems = {place: fields.pop(f"{place}_problem", None) for place in ("triton", "journal", "folder")}
    usual: dict[str, Any] = {
        "format": 1, "time": NOW, "agrees": not any(model["drift"] for model in models) and not any(problems.values()),
        "adapter": {"alive": alive, "ready": alive, "words": words},
        "triton": {"endpoint": "localhost:8001", "version": version, "problem": problems["triton"]},
        "journal": {"path": "/models/_adapter/journal.jsonl", "problem": problems["journal"]},
        "folder": {"path": "/models/_triton_models", "problem": problems["folder"]},
        "artifacts": {"count": 1, "idle": 0}, "crashes": [], "models": models,
    }  # fmt: skip
    return usual | fields


def lines(view: dict[str, Any], *, drift_only: bool = False) -> list[str]:
    return text(view, drift_only=drift_only).splitlines()


def test_triton_is_quoted_where_it_says_why() -> None:
    reason = "unexpected error when creating modelInstanceState: " + "word " * 100
    broken = a_model("m", drift="not_serving", triton=[a_row("m", "UNAVAILABLE", reason), a_row("m", "UNAVAILABLE", "unloaded")])

    (quoted,) = [line for line in lines(a_view(broken)) if line.startswith("Triton says")]

    assert quoted.startswith("Triton says of m: unexpected error when creating modelInstanceState: word")
    assert 100 < len(quoted) < 400


def a_crash(*models: str) -> dict[str, Any]:
    return {"count": 2, "last": NOW, "models": list(models)}


HOSTILE = "a\x1b[2J\x1b]0;owned\x07\r\n\u202e\u2028\x9b31m\udc80\\"


def test_no_control_character_reaches_a_terminal() -> None:
    model = a_model(
        HOSTILE,
        drift="not_serving",
        adapter=a_record(path=HOSTILE),
        triton=[{**a_row(HOSTILE, "UNAVAILABLE", HOSTILE), "version": HOSTILE}],
    )
    views = [
        a_view(model, crashes=[a_crash(HOSTILE)], version=HOSTILE, words=HOSTILE, folder_problem=HOSTILE),
        a_view(model, triton_problem=HOSTILE, journal_problem=HOSTILE),
    ]

    for view in views:
        found = text(view, drift_only=False)
        assert all(line.isprintable() for line in found.split("\n"))
        found.encode()
    assert shown(HOSTILE) == "a\\x1b[2J\\x1b]0;owned\\x07\\r\\n\\u202e\\u2028\\x9b31m\\udc80\\\\"
    assert as_json(views[0], drift_only=False).isascii()
    assert json.loads(as_json(views[0], drift_only=False))["models"][0]["id"] == HOSTILE


def test_json_is_the_same_with_moments_in_iso() -> None:
    model = a_model("a", drift="not_serving", adapter={**a_record(), "confirmed": ago(60)})
    view = a_view(model, a_model("b"), crashes=[a_crash("a")])

    found = json.loads(as_json(view, drift_only=False))

    assert (found["time"], found["crashes"][0]["last"]) == ("2027-01-15T08:00:00Z", "2027-01-15T08:00:00Z")
    assert found["models"][0]["adapter"]["since"] == "2027-01-15T07:58:20Z"
    assert found["models"][0]["adapter"]["confirmed"] == "2027-01-15T07:59:00Z"
    assert [*found] == [*view]
    assert [model["id"] for model in json.loads(as_json(view, drift_only=True))["models"]] == ["a"]


@pytest.mark.parametrize(
    ("rows", "word"),
    [
        ([], "-"),
        ([("m", "", "")], "not asked"),
        ([("m", "READY", ""), ("m", "UNAVAILABLE", "unloaded")], "ready"),
        ([("m", "READY", ""), ("m", "LOADING", "")], "loading"),
        ([("m", "UNLOADING", "")], "unloading"),
        ([("m", "UNAVAILABLE", "unloaded")], "unloaded"),
        ([("m", "UNAVAILABLE", "no such file")], "failed"),
        ([("m", "READY", ""), ("m~inner~x", "UNAVAILABLE", "unloaded")], "partly"),
        ([("m", "READY", ""), ("m~inner~x", "READY", "")], "ready"),
        ([("m", "\x1b[2J", "")], "failed"),
    ],
)
def test_triton_has_one_word_for_all_versions_and_inner_models(rows: list[tuple[str, str, str]], word: str) -> None:
    found = triton_word("m", [ServerModel(name, "1", state, reason) for name, state, reason in rows])

    assert found == word
    assert len(found) <= int(dict(COLUMNS)["TRITON"][1:])


def a_sized(model_id: str, size_bytes: int, source: str, measured_bytes: int | None) -> dict[str, Any]:
    size = {"source": source, "predicted_bytes": 1 << 20, "measured_bytes": measured_bytes}
    return a_model(model_id, adapter=a_record(size_bytes=size_bytes) | {"size": size})


def test_sizes_are_sorted_and_say_how_they_are_known() -> None:
    unknown = a_model("unknown", adapter=a_record(size_bytes=3 << 20) | {"size": None})
    known = [a_sized("small", 2 << 20, "files", None), a_sized("large", 50 << 20, "measured", 49 << 20)]
    memory = {"told_bytes": 55 << 20, "capacity_bytes": 110 << 20, "used_bytes": 70 << 20, "limit_bytes": 256 << 20}
    view = a_view(*known, unknown, a_model("x", adapter=None), memory=memory)

    assert sizes(view).splitlines() == [
        "[##########..........] 55M of models of 110M capacity; Triton takes 70M of 256M",
        "",
        "    SIZE  SOURCE     PREDICTED  MEASURED   SINCE  STATE      MODEL",
        "     50M  measured          1M       49M   1m40s  loaded     large",
        "      3M  -                  -         -   1m40s  loaded     unknown",
        "      2M  files             1M         -   1m40s  loaded     small",
    ]
    untold = {"told_bytes": 0, "capacity_bytes": None, "used_bytes": None, "limit_bytes": None}
    assert sizes(a_view(memory=untold)).startswith("0 of models; sizes are estimates\n")
