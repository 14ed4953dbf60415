"""Options of the whole suite; tables and the record of minutes that a run leaves."""

import asyncio
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from adapter.volume.volume import Volume
from tests.minutes import Minutes

settings.register_profile("no clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no clock")  # the first text of a fresh clone takes seconds: hypothesis makes its tables of characters then
TOGETHER = {
    "models that are asked": ("tests/contract/inference/",),
    "language models": ("tests/fronts/test_lmi", "tests/fronts/test_tgi"),
    "a pod with fronts": ("tests/fronts/test_v2", "tests/fronts/test_generate"),
}
"""Files that share what takes long to start; one worker runs them. All other files go to any worker."""
Tables = dict[str, list[dict[str, object]]]
_SHOWN = pytest.StashKey[Tables]()
"""Tables that tests have filled, by title; those of all workers come together in the process that reports."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options that point the contract suite at a running adapter."""
    spi = parser.getgroup("spi", "SPI sanity suite (tests/contract/spi)")
    spi.addoption("--spi-endpoint", help="a running adapter: port:N, host:N or unix:/path (default: one in process, over a fake lifecycle)")
    spi.addoption("--purge", action="store_true", help="runtimeStatus may be called on --spi-endpoint, which unloads all of its models")
    spi.addoption("--spi-model-path", help="modelPath of a model that the endpoint can load; without it nothing is loaded there")
    spi.addoption("--spi-model-key", default="{}", help="its modelKey (JSON)")
    spi.addoption("--spi-model-type", default="", help="its modelType, for instance onnx")
    triton = parser.getgroup("triton", "integration tests against a Triton that somebody else started")
    triton.addoption("--triton-endpoint", help="its gRPC target, for instance localhost:8001; everything that it has loaded is purged")
    triton.addoption("--triton-volume", help="folder shared with it; its --model-repository is _triton_models in there")
    writes = parser.getgroup("writes", "a disk that fails (tests/fault/test_every_write_may_fail.py)")
    writes.addoption("--every-write", action="store_true", help="every writing call fails once, with each fault")
    fuzz = parser.getgroup("fuzz", "hostile input of any kind (tests/fuzz)")
    fuzz.addoption(
        "--fuzz", type=int, default=50, help="examples of each test, the same ones in each run unless --hypothesis-seed is given"
    )
    soak = parser.getgroup("soak", "many cycles of load and unload (tests/soak)")
    soak.addoption("--soak", type=int, default=60, help="cycles over the fake Triton")
    run = parser.getgroup("run", "the run itself")
    run.addoption("--shuffle", type=int, metavar="SEED", help="the test files in an order that this number decides")
    run.addoption("--minutes", type=Path, metavar="FILE", help="write cases and seconds of each folder to this file (JSON)")
    parser.addoption("--tables", help="a file that the tables of the run are written to, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """
    Say that the main thread has no event loop.

    Otherwise pytest-asyncio, when it looks for the one to restore, makes one that it never closes:
    with warnings as errors that fails a run in which everything passed.
    """
    asyncio.set_event_loop(None)
    config.stash[_SHOWN] = {}
    if config.getoption("--minutes") and not os.environ.get("PYTEST_XDIST_WORKER"):
        config.pluginmanager.register(Minutes(config.getoption("--minutes")))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Shuffle the files, not the tests of one: a file may share its fixtures."""
    seed = config.getoption("--shuffle")
    if seed is not None:
        files = sorted({item.path for item in items})
        random.Random(seed).shuffle(files)
        items.sort(key=lambda item: files.index(item.path))


class ByStart(LoadFileScheduling):
    """A file, or those of `TOGETHER`, for one worker."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return next((name for name, starts in TOGETHER.items() if file.startswith(starts)), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByStart:
    """In place of `--dist`."""
    return ByStart(config, log)


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Volume]:
    """Claimed, below `models`."""
    made = Volume(tmp_path / "models" / "_triton_models", tmp_path / "models" / "_adapter")
    made.claim()
    yield made
    made.close()


@pytest.fixture(scope="session")
def shown(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Add a row to a table that is printed at the end of the run: `shown("title", column=value, …)`."""
    tables = request.config.stash[_SHOWN]

    def add(title: str, **row: object) -> None:
        tables.setdefault(title, []).append(row)

    return add


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Give the tables of a worker of pytest-xdist to the process that reports."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["tables"] = json.dumps(session.config.stash[_SHOWN], default=str)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the tables of a worker; one that died has none."""
    for title, rows in json.loads(getattr(node, "workeroutput", {}).get("tables", "{}")).items():
        node.config.stash[_SHOWN].setdefault(title, []).extend(rows)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tables."""
    tables = terminalreporter.config.stash[_SHOWN]
    if wanted := terminalreporter.config.getoption("--tables"):
        Path(wanted).write_text(json.dumps(tables, default=str))
    for title, rows in tables.items():
        terminalreporter.section(title)
        columns = list(dict.fromkeys(name for row in rows for name in row))
        table = [columns, *([str(row.get(name, "")) for name in columns] for row in rows)]
        widths = [max(len(line[column]) for line in table) for column in range(len(columns))]
        for line in table:
            terminalreporter.write_line("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
