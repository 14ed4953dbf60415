"""
The nouns of the domain: what ModelMesh asks for, what a store lists, what was pulled, what Triton's index shows.

All are frozen. `ModelSpec` refuses an id that no Triton could have; paths, sizes and the other values are checked
where they are made: in `spi.codec`, `parameters` and the stores.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from adapter.errors import InvalidRequest
from adapter.settings.storage import CACHE_DIR, REPOSITORY_DIR
from adapter.volume.trees import Ends

RESERVED_IDS = frozenset({REPOSITORY_DIR, CACHE_DIR})
"""The adapter's own folders where CACHE_DIR is not set; the settings know the folders of a running adapter."""
MAX_SIZE_BYTES = 2**63 - 1
"""ModelMesh holds sizes in signed 64-bit numbers."""
MAX_ID_BYTES = 255
"""Length of a directory name; Triton fails beyond it."""

PROBE = "adapter-probe-"
"""So begin the names of directories that are made for a moment, to see whether Triton lists them. They are no models."""

OPTIONS_FILE = "serving.properties"
"""How a front for language models answers for a model; lies at the top of the model. Source: DJL Serving's name for it."""
CHAT_TEMPLATE_FILE, TOKENIZER_FILE = "chat_template.jinja", "tokenizer_config.json"
CHAT_PATHS = {name: (name, f"1/{name}") for name in (CHAT_TEMPLATE_FILE, TOKENIZER_FILE)}
"""File → where it may lie in a model's directory, the first place first."""
FRONT_FILES = (OPTIONS_FILE, *(path for paths in CHAT_PATHS.values() for path in paths))
"""Paths in a model's directory that an HTTP front may read."""
INNER = "~inner~"
"""
Between a bundle's id and the name of one of its inner models. No id of ModelMesh's may hold it, nor
end in all of it but its last character, so an inner model's name belongs to no other model, and tells its bundle.
"""


def inner_name(model_id: str, name: str) -> str:
    """What Triton calls an inner model of the bundle that has this id."""
    return f"{model_id}{INNER}{name}"


def owner_of(name: str) -> str:
    """The model id that a Triton model belongs to: its own name, or its bundle's."""
    return name.partition(INNER)[0]


def id_problem(model_id: str, reserved: Collection[str] = RESERVED_IDS) -> str | None:
    """
    Why this id can never be a Triton model name, or None; `reserved` has the names of the adapter's own folders.

    Source: Triton core `ModelRepositoryManager::Poll` (a model is a directory of the repository).
    """
    named, of_bundles = f"the model id {model_id!r}", "which is reserved for the inner models of bundles"
    problems = (
        (not model_id, "the model id is empty"),
        (model_id in (".", ".."), f"{named} is a directory of its own"),
        ("/" in model_id, "the model id contains '/', which cannot be part of a Triton model name"),
        ("\0" in model_id, "the model id contains a NUL byte"),
        (len(model_id.encode("utf-8", "surrogatepass")) > MAX_ID_BYTES, f"the model id is longer than {MAX_ID_BYTES} bytes"),
        (model_id in reserved, f"{named} is reserved for the adapter's own folders"),
        (model_id.startswith(PROBE), f"{named} begins with {PROBE!r}, which is reserved for the adapter's own looks at Triton"),
        (INNER in model_id, f"{named} contains {INNER!r}, {of_bundles}"),
        (model_id.endswith(INNER[:-1]), f"{named} ends in {INNER[:-1]!r}, {of_bundles}"),
    )
    return next((text for is_wrong, text in problems if is_wrong), None)


MAX_NAME_BYTES, MAX_URL_BYTES = 1024, 4096
"""Of what a front's caller may call a model, and of a path (PATH_MAX of Linux)."""
_FIRST_PRINTABLE = 0x20


def is_utf8(text: str) -> bool:
    """Whether it is letters alone: half of a pair of surrogates, as Python keeps other bytes, cannot be sent to anybody."""
    return text.isascii() or text.encode(errors="ignore").decode() == text


