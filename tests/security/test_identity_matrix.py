"""
The table of `deploy/docs/storage.md`, row by row: whose value counts, and whose credentials go with it.

The rows are read from the document, so that the document and the code cannot say different things.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from adapter.errors import InvalidRequest
from adapter.storage.secret.merging import STORED_ONLY, TRUST, StorageConfig, merged
from adapter.storage.stores.http import headers_of, url_of
from adapter.storage.stores.table import BINDINGS, BUCKETS
from tests.builders import a_spec
from tests.real.blocking import BlockingClients
from tests.real.s3 import S3Server

DOCUMENT = Path(__file__).parents[2] / "deploy/docs/storage.md"
LABEL = "storage config 'k'"
KINDS = tuple(BUCKETS)
COLUMNS = ("stored", "requested", "both")
WORDS = {"stored", "request's", "bare", "own", "refused", "–"}

# what a stored config of each type has, when the row says nothing else
STORED: dict[str, dict[str, str]] = {
    "s3": {"bucket": "stored-bucket", "endpoint_url": "https://stored.example",
           "access_key_id": "stored-key-id", "secret_access_key": "stored-key", "session_token": "stored-token"},
    "gcs": {"bucket": "stored-bucket", "endpoint_url": "https://stored.example", "token_uri": "https://stored.example/token",
            "client_email": "stored-email", "private_key": "stored-key"},
    "azure": {"bucket": "stored-bucket", "account_name": "storedaccount", "account_key": "stored-key"},
    "http": {"url": "https://stored.example/models", "headers.Authorization": "Bearer stored-token",
             "client_certificate": "stored-certificate", "client_key": "stored-key"},
}  # fmt: skip
CREDENTIALS = {kind: BINDINGS[kind].credentials for kind in KINDS}
OWN = {
    "s3": {"access_key_id": "own-key-id", "secret_access_key": "own-key"},
    "gcs": {"client_email": "own-email", "private_key": "own-key"},
    "azure": {"account_key": "own-key"},
    "http": {"client_certificate": "own-certificate", "client_key": "own-key"},
}
"""Whole credentials of a request."""
# field → what the file says, what a request says; of other fields `stored-<field>` and `own-<field>`
VALUES = {
    "type": (None, None),
    "unpack": ("false", "true"),
    "verify_ssl": ("false", "true"),
    "cabundle_configmap": ("stored-map", "own-map"),
    "credential_endpoints": ("https://more.example", "https://theirs.example"),
    "anonymous": ("true", "false"),
    "endpoint_url": ("https://stored.example", "https://theirs.example"),
    "token_uri": ("https://stored.example/token", "https://theirs.example/token"),
    "addressing_style": ("path", "virtual"),
    "account_name": ("storedaccount", "theiraccount"),
    "connection_string": (
        "AccountName=storedaccount;AccountKey=stored-string", "AccountName=theiraccount;AccountKey=own-string",
    ),
    "url of another scheme, host or port": ("https://stored.example/models", "https://theirs.example/models"),
    "url of the same server": ("https://stored.example/models", "https://STORED.example:443/others"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def any_text_is_a_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compared here are places and values, not PEM blocks."""
    monkeypatch.setattr("adapter.storage.stores.http.check_client_pem", lambda pem, label: None)


@dataclass(frozen=True)
class Case:
    """One cell of the table, for one type."""

    kind: str
    row: str
    column: str
    word: str

    @property
    def names(self) -> list[str]:
        """The fields of the row."""
        return [part.split(" ")[0] for part in self.row.split(" + ")]


def rows() -> list[tuple[str, str, list[str]]]:
    """Types, field and cells of each field in the document."""
    section = DOCUMENT.read_text().partition("## Where credentials belong")[2].partition("\n## ")[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("| ")]
    return [(kinds, field.replace("`", ""), cells) for kinds, fields, *cells in lines[1:] for field in fields.split(" / ")]


def cases() -> list[Case]:
    """All cells, for each type that they are about."""
    return [
        Case(kind, field, column, word)
        for kinds, field, cells in rows()
        for kind in (KINDS if kinds == "all" else kinds.split(", "))
        for column, word in zip(COLUMNS, cells, strict=True)
    ]


@pytest.fixture(scope="module")
def pems() -> tuple[str, str]:
    """Two certificates."""
    servers = [S3Server(tls=True) for _ in range(2)]  # never started
    for server in servers:
        server.stop()
    first, second = (server.ca_pem or "" for server in servers)
    return first, second


