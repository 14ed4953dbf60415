"""The verbs `load` and `unload` beside a running adapter and the real Triton; elements as the bytes that Triton reads."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from adapter.errors import AdapterError
from adapter.inference import DATATYPES
from adapter.stubs import service_pb2
from adapter.verbs import load
from tests.benchmark.ours import storage_config
from tests.benchmark.rig import BenchServer, Network
from tests.fakes import hell
from tests.fakes.hell import Hell
from tests.real import parts
from tests.real.children import TOP, Child, bare_environment
from tests.real.install import install
from tests.real.models import text_statistics
from tests.real.pod import BUCKET, Pod, secret
from tests.real.ports import free_ports
from tests.real.s3 import S3Server

AFFINE = Path(__file__).parents[2] / "deploy/compose/buckets/models/affine/model.onnx"
DTYPES = {
    "BOOL": "?", "INT8": "<i1", "INT16": "<i2", "INT32": "<i4", "INT64": "<i8", "UINT8": "<u1", "UINT16": "<u2", "UINT32": "<u4",
    "UINT64": "<u8", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8",
}  # fmt: skip
"""Triton's types as numpy's."""


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        server.put(BUCKET, "affine/model.onnx", AFFINE.read_bytes())
        for path, content in text_statistics().items():
            server.put(BUCKET, f"texts/{path}", content)
        yield server


@pytest.fixture(scope="module")
def pod(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    parts.or_skip(install)
    folder = tmp_path_factory.mktemp("pod")
    with Pod(folder / "models", secret(folder / "storage-config", s3), completes=True) as running:
        yield running


def run(pod: Pod, *words: str, **changes: str) -> tuple[int, str, str]:
    """Exit code, output and complaints of the program with the pod's settings, or others."""
    env = bare_environment() | {"PYTHONPATH": str(TOP)} | pod.adapter.settings | changes
    done = subprocess.run([sys.executable, "-m", "adapter", *words], env=env, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout, done.stderr.replace("modelmesh-triton-adapter: ", "")


def test_a_model_is_loaded_asked_and_unloaded(pod: Pod) -> None:
    loaded = run(pod, "load", "affine", "--storage-key", "s3", "--type", "onnx", "--infer", "x=1,2,3")
    zeros = run(pod, "load", "affine", "--storage-key", "s3", "--type", "onnx", "--infer")
    unloaded = run(pod, "unload", "affine")

    assert loaded == (0, "affine: loaded, 8,193 bytes\n   in x FP32 [-1]\n  out y FP32 [-1]\ny [3] = [3.0, 5.0, 7.0]\n", "")
    assert zeros[1].endswith("y [1] = [1.0]\n")
    assert unloaded == (0, "affine: unloaded\n", "")
    assert not any(pod.repository.glob("affine*"))


def test_a_model_with_texts_and_a_name_of_its_own(pod: Pod) -> None:
    loaded = run(pod, "load", "texts", "--storage-key", "s3", "--type", "python", "--id", "mine", "--infer", "TEXT=one word,three")
    wrong = run(pod, "load", "texts", "--storage-key", "s3", "--type", "python", "--id", "mine", "--infer", "WRONG=1")
    run(pod, "unload", "mine")

    assert loaded[1].endswith("COUNTS [2, 2] = [8, 2, 5, 1]\n"), loaded
    assert (wrong[0], wrong[2]) == (1, "mine has no input WRONG; it has TEXT\n")


def test_what_the_request_says_of_the_storage_comes_from_a_file(pod: Pod, s3: S3Server, tmp_path: Path) -> None:
    (tmp_path / "own.json").write_text(json.dumps(s3.storage_config(BUCKET)))
    (tmp_path / "list.json").write_text("[]")

    assert run(pod, "load", "affine", "--config", str(tmp_path / "own.json"), "--type", "onnx")[0] == 0
    assert run(pod, "unload", "affine")[0] == 0
    assert run(pod, "load", "affine", "--config", str(tmp_path / "list.json"))[2] == f"{tmp_path}/list.json must hold a JSON object\n"
    assert run(pod, "load", "affine", "--config", str(tmp_path / "none"))[0] == 1


def test_a_failure_is_the_adapters_own_line(pod: Pod) -> None:
    code, output, complaint = run(pod, "load", "nothing", "--storage-key", "s3")

    assert (code, output) == (1, "")
    assert complaint.startswith("NOT_FOUND: there is no model at 'nothing' in s3://models")
    assert run(pod, "load", "affine", "--storage-key", "s3", "--infer", "x")[2] == "'x' is not INPUT=VALUE,VALUE…\n"


def test_progress_is_shown_and_its_series_go(pod: Pod, tmp_path: Path) -> None:
    """16 MiB over connections of 1 MB/s each; the model itself is none."""
    with BenchServer(Network("slow", 1, 1), ["big/model.onnx=16MiB"]) as server:
        (tmp_path / "slow.json").write_text(json.dumps(storage_config(server.url)))
        words = ("load", "big/model.onnx", "--config", str(tmp_path / "slow.json"), "--type", "onnx", "--id", "slow")
        code, output, complaint = run(pod, *words)

    lines = [line for line in output.splitlines() if re.fullmatch(r"#*\.+ [\d.]+ of 16\.0 MiB", line)]
    assert (code, complaint.partition(":")[0]) == (1, "INTERNAL"), complaint
    assert len(lines) >= 3, output
    assert lines == sorted(lines, key=lambda line: line.count("#"))
    with urllib.request.urlopen(f"{pod.adapter.metrics_url}/metrics") as answer:
        assert b"triton_adapter_load_bytes{" not in answer.read()


class Looks(threading.Event):
    """A call that ends after this number of looks."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.left = count

    def wait(self, timeout: float | None = None) -> bool:
        self.left -= 1
        return self.left < 0


def test_a_terminal_has_one_line_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Listing, bytes of bytes, Triton's load; elsewhere a line for each step. The line is empty at the end, also for what failed."""
    bars = ["", "#.. 1.0 of 3.0 MiB", "#.. 1.5 of 3.0 MiB", "##. 2.0 of 3.0 MiB", "", ""]
    for is_terminal, between in ((True, "\r\033[K"), (False, "\n")):
        monkeypatch.setattr(sys.stdout, "isatty", lambda is_terminal=is_terminal: is_terminal)
        given = iter(bars)
        monkeypatch.setattr(load, "_bar", lambda _, given=given: next(given))
        shown = "".join(load._progress("m", Looks(len(bars))))
        words = ["listing", *bars[1:4], "Triton loads it", "Triton loads it"] if is_terminal else [*bars[1:4:2], "Triton loads it"]
        assert [part for part in shown.split(between) if part] == words
        assert shown.endswith(between)


@pytest.mark.parametrize("columns", [20, 40, 200])
def test_the_line_fits_a_narrow_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is broken in two cannot be replaced."""
    rows = [f'triton_adapter_load_bytes{{model_id="m",kind="{kind}"}} {mib << 20}\n' for kind, mib in (("done", 500), ("expected", 1000))]
    with Hell(hell.answering(200, body="".join(rows).encode())) as adapter:
        monkeypatch.setenv("METRICS_PORT", str(adapter.port))
        monkeypatch.setenv("COLUMNS", str(columns))
        line = load._bar("m")

    assert re.fullmatch(r"#*\.+ 500\.0 of 1,000\.0 MiB", line)
    assert len(line) < max(columns, 25) and line.count("#") <= 15


def test_beside_modelmesh_it_is_refused(pod: Pod) -> None:
    pod.mesh.start()

    assert run(pod, "unload", "affine")[::2] == (1, "ModelMesh uses this adapter and would not learn of it; --force does it all the same\n")
    assert run(pod, "unload", "affine", "--force")[0] == 0


def test_an_adapter_that_cannot_be_asked(pod: Pod) -> None:
    for changes, said in (
        ({"METRICS_PORT": "1"}, "METRICS_PORT, which tells"),
        ({"ADAPTER_PORT": "0"}, "cannot be asked: ADAPTER_PORT is 0"),
    ):
        code, _, complaint = run(pod, "unload", "affine", **changes)
        assert (code, said in complaint) == (1, True), complaint


Info = service_pb2.ModelMetadataResponse.TensorMetadata


@pytest.mark.parametrize("datatype", DTYPES)
def test_numbers_are_those_of_numpy(datatype: str) -> None:
    expected = np.array([1, 0, 1], dtype=DTYPES[datatype])

    _, made = load.shape_and_data(Info(name="x", datatype=datatype, shape=[-1]), ["1", "0", "1"])

    assert made == expected.tobytes()
    assert load.elements_of(made, datatype) == expected.tolist()


def test_other_types() -> None:
    shape, texts = load.shape_and_data(Info(name="x", datatype="BYTES", shape=[1, -1]), ["ä", "", "bc"])
    _, halves = load.shape_and_data(Info(name="x", datatype="BF16", shape=[2]), ["1.5", "-2"])

    assert texts == b"\x02\0\0\0\xc3\xa4\0\0\0\0\x02\0\0\0bc"
    assert shape == [1, 3]
    assert load.elements_of(texts, "BYTES") == ["ä", "", "bc"]
    assert load.elements_of(halves, "BF16") == [1.5, -2.0]
    assert DTYPES.keys() | {"BYTES", "BF16"} == DATATYPES.keys()


@pytest.mark.parametrize(("value", "datatype"), [("z", "FP32"), ("1.5", "INT32"), ("300", "UINT8"), ("-1", "UINT64"), ("1e9", "FP16")])
def test_what_is_no_such_number_is_named(value: str, datatype: str) -> None:
    with pytest.raises(AdapterError, match=f"^x: '{value}' is no {datatype}$"):
        load.shape_and_data(Info(name="x", datatype=datatype, shape=[-1]), [value])


def test_elements_must_fill_the_shape() -> None:
    with pytest.raises(AdapterError, match=r"^x has the shape \[2, -1\], which 3 values do not fill$"):
        load.shape_and_data(Info(name="x", datatype="INT8", shape=[2, -1]), ["1", "2", "3"])


def test_the_quick_start_of_the_readme() -> None:
    """Without a cluster, in three commands; the first one has run."""
    parts.or_skip(install)
    readme = (TOP / "README.md").read_text()
    commands = re.search(r"without a cluster.*?```bash\n(.*?)```\n\n```text\n(.*?)```", readme, re.DOTALL)
    assert commands
    _, serve, ask = (line.split("#")[0].strip() for line in commands[1].splitlines())
    ports = dict(zip(("ADAPTER_PORT", "METRICS_PORT", "RUNTIME_PORT"), map(str, free_ports(3)), strict=True))
    child = Child("serve", [TOP / serve.removesuffix(" &")], env=bare_environment() | ports)
    try:
        child.wait_until(lambda: "are ready" in child.log_text(), "serving", 60)
        done = subprocess.run(ask.split(), env=bare_environment() | ports, cwd=TOP, capture_output=True, text=True, check=False, timeout=60)
    finally:
        child.stop(10)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == commands[2]
