"""A load that comes after a quiet time does not ask its storage and Triton one after the other."""

from __future__ import annotations

from typing import Any

import pytest

from adapter.storage.stores import table
from adapter.triton.presence import Presence
from tests.fault.conftest import Hold, System


async def test_triton_is_asked_before_the_storage_is_listed(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    system.put("m", model=b"class TritonPythonModel: pass")
    hold, find, ask = Hold(), table.find_model, Presence.ask_ahead
    asked: list[str] = []

    def found(*args: Any) -> Any:
        hold()
        return find(*args)

    def noted(presence: Presence) -> None:
        asked.extend(system.phases("a"))
        ask(presence)

    monkeypatch.setattr(table, "find_model", found)
    monkeypatch.setattr(Presence, "ask_ahead", noted)
    load = system.load("a", "m")
    try:
        await hold.reached()
        assert asked == ["list"]
    finally:
        hold.release()
    await load
