"""What the proofs of memory share: models that hold known amounts, Triton in a control group of its own, and what the kernel says."""

from __future__ import annotations

import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from tests.real.models import Files, affine, ensemble, onnx_file, write
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


Sizes = Sequence[int | tuple[int, int]]


@dataclass(frozen=True)
class Kind:
    """A model of the table."""

    name: str
    model_type: str
    files: Files
    asks: bool = True

    @property
    def asked(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """`X` of a request."""
        return np.zeros((1, 1024) if self.model_type == "onnx" else 4, np.float32)


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


def table(onnx: Sizes = (), ensembles: int = 0, **held: Sizes) -> list[Kind]:
    """ONNX models of these MiB, or (MiB, instances); python models by when they hold them; and a number of ensembles of two."""
    made = []
    for what, each in {"onnx": onnx, **held}.items():
        for mib, count in (size if isinstance(size, tuple) else (size, 1) for size in each):
            name = f"{what}-{mib}x{count}" if count > 1 else f"{what}-{mib}"
            files = weights(mib, count) if what == "onnx" else holder(what, mib, count)
            made.append(Kind(name, "onnx" if what == "onnx" else "python", files))
    both = (ensemble(scale=affine(n, 0), shift=affine(1, n)) for n in range(1, ensembles + 1))
    return made + [Kind(f"both-{n}", "triton", files, asks=False) for n, files in enumerate(both, 1)]


def kinds(*, is_whole: bool) -> list[Kind]:
    """Thirty of them, or six."""
    if not is_whole:
        return table(onnx=[20, (5, 2)], load=[50, (10, 3)], first=[30], ensembles=1)
    return table(
        onnx=[1, 2, 5, 10, 20, 50, 100, 200, 400, (2, 4), (10, 2), (20, 3), (50, 2)],
        load=[1, 10, 25, 50, 100, 200, (10, 4), (40, 2)],
        first=[10, 40, 80],
        slowly=[20, 60, 100],
        ensembles=3,
    )


def load(mesh: Mesh, kind: Kind) -> int:
    """Load it, and wait until ModelMesh is told its size, in bytes."""
    told = mesh.load(kind.name, kind.model_type, kind.name, **CLAIM).sizeInBytes
    return told or mesh.runtime.modelSize(spi.ModelSizeRequest(modelId=kind.name), timeout=30).sizeInBytes


@contextmanager
def pod(folder: Path, kinds: Sequence[Kind] = (), *, ports: Sequence[int] = (), **env: str) -> Iterator[tuple[Pod, MemoryGroup]]:
    """Triton in a group of its own with the reporter, the adapter beside it, and a claim with these models."""
    for kind in kinds:
        write(kind.files, folder / "claims" / "c" / kind.name)
    volume = folder / "volume"
    file, models = volume / "_adapter" / "triton-memory", volume / "_triton_models"
    settings = {
        "CONTAINER_MEM_REQ_BYTES": "12GiB",
        "LOADTIME_TIMEOUT": "120000",
        "LOADING_CONCURRENCY": "4",
        "PVC_MOUNTS_DIR": str(folder / "claims"),
    } | env
    with (
        memory_group(folder / "group", file, models) as group,
        Pod(volume, folder / "secrets", settings, wrapper=group.wrapper, completes=True, ports=ports) as made,
    ):
        made.mesh.start()
        until(file.exists, "the reporter's first report")
        if "TRITON_MEMORY_FILE" not in env:
            until(lambda: "estimates" not in readyz(made), "an adapter that reads it")
        yield made, group


@contextmanager
def looking(look: Callable[[], None], every_seconds: float) -> Iterator[None]:
    """Call it again and again meanwhile, in a thread."""
    ended = threading.Event()

    def looks() -> None:
        while not ended.wait(every_seconds):
            look()

    thread = threading.Thread(target=looks)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def readyz(running: Pod) -> str:
    """What it says."""
    with urllib.request.urlopen(f"{running.adapter.metrics_url}/readyz", timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def true_of_all(group: MemoryGroup) -> Mapping[str, int]:
    """Anonymous and shared memory of each model's own processes, by the kernel."""
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
