"""
All metrics, declared in one place: name, unit in the name, labels, meaning.

No model id is a label, since thousands of models would be thousands of series; but for the few that are being pulled, and for the
sizes of the 20 largest.
"""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.metrics import MetricWrapperBase

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)  # memory, processor time, open files, start time of the adapter itself
PREFIX = "triton_adapter"
_SECONDS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 7.5, 10.0,
    15.0, 20.0, 25.0, 30.0, 45.0, 60.0, 75.0, 90.0, 120.0, 180.0, 300.0, 600.0, 1800.0,
)  # fmt: skip
"""Close to each other where loading timeouts are: a percentile is a guess between two of them."""


TABLE: list[MetricWrapperBase] = []
"""All of them, as the documents show them."""
M = TypeVar("M", bound=MetricWrapperBase)


def _metric(kind: type[M], name: str, meaning: str, *labels: str, **more: Any) -> M:
    metric = kind(f"{PREFIX}_{name}", meaning, labels, registry=REGISTRY, **more)
    TABLE.append(metric)
    return metric


_counter, _gauge, _histogram = partial(_metric, Counter), partial(_metric, Gauge), partial(_metric, Histogram, buckets=_SECONDS)
RPC_SECONDS = _histogram("rpc_seconds", "Duration of a call from ModelMesh, by gRPC code", "method", "code")
FAILURES = _counter("failures_total", "Failed calls from ModelMesh, by reason", "method", "reason")
PHASE_SECONDS = _histogram(
    "load_phase_seconds",
    "Duration of the phases of loads and unloads: check, undo, list, pull, place, queue, triton, measure; unload",
    "phase",
)
LOAD_BYTES = _gauge("load_bytes", "Bytes of a model that is being pulled: done, expected; gone when all are there", "model_id", "kind")
MODELS = _gauge("models", "Models by lifecycle state", "state")
LOADED_BYTES = _gauge("loaded_bytes", "Sum of the sizes told to ModelMesh for loaded models")
CAPACITY_BYTES = _gauge("capacity_bytes", "Capacity announced to ModelMesh")
MEMORY_BYTES = _gauge(
    "memory_bytes",
    "Memory of Triton's container, from the reporter: used, limit, base (without models), reserve (above base and sizes told)",
    "kind",
)
MODEL_BYTES = _gauge("model_bytes", "Sizes of the 20 largest models: predicted, measured, told (to ModelMesh)", "model_id", "kind")
OOM_KILLS = _counter("oom_kills_total", "Processes of Triton's container that the kernel has killed for lack of memory")
USABLE_BYTES = _gauge("usable_bytes", "Capacity less ModelMesh's reserve for unloads")
LOAD_TIMEOUT_SECONDS = _gauge("load_timeout_seconds", "Loading timeout announced to ModelMesh (LOADTIME_TIMEOUT)")
PULLED_BYTES = _counter("pulled_bytes_total", "Bytes pulled from storage", "type")
PULLED_FILES = _counter("pulled_files_total", "Files pulled from storage", "type")
SOURCE_RETRIES = _counter("source_retries_total", "Repeated requests to storage", "type")
UNLOAD_WAIT_SECONDS = _histogram("unload_wait_seconds", "Time from Triton's answer to an unload until the memory was free")
INDEX_POLLS = _counter("index_polls_total", "Calls of Triton's RepositoryIndex")
INDEX_SECONDS = _gauge("index_seconds", "Duration of the newest listing of Triton's folder, running or ended")
READY = _gauge("ready", "1 while `/readyz` is 200, else 0")
TRITON_UP = _gauge("triton_up", "1 while Triton answers, else 0")
UNLOADS_UNFINISHED = _counter("unloads_unfinished_total", "Unloads that Triton did not finish in time")
STUCK = _gauge("stuck", "Loads and unloads in Triton that do not end (`/healthz/triton` names them)", "kind")
TRITON_RESTARTS = _counter("triton_restarts_total", "Noticed restarts of Triton")
RESTORES = _counter("restores_total", "Models that Triton had lost, by outcome", "outcome")
RESTORE_PENDING = _gauge("restore_pending", "Lost models that wait to be loaded again")
INVENTORY_DRIFT = _gauge("inventory_drift", "Models on which registry, Triton's index and folder disagree", "kind")
CACHE_REQUESTS = _counter("cache_requests_total", "Fetches of pulled files: hit, miss, stale (storage was away)", "result")
CACHE_SAVED_BYTES = _counter("cache_saved_bytes_total", "Bytes that the cache saved from being pulled")
CACHE_EVICTIONS = _counter("cache_evictions_total", "Idle artifacts that were removed for space")
VOLUME_BYTES = _gauge("volume_bytes", "Bytes of the adapter's files on the volume: placed, idle, staging, trash", "kind")
VOLUME_BUDGET_BYTES = _gauge("volume_budget_bytes", "Most bytes that the adapter's files may take (CACHE_MAX_BYTES)")
LEFTOVERS = _gauge("leftover_paths", "Removed files that could not be deleted yet")

for _outcome in ("restored", "refused", "crashed", "ended"):
    RESTORES.labels(_outcome)  # from 0 on, or the first event would be no increase
for _result in ("hit", "miss", "stale"):
    CACHE_REQUESTS.labels(_result)
