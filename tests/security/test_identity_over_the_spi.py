"""
An attacker that may create an InferenceService calls the SPI: the adapter as a process, and what really arrives at whose server.

Two addresses of loopback stand for two places: the pod's own (127.0.0.1, where requests may not lead, and the stored
stores are) and the attacker's (127.0.0.2). The pod has an identity at Amazon and at Google.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import grpc
import pytest

from adapter._pb import model_runtime_pb2 as spi
from adapter.storage.stores.clients import KEPT_CLIENTS
from tests.fakes.background_triton import BackgroundTriton
from tests.fakes.hell import Hell, Peer, answering, by_target, redirecting
from tests.real.mesh import LONG_ENOUGH_SECONDS
from tests.real.pod import Pod
from tests.security.chosen import long_but
from tests.security.clouds import private_key
from tests.security.conftest import Sidecar
from tests.security.stores import JSON, KEY, STORES

OURS, THEIRS = "http://ours.invalid", "http://theirs.invalid"
"""Stand for the two servers until they have ports."""
POD = "127.0.0.1"
PRIVATE_KEY = private_key()
DENIED = f"{POD}/32,::1/128,169.254.0.0/16,fe80::/10"
REFUSED, DENIED_ACCESS = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.PERMISSION_DENIED
MOST_MIB = 96
PROOFS = ("stored-", "pod-", "sig=", "assertion", "credential=", "sharedkey", "bearer", "security-token")
"""Any of these at the attacker's server is an identity; header names and values in lower case."""

S3 = {"type": "s3", "endpoint_url": OURS, "bucket": "b", "region": "us-east-1", "access_key_id": "stored-id-of-s3",
      "secret_access_key": "stored-secret-of-s3", "session_token": "stored-token-of-s3"}  # fmt: skip
S3_OF_THE_POD = {"type": "s3", "endpoint_url": OURS, "bucket": "b"}
GCS = {"type": "gcs", "endpoint_url": OURS, "bucket": "b", "client_email": "stored-email", "private_key": "KEY",
       "token_uri": f"{OURS}/token"}  # fmt: skip
GCS_OF_THE_POD = {"type": "gcs", "endpoint_url": OURS, "bucket": "b"}
AZURE = {"type": "azure", "endpoint_url": f"{OURS}/account", "account_name": "account", "container": "b",
         "account_key": "c3RvcmVkLWtleS1vZi1henVyZQ=="}  # fmt: skip
SAS = {"type": "azure", "endpoint_url": f"{OURS}/account", "container": "b", "sas_token": "sv=2024-01-01&sr=c&sig=stored-sas-of-azure"}
HTTP = {"type": "http", "url": f"{OURS}/models?sig=stored-signature-of-a-url", "headers.Authorization": "Bearer stored-token-of-http"}
ALL = {"s3": S3, "s3-of-the-pod": S3_OF_THE_POD, "gcs": GCS, "gcs-of-the-pod": GCS_OF_THE_POD, "azure": AZURE, "sas": SAS, "http": HTTP}
AWAY = {
    "endpoint_url": THEIRS, "url": f"{THEIRS}/{KEY}", "token_uri": f"{THEIRS}/token", "account_name": "account", "container": "b",
    "bucket": "b",
}  # fmt: skip


class Scene:
    """The adapter between the two servers."""

    def __init__(self, sidecar: Sidecar, ours: Hell, theirs: Hell) -> None:
        self.sidecar = sidecar
        self.ours = ours
        self.theirs = theirs

    def placed(self, values: dict[str, str]) -> dict[str, str]:
        """With the ports of the servers."""
        placed = {name: text.replace(OURS, self.ours.url).replace(THEIRS, self.theirs.url) for name, text in values.items()}
        return {name: PRIVATE_KEY if text == "KEY" else text for name, text in placed.items()}

    def add_key(self, config: dict[str, str]) -> str:
        """A new storage key."""
        return self.sidecar.add_key(self.placed(config))

    def load(self, key: str, params: dict[str, str] | str, path: str = KEY, **entries: str) -> grpc.RpcError | None:
        """Load, and forget again. Parameters may be the text of a JSON object. The failure, if it failed."""
        text = params if isinstance(params, str) else json.dumps(self.placed(params))
        rest = json.dumps({"storage_key": key, "model_type": {"name": "python"}, **entries})[1:-1]
        request = spi.LoadModelRequest(modelId="m", modelType="mt:python", modelPath=path, modelKey=f'{{"storage_params": {text}, {rest}}}')
        try:
            self.sidecar.mesh.runtime.loadModel(request, timeout=LONG_ENOUGH_SECONDS)
        except grpc.RpcError as error:
            return error
        finally:
            self.sidecar.mesh.unload("m")
        return None


