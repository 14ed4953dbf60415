"""Options of the whole suite."""

import asyncio

import pytest


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


def pytest_configure() -> None:
    """
    Say that the main thread has no event loop.

    Otherwise pytest-asyncio, when it looks for the one to restore, makes one that nobody closes:
    with warnings as errors that fails a run in which everything passed.
    """
    asyncio.set_event_loop(None)
