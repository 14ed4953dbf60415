"""What the journal keeps of a model that the registry knows."""

from __future__ import annotations

from adapter.lifecycle.operation import Model
from adapter.model import Record
from adapter.telemetry.redaction import redact


def record_of(model: Model) -> Record:
    """The model as it is now, without secrets. Of one that an earlier process loaded, people read what that process wrote."""
    spec, earlier = model.spec, model.earlier
    asked = spec or earlier
    return Record(
        model_id=model.model_id,
        state=model.state.value,
        since=model.since,
        model_type=asked.model_type if asked else "",
        path=redact(spec.path) if spec else earlier.path if earlier else "",
        storage_key=asked.storage_key if asked else None,
        content=model.content,
        artifact_key=model.artifact.key if model.artifact else None,
        size_bytes=_told_bytes(model),
        placed=model.placed,
        confirmed=model.confirmed,
        named=asked.named if asked else None,
    )


def _told_bytes(model: Model) -> int:
    """What a load of ModelMesh's is only thought to take is not kept: the next process asks Triton. A front's is kept."""
    is_thought = model.spec is not None and model.spec.named is None and not model.confirmed
    return model.spec.size_hint_bytes or 0 if is_thought and model.spec else model.size_bytes
