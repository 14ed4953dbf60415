"""
GCS and Azure over the SPI: each way to a token leads to a model, and what goes wrong on it is told in one line without a secret.

The adapter is a process, with the environment that a pod of the cloud has. A store demands the token that was given out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import grpc
import pytest

from tests.fakes.hell import Behaviour, Hell, Peer, answering, in_turn, redirecting, silent
from tests.real.polls import until
from tests.security.cloud_pod import BUDGET_SECONDS, PODS, SECRETS, SOURCES, CloudPod, Giver, Source, answer_json, demanding, pod
from tests.security.conftest import STOP_SECONDS
from tests.security.stores import STORES

DENIED, AWAY, WRONG, LATE = (
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.DEADLINE_EXCEEDED,
)


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, CloudPod]]:
    """One of each."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(pod(tmp_path_factory.mktemp("pod"), identity)) for name, identity in PODS.items()}


@pytest.fixture(params=list(SOURCES))
def source(request: pytest.FixtureRequest) -> Source:
    """Each way to a token."""
    return SOURCES[request.param]


@pytest.fixture
def here(source: Source, pods: dict[str, CloudPod]) -> CloudPod:
    """The pod that has it."""
    return pods[source.pod]


@pytest.fixture
def giver(source: Source, here: CloudPod) -> Giver:
    """Honest until the test says otherwise."""
    given = source.giver(here)
    given.behave()
    return given


@pytest.fixture
def store(source: Source, here: CloudPod, giver: Giver) -> Iterator[Hell]:
    """Lets in who has the token. New for each test, so that no token of another one is kept for it."""
    with Hell(demanding(source.kind, giver), tls=here.tls[source.kind]) as server:
        yield server


@pytest.fixture
def key(source: Source, here: CloudPod, store: Hell) -> str:
    """The storage key of that store."""
    return here.sidecar.add_key(source.config(here, store.url))


def assert_told(failure: grpc.RpcError | None, code: grpc.StatusCode, here: CloudPod) -> str:
    """One line, and no secret in it nor in the log. The line."""
    assert failure is not None and failure.code() is code, failure
    text = failure.details() or ""
    assert "\n" not in text and text
    for told in (text, here.sidecar.adapter.log_text()):
        assert not [secret for secret in SECRETS if secret in told]
    return text


def test_a_token_is_asked_for_once_and_opens_the_store(source: Source, here: CloudPod, giver: Giver, store: Hell, key: str) -> None:
    """Its giver is shown who asks; two loads have one token, and the store is told nothing else."""
    assert here.load(key) is None
    assert here.load(key) is None
    assert [source.is_right(peer) for peer in giver.asked] == [True]
    assert {peer.headers["authorization"] for peer in store.requests} == {f"Bearer {giver.tokens[0]}"}


def test_a_token_that_has_ended_is_replaced(here: CloudPod, giver: Giver, store: Hell, key: str) -> None:
    """The first one lives for a second, the second one for an hour: later loads use that and ask for none."""
    giver.lives = [1]
    end = time.monotonic() + 1.1
    assert here.load(key) is None
    until(lambda: time.monotonic() > end, "the first token has ended")
    assert here.load(key) is None
    assert len(giver.asked) > 1
    asked = len(giver.asked)
    store.requests.clear()
    assert here.load(key) is None
    assert len(giver.asked) == asked
    used = {peer.headers["authorization"] for peer in store.requests}
    assert len(used) == 1 and used < {f"Bearer {token}" for token in giver.tokens[1:]} | {""}


def test_a_token_that_ends_in_a_pull_is_asked_for_once(pods: dict[str, CloudPod]) -> None:
    """As credentials of Amazon are."""
    source = SOURCES["gcs: key of the config"]
    here = pods[source.pod]
    giver = source.giver(here)

    def slow(peer: Peer) -> None:
        peer.pause(0.5)
        giver.give(peer)

    giver.behave(slow)
    giver.lives = [1]
    with Hell(demanding("gcs", giver)) as store:
        assert here.load(here.sidecar.add_key(source.config(here, store.url))) is None
    assert len(giver.asked) == 2


def test_a_store_that_refuses_the_token_is_told(here: CloudPod, giver: Giver, store: Hell, key: str) -> None:
    """It names another resource, and quotes what it was sent: no token is fetched for that, and nothing is quoted."""
    challenge = "Bearer authorization_uri=https://login.example/t/oauth2/authorize resource_id=https://graph.example"

    def refuse(peer: Peer) -> None:
        body = peer.headers["authorization"].encode()
        answering(401, {"WWW-Authenticate": challenge, "Content-Length": len(body)}, body)(peer)

    store.behaviour = refuse
    assert_told(here.load(key), DENIED, here)
    assert len(giver.asked) == 1
    assert not [peer for peer in giver.server.requests if b"graph" in peer.body]


