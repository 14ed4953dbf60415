"""The view on a terminal and as JSON: narrow, sorted, safe to print, and it says what it does not know."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any, get_args

import pytest

from adapter.inventory import Drift
from adapter.model import Crashes, Placed, Record, ServerModel
from adapter.settings import read_group
from adapter.settings.storage import VolumeSettings
from adapter.settings.triton import TritonSettings
from adapter.verbs.models import Health, Places, Sight, View
from adapter.verbs.models_text import COLUMNS, DRIFTS, as_json, shown, text, triton_word
from tests.unit.journal.journals import DIGEST, a_record

PLACES = Places(lambda **_: (True, ["alive"]), read_group(TritonSettings, {}), read_group(VolumeSettings, {}))
NOW = 10_000.0


def a_row(name: str, state: str = "READY", reason: str = "") -> ServerModel:
    return ServerModel(name, "1", state, reason)


def a_sight(model_id: str = "m", *, drift: Any = None, record: Record | None = None, is_known: bool = True, **fields: Any) -> Sight:
    """A loaded model that everybody agrees on, unless it is said otherwise."""
    known = record or a_record(model_id, since=NOW - 100, size_bytes=5 << 20, placed="1-1", artifact_key="ab" * 32)
    usual: dict[str, Any] = {
        "record": known if is_known else None, "rows": (a_row(model_id),), "placed": Placed("1-1", 4 << 20), "has_artifact": True,
    }  # fmt: skip
    return Sight(model_id, drift=drift, **usual | fields)


def a_view(*models: Sight, **fields: Any) -> View:
    usual: dict[str, Any] = {
        "places": PLACES, "health": Health(True, True, "ready"), "journal_problem": None, "triton_version": "2.51.0",
        "triton_problem": None,
        "folder_problem": None, "artifacts": frozenset({"ab" * 32}), "crashes": {}, "now": NOW, "clock": 1_800_000_000.0,
    }  # fmt: skip
    return View(models=models, **usual | fields)


def lines(view: View, *, columns: int = 80, drift_only: bool = False) -> list[str]:
    return text(view, columns=columns, drift_only=drift_only).splitlines()


def test_triton_is_quoted_where_it_says_why() -> None:
    reason = "unexpected error when creating modelInstanceState: " + "word " * 100
    broken = a_sight("m", drift="not_serving", rows=(a_row("m", "UNAVAILABLE", reason), a_row("m", "UNAVAILABLE", "unloaded")))

    found = lines(a_view(broken))
    quoted = [line for line in found if line.startswith("      ")]

    assert quoted[0].startswith("      Triton says: unexpected error when creating modelInstanceState: word")
    assert 3 <= len(quoted) <= 6
    assert max(map(len, found)) <= 80


def test_a_dead_adapter_is_said_with_what_its_journal_cannot_tell() -> None:
    under_way = a_sight("b", record=a_record("b", state="loading", since=NOW - 7200))
    view = a_view(a_sight("a"), under_way, health=Health(False, False, "no answer from localhost:8085: connection refused"))

    assert lines(view)[:5] == [
        "adapter  no answer from localhost:8085: connection refused",
        "         so ADAPTER shows what it noted last; nothing is loaded, unloaded or",
        "         restored until it answers; 1 model was under way: the next adapter",
        "         finishes or undoes that",
        "triton   2.51.0 at localhost:8001, serves 2 models",
    ]
    assert "start the adapter" in text(a_view(replace(under_way, drift="lost"), health=view.health), columns=80, drift_only=False)


def test_crashes_are_told_with_the_models_of_that_content() -> None:
    crashes = {name: Crashes(digest=name, count=2, last=NOW - 60 * number) for number, name in enumerate([DIGEST, "x", "y", "z", "w"])}
    found = lines(a_view(a_sight("a"), a_sight("b"), crashes=crashes))

    assert "crashes  Triton died 2 times while it loaded a, b; last 0s ago" in found
    assert "crashes  Triton died 2 times while it loaded a model that is not here now; last" in found
    assert "         and while it loaded 2 other contents" in found


def test_content_that_is_refused_is_told_with_what_ends_that() -> None:
    """From the third death on, and for a day."""
    found = [
        lines(a_view(a_sight("a"), crashes={DIGEST: Crashes(digest=DIGEST, count=count, last=NOW - hours * 3600)}), columns=140)
        for count, hours in ((3, 1), (2, 1), (3, 25))
    ]
    assert [any("; refused until it changes, or 23h00m pass" in line for line in each) for each in found] == [True, False, False]


HOSTILE = "a\x1b[2J\x1b]0;owned\x07\r\n\u202e\u2028\x9b31m\udc80\\"


def test_no_control_character_reaches_a_terminal() -> None:
    sight = a_sight(
        HOSTILE, drift="not_serving", record=a_record("x", path=HOSTILE), rows=(ServerModel(HOSTILE, HOSTILE, "UNAVAILABLE", HOSTILE),)
    )
    crashes = {DIGEST: Crashes(digest=DIGEST, count=1, last=0)}
    view = a_view(
        sight, crashes=crashes, triton_version=HOSTILE, health=Health(True, False, HOSTILE), journal_problem=None, folder_problem=HOSTILE
    )

    for found in (
        text(view, columns=80, drift_only=False),
        text(replace(view, triton_problem=HOSTILE, journal_problem=HOSTILE), columns=80, drift_only=True),
    ):
        assert all(line.isprintable() for line in found.split("\n"))
        found.encode()
    assert shown(HOSTILE) == "a\\x1b[2J\\x1b]0;owned\\x07\\r\\n\\u202e\\u2028\\x9b31m\\udc80\\\\"
    assert as_json(view, drift_only=False).isascii()
    assert json.loads(as_json(view, drift_only=False))["models"][0]["id"] == HOSTILE


def test_no_credential_of_a_reason_is_shown() -> None:
    secret = "https://user:hunter22@host/x?sig=abcdef"
    sight = a_sight("m", drift="not_serving", rows=(a_row("m", "UNAVAILABLE", f"cannot read {secret}"),))
    view = a_view(sight, triton_problem=None, folder_problem=f"it cannot be read: {secret}")

    for found in (text(view, columns=80, drift_only=False), as_json(view, drift_only=False)):
        assert "hunter22" not in found and "abcdef" not in found


@pytest.mark.parametrize("columns", [20, 80, 200])
def test_no_line_is_wider_than_the_terminal_but_for_an_id(columns: int) -> None:
    sights = [a_sight(f"model-{number}", drift=drift) for number, drift in enumerate([*DRIFTS, None])]
    view = a_view(*sights, a_sight("x" * 255), health=Health(False, False, "no answer from localhost:8085: " + "word " * 40))

    wide = [line for line in lines(view, columns=columns) if len(line) > max(columns, 80)]

    assert all(line.endswith("x" * 255) for line in wide)
    assert len(wide) == 1
    assert any("x" * 255 in line for line in lines(view, columns=columns)), "an id can be copied whole"


def test_five_thousand_models_are_sorted_counted_and_quick() -> None:
    sights = [a_sight(f"model-{number:04}__isvc-3f2a9c", drift="lost" if number % 2_000 == 7 else None) for number in range(5_000)]
    view = a_view(*sights)
    began = time.perf_counter()

    found = lines(view)

    assert time.perf_counter() - began < 10
    assert found[-1] == "5,000 models (5,000 loaded): 3 disagree."
    rows = [line for line in found if "__isvc" in line]
    assert len(rows) == 5_000
    assert [line[0] for line in rows[:4]] == ["!", "!", "!", " "]
    assert rows[:3] == sorted(rows[:3]) and rows[3:] == sorted(rows[3:])
    assert len(lines(view, drift_only=True)) == 14


def test_json_has_a_format_and_everything_that_the_table_has() -> None:
    view = a_view(
        a_sight("a", drift="not_serving", rows=(a_row("a", "UNAVAILABLE", "why"),)),
        a_sight("b", is_known=False, drift="unknown", placed=None),
        crashes={DIGEST: Crashes(digest=DIGEST, count=3, last=NOW)},
    )

    found = json.loads(as_json(view, drift_only=False))

    assert found["format"] == 1
    assert found["agrees"] is False
    assert found["time"] == "2027-01-15T08:00:00Z"
    assert found["crashes"] == [{"count": 3, "last": "2027-01-15T08:00:00Z", "models": ["a"]}]
    assert found["artifacts"] == {"count": 1, "idle": 0}
    assert found["models"] == [
        {
            "id": "a",
            "drift": "not_serving",
            "adapter": {
                "state": "loaded",
                "since": "2027-01-15T07:58:20Z",
                "confirmed": "2027-01-15T05:13:33Z",
                "type": "onnx",
                "path": "models/a",
                "storage_key": "s3",
                "size_bytes": 5 << 20,
            },
            "triton": [{"name": "a", "version": "1", "state": "UNAVAILABLE", "reason": "why"}],
            "folder": {"size_bytes": 4 << 20, "placed_by_adapter": True},
            "artifact": {"key": "ab" * 32, "exists": True},
        },
        {
            "id": "b",
            "drift": "unknown",
            "adapter": None,
            "triton": [{"name": "b", "version": "1", "state": "READY", "reason": ""}],
            "folder": None,
            "artifact": None,
        },
    ]
    assert [model["id"] for model in json.loads(as_json(a_view(a_sight("a"), a_sight("b", drift="lost")), drift_only=True))["models"]] == [
        "b"
    ]
    blind = json.loads(as_json(a_view(a_sight("a"), triton_problem="away", journal_problem="none"), drift_only=False))
    assert blind["models"][0]["triton"] is None
    assert (blind["triton"]["problem"], blind["journal"]["problem"], blind["artifacts"]["idle"]) == ("away", "none", None)


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
    found = triton_word(a_sight("m", rows=tuple(ServerModel(name, "1", state, reason) for name, state, reason in rows)))

    assert found == word
    assert len(found) <= int(dict(COLUMNS)["TRITON"][1:])


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0"),
        (999, "999"),
        (1_023, "1023"),
        (1_024, "1K"),
        (8_193, "8K"),
        (1_023_999, "1000K"),
        (1_024_000, "0.977M"),
        (12_502, "12.2K"),
        (5 << 20, "5M"),
        (1 << 30, "1G"),
        (2**62, "4E"),
    ],
)
def test_sizes_are_short(size: int, words: str) -> None:
    sight = a_sight("m", is_known=False, placed=Placed("1-1", size), has_artifact=None)

    assert f" {words} " in lines(a_view(sight))[-3]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "0s"),
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m00s"),
        (3_599, "59m59s"),
        (3_600, "1h00m"),
        (86_399, "23h59m"),
        (86_400, "1d00h"),
        (1e7, "115d17h"),
    ],
)
def test_ages_are_short(seconds: float, words: str) -> None:
    sight = a_sight("m", record=a_record("m", since=NOW - seconds))

    assert f" {words}  m" in lines(a_view(sight, now=NOW))[-3]


def test_every_word_of_drift_has_a_meaning_and_an_advice() -> None:
    assert set(DRIFTS) == set(get_args(Drift))
