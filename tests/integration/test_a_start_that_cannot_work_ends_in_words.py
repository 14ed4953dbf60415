"""A second adapter, and settings that cannot be: an exit code and a sentence, no traceback."""

from __future__ import annotations

from pathlib import Path

from tests.integration.conftest import Rig
from tests.real.adapter import AdapterProcess


def test_a_second_adapter_on_the_volume_ends_in_one_sentence(adapter: AdapterProcess, rig: Rig, storage_config: Path) -> None:
    second = AdapterProcess(volume=rig.volume, storage_config=storage_config, triton_target=rig.triton_target, env={}, wait=False)
    with second:
        assert second.wait(20) == 1
        assert "another adapter" in second.log_text()
        assert "Traceback" not in second.log_text()


def test_a_second_adapter_on_the_port_ends_in_one_sentence(adapter: AdapterProcess, storage_config: Path, tmp_path: Path) -> None:
    port = adapter.channel_target.rpartition(":")[2]
    second = AdapterProcess(
        volume=tmp_path, storage_config=storage_config, triton_target="localhost:1", env={"ADAPTER_PORT": port}, wait=False
    )
    with second:
        assert second.wait(20) == 1
        assert "cannot be used" in second.log_text()
        assert "Traceback" not in second.log_text()
