"""Options of the whole suite."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("no clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no clock")  # the first text of a fresh clone takes seconds: hypothesis makes its tables of characters then
_SHOWN: dict[str, list[dict[str, object]]] = {}
"""Tables that tests have filled, by title."""


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
    deaths = parser.getgroup("deaths", "the adapter is killed at random points (tests/fault/test_the_adapter_dies.py)")
    deaths.addoption("--kills", type=int, default=12, help="how often, with the fake Triton; a third as often with the real one")
    deaths.addoption("--kills-seed", type=int, default=1, help="what decides when, and in the middle of what")
    fuzz = parser.getgroup("fuzz", "hostile input of any kind (tests/fuzz)")
    fuzz.addoption(
        "--fuzz", type=int, default=500, help="examples of each test, the same ones in each run unless --hypothesis-seed is given"
    )
    soak = parser.getgroup("soak", "many cycles of load and unload (tests/soak)")
    soak.addoption("--soak", type=int, default=150, help="cycles over the fake Triton; a third as many over the real one")
    parser.addoption("--tables", help="a file that the tables of the run are written to, as JSON")


def pytest_configure() -> None:
    """
    Say that the main thread has no event loop.

    Otherwise pytest-asyncio, when it looks for the one to restore, makes one that nobody closes:
    with warnings as errors that fails a run in which everything passed.
    """
    asyncio.set_event_loop(None)


@pytest.fixture(scope="session")
def shown() -> Callable[..., None]:
    """Add a row to a table that is printed at the end of the run: `shown("title", column=value, …)`."""

    def add(title: str, **row: object) -> None:
        _SHOWN.setdefault(title, []).append(row)

    return add


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tables."""
    if wanted := terminalreporter.config.getoption("--tables"):
        Path(wanted).write_text(json.dumps(_SHOWN, default=str))
    for title, rows in _SHOWN.items():
        terminalreporter.section(title)
        columns = list(dict.fromkeys(name for row in rows for name in row))
        table = [columns, *([str(row.get(name, "")) for name in columns] for row in rows)]
        widths = [max(len(line[column]) for line in table) for column in range(len(columns))]
        for line in table:
            terminalreporter.write_line("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
