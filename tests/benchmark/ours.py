"""The adapter's `Store` as a process of its own: `python -m tests.benchmark.ours JOB`. No lifecycle, no Triton, no gRPC."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from adapter.model import Artifact
from adapter.records import Digests
from adapter.settings import Settings
from adapter.storage.store import Store
from adapter.volume.space import Space
from adapter.volume.volume import Volume
from adapter.waits import Waits
from tests.benchmark.gauge import Job, gauged, told
from tests.builders import a_spec

ACCOUNT = "account"
SMALL_AFTER_SECONDS = 0.25
"""By then the pull of a large model is well under way."""


def storage_config(job: Job) -> dict[str, str]:
    """One entry of ModelMesh's storage secret."""
    trust = {"certificate": Path(job.ca).read_text()} if job.ca else {}
    kinds: dict[str, dict[str, str]] = {
        "s3": {"endpoint_url": job.url, "bucket": "models", "access_key_id": "k", "secret_access_key": "s", "region": "us-east-1"},
        "gcs": {"endpoint_url": job.url, "bucket": "models", "anonymous": "true"},
        "azure": {"endpoint_url": f"{job.url}/{ACCOUNT}", "account_name": ACCOUNT, "container": "models", "anonymous": "true"},
    }
    return {"type": job.store, **kinds[job.store], **trust}


def made_store(job: Job) -> Store:
    """As `wiring.build` makes it, without a budget."""
    folder = Path(job.folder)
    for name in ("config", "models/_triton_models"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "config/k").write_text(json.dumps(storage_config(job)))
    settings = Settings.from_env({
        "CONTAINER_MEM_REQ_BYTES": "64GiB", "ROOT_MODEL_DIR": str(folder / "models"), "STORAGE_CONFIG_DIR": str(folder / "config"),
        "REQUEST_ENDPOINTS_DENIED": "", "CACHE_MAX_BYTES": "0", **job.env,
    })  # fmt: skip
    volume = Volume(settings.volume.repository_dir, settings.volume.cache_dir)
    volume.claim()
    space = Space(volume.cache_dir, 0, refuses=False)
    return Store(settings=settings.pull, root=folder / "models", volume=volume, space=space, digests=Digests(b"salt"))


async def pulled(store: Store, path: str) -> tuple[str, Artifact, float]:
    """One model, all of it: its path, what came, and the seconds that it took."""
    began = time.perf_counter()
    model = await store.open(a_spec(path, model_id=path.replace("/", "-"), storage_key="k"), Waits(asyncio.get_running_loop().time))
    artifact = await model.fetch(model.listing.files)
    return path, artifact, time.perf_counter() - began


async def run(job: Job) -> None:
    """Warm, pull, tell."""
    store = made_store(job)
    await store.prepare()
    await pulled(store, job.warm[0])
    with gauged(job) as figures:
        if job.is_during:
            first = asyncio.create_task(pulled(store, job.keys[0][0]))
            await asyncio.sleep(SMALL_AFTER_SECONDS)
            found = [await pulled(store, job.keys[1][0])]
            figures.more["was_during"] = not first.done()
            found.insert(0, await first)
        else:
            found = [await pulled(store, job.prefix)]
    figures.more |= {"seconds": [seconds for *_, seconds in found], "roots": {path: str(artifact.root) for path, artifact, _ in found}}
    told(figures)


if __name__ == "__main__":
    asyncio.run(run(Job.from_json(sys.argv[1])))
    sys.stdout.flush()
    os._exit(0)