class Named(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a front's caller called a model, where a model id cannot be that."""

    name: str
    """Opaque; any text without '/', '\\' and control characters, of at most `MAX_NAME_BYTES`."""
    url: str
    """As the caller gave it; no control characters, at most `MAX_URL_BYTES`."""

    def __post_init__(self) -> None:
        """Raises InvalidRequest: the journal could not keep it, or no path or answer could carry it."""
        if self.name in (".", ".."):
            raise InvalidRequest(f"the name of a model cannot be {self.name!r}")
        for what, text, most, barred in (("name", self.name, MAX_NAME_BYTES, "/\\"), ("url", self.url, MAX_URL_BYTES, "")):
            if not text or not (is_utf8(text) and len(text.encode()) <= most):
                raise InvalidRequest(f"the {what} of a model has 1 to {most} bytes of UTF-8")
            if bad := next((letter for letter in text if letter in barred or ord(letter) < _FIRST_PRINTABLE), None):
                raise InvalidRequest(f"the {what} of a model cannot have {bad!r}")


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """
    One model as `loadModel` names it: decoded from modelId, modelType, modelPath and modelKey.

    Raises:
        InvalidRequest: the id could never be loaded.
    """

    model_id: str
    model_type: str
    """Lower case, without version: `onnx`, `tensorflow`…; empty when unknown."""
    path: str
    """As ModelMesh sent it: a path in the store, or an absolute local one."""
    storage_key: str | None = None
    storage_params: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The store's: overrides by dot path, none of them ours. May hold credentials: never logged, never quoted."""
    bucket: str | None = None
    schema_path: str | None = None
    disk_size_bytes: int | None = None
    size_hint_bytes: int | None = None
    """Memory size given with the model. This field and the next two are the adapter's own parameters, see `parameters`."""
    top_model: str | None = None
    """Of a bundle: the directory of the model that is asked for inference."""
    allow_decoupled: bool = False
    """Whether a model may load that answers decoupled only, where no config of its own says so."""
    named: Named | None = None
    """Of a load that a front has asked for; the journal keeps it. Such a load books its memory, since ModelMesh does not count it."""
    folders: tuple[Path, ...] = ()
    """
    `path` is absolute, and leads below one of these, which are not ours; the first one is where it seems to lie. Links inside the
    model are followed as long as they stay in its folder.
    """

    def __post_init__(self) -> None:
        if problem := id_problem(self.model_id):
            raise InvalidRequest(problem)


@dataclass(frozen=True)
class SourceFile:
    """One file of a model, as its store lists it."""

    path: str
    """Relative to the model, with `/`. For a model that is one object: its base name."""
    size_bytes: int
    etag: str
    """Opaque version of the content, without quotes; empty when the store has none."""


@dataclass(frozen=True)
class Listing:
    """
    What a store has for one model at one moment. Two equal listings mean equal content, if they are versioned.

    `config.pbtxt` and the schema are read before anything else is fetched.
    """

    origin: str
    """For people: `s3://bucket/path`. Never holds credentials."""
    name: str
    """Base name of the model path; names a single file, and appears in layouts."""
    is_single_file: bool
    files: tuple[SourceFile, ...]
    """Sorted by path. Paths are checked: no absolute path, no `..`, no empty segment."""
    schema: SourceFile | None = None
    """The file that `schema_path` names, outside `files`."""

    def find(self, path: str) -> SourceFile | None:
        """The file at this path of the model, or None."""
        return next((file for file in self.files if file.path == path), None)

    @property
    def is_versioned(self) -> bool:
        """False: some file has no version (a web server without ETags and dates), so an equal listing proves nothing."""
        files = self.files if self.schema is None else (*self.files, self.schema)
        return all(file.etag for file in files)

    @property
    def size_bytes(self) -> int:
        """Sum of all files, the schema not counted."""
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True)
class Survey:
    """What a store could tell of a model within a short time."""

    seen_bytes: int
    """Bytes listed until the time was up; a lower bound when `listing` is None."""
    listing: Listing | None
    """All of it; None: not known within the time."""
    contents: Mapping[SourceFile, bytes] = field(default_factory=dict, repr=False)
    """Of the files that were to be read: those that could be, within the time."""


@dataclass(frozen=True)
class Artifact:
    """Pulled files on our volume, whole and verified."""

    root: Path
    """Holds every file at its listing path."""
    is_ours: bool
    """False for files that a storage helper or a claim owns: linked, never deleted."""
    key: str | None = None
    """Its name in the cache, by which a later process finds it again; None: it goes with its last model."""


@dataclass(frozen=True)
class Placed:
    """What lies in Triton's repository folder for one model id, inner models of a bundle included."""

    identity: str
    """Of the model's own directory: another one when it was placed again, by whomever, whatever is written into it."""
    size_bytes: int
    """Of its plain files, each file once. What lies behind a link is not counted: a claim's server may not answer."""


Decide = Callable[[Ends], tuple[str, Mapping[str, bytes]]]
"""What a file's content decides: where the file is placed, and what is written: placed path → content. Pure. Raises InvalidModel."""


