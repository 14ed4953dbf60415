"""The real Prometheus as a context manager: over given targets, with the chart's alerts, killed at the end."""

from __future__ import annotations

import json
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from tests.chart import install
from tests.observability.files import ALERTS
from tests.real.children import Child, PartError, bare_environment
from tests.real.ports import started_on

START_SECONDS = 60
SCRAPE_SECONDS = 1


class Prometheus:
    """Scrapes each second what `scrape_configs` says."""

    def __init__(self, scrape_configs: Sequence[Mapping[str, Any]]) -> None:
        self._scrape_configs = scrape_configs
        self._folder = tempfile.TemporaryDirectory(prefix="prometheus-")
        self._child: Child | None = None
        self._port = 0

    def ask(self, path: str, **parameters: Any) -> Any:
        """The `data` of an answer of `/api/v1/…`. Raises ValueError with Prometheus's own words."""
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.loads(answer.read())["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(json.loads(error.read())["error"]) from None

    def query(self, expression: str, **parameters: Any) -> list[dict[str, Any]]:
        """Series with one `value` each."""
        found: list[dict[str, Any]] = self.ask("query", query=expression, **parameters)["result"]
        return found

    def __enter__(self) -> Prometheus:
        return started_on([], 1, self._start, "address already in use")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._child is not None:
            self._child.kill()
        self._folder.cleanup()

    def _start(self, ports: list[int]) -> Prometheus:
        (self._port,) = ports
        folder = Path(self._folder.name)
        every = f"{SCRAPE_SECONDS}s"
        config = {
            "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
            "rule_files": [str(ALERTS)],
            "scrape_configs": list(self._scrape_configs),
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        command: list[str | Path] = [
            install.prometheus() / "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
        ]
        self._child = Child("prometheus", command, env=bare_environment())
        try:
            self._child.wait_until(self._is_ready, "ready", START_SECONDS)
        except PartError:
            self._child.kill()
            raise
        return self

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=2):
                return True
        except OSError:
            return False
