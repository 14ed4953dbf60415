"""A load that never ends would keep a loading slot: the adapter says so once, when it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real.adapter import AdapterProcess
from tests.real.ports import free_ports


@pytest.mark.parametrize(("slots", "threads", "warnings"), [(4, 4, 1), (5, 4, 1), (3, 4, 0)])
def test_one_warning_where_triton_has_no_more_threads_than_there_are_slots(tmp_path: Path, slots: int, threads: int, warnings: int) -> None:
    env = {"LOADING_CONCURRENCY": str(slots), "TRITON_LOAD_THREADS": str(threads)}
    (tmp_path / "config").mkdir()
    triton = f"127.0.0.1:{free_ports(1)[0]}"
    with AdapterProcess(volume=tmp_path / "volume", storage_config=tmp_path / "config", triton_target=triton, env=env) as adapter:
        log = adapter.log_text()

    assert log.count('"event":"triton.load_threads"') == warnings
    assert (f"TRITON_LOAD_THREADS ({threads}) is not more than LOADING_CONCURRENCY ({slots})" in log) is bool(warnings)