REFUSALS: dict[str, Behaviour] = {
    "400": answer_json({"error": "invalid_grant", "error_description": "s3cret-of-the-principal is not it"}, status=400),
    "403": answer_json({"error": "s3cret-of-the-principal"}, status=403),
    "another place": redirecting("http://127.0.0.1:1/"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_an_identity_that_gets_no_token_is_denied(name: str, here: CloudPod, giver: Giver, store: Hell, key: str) -> None:
    """And the store is not asked without one."""
    giver.behave(REFUSALS[name])
    assert_told(here.load(key), DENIED, here)
    assert not store.requests


def test_a_giver_in_trouble_for_a_moment_is_asked_again(here: CloudPod, giver: Giver, store: Hell, key: str) -> None:
    """Within the load; no request is anonymous meanwhile."""
    giver.behave(in_turn(answering(503, {"Content-Length": 0}), giver.give))
    assert here.load(key) is None
    assert {peer.headers["authorization"] for peer in store.requests} == {f"Bearer {giver.tokens[0]}"}


def test_a_stop_wakes_a_load_that_waits_for_a_token(here: CloudPod, giver: Giver, key: str) -> None:
    """The libraries would wait for minutes."""
    giver.behave(silent())
    load = here.sidecar.begin(key)
    assert giver.server.hanging.wait(20)
    here.sidecar.stop(load)


def test_no_token_goes_over_plain_http(source: Source, here: CloudPod, giver: Giver) -> None:
    """Each reader of it could use it."""
    key = here.sidecar.add_key(source.config(here, "http://storage.example"))
    assert "plain http" in assert_told(here.load(key), WRONG, here)


def stuck(pods: dict[str, CloudPod], behaviour: Behaviour) -> dict[str, str]:
    """What loads say whose givers of tokens all behave so: at once, in time, and without a question to the store."""
    with Hell(STORES["gcs"].honest) as store:
        calls = {}
        begun = time.monotonic()
        for name, source in SOURCES.items():
            here = pods[source.pod]
            source.giver(here).behave(behaviour)
            url = store.url if source.kind == "gcs" else store.url.replace("http:", "https:")
            key = here.sidecar.add_key(source.config(here, url))
            calls[name] = here.sidecar.begin(key, name)
        failures = {name: call.exception() for name, call in calls.items()}
        assert time.monotonic() - begun < BUDGET_SECONDS + STOP_SECONDS
        assert not store.connections
    assert {failure.code() for failure in failures.values()} <= {AWAY, LATE}
    return {name: assert_told(failure, failure.code(), pods[SOURCES[name].pod]) for name, failure in failures.items()}


def unnamed(pods: dict[str, CloudPod], texts: dict[str, str]) -> dict[str, str]:
    """Texts that do not say who gives out the tokens."""
    return {name: text for name, text in texts.items() if SOURCES[name].giver(pods[SOURCES[name].pod]).place not in text}


def test_a_giver_that_stays_in_trouble_is_named_in_time(pods: dict[str, CloudPod]) -> None:
    """With its budget the load ends, and the store is not blamed."""
    texts = stuck(pods, answering(503, {"Content-Length": 0}))
    assert not unnamed(pods, texts)
    assert all("which gives out credentials for" in text for text in texts.values())


@pytest.fixture(scope="module")
def silence(pods: dict[str, CloudPod]) -> dict[str, str]:
    """What loads say whose givers are silent."""
    return stuck(pods, silent())


def test_a_giver_that_is_silent_holds_no_load_beyond_its_budget(silence: dict[str, str]) -> None:
    """It is said what was waited for, and for how long."""
    assert all("waiting for" in text for text in silence.values())


def test_a_giver_that_is_silent_is_named(silence: dict[str, str], pods: dict[str, CloudPod]) -> None:
    """And not the store, which was asked nothing."""
    assert not unnamed(pods, silence)


def test_a_giver_in_trouble_holds_up_no_other_key_of_the_store(pods: dict[str, CloudPod]) -> None:
    """A key that needs no token is served while the other one's giver has failed once, and is silent now."""
    source = SOURCES["azure: service principal"]
    here = pods[source.pod]
    giver = source.giver(here)
    giver.behave(in_turn(answering(503, {"Content-Length": 0}), silent()))
    with Hell(STORES["azure"].honest, tls=here.tls["azure"]) as store:
        waits = here.sidecar.add_key(source.config(here, store.url))
        signed = here.sidecar.add_key(
            source.config(here, store.url) | {"client_secret": "", "tenant_id": "", "client_id": "", "sas_token": "sig=x"}
        )
        load = here.sidecar.begin(waits, "waits")
        assert giver.server.hanging.wait(20)
        assert here.load(signed) is None
        assert not load.done(), "it was served after the other one had ended"
        here.sidecar.stop(load, "waits")


KEYS: dict[str, tuple[dict[str, str], str]] = {
    "shared key": ({"account_name": "account", "account_key": "c2VjcmV0LW9mLXRlc3Rz"}, "SharedKey account:"),
    "SAS": ({"account_name": "account", "sas_token": "sv=2024-01-01&sr=c&sig=the-signature"}, "sig=the-signature"),
    "connection string": (
        {"connection_string": "AccountName=account;AccountKey=c2VjcmV0LW9mLXRlc3Rz;BlobEndpoint=URL/account"},
        "SharedKey account:",
    ),
    "nothing": ({"account_name": "account"}, ""),
}


@pytest.mark.parametrize("name", KEYS)
def test_a_key_of_azure_asks_for_no_token(name: str, pods: dict[str, CloudPod]) -> None:
    """It signs, or is the proof itself; a pod without any identity comes as an anonymous caller."""
    fields, proof = KEYS[name]
    here = pods["without an identity"]
    here.azure.behave()

    def demand(peer: Peer) -> None:
        shown = f"{peer.headers.get('authorization', '')} {peer.target}"
        is_right = proof in shown if proof else "authorization" not in peer.headers and "sig=" not in peer.target
        STORES["azure"].honest(peer) if is_right else answering(403, {"Content-Length": 0})(peer)

    with Hell(demand) as store:
        config = {"type": "azure", "container": "b", **{key: value.replace("URL", store.url) for key, value in fields.items()}}
        place = {} if name == "connection string" else {"endpoint_url": f"{store.url}/account"}
        assert here.load(here.sidecar.add_key(config | place)) is None
        assert not here.azure.server.requests


def test_a_pod_without_an_identity_is_anonymous_at_google(pods: dict[str, CloudPod]) -> None:
    """No metadata server is there."""
    with Hell(STORES["gcs"].honest) as store:
        here = pods["without an identity"]
        assert here.load(here.sidecar.add_key({"type": "gcs", "bucket": "b", "endpoint_url": store.url})) is None
        assert not [peer for peer in store.requests if "authorization" in peer.headers]


def raw(body: bytes, status: int = 200, **headers: str) -> Behaviour:
    """An answer whose body is this."""
    return answering(status, {"Content-Type": "application/json", "Content-Length": len(body), **headers}, body)


TOKEN_ANSWERS: dict[str, tuple[Behaviour, tuple[grpc.StatusCode, ...], str]] = {
    "refused": (raw(b'{"error": "invalid_client"}', 401), (DENIED,), "did not work"),
    "elsewhere": (redirecting("https://127.0.0.1:1/"), (DENIED,), "did not work"),
    "too-many": (raw(b"", 429, **{"Retry-After": "9"}), (AWAY,), "which gives out credentials for"),
    "empty": (raw(b""), (AWAY, DENIED), ""),
    "list": (raw(b"[]"), (AWAY,), "gave an answer that is not"),
    "deep": (raw(b"[" * 9000), (AWAY,), "gave an answer that is not"),
    "no-end": (raw(b'{"access_token": "a", "expires_in": 1e999, "token_type": "Bearer"}'), (AWAY,), "gave an answer that is not"),
}
OF_GOOGLE: dict[str, tuple[Behaviour, tuple[grpc.StatusCode, ...], str]] = {
    "a-list": (raw(b'{"access_token": [1], "expires_in": 60}'), (AWAY, DENIED), ""),
    "no-time": (raw(b'{"access_token": "a", "expires_in": []}'), (AWAY,), "gave an answer that is not"),
}


@pytest.mark.parametrize("kind", ["gcs", "azure"])
def test_a_token_server_that_answers_badly_has_a_code(kind: str, pods: dict[str, CloudPod]) -> None:
    """All answers at once, each at a path or for a tenant of its own. The store is asked by none of these loads."""
    source = SOURCES["gcs: key of the config" if kind == "gcs" else "azure: service principal"]
    here = pods[source.pod]
    giver = source.giver(here)
    rows = TOKEN_ANSWERS | (OF_GOOGLE if kind == "gcs" else {})
    giver.behave(lambda peer: next(row[0] for name, row in rows.items() if f"/{name}/" in peer.target)(peer))
    with Hell(answering(401, {"Content-Length": 0}), tls=here.tls[kind]) as store:
        calls = {}
        for name in rows:
            fields = {"token_uri": f"{giver.server.url}/{name}/"} if kind == "gcs" else {"tenant_id": name}
            key = here.sidecar.add_key(source.config(here, store.url) | fields)
            calls[name] = here.sidecar.begin(key, name)
        for name, (_, codes, words) in rows.items():
            failure = calls[name].exception()
            assert failure is not None and failure.code() in codes, (name, failure)
            assert words in assert_told(failure, failure.code(), here), name
        assert not [peer for peer in store.requests if "Bearer the" in peer.headers.get("authorization", "")]
