"""
Models that hold memory of a real GPU, on the real Triton: told by its own metrics, measured, unloaded, and refused where they do not fit.

True is what `nvidia-smi` says of each model's own processes. `python -m tests.prove.gpu` needs a GPU, and a control group of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from adapter.units import MIB
from tests.prove.pods import CLAIM, Kind, holder, pod, sizes
from tests.prove.report import columns
from tests.real.polls import until
from tests.real.ports import free_ports

WITHIN, WITHIN_MIB = 0.10, 4
"""How far a measured size may be from the truth."""
HOLD = """
    def hold(self, mib):
        import ctypes

        cuda, context, address = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
        cuda.cuInit(0)
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        cuda.cuCtxSetCurrent(context)
        if cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(mib << 20)):
            raise RuntimeError("CUDA out of memory")
"""
ALONE = {"gpu-100": (100, 1), "gpu-500": (500, 1), "gpu-2000": (2000, 1), "gpu-1000x2": (1000, 2), "gpu-8000": (8000, 1)}
"""MiB and instances of each."""
FREE_MIB = 6000
"""Left by the model that nearly fills the GPU: too little for the largest of the others."""


def smi(query: str) -> list[list[str]]:
    """Rows of numbers, memory in MiB."""
    command = ["nvidia-smi", f"--query-{query}", "--format=csv,noheader,nounits"]
    return [line.split(", ") for line in subprocess.check_output(command, text=True, timeout=60).splitlines()]


def true_mib(model: str) -> int:
    """Of the GPU, by all processes of a model."""
    total = 0
    for pid, used in smi("compute-apps=pid,used_memory"):
        total += int(used) if f"_triton_models/{model}/".encode() in Path(f"/proc/{pid}/cmdline").read_bytes() else 0
    return total


def problems(folder: Path) -> list[str]:
    """What does not hold."""
    ports, volume, wrong = free_ports(3), folder / "volume", list[str]()
    total, before = (int(number) for number in smi("gpu=memory.total,memory.used")[0])
    chosen = []
    for name, (mib, count) in (ALONE | {"filler": (total - before - FREE_MIB, 1)}).items():
        files = holder("load", mib, count)
        text = files["1/model.py"].decode().replace("\n    def hold(self, mib):\n        self.held.append(np.ones(mib << 17))\n", HOLD)
        config = files["config.pbtxt"].replace(b"KIND_CPU", b"KIND_GPU")
        chosen.append(Kind(name, "python", {"config.pbtxt": config, "1/model.py": text.encode()}))
    env = {"CONTAINER_MEM_REQ_BYTES": f"{total}MiB", "TRITON_METRICS_ENDPOINT": f"127.0.0.1:{ports[2]}"}
    with pod(folder, chosen, ports=ports, **env) as (running, _):
        mesh = running.mesh
        time.sleep(8)  # Triton's first metrics, and the base of the GPU

        def load(name: str) -> None:
            mesh.load(name, "python", name, **CLAIM)

        def settled(name: str) -> int:
            until(lambda: name in sizes(volume) and sizes(volume)[name].source != "files", f"a measured size of {name}", seconds=30)
            return sizes(volume)[name].size_bytes // MIB

        rows = []
        for name in ALONE:
            load(name)
            mib, true = settled(name), true_mib(name)
            rows.append({"model": name, "measured": str(mib), "true": str(true), "source": sizes(volume)[name].source})
            if rows[-1]["source"] != "measured" or abs(mib - true) > max(WITHIN * true, WITHIN_MIB):
                wrong.append(f"{name}: {rows[-1]}")
        print(columns(rows), flush=True)
        for name in ALONE:
            mesh.unload(name)
        time.sleep(5)
        print(f"GPU: {before} MiB before, {smi('gpu=memory.used')[0][0]} MiB after all are unloaded, {total} MiB in all")
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(load, list(ALONE)[:4]))
        for name in list(ALONE)[:4]:
            found = sizes(volume)[name]
            print(f"four at once: {name} {found.size_bytes // MIB} MiB {found.source}, true {true_mib(name)} MiB")
            mesh.unload(name)
        time.sleep(5)
        load("filler")
        print(f"filler: {settled('filler')} MiB, true {true_mib('filler')} MiB")
        try:
            load("gpu-8000")
            wrong.append("a model was loaded that does not fit")
        except grpc.RpcError as error:
            print(f"{error.code().name}: {error.details()}")
            if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED or "of GPU" not in (error.details() or ""):
                wrong.append(f"refused with other words: {error.details()}")
        mesh.unload("filler")
        time.sleep(5)
        load("gpu-8000")  # there is space again
        print(json.dumps({name: size.size_bytes for name, size in sizes(volume).items()}))
    return wrong


def main() -> int:
    """0: all holds."""
    with tempfile.TemporaryDirectory() as folder:
        wrong = problems(Path(folder))
    print("\n".join(wrong) or "all holds")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
