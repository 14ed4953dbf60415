"""What the proofs of memory share: models that hold known amounts, Triton in a control group of its own, and what the kernel says."""

from __future__ import annotations

import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper

from adapter._pb import model_runtime_pb2 as spi
from adapter.journal import NAME, read
from adapter.records import Sized
from adapter.units import MIB
from adapter.volume.boot import boot_id
from tests.real.memory_group import MemoryGroup, memory_group
from tests.real.mesh import Mesh
from tests.real.models import Files, affine, ensemble, onnx_file
from tests.real.pod import Pod
from tests.real.polls import until

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

WITHIN_BYTES = 4 * MIB
"""How far a measured size may be from the truth, however small the model."""
CLAIM: dict[str, Any] = {"storage_key": "", "storage_params": {"type": "pvc", "name": "c"}}
HOLDER = '''"""Holds memory: when it starts, when it is first asked, or slowly in the background."""

import json
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        said = json.loads(args["model_config"])["parameters"]
        self.when, self.mib = said["when"]["string_value"], int(said["mib"]["string_value"])
        self.held = []
        if self.when == "load":
            self.hold(self.mib)
        elif self.when == "slowly":
            threading.Thread(target=self.grow, daemon=True).start()

    def hold(self, mib):
        self.held.append(np.ones(mib << 17))

    def grow(self):
        for _ in range(self.mib):
            self.hold(1)
            time.sleep(0.1)

    def execute(self, requests):
        if self.when == "first" and not self.held:
            self.hold(self.mib)
        given = [pb_utils.get_input_tensor_by_name(each, "X").as_numpy() for each in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", each)]) for each in given]
'''


@dataclass(frozen=True)
class Kind:
    """A model of the table."""

    name: str
    model_type: str
    files: Files
    asks: bool = True


def holder(when: str, mib: int, count: int = 1) -> Files:
    """A python model that holds so much in each of its instances."""
    config = 'backend: "python"\nmax_batch_size: 0\n'
    config += 'input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]\noutput [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'
    config += f"instance_group [ {{ kind: KIND_CPU count: {count} }} ]\n"
    config += "".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n' for key, value in (("when", when), ("mib", mib))
    )
    return {"config.pbtxt": config.encode(), "1/model.py": HOLDER.encode()}