@pytest.fixture(autouse=True)
def _bundle_is_mounted(pems: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapter.storage.secret.fields.MOUNTED_CA_BUNDLE", tmp_path / "bundle.crt")
    (tmp_path / "bundle.crt").write_text(pems[0])


def values_of(name: str, row: str, pems: tuple[str, str]) -> tuple[str, str]:
    if name in ("certificate", "ca_bundle"):
        return pems
    stored, own = VALUES.get(row, VALUES.get(name, (f"stored-{name}", f"own-{name}")))
    return stored or "", own or ""


def scene(case: Case, pems: tuple[str, str], *, has_keys: bool) -> tuple[dict[str, str], dict[str, str]]:
    """The stored config and the parameters that a cell is about. Without keys the pod's own identity is at stake."""
    stored = {"type": case.kind, **STORED[case.kind]}
    if not has_keys:
        stored = {name: value for name, value in stored.items() if name.partition(".")[0] not in CREDENTIALS[case.kind]}
    params: dict[str, str] = {}
    pairs = {name: values_of(name, case.row, pems) for name in case.names}
    if case.row == "type":
        if case.column == "requested":
            del stored["type"]
        return stored, {} if case.column == "stored" else {"type": case.kind}
    is_credential = all(name in CREDENTIALS[case.kind] for name in case.names)
    if is_credential and case.column != "both":
        stored = {name: value for name, value in stored.items() if name.partition(".")[0] not in CREDENTIALS[case.kind]}
    for name, (value, wanted) in pairs.items():
        stored.pop(name, None)
        if case.column != "requested" and not (is_credential and case.column == "both"):
            stored[name] = value
        if case.column != "stored":
            params[name] = wanted
    if case.row == "anonymous" and case.column == "requested":
        params["anonymous"] = "true"
    if case.row.endswith("beside own credentials"):
        params |= OWN[case.kind]
    return stored, params


def secrets_of(config: StorageConfig) -> str:
    """Every secret that a client of this config would be given."""
    connection = BUCKETS[config.type].connection(config)
    found: list[Any] = [secret for _, secret in connection.keys]
    if config.type == "http":
        found += headers_of(config).values()
        url_of(config)
    return " ".join(secret.reveal() for secret in found)


def is_anonymous(config: StorageConfig) -> bool:
    """No credentials are used. A web server has no chain to ask."""
    return BUCKETS[config.type].connection(config).is_anonymous


def at(values: Mapping[str, object], path: str) -> object:
    found: Any = values
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


ALL = cases()
SCENES = [
    (case, has_keys)
    for case in ALL
    for has_keys in (True, False)
    if (case.row, case.column) != ("type", "both")  # a test of its own, below
    if case.word != "–" and (has_keys or case.row != "headers.Host")  # without stored headers, nothing is shown to another host
]


@pytest.mark.parametrize(
    ("case", "has_keys"), SCENES, ids=[f"{case.kind}-{case.row}-{case.column}-{'keys' if keys else 'chain'}" for case, keys in SCENES]
)
def test_a_cell_says_what_happens(case: Case, has_keys: bool, pems: tuple[str, str]) -> None:
    """With stored keys, and with nothing stored but the place: the pod's own identity follows the same table."""
    stored, params = scene(case, pems, has_keys=has_keys)
    spec = a_spec(storage_params=params)
    if case.word == "refused":
        with pytest.raises(InvalidRequest, match=LABEL):
            secrets_of(merged(stored, spec, LABEL, BINDINGS))
        return

    config = merged(stored, spec, LABEL, BINDINGS)

    secrets, has_chain = secrets_of(config), config.type != "http"
    for name in case.names if case.row != "type" else ():
        mine, theirs = values_of(name, case.row, pems)
        if case.row != "anonymous":
            assert at(config.values, name) == (mine if case.word == "stored" else theirs)
    if case.word == "bare":
        assert is_anonymous(config) and secrets == ""
    elif case.word == "own":
        assert "own-" in secrets and "stored-" not in secrets and not is_anonymous(config)
    elif has_keys or case.names[0] in CREDENTIALS[case.kind]:
        assert "stored-" in secrets or case.row == "headers.X-Any"
        assert not is_anonymous(config)
    elif has_chain:
        assert secrets == "" and not is_anonymous(config), "the pod's identity is used"


@pytest.mark.parametrize("has_keys", [True, False], ids=["keys", "chain"])
@pytest.mark.parametrize(("before", "after"), list(itertools.permutations(KINDS, 2)))
def test_another_type_is_another_config(before: str, after: str, has_keys: bool, pems: tuple[str, str]) -> None:
    """Nothing but the bucket and the trust is left of the stored config, and no identity is used."""
    needed = {"azure": {"account_name": "theiraccount"}, "http": {"url": "https://theirs.example"}}
    stored, _ = scene(Case(before, "type", "stored", ""), pems, has_keys=has_keys)
    stored |= {"certificate": pems[0], "name": "stored-claim", "region": "stored-region", "container": "stored-container"}
    params = {"type": after, **needed.get(after, {})}

    config = merged(stored, a_spec(storage_params=params), LABEL, BINDINGS)

    assert config.is_unsigned and is_anonymous(config) and secrets_of(config) == ""
    kept = {name: value for name, value in stored.items() if name in ("bucket", "certificate")}
    assert config.values == {**kept, **params, "anonymous": "true"}
    own = merged(stored, a_spec(storage_params=params | OWN[after]), LABEL, BINDINGS)
    assert "own-" in secrets_of(own) and "stored-" not in secrets_of(own), "whole credentials of its own do count"


@pytest.mark.parametrize("own", [{"headers.X-Own": "own-header"}, OWN["http"]], ids=["header", "certificate"])
def test_a_stored_url_with_a_query_is_a_credential(own: dict[str, str], pems: tuple[str, str]) -> None:
    """It may be a signature, so nothing beside it is wholly the request's own; a url of the request's own is."""
    stored = {"type": "http", "url": "https://stored.example/models?sig=stored-signature"}
    for more in ({"certificate": pems[1]}, {"headers.Host": "theirs.example"}):
        with pytest.raises(InvalidRequest, match=f"only beside its own credentials; put it into {LABEL}"):
            merged(stored, a_spec(storage_params=own | more), LABEL, BINDINGS)
        for url in ("https://stored.example/others", "https://theirs.example"):
            config = merged(stored, a_spec(storage_params=own | more | {"url": url}), LABEL, BINDINGS)
            assert "stored-signature" not in str(config.values)


@pytest.mark.parametrize("kind", KINDS)
def test_no_field_is_forgotten(kind: str) -> None:
    """Whatever a type binds has a row."""
    binding = BINDINGS[kind]
    fields = {name.partition(".")[0] for name in itertools.chain(binding.places, binding.credentials, binding.fixed, binding.beside)}
    assert fields | set(TRUST) | set(STORED_ONLY) <= {name.partition(".")[0] for case in ALL if case.kind == kind for name in case.names}


def test_the_words_are_the_documents_own() -> None:
    """A cell with another word would be a cell without a test."""
    assert {case.word for case in ALL} == WORDS
    assert {(case.column, case.row) for case in ALL if case.word == "–"} == {("stored", "certificate beside own credentials")}


S3, S3_KEYS = (
    {"type": "s3", "bucket": "bucket", "region": "us-east-1", "endpoint_url": "https://stored.example"},
    {name: STORED["s3"][name] for name in ("access_key_id", "secret_access_key", "session_token")},
)
GCS = {"type": "gcs", "bucket": "bucket", "endpoint_url": "https://stored.example"}
SAS = {"type": "azure", "container": "container", "endpoint_url": "https://stored.example/account", "sas_token": "sig=stored-signature"}
HTTP = {"type": "http", "url": "https://stored.example/models?sig=stored-signature"}
HEADERS = {"headers.Authorization": "Bearer stored-token", "headers.X-Tenant": "stored-tenant"}
THEIRS = "https://theirs.example"
REFUSED: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "half a pair": (S3 | S3_KEYS, {"access_key_id": "own-id"}),
    "a token alone": (S3 | S3_KEYS, {"session_token": "own-token"}),
    "no verification": (S3 | S3_KEYS, {"verify_ssl": "false"}),
    "no verification of the chain": (GCS, {"verify_ssl": "false"}),
    "another authority": (SAS, {"certificate": "-----BEGIN CERTIFICATE-----"}),
    "a file": (HTTP | HEADERS, {"ca_bundle": "/etc/passwd"}),
    "another virtual host": (HTTP | HEADERS, {"headers.host": "evil.example"}),
    "more endpoints": (S3 | S3_KEYS, {"endpoint_url": THEIRS, "credential_endpoints": "*"}),
    "a bucket that is a host": (S3 | S3_KEYS, {"bucket": "arn:aws:s3:us-east-1:123456789012:accesspoint/evil"}),
    "a bucket that leads up the path": (S3 | S3_KEYS, {"bucket": ".."}),
    "a bucket that leads out of the path": (GCS, {"bucket": "../../../token"}),
    "a bucket with a query": (GCS, {"bucket": "b/o/m?alt=media&"}),
    "a container that leads out of the account": (SAS, {"container": "../other"}),
    "another virtual host for a stored signature": (HTTP, {"headers.X-Own": "1", "headers.Host": "evil.example"}),
    "another addressing": (S3 | S3_KEYS, {"addressing_style": "virtual"}),
    "a secret of its own for a stored principal": (
        {"type": "azure", "container": "c", "account_name": "a", "tenant_id": "t", "client_id": "i", "client_secret": "s"},
        {"tenant_id": "evil"},
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_never_becomes_a_client(name: str) -> None:
    """So neither the stored place nor the other one is asked."""
    stored, params = REFUSED[name]
    with pytest.raises(InvalidRequest, match=LABEL):
        BlockingClients().bucket(merged(stored, a_spec(storage_params=params), LABEL, BINDINGS))