def store(peer: Peer) -> None:
    """A store of every type, and a giver of tokens, by what is asked."""
    if peer.target.startswith("/token"):
        answering(200, JSON, b'{"access_token": "the-pod-token", "expires_in": 3600}')(peer)
    elif "x-ms-version" in peer.headers:
        STORES["azure"].honest(peer)
    elif "/storage/v1/" in peer.target:
        STORES["gcs"].honest(peer)
    elif "x-amz-content-sha256" in peer.headers or "list-type=2" in peer.target or "botocore" in peer.headers.get("user-agent", "").lower():
        STORES["s3"].honest(peer)
    else:
        STORES["http"].honest(peer)


def seen(requests: list[Peer]) -> str:
    """Everything that arrived."""
    return " ".join(f"{peer.target} {peer.headers} {peer.body.decode(errors='replace')}" for peer in requests).lower()


@pytest.fixture(scope="module")
def scene(fake_triton: BackgroundTriton, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """After its start: nothing is loaded."""
    folder = tmp_path_factory.mktemp("pod")
    (folder / "secret").mkdir()
    with ExitStack() as stack:
        ours, theirs = (stack.enter_context(Hell(store, host=host)) for host in (POD, "127.0.0.2"))
        account = {"type": "service_account", "client_email": "pod-email", "private_key": PRIVATE_KEY, "token_uri": f"{ours.url}/token"}
        (folder / "google.json").write_text(json.dumps(account))
        env = {
            "LOADTIME_TIMEOUT": "20000",
            "LOADING_CONCURRENCY": "8",
            "REQUEST_ENDPOINTS_DENIED": DENIED,
            "AWS_ACCESS_KEY_ID": "pod-id-of-amazon",
            "AWS_SECRET_ACCESS_KEY": "pod-secret-of-amazon",
            "AWS_SESSION_TOKEN": "pod-token-of-amazon",
            "GOOGLE_APPLICATION_CREDENTIALS": str(folder / "google.json"),
        }
        pod = stack.enter_context(Pod(fake_triton.repository.parent, folder / "secret", env, target=fake_triton.target))
        pod.mesh.start()
        yield Scene(Sidecar(pod.adapter, pod.mesh, folder / "secret"), ours, theirs)


@pytest.fixture(autouse=True)
def _nothing_has_arrived(scene: Scene) -> None:
    scene.ours.requests.clear()
    scene.theirs.requests.clear()
    scene.ours.behaviour = scene.theirs.behaviour = store


# what comes as storage_params in addition to the places of AWAY
TRICKS: dict[str, dict[str, str]] = {
    "as it is": {},
    "asks for credentials": {"anonymous": "false"},
    "asks for more places": {"credential_endpoints": "*"},
    "another case": {"Credential_Endpoints": "*", "ANONYMOUS": "false"},
    "dotted keys": {"access_key_id.x": "1", "private_key.a.b": "1", "anonymous.no": "false"},
    "empty parts": {"headers.": "x", ".anonymous": "false"},
    "half of a pair": {"access_key_id": "own-id", "client_email": "own-email", "client_id": "own-id"},
    "a header": {"headers.X-Own": "own-header"},
    "look-alikes": {"\uff45ndpoint_url": OURS, "endpoint_url\u200b": OURS, "anonymou\u017f": "false"},
}
TYPES = ("", "s3", " s3", "S3", "gcs", "azure", "http", "pvc", "\u017f3")


HERE = [(stored, "as it is") for stored in ALL] + [("s3", trick) for trick in TRICKS if trick != "as it is"]


@pytest.mark.parametrize(("stored", "trick"), long_but(itertools.product(ALL, TRICKS), *HERE))
def test_no_identity_arrives_where_a_request_leads(stored: str, trick: str, scene: Scene) -> None:
    """Whatever type the request says, and with it the same through `storageUri`, without any storage key."""
    keys = [scene.add_key(ALL[stored]), ""]
    for kind in TYPES:
        for key in keys:
            scene.load(key, {**AWAY, **({"type": kind} if kind else {}), **TRICKS[trick]})

    arrived = seen(scene.theirs.requests)
    assert [proof for proof in PROOFS if proof in arrived] == []
    assert not [peer for peer in scene.theirs.requests if "authorization" in peer.headers or peer.target.startswith("/token")]
    if trick == "as it is":
        assert {"list-type=2" in arrived, "/storage/v1/b/" in arrived, "comp=list" in arrived, f"/{KEY}" in arrived} == {True}


def test_a_field_that_is_said_twice_is_one_field(scene: Scene) -> None:
    """What is judged is what is used: the last of two equal names, and one whole set of parameters."""
    key = scene.add_key(S3)
    for ours, theirs in ((scene.ours.url, scene.theirs.url), (scene.theirs.url, scene.ours.url)):
        scene.load(key, f'{{"endpoint_url": "{ours}", "endpoint_url": "{theirs}"}}')
        scene.load(key, f'{{"endpoint_url": "{ours}"}}, "Storage_Params": {{"endpoint_url": "{theirs}"}}')

    assert scene.theirs.requests and scene.ours.requests
    assert not [peer for peer in scene.theirs.requests if "authorization" in peer.headers]


def test_a_redirect_of_the_stored_server_takes_nothing_along(scene: Scene) -> None:
    """Of an open redirect, which the path of a request leads to, and of every other store, which follows none."""
    scene.ours.behaviour = by_target({"/token": store}, redirecting(f"{scene.theirs.url}/{KEY}"))
    for config in ALL.values():
        scene.load(scene.add_key(config), {})

    arrived = seen(scene.theirs.requests)
    assert scene.theirs.requests
    assert [proof for proof in PROOFS if proof in arrived] == []


LOOPBACKS = (
    "127.0.0.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "localhost", "LOCALHOST", "0.0.0.0", "0",
    "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]",
)  # fmt: skip
BARE: dict[str, Callable[[str], dict[str, str]]] = {
    "s3": lambda url: {"type": "s3", "bucket": "b", "endpoint_url": url},
    "gcs": lambda url: {"type": "gcs", "bucket": "b", "endpoint_url": url},
    "azure": lambda url: {"type": "azure", "container": "b", "endpoint_url": f"{url}/account"},
    "azure-string": lambda url: {
        "type": "azure", "container": "b", "connection_string": f"AccountName=a;AccountKey=b3duLWtleQ==;BlobEndpoint={url}/a",
    },
    "http": lambda url: {"type": "http", "url": url},
}  # fmt: skip


@pytest.mark.parametrize("kind", BARE)
def test_the_pod_is_not_reached_in_any_notation(kind: str, scene: Scene) -> None:
    """Not dialled at all, and the text says which setting it was."""
    before = scene.ours.connections
    for host in LOOPBACKS:
        failure = scene.load("", BARE[kind](f"http://{host}:{scene.ours.port}"))
        assert failure is not None and failure.code() is REFUSED, (host, failure)
        assert "REQUEST_ENDPOINTS_DENIED" in (failure.details() or ""), (host, failure.details())
    assert scene.ours.connections == before


@pytest.mark.parametrize("target", [*(f"http://{host}:PORT/" for host in LOOPBACKS), "http://169.254.169.254/latest/", "//127.0.0.1:PORT/"])
def test_a_redirect_does_not_reach_the_pod_either(target: str, scene: Scene) -> None:
    """Nor does the redirect of a server that the stored config names."""
    before = scene.ours.connections
    scene.theirs.behaviour = redirecting(target.replace("PORT", str(scene.ours.port)))
    failure = scene.load("", {"type": "http", "url": THEIRS})
    assert failure is not None and failure.code() is REFUSED
    assert scene.ours.connections == before


FILES = ("/etc/passwd", "/nowhere/at/all", "/dev/zero", "/dev/ptmx", "/proc/self/environ", ".")


@pytest.mark.parametrize("field", ["ca_bundle", "cabundle_configmap", "certificate", "client_certificate", "private_key"])
@pytest.mark.parametrize("stored", ["s3", "gcs-of-the-pod", "http"])
def test_no_answer_tells_which_files_the_pod_has(stored: str, field: str, scene: Scene) -> None:
    """The same words for every path: none of them was looked at."""
    key = scene.add_key(ALL[stored])
    beside = {"client_key": "own-key"} if field == "client_certificate" else {"client_email": "own@email"} if field == "private_key" else {}
    texts: set[str | None] = set()
    for path in FILES:
        failure = scene.load(key, {field: path, **beside})
        texts.add((failure.details() or "").partition(" (model")[0] if failure else None)
    assert len(texts) == 1, texts


def test_storage_keys_are_names_in_one_folder(scene: Scene, tmp_path: Path) -> None:
    """Kubernetes' own links beside them are none."""
    (scene.sidecar.secret / "..data").mkdir(exist_ok=True)
    for name in ("..data", "..", ".", "../secret/key-1", "/etc/passwd", f"..{'/..' * 9}/etc/passwd", "..data/key-1", "%2e%2e/x"):
        failure = scene.load(name, {})
        assert failure is not None and failure.code() is REFUSED
        assert "not a plain file name" in (failure.details() or "")


MARK = "hush-0f3a9c"
"""Is part of every secret of the requests below."""
OWN: dict[str, dict[str, str]] = {
    "user in an endpoint": {"type": "s3", "bucket": "b", "endpoint_url": f"http://me:{MARK}@theirs.invalid"},
    "user in a url": {"type": "http", "url": f"http://me:{MARK}@theirs.invalid/x"},
    "signature in a url": {"type": "http", "url": f"http://127.0.0.1:1/x?sig={MARK}-and-more"},
    "short query of a url": {"type": "http", "url": f"http://127.0.0.1:1/x?{MARK}"},
    "signed url that is away": {"type": "http", "url": f"{THEIRS}/x?X-Amz-Signature={MARK}"},
    "header": {"type": "http", "url": THEIRS, "headers.Authorization": f"Bearer {MARK}\u00e9"},
    "header name": {"type": "http", "url": THEIRS, f"headers.Authorization: Bearer {MARK}": "x"},
    "s3 keys": {"type": "s3", "bucket": "b", "endpoint_url": THEIRS, "access_key_id": f"{MARK}-id", "secret_access_key": f"{MARK}-key\n x"},
    "half a pair": {"type": "s3", "bucket": "b", "secret_access_key": MARK},
    "service account": {"type": "gcs", "bucket": "b", "client_email": f"{MARK}@x", "private_key": f"-----BEGIN PRIVATE KEY-----{MARK}"},
    "account key": {"type": "azure", "container": "b", "endpoint_url": f"{THEIRS}/a", "account_name": "a", "account_key": MARK},
    "sas": {"type": "azure", "container": "b", "endpoint_url": f"{THEIRS}/a", "sas_token": f"?sig={MARK}"},
    "connection string": {"type": "azure", "container": "b", "connection_string": f"AccountName=a;AccountKey={MARK};BlobEndpoint={THEIRS}"},
    "broken connection string": {"type": "azure", "container": "b", "connection_string": f"{MARK};;"},
    "tenant": {"type": "azure", "container": "b", "account_name": "a", "tenant_id": f"{MARK}/..", "client_id": MARK, "client_secret": MARK},
    "client key": {"type": "http", "url": THEIRS, "client_certificate": f"{MARK}-cert", "client_key": f"{MARK}-key"},
    "certificate": {"type": "http", "url": THEIRS, "headers.X": f"{MARK}-header", "certificate": f"-----BEGIN CERTIFICATE-----{MARK}"},
    "a flag": {"type": "s3", "bucket": "b", "verify_ssl": MARK},
    "another flag": {"type": "s3", "bucket": "b", "endpoint_url": THEIRS, "anonymous": MARK},
    "a style": {"type": "s3", "bucket": "b", "endpoint_url": THEIRS, "addressing_style": MARK},
    "the adapter's own": {"adapter.modelSizeBytes": MARK},
}


@pytest.mark.parametrize("name", OWN)
def test_neither_an_answer_nor_the_log_holds_what_a_request_brought(name: str, scene: Scene) -> None:
    """Of requests that fail, at every step where one can; predictions alike."""
    scene.theirs.behaviour = answering(403, {"Content-Length": len(MARK), "X-Echo": MARK}, MARK.encode())
    failure = scene.load("", OWN[name])
    with suppress(grpc.RpcError):
        scene.sidecar.mesh.predict("p", "python", KEY, storage_key="", storage_params=scene.placed(OWN[name]))

    assert failure is not None and failure.code() in (REFUSED, DENIED_ACCESS)
    assert MARK not in (failure.details() or "")
    assert MARK not in scene.sidecar.adapter.log_text()


@pytest.mark.parametrize("stored", ALL)
def test_neither_an_answer_nor_the_log_holds_what_is_stored(stored: str, scene: Scene) -> None:
    """A store that says no, and repeats what it was sent wherever it can."""

    def echo(peer: Peer) -> None:
        if peer.target.startswith("/token"):
            store(peer)
            return
        body = f"{peer.headers}{peer.target}".encode()
        answering(403, {"Content-Length": len(body), "x-ms-error-code": peer.headers.get("authorization", "x")[:60]}, body)(peer)

    scene.ours.behaviour = echo
    failure = scene.load(scene.add_key(ALL[stored]), {})

    assert failure is not None and failure.code() is DENIED_ACCESS
    known = [value for value in ALL[stored].values() if "stored-" in value]
    known += ["stored-signature", "stored-token", "pod-secret", "pod-token"]
    for text in (failure.details() or "", scene.sidecar.adapter.log_text()):
        assert not [each for each in known if each in text]
        assert "AWS4-HMAC" not in text and "SharedKey account" not in text


def test_tenants_of_one_store_share_no_client_that_tells_who_they_are(scene: Scene) -> None:
    """One place, three identities, in turns: each is seen as who it is."""
    key = scene.add_key(S3)
    own = {"access_key_id": "own-id", "secret_access_key": "own-secret"}
    for params, proof in [({}, "stored-id-of-s3"), ({"anonymous": "true"}, ""), (own, "own-id")] * 2:
        scene.ours.requests.clear()
        assert scene.load(key, params) is None
        found = {peer.headers.get("authorization", "").partition("Credential=")[2].partition("/")[0] for peer in scene.ours.requests}
        assert found == {proof}
        assert ("stored-token" in seen(scene.ours.requests)) is (proof == "stored-id-of-s3")


def test_a_flood_of_places_takes_bounded_memory_and_delays_no_other_load(scene: Scene) -> None:
    """Each makes a client of its own; the clients of others are made again."""
    key = scene.add_key(S3)
    assert scene.load(key, {}) is None
    with scene.sidecar.growth() as grown:
        for number in range(2 * KEPT_CLIENTS):
            kind = ("s3", "gcs", "azure", "http")[number % 4]
            scene.load("", {**BARE[kind](f"{THEIRS}/{number}"), "headers.X-Own": f"{number}" * 10_000} | {"region": f"r-{number}"})
        assert scene.load(key, {}) is None
    assert grown[0] <= MOST_MIB
    assert "stored-id-of-s3" in seen(scene.ours.requests)


def test_a_url_without_any_secret_is_a_model(scene: Scene) -> None:
    """What `storageUri: https://…` becomes; and public buckets, as a request alone can name them."""
    for kind in ("s3", "gcs", "azure", "http"):
        failure = scene.load("", BARE[kind](THEIRS))
        assert failure is None, (kind, failure)
