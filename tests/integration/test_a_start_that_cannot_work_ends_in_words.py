"""A second adapter, and settings that cannot be: an exit code and a sentence, no traceback."""

from __future__ import annotations

import os
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


def test_the_process_ends_with_its_settings_explained(storage_config: Path, tmp_path: Path) -> None:
    """Every mistake at once, in words, exit code 2."""
    env = {"CONTAINER_MEM_REQ_BYTES": "-1", "DEFAULT_MODELSIZE": "many", "ADAPTER_PORT": "none"}
    broken = AdapterProcess(volume=tmp_path, storage_config=storage_config, triton_target="localhost:1", env=env, wait=False)
    with broken:
        assert broken.wait(20) == 2
        assert all(name in broken.log_text() for name in ("DEFAULT_MODELSIZE", "ADAPTER_PORT"))
        assert os.strerror(2) not in broken.log_text()
