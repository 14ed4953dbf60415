"""
Credentials from each source: STS, an instance, a container, SSO, a program. Each may be silent, away or wrong.

What can pass is repeated, like any trouble of a store; a stopped load ends; one thread asks for all.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import time

import pytest
from botocore.credentials import SSOProvider

from adapter.errors import InvalidRequest, SourceDenied, SourceUnavailable
from adapter.workers import Stop, Stopped
from tests.contract.bucket.conftest import bucket_of
from tests.fakes.hell import Hell, answering, by_target, resetting, silent
from tests.fakes.http_proxy import HttpProxy
from tests.real.blocking import ended

pytestmark = pytest.mark.usefixtures("bare_environment")
PROMPT_SECONDS = 3
EMPTY_LISTING = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
TOKEN = "the-session-token"
KEYS = ("AKIDEXAMPLE", "a-secret-key-of-the-pod")


def expiry(seconds=3600.0):
    return (datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def sts_answer(action, seconds=3600.0):
    return answering_body(
        f"<{action}Response><{action}Result><Credentials><AccessKeyId>{KEYS[0]}</AccessKeyId><SecretAccessKey>{KEYS[1]}</SecretAccessKey>"
        f"<SessionToken>{TOKEN}</SessionToken><Expiration>{expiry(seconds)}</Expiration></Credentials></{action}Result></{action}Response>"
    )


def answering_body(text, status=200):
    return answering(status, {"Content-Length": len(text.encode())}, text.encode())


def metadata(seconds=3600.0):
    return answering_body(
        json.dumps({"AccessKeyId": KEYS[0], "SecretAccessKey": KEYS[1], "Token": TOKEN, "Expiration": expiry(seconds), "Code": "Success"})
    )


def instance(credentials):
    return by_target(
        {"api/token": answering_body("imds-token"), "security-credentials/role": credentials}, otherwise=answering_body("role")
    )


def by_web_identity(monkeypatch, folder, url):
    (folder / "token").write_text("the-web-identity-token")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(folder / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/pod")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)


def by_assumed_role(monkeypatch, folder, url):
    keys = "aws_access_key_id=AKIDSOURCE\naws_secret_access_key=source-secret"
    (folder / "config").write_text(f"[default]\nrole_arn=arn:aws:iam::123456789012:role/pod\nsource_profile=base\n[profile base]\n{keys}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)


def by_container(monkeypatch, folder, url):
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{url}/credentials")


def by_instance(monkeypatch, folder, url):
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)
    monkeypatch.setenv("AWS_METADATA_SERVICE_TIMEOUT", "30")


def by_sso(monkeypatch, folder, url):
    start = "https://sso.example/start"
    (folder / "config").write_text(
        f"[default]\nsso_start_url={start}\nsso_region=us-east-1\nsso_account_id=123456789012\nsso_role_name=pod\nregion=us-east-1\n"
    )
    name = hashlib.sha1(start.encode()).hexdigest()
    (folder / f"{name}.json").write_text(json.dumps({"accessToken": "sso-access-token", "expiresAt": expiry()}))
    monkeypatch.setattr(SSOProvider, "_SSO_TOKEN_CACHE_DIR", str(folder))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
    monkeypatch.setenv("AWS_ENDPOINT_URL_SSO", url)


def sso_answer(seconds=3600.0):
    millis = int((time.time() + seconds) * 1000)
    role = {"accessKeyId": KEYS[0], "secretAccessKey": KEYS[1], "sessionToken": TOKEN, "expiration": millis}
    return answering_body(json.dumps({"roleCredentials": role}))


# how the pod is told of the source, and what a source answers that works
SOURCES = {
    "web identity": (by_web_identity, lambda: sts_answer("AssumeRoleWithWebIdentity")),
    "assumed role": (by_assumed_role, lambda: sts_answer("AssumeRole")),
    "container": (by_container, metadata),
    "instance": (by_instance, lambda: instance(metadata())),
    "sso": (by_sso, sso_answer),
}


@pytest.fixture
def store():
    """An S3 server that has an empty bucket."""
    with Hell(answering_body(EMPTY_LISTING.decode())) as started:
        yield started


def chained(store, **changes):
    """A bucket whose config has no keys."""
    return bucket_of({"type": "s3", "bucket": "b", "endpoint_url": store.url, "region": "us-east-1"} | changes)


@pytest.fixture(params=list(SOURCES))
def source(request, monkeypatch, tmp_path):
    """One that gives out credentials, and what it answers when all is well."""
    told, good = SOURCES[request.param]
    with Hell(good()) as giver:
        told(monkeypatch, tmp_path, giver.url)
        giver.good = good
        yield giver


def test_credentials_that_are_given_sign(store, source):
    """As an environment without any config of ours."""
    assert chained(store).list_page("m/", Stop()).objects == ()
    assert f"Credential={KEYS[0]}/" in store.requests[0].headers["authorization"]
    assert store.requests[0].headers["x-amz-security-token"] == TOKEN


def test_a_source_that_is_silent_does_not_hold_a_stopped_load(store, source):
    """Far from any timeout. Nothing is sent to the store."""
    source.behaviour = silent()
    error, seconds = ended(lambda stop: chained(store).list_page("m/", stop), source.hanging.wait)
    assert type(error) is Stopped and seconds < PROMPT_SECONDS
    assert store.requests == []


AWAY = {"503": answering_body("{}", 503), "429": answering_body("{}", 429), "a reset": resetting()}


@pytest.mark.parametrize("behaviour", AWAY.values(), ids=list(AWAY))
def test_a_source_that_is_away_can_come_back(store, source, behaviour):
    """Unavailable, and named; repeating is done by others, but where a kept connection turns out to be cut; the same client works later."""
    source.behaviour = behaviour
    bucket = chained(store)
    with pytest.raises(SourceUnavailable, match=r"^127\.0\.0\.1:\d+, which gives out credentials for bucket 'b' at 127") as caught:
        bucket.list_page("m/", Stop())
    assert f":{source.port}" in caught.value.text
    assert caught.value.can_pass
    targets = [f"{request.method} {request.target}" for request in source.requests]
    assert len(targets) - len(set(targets)) <= (behaviour is AWAY["a reset"])
    source.behaviour = source.good()
    assert bucket.list_page("m/", Stop()).objects == ()


STS_WORDS = "<ErrorResponse><Error><Code>{}</Code><Message>the server's words</Message></Error></ErrorResponse>"
STS_CODES = [
    (400, "Throttling", SourceUnavailable),
    (400, "IDPCommunicationError", SourceUnavailable),
    (400, "InvalidIdentityToken", SourceDenied),
    (400, "ExpiredTokenException", SourceDenied),
    (403, "AccessDenied", SourceDenied),
]


@pytest.mark.parametrize(("status", "code", "expected"), STS_CODES)
def test_a_refusal_of_sts_has_a_meaning(store, monkeypatch, tmp_path, status, code, expected):
    """Its code decides. The store is not blamed for it, and the answer is not quoted."""
    with Hell(answering_body(STS_WORDS.format(code), status)) as sts:
        by_web_identity(monkeypatch, tmp_path, sts.url)
        with pytest.raises(expected) as caught:
            chained(store).list_page("m/", Stop())
    assert type(caught.value) is expected
    assert code in caught.value.text and "denied access" not in caught.value.text and "words" not in caught.value.text
    assert store.requests == []


@pytest.mark.parametrize(
    "text", ["[]", "{}", "7", "[" * 100_000, "{", '{"AccessKeyId": 1, "SecretAccessKey": 2, "Token": 3, "Expiration": "x"}']
)
def test_what_is_no_credentials_is_a_matter_of_credentials(store, monkeypatch, tmp_path, text):
    """Never an internal error."""
    with Hell(answering_body(text)) as endpoint:
        by_container(monkeypatch, tmp_path, endpoint.url)
        with pytest.raises(SourceDenied, match="the default credential chain failed"):
            chained(store).list_page("m/", Stop())


def test_a_token_file_that_is_not_there_is_a_matter_of_credentials(store, monkeypatch, tmp_path):
    """Asking again does not help: it is no network failure."""
    by_web_identity(monkeypatch, tmp_path, "http://127.0.0.1:1")
    (tmp_path / "token").unlink()
    with pytest.raises(SourceDenied, match=r"the default credential chain failed \(FileNotFoundError\)"):
        chained(store).list_page("m/", Stop())


@pytest.mark.parametrize("name", ["web identity", "container"])
def test_credentials_that_run_out_are_renewed_and_a_stop_ends_that_too(store, name, monkeypatch, tmp_path):
    """In the middle of a pull. The library lengthens those of an instance by itself."""
    told = SOURCES[name][0]
    soon = {
        "web identity": lambda: sts_answer("AssumeRoleWithWebIdentity", 60),
        "container": lambda: metadata(60),
    }[name]
    with Hell(soon()) as giver:
        told(monkeypatch, tmp_path, giver.url)
        bucket = chained(store)
        bucket.list_page("m/", Stop())
        giver.requests.clear()
        giver.behaviour = silent()
        error, seconds = ended(lambda stop: bucket.list_page("m/", stop), giver.hanging.wait)
        assert type(error) is Stopped and seconds < PROMPT_SECONDS


@pytest.mark.parametrize("via_role", [False, True])
def test_a_program_of_a_profile_is_not_run(store, monkeypatch, tmp_path, via_role):
    """`credential_process`, also of the source of a role: its end would have no bound."""
    program = f"credential_process=touch {tmp_path}/running"
    role = f"[default]\nrole_arn=arn:aws:iam::123456789012:role/pod\nsource_profile=base\n[profile base]\n{program}\n"
    (tmp_path / "config").write_text(role if via_role else f"[default]\n{program}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))

    with pytest.raises(SourceDenied, match="the default credential chain"):
        chained(store).list_page("m/", Stop())
    assert not (tmp_path / "running").exists()


def test_a_session_token_of_the_pod_does_not_go_over_plain_http(monkeypatch):
    """Except to a loopback address that the stored config names."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEYS[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEYS[1])
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    with HttpProxy() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        with pytest.raises(InvalidRequest, match="plain http, and the session token of the default credential chain") as caught:
            bucket_of({"type": "s3", "bucket": "b", "endpoint_url": "http://minio.example"}).list_page("m/", Stop())
        assert proxy.requests == []
        assert TOKEN not in caught.value.text


def test_without_a_token_the_pods_keys_sign_over_plain_http(monkeypatch):
    """A signature gives nothing away."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEYS[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEYS[1])
    with Hell(answering_body(EMPTY_LISTING.decode())) as store, HttpProxy({"minio.example:80": f"127.0.0.1:{store.port}"}) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        assert bucket_of({"type": "s3", "bucket": "b", "endpoint_url": "http://minio.example"}).list_page("m/", Stop()).objects == ()
        assert proxy.targets == ["GET http://minio.example/b"]
