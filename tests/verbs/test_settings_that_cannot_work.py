"""`serve` with an environment that cannot work: every mistake in one sentence, exit code 2, and nothing is started."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from adapter import cli
from adapter.settings import explained

Problems = Callable[[dict[str, str]], list[str]]
ENOUGH = {"CONTAINER_MEM_REQ_BYTES": "8Gi"}


@pytest.fixture
def problems(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Problems:
    """Set these variables and no others, start, and give the sentences."""
    for about, _ in explained():
        monkeypatch.delenv(about["env"], raising=False)
    monkeypatch.setattr("adapter.app.serve", lambda _: 0)  # it would end this process

    def start(variables: dict[str, str]) -> list[str]:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert cli.main(["serve"]) == 2
        out, err = capsys.readouterr()
        first, *sentences, last = err.splitlines()
        assert (out, first) == ("", "modelmesh-triton-adapter: the settings cannot work:")
        assert last == "modelmesh-triton-adapter: `modelmesh-triton-adapter settings` explains them all"
        return [sentence.removeprefix("modelmesh-triton-adapter:   - ") for sentence in sentences]

    return start


def test_all_mistakes_are_reported_together(problems: Problems) -> None:
    """Parsing and sense alike, each with its variable."""
    found = problems({"ADAPTER_PORT": "x", "LOG_LEVEL": "loud", "CACHE_MAX_BYTES": "-1", "LOADTIME_TIMEOUT": "-1"})

    assert [problem.split()[0].rstrip(":") for problem in found] == ["ADAPTER_PORT", "LOADTIME_TIMEOUT", "CACHE_MAX_BYTES", "LOG_LEVEL"]
    assert found[0] == "ADAPTER_PORT: 'x' is not a whole number"


@pytest.mark.parametrize("memory", ["", "0"])
def test_a_missing_memory_request_is_named(problems: Problems, memory: str) -> None:
    """What the manifest lacks, not what the number is."""
    (problem,) = problems({"CONTAINER_MEM_REQ_BYTES": memory})

    assert "CONTAINER_MEM_REQ_BYTES is missing" in problem
    assert "`requests.memory`" in problem


@pytest.mark.parametrize(
    ("memory", "default", "needed"), [("265Mi", "1000000", "9.5"), ("300Mi", "50Mi", "500 MiB"), ("1255Mi", "500Mi", "1000 MiB")]
)
def test_a_capacity_that_modelmesh_refuses_is_refused_in_numbers(problems: Problems, memory: str, default: str, needed: str) -> None:
    """At least max(2 × default, min(512 MiB, 10 × default)). Source: ModelMesh.java 1264-1276."""
    (problem,) = problems({"CONTAINER_MEM_REQ_BYTES": memory, "DEFAULT_MODELSIZE": default})

    assert problem.startswith("capacity is too small: CONTAINER_MEM_REQ_BYTES (")
    assert " − MEM_BUFFER_BYTES (256 MiB (268435456 bytes)) = " in problem
    assert "10 × DEFAULT_MODELSIZE)) = " in problem
    assert "MiB" not in needed or f"= {needed} (" in problem


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        (
            {"CONTAINER_MEM_REQ_BYTES": "128Mi"},
            "capacity is too small: CONTAINER_MEM_REQ_BYTES (128 MiB (134217728 bytes)) − MEM_BUFFER_BYTES (256 MiB",
        ),
        ({"DEFAULT_MODELSIZE": "8192"}, "must be 8193 or more"),
        ({"LOADTIME_TIMEOUT": "99"}, "must be 100 or more"),
        ({"LOADTIME_TIMEOUT": "2147483648"}, "is too large"),
        ({"LOADING_CONCURRENCY": "0"}, "must be 1 or more"),
        ({"LIMIT_PER_MODEL_CONCURRENCY": "-1"}, "must be 0 or more"),
        ({"MODELSIZE_MULTIPLIER": "0"}, "greater than 0"),
        ({"MEM_BUFFER_BYTES": "-5"}, "must be 0 or more"),
        ({"CACHE_DIR": "/models/_triton_models/cache"}, "lies in Triton's repository folder"),
        ({"CACHE_DIR": "/models/_triton_models"}, "lies in Triton's repository folder"),
        ({"CACHE_DIR": "/models"}, "folder of its own"),
        ({"CACHE_MAX_BYTES": "-1"}, "CACHE_MAX_BYTES: '-1' must be 0 or more"),
        ({"CACHE_DIR": "/"}, "folder of its own"),
        (
            {"RUNTIME_PORT": "8085"},
            "the adapter (ADAPTER_PORT, ADAPTER_ENDPOINT) and Triton (RUNTIME_PORT, RUNTIME_ENDPOINT) are both localhost:8085",
        ),
        ({"ADAPTER_ENDPOINT": "port:8001"}, "are both localhost:8001"),
        ({"ADAPTER_ENDPOINT": "127.0.0.1:8001"}, "are both localhost:8001"),
        ({"RUNTIME_ENDPOINT": "[::1]:8085"}, "are both [::1]:8085"),
        ({"ADAPTER_ENDPOINT": "unix:/a", "RUNTIME_ENDPOINT": "unix:/a"}, "are both unix:/a"),
        ({"ADAPTER_PORT": "0"}, "ADAPTER_PORT is 0 and no HTTP front is on: "),
        ({"SAGEMAKER_MODEL_ROOTS": ":"}, "SAGEMAKER_MODEL_ROOTS: names no folder"),
        *(
            ({name: "-1"}, f"{name}: '-1' must be 0 or more")
            for name in ("HTTP_MAX_BODY_BYTES", "HTTP_BODIES_BYTES", "UNPACK_MAX_BYTES", "REST_PROXY_GRPC_MAX_MSG_SIZE_BYTES")
        ),
        ({"V2_REPOSITORY_API": "true", "V2_REST_ENDPOINT": "port:8033"}, "V2_REPOSITORY_API is for this pod's Triton"),
        ({"TRITON_COMMAND": "triton '"}, "TRITON_COMMAND: cannot be split into words: no closing quotation"),
        ({"METRICS_PORT": "tcp://10.96.3.7"}, "METRICS_PORT: "),
        ({"RUNTIME_PORT": "65536"}, "RUNTIME_PORT: "),
    ],
)
def test_what_cannot_work_is_refused(problems: Problems, variables: dict[str, str], words: str) -> None:
    """One sentence for one mistake."""
    (problem,) = problems(ENOUGH | variables)

    assert words in problem


@pytest.mark.parametrize(("name", "value"), [("CONTAINER_MEM_REQ_BYTES", "s3cr3t-value-of-a-neighbour"), ("LOG_LEVEL", "s3cr3t\nline")])
def test_a_mistake_is_one_line_whatever_the_value_is(problems: Problems, name: str, value: str) -> None:
    (problem,) = problems({**ENOUGH, name: value})

    assert problem.startswith(f"{name}: ")
