"""
Pods with an identity at Google or Microsoft: the adapter as a process, who gives out its tokens, and a store that demands one.

`SOURCES` has each way to a token that `deploy/docs/storage.md` tells of. A giver counts what it gave, and says what it was shown.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs

import grpc

from tests.fakes.background_triton import BackgroundTriton
from tests.fakes.hell import Behaviour, Hell, Peer, answering
from tests.real.certificates import server_tls
from tests.real.pod import Pod
from tests.security.clouds import entra, private_key
from tests.security.conftest import Sidecar
from tests.security.stores import JSON, KEY, STORES

BUDGET_SECONDS = 5.4
KEY_OF_GOOGLE = private_key()
POD_TOKEN, POD_SECRET = "s3cret-federated-token-of-the-pod", "s3cret-of-the-principal"
_JWT = "urn:ietf:params:oauth:token-type:jwt"
ACCOUNT = b'{"email": "a@b", "scopes": ["s"]}'
SECRETS = (POD_TOKEN, POD_SECRET, "s3cret-access-token", KEY_OF_GOOGLE.splitlines()[1])
"""None of these may be told."""


class Giver:
    """Gives out tokens: each has another text, and counts until the next one is given."""

    def __init__(self, server: Hell, spoken: Callable[[Behaviour], Behaviour]) -> None:
        self.server = server
        self.spoken = spoken
        """From what answers a question for a token to what answers all questions."""
        self.asked: list[Peer] = []
        self.lives: list[int] = []
        """Seconds of the next tokens; an hour where nothing is said."""
        self.tokens: list[str] = []
        """That were given out, in order."""
        self._lock = threading.Lock()

    def give(self, peer: Peer) -> None:
        """A new token."""
        with self._lock:
            self.asked.append(peer)
            self.tokens.append(f"s3cret-access-token-{len(self.asked)}")
            life = self.lives.pop(0) if self.lives else 3600
            given = {"access_token": self.tokens[-1], "expires_in": life, "token_type": "Bearer", "issued_token_type": _JWT}
        answer_json(given, {"Metadata-Flavor": "Google"})(peer)

    def behave(self, behaviour: Behaviour | None = None) -> None:
        """Answer questions for tokens like this; without it, as an honest giver. What was asked is forgotten."""
        for past in (self.asked, self.lives, self.tokens):
            past.clear()
        self.server.requests.clear()
        self.server.hanging.clear()
        self.server.behaviour = self.spoken(behaviour or self.give)

    @property
    def place(self) -> str:
        """As errors name it."""
        return self.server.url.partition("://")[2].replace("127.0.0.1", "localhost" if self.server.url.startswith("https") else "127.0.0.1")


def answer_json(value: object, headers: dict[str, str | int] | None = None, status: int = 200) -> Behaviour:
    """An answer in JSON."""
    body = json.dumps(value).encode()
    return answering(status, {**JSON, "Content-Length": len(body), **(headers or {})}, body)


def metadata(token: Behaviour) -> Behaviour:
    """Google's metadata server."""

    def answer(peer: Peer) -> None:
        assert peer.headers.get("metadata-flavor") == "Google" or peer.target == "/"
        if "/token" in peer.target:
            token(peer)
        elif "recursive" in peer.target:
            answering(200, {**JSON, "Content-Length": len(ACCOUNT)}, ACCOUNT)(peer)
        elif peer.target.startswith("/computeMetadata"):
            answering(404, {"Content-Length": 0})(peer)
        else:
            answering(200, {"Metadata-Flavor": "Google", "Content-Length": 0})(peer)

    return answer


class CloudPod:
    """An adapter, and the givers of its tokens."""

    def __init__(self, sidecar: Sidecar, google: Giver, azure: Giver, tls: ssl.SSLContext, ca_pem: str) -> None:
        self.sidecar = sidecar
        self.google = google
        self.azure = azure
        self.tls = {"gcs": None, "azure": tls}
        """Of a store: Azure's library sends no token without it, not to loopback either."""
        self.ca_pem = ca_pem

    def load(self, key: str) -> grpc.RpcError | None:
        """Load, and unload again. The failure, if it failed."""
        try:
            self.sidecar.mesh.load("m", "python", KEY, storage_key=key)
        except grpc.RpcError as error:
            return error
        finally:
            self.sidecar.mesh.unload("m")
        return None


@contextmanager
def pod(folder: Path, identity: Callable[[Path, str, str], dict[str, str]]) -> Iterator[CloudPod]:
    """`identity`: from a folder, the address of Google's giver and that of Azure's to the environment."""
    context, certificates = server_tls(folder)
    for name in ("secret", "volume"):
        (folder / name).mkdir()
    with ExitStack() as stack:
        google = Giver(stack.enter_context(Hell(answering(500))), metadata)
        azure = Giver(stack.enter_context(Hell(answering(500), tls=context)), entra)
        (folder / "token").write_text(POD_TOKEN)
        triton = stack.enter_context(BackgroundTriton(folder / "volume/_triton_models"))
        env = {
            "LOADTIME_TIMEOUT": str(int(BUDGET_SECONDS * 1000 / 0.9)),
            "LOADING_CONCURRENCY": "32",
            "AZURE_AUTHORITY_HOST": f"https://{azure.place}",
            **identity(folder, google.server.url.partition("://")[2], azure.place),
        }
        made = stack.enter_context(Pod(folder / "volume", folder / "secret", env, target=triton.target))
        made.mesh.start()
        yield CloudPod(Sidecar(made.adapter, made.mesh, folder / "secret"), google, azure, context, certificates.ca_pem)


