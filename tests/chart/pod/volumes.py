"""The volumes of a pod as folders of this machine, with the owners and modes that the kubelet gives them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chart.pod.env import CannotStartError, Objects, quantity

_HALF_OF_THE_MACHINE = "50%"


@dataclass
class Volumes:
    """
    Of one pod.

    An emptyDir is anybody's, also one in memory; a freshly formatted claim is root's alone, as most drivers leave it
    where the pod has no fsGroup; the files of a secret are links into a folder that a new version replaces.
    """

    folder: Path
    secrets: Objects
    claims: Mapping[str, Path]
    memory: dict[str, str] = field(default_factory=dict)
    """Folder → bytes, for those in memory."""
    paths: dict[str, Path] = field(default_factory=dict)
    """By the name in the pod."""
    _of_secret: dict[str, list[Path]] = field(default_factory=dict)

    def make(self, volumes: list[dict[str, Any]]) -> None:
        """Raises CannotStartError where the kubelet would wait for ever."""
        for volume in volumes:
            if volume["name"] in self.paths:
                raise CannotStartError(f"the pod has two volumes {volume['name']!r}")
            self.paths[volume["name"]] = self._made(volume)

    def source(self, mount: Mapping[str, Any]) -> Path:
        """What a volumeMount shows."""
        if mount["name"] not in self.paths:
            raise CannotStartError(f"the pod has no volume {mount['name']!r}")
        return self.paths[mount["name"]] / str(mount.get("subPath", ""))

    def refresh(self, name: str) -> None:
        """Show a secret as it is now, in one step."""
        for path in self._of_secret.get(name, ()):
            _write(path, self.secrets[name])

    def _made(self, volume: Mapping[str, Any]) -> Path:
        if (host := volume.get("hostPath")) is not None:
            return Path(str(host["path"]))
        if (claim := volume.get("persistentVolumeClaim")) is not None:
            name = str(claim["claimName"])
            if name not in self.claims:
                raise CannotStartError(f"there is no claim {name!r}")
            return Path(self.claims[name])
        path = self.folder / str(volume["name"])
        path.mkdir(parents=True)
        if (empty := volume.get("emptyDir")) is not None:
            path.chmod(0o777)
            if empty.get("medium") == "Memory":
                self.memory[str(path)] = str(int(quantity(empty["sizeLimit"]))) if "sizeLimit" in empty else _HALF_OF_THE_MACHINE
        elif (secret := volume.get("secret")) is not None:
            _write(path, _found(secret["secretName"], self.secrets, is_optional=bool(secret.get("optional"))))
            self._of_secret.setdefault(secret["secretName"], []).append(path)
        elif not volume.keys() & {"ephemeral", "configMap"}:  # the controller's one is for ModelMesh alone
            raise CannotStartError(f"the stand-in of the kubelet does not know the volume {volume}")
        return path


def _found(name: str, known: Objects, *, is_optional: bool) -> Mapping[str, str]:
    if name not in known and not is_optional:
        raise CannotStartError(f"there is no {name!r}")
    return known.get(name, {})


def _write(path: Path, entries: Mapping[str, str]) -> None:
    """`key` → `..data/key`, and `..data` → the folder of this version."""
    version = Path(tempfile.mkdtemp(prefix="..", dir=path))
    version.chmod(0o755)
    for key, text in entries.items():
        (version / key).write_text(text)
        if not (path / key).is_symlink():
            (path / key).symlink_to(f"..data/{key}")
    (path / "..new").symlink_to(version.name)
    (path / "..new").replace(path / "..data")