@dataclass(frozen=True)
class Layout:
    """A model as Triton's repository shall hold it. Paths are relative to the model directory."""

    links: Mapping[str, SourceFile]
    """Placed path → file of the listing."""
    written: Mapping[str, bytes] = field(default_factory=dict)
    """Placed path → content that we make: `config.pbtxt`."""
    directories: tuple[str, ...] = ()
    """Directories that must exist even when empty: the version directory of an ensemble."""
    inner: Mapping[str, Layout] = field(default_factory=dict)
    """Of a bundle: Triton's name → layout of each inner model, which have none of their own."""
    loaded_first: tuple[str, ...] = ()
    """Of a bundle: the inner models that Triton does not load with the top model, in the order to load them."""
    copies: int = 1
    """How often one device holds the files, those of inner models not counted."""
    gpus: int = 0
    """How many GPUs certainly hold it, of those that Triton has; 0 where none may."""
    concurrency: int = 0
    """Parallel requests that it can use, as its config says; 0: unknown."""
    hint: str = ""
    """What helps if Triton refuses the model, in words."""
    warnings: tuple[str, ...] = ()
    """What the model will not do although it loads, in words."""
    questions: Mapping[str, Decide] = field(default_factory=dict, repr=False, compare=False)
    """Placed path, until it is decided → what is asked of the pulled file; none where names and configs say all."""

    @cached_property
    def files(self) -> tuple[SourceFile, ...]:
        """The files to fetch, each once."""
        parts = (self, *self.inner.values())
        return tuple({file.path: file for part in parts for file in part.links.values()}.values())

    @cached_property
    def size_bytes(self) -> int:
        """Bytes of the files that Triton will see, each as often as a device holds it."""
        parts = (self, *self.inner.values())
        return sum(part.copies * sum({file.path: file.size_bytes for file in part.links.values()}.values()) for part in parts)


class ServerModel(NamedTuple):
    """One row of Triton's RepositoryIndex."""

    name: str
    version: str
    state: str
    """READY, LOADING, UNLOADING, UNAVAILABLE, or empty: a directory that was never loaded."""
    reason: str

    @property
    def holds_memory(self) -> bool:
        """False once Triton has freed the version, or never had it."""
        return self.state not in ("", "UNAVAILABLE")


Overrides = Mapping[str, str | bytes]
"""Of a load: `config` (JSON), and `file:<version>/<name>` (content), as Triton's model repository extension has them."""


# ---- rows of Triton's index, and whether they agree with what is believed. Asked at a take-over, after Triton has returned, for
# the metric of drift, and by `models`.

Drift = Literal["lost", "not_serving", "no_folder", "unknown"]
"""
Label of the metric, word of `models`. `lost`: loaded, but this Triton never had it, so Triton has restarted. `not_serving`:
loaded, and Triton had it, but does not serve it. `no_folder`: loaded, but nothing lies in the folder. `unknown`: Triton has
it, or it lies in the folder, and no call has asked for it.
"""


Rows = Mapping[str, Sequence[ServerModel]]
"""The index's rows by model id, those of a bundle's inner models under the id of the bundle."""


def by_owner(rows: Iterable[ServerModel]) -> dict[str, list[ServerModel]]:
    """The rows of a whole index as `Rows`."""
    found: dict[str, list[ServerModel]] = defaultdict(list)
    for row in rows:
        found[owner_of(row.name)].append(row)
    return dict(found)


def serves(model_id: str, rows: Sequence[ServerModel]) -> bool:
    """Whether Triton serves the model, of a bundle every model, and nothing of it is under way."""
    serving = {row.name for row in rows if row.state == "READY"}
    names = {row.name for row in rows}
    is_whole = bool(serving) if len(names) == 1 else serving == names | {model_id}
    return is_whole and not any(row.state in ("LOADING", "UNLOADING") for row in rows)


def is_untouched(rows: Sequence[ServerModel]) -> bool:
    """Whether this Triton lists the model's directory and was never asked for it since Triton started."""
    return bool(rows) and not any(row.state for row in rows)


def drift_of(model_id: str, state: str | None, rows: Sequence[ServerModel], placed: Placed | None) -> Drift | None:
    """What registry (None: it does not know the model), index and folder disagree on; None where they agree, or may soon."""
    if state is None:
        return "unknown" if placed is not None or any(row.holds_memory for row in rows) else None
    if state == "lost":
        return "lost"
    if state != "loaded":
        return None
    if placed is None:
        return "no_folder"
    if serves(model_id, rows):
        return None
    return "lost" if is_untouched(rows) else "not_serving"