NOWHERE = {"GCE_METADATA_HOST": "127.0.0.1:1", "GCE_METADATA_IP": "127.0.0.1:1"}


def on_the_clouds(folder: Path, google: str, azure: str) -> dict[str, str]:
    """A metadata server of Google's, and a workload identity of Azure's: each pod has one of them, which is no matter here."""
    azures = {"AZURE_TENANT_ID": "tenant", "AZURE_CLIENT_ID": "client", "AZURE_FEDERATED_TOKEN_FILE": str(folder / "token")}
    return {"GCE_METADATA_HOST": google, "GCE_METADATA_IP": google, **azures}


def google_file(folder: Path, account: dict[str, object]) -> dict[str, str]:
    """The file that GOOGLE_APPLICATION_CREDENTIALS names."""
    (folder / "google.json").write_text(json.dumps(account))
    return {**NOWHERE, "GOOGLE_APPLICATION_CREDENTIALS": str(folder / "google.json")}


def with_a_key_file(folder: Path, google: str, azure: str) -> dict[str, str]:
    """A service account's key."""
    account = {"type": "service_account", "client_email": "a@b", "private_key": KEY_OF_GOOGLE, "token_uri": f"http://{google}/token"}
    return google_file(folder, account)


def federated(folder: Path, google: str, azure: str) -> dict[str, str]:
    """A token of another issuer, which Google's token server takes."""
    account = {
        "type": "external_account",
        "audience": "//iam.googleapis.com/locations/global/workforcePools/pool/providers/provider",
        "subject_token_type": _JWT,
        "token_url": f"http://{google}/token",
        "credential_source": {"file": str(folder / "token")},
    }
    return google_file(folder, account)


PODS = {
    "on the clouds": on_the_clouds,
    "key file": with_a_key_file,
    "federated": federated,
    "without an identity": lambda _folder, _google, _azure: NOWHERE,
}


@dataclass(frozen=True)
class Source:
    """One way to a token."""

    pod: str
    kind: str
    is_right: Callable[[Peer], bool]
    """Whether a question for a token shows who asks, as the giver demands it."""
    fields: Callable[[Giver], dict[str, str]] = lambda _: {}
    """Of the storage config, beside its place."""

    def config(self, pod: CloudPod, url: str) -> dict[str, str]:
        """A storage config of the store at this URL."""
        place = {"gcs": url, "azure": f"{url}/account"}[self.kind]
        base = {"type": self.kind, "endpoint_url": place, "bucket": "b", "certificate": pod.ca_pem}
        return {**base, **({"account_name": "account"} if self.kind == "azure" else {}), **self.fields(self.giver(pod))}

    def giver(self, pod: CloudPod) -> Giver:
        """Of its tokens, honest."""
        giver = pod.google if self.kind == "gcs" else pod.azure
        giver.spoken = entra if self.kind == "azure" else metadata if self.pod == "on the clouds" else (lambda token: token)
        return giver


def form(peer: Peer) -> dict[str, str]:
    """What was posted."""
    return {name: values[0] for name, values in parse_qs(peer.body.decode()).items()}


SOURCES = {
    "gcs: metadata server": Source("on the clouds", "gcs", lambda peer: peer.headers.get("metadata-flavor") == "Google"),
    "gcs: key file": Source("key file", "gcs", lambda peer: form(peer)["assertion"].count(".") == 2),
    "gcs: federated": Source("federated", "gcs", lambda peer: form(peer)["subject_token"] == POD_TOKEN),
    "gcs: key of the config": Source(
        "without an identity",
        "gcs",
        lambda peer: form(peer)["assertion"].count(".") == 2,
        lambda giver: {"client_email": "a@b", "private_key": KEY_OF_GOOGLE.replace("\n", "\\n"), "token_uri": f"{giver.server.url}/token"},
    ),
    "azure: workload identity": Source(
        "on the clouds", "azure", lambda peer: (form(peer)["client_assertion"], form(peer)["client_id"]) == (POD_TOKEN, "client")
    ),
    "azure: service principal": Source(
        "without an identity",
        "azure",
        lambda peer: (
            (form(peer)["client_secret"], form(peer)["client_id"]) == (POD_SECRET, "c") and "storage.azure.com" in form(peer)["scope"]
        ),
        lambda _: {"tenant_id": "t", "client_id": "c", "client_secret": POD_SECRET},
    ),
}


def demanding(kind: str, giver: Giver) -> Behaviour:
    """A store that lets in who has a token of this giver."""

    def answer(peer: Peer) -> None:
        if peer.headers.get("authorization") in {f"Bearer {token}" for token in giver.tokens}:
            STORES[kind].honest(peer)
        else:
            answering(401, {"Content-Length": 0})(peer)

    return answer