def weights(mib: int, count: int = 1) -> Files:
    """An ONNX model of so much: `X` × a matrix, of which one column is used."""
    columns = max(1, mib * MIB // (4 * 1024))
    node = [helper.make_node("MatMul", ["X", "W"], ["Z"]), helper.make_node("ReduceMax", ["Z"], ["Y"], axes=[1], keepdims=1)]
    content = onnx_file(
        node,
        {"X": (TensorProto.FLOAT, ["n", 1024])},
        {"Y": (TensorProto.FLOAT, ["n", 1])},
        {"W": np.random.default_rng(mib).random((1024, columns), dtype=np.float32)},
    )
    config = (
        'input [ { name: "X" data_type: TYPE_FP32 dims: [ -1, 1024 ] } ]\noutput [ { name: "Y" data_type: TYPE_FP32 dims: [ -1, 1 ] } ]\n'
    )
    config += f'backend: "onnxruntime"\ninstance_group [ {{ kind: KIND_CPU count: {count} }} ]\n'
    return {"config.pbtxt": config.encode(), "1/model.onnx": content}


def kinds(*, is_whole: bool) -> list[Kind]:
    """Thirty of them, or six."""
    if not is_whole:
        return [
            Kind("onnx-20", "onnx", weights(20)),
            Kind("onnx-5x2", "onnx", weights(5, 2)),
            Kind("load-50", "python", holder("load", 50)),
            Kind("first-30", "python", holder("first", 30)),
            Kind("load-10x3", "python", holder("load", 10, 3)),
            Kind("both", "triton", ensemble(scale=affine(2, 0), shift=affine(1, 3)), asks=False),
        ]
    made = [Kind(f"onnx-{mib}", "onnx", weights(mib)) for mib in (1, 2, 5, 10, 20, 50, 100, 200, 400)]
    made += [Kind(f"onnx-{mib}x{count}", "onnx", weights(mib, count)) for mib, count in ((2, 4), (10, 2), (20, 3), (50, 2))]
    made += [Kind(f"load-{mib}", "python", holder("load", mib)) for mib in (1, 10, 25, 50, 100, 200)]
    made += [Kind(f"load-{mib}x{count}", "python", holder("load", mib, count)) for mib, count in ((10, 4), (40, 2))]
    made += [Kind(f"first-{mib}", "python", holder("first", mib)) for mib in (10, 40, 80)]
    made += [Kind(f"slowly-{mib}", "python", holder("slowly", mib)) for mib in (20, 60, 100)]
    made += [Kind(f"both-{n}", "triton", ensemble(scale=affine(n, 0), shift=affine(1, n)), asks=False) for n in (1, 2, 3)]
    return made


def load(mesh: Mesh, kind: Kind) -> int:
    """Load it, and wait until ModelMesh is told its size, in bytes."""
    told = mesh.load(kind.name, kind.model_type, kind.name, **CLAIM).sizeInBytes
    return told or mesh.runtime.modelSize(spi.ModelSizeRequest(modelId=kind.name), timeout=30).sizeInBytes


@contextmanager
def pod(folder: Path, **env: str) -> Iterator[tuple[Pod, MemoryGroup]]:
    """Triton in a group of its own with the reporter, the adapter beside it."""
    volume = folder / "volume"
    file, models = volume / "_adapter" / "triton-memory", volume / "_triton_models"
    with ExitStack() as stack:
        group = stack.enter_context(memory_group(folder / "group", file, models))
        settings = {
            "CONTAINER_MEM_REQ_BYTES": "12GiB",
            "LOADTIME_TIMEOUT": "120000",
            "LOADING_CONCURRENCY": "4",
            "PVC_MOUNTS_DIR": str(folder / "claims"),
        } | env
        made = Pod(volume, folder / "secrets", settings, wrapper=group.wrapper, completes=True)
        stack.enter_context(made)
        made.mesh.start()
        until(file.exists, "the reporter's first report")
        if "TRITON_MEMORY_FILE" not in env:
            until(lambda: "estimates" not in readyz(made), "an adapter that reads it")
        yield made, group


def readyz(running: Pod) -> str:
    """What it says."""
    with urllib.request.urlopen(f"{running.adapter.metrics_url}/readyz", timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def true_bytes(group: MemoryGroup, model: str) -> int:
    """Anonymous and shared memory of the model's own processes, by the kernel."""
    return true_of_all(group).get(model, 0)


def true_of_all(group: MemoryGroup) -> Mapping[str, int]:
    """The same of each model that has processes."""
    total: Counter[str] = Counter()
    for pid in (group.folder / "cgroup.procs").read_text().split():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() if b"stub" in words[0] else []
        except OSError:  # it has just ended, as the reporter's own sleep
            continue
        of = next((word.partition(b"_triton_models/")[2].split(b"/")[0].decode() for word in words if b"_triton_models/" in word), "")
        numbers = dict(line.split()[:2] for line in lines[1:])
        total[of.partition("~inner~")[0]] += 1024 * sum(int(numbers.get(name, 0)) for name in ("Pss_Anon:", "Pss_Shmem:"))
    return total


def sizes(volume: Path) -> Mapping[str, Sized]:
    """What the journal remembers, by model id."""
    found = read(volume / "_adapter" / NAME, boot_id())
    return {
        name: found.sizes[record.content.spec]
        for name, record in found.records.items()
        if record.content and record.content.spec in found.sizes
    }


def is_near(size: int, true: int, share: float) -> bool:
    """Whether a size in bytes is within that share of the truth, or within a few MiB."""
    return abs(size - true) <= max(share * true, WITHIN_BYTES)


def show(size: int) -> str:
    """In MiB."""
    return f"{size / MIB:,.1f}"


def cells(line: DataclassInstance) -> dict[str, str]:
    """A row of a table, sizes in MiB."""
    return {name: value if isinstance(value, str) else show(value) for name, value in asdict(line).items()}
