"""What we send for a file of Azure or Google is what their libraries send: a server that takes theirs takes ours."""

from __future__ import annotations

import random

import pytest
import requests
from azure.core import MatchConditions
from azure.storage.blob import BlobServiceClient
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from adapter.storage.bucket import StoredObject
from adapter.workers import Stop
from tests.fakes.hell import Hell, honest
from tests.security.clouds import VERSIONS, bucket_of, values

CONTENT = bytes(100)
ODD = ["m/a b.bin", "m/plus+sign", "m/100%.txt", "m/%41", "m/ünï-日本.bin", "m/amp&eq=q?", "m/#hash", "m/semi;colon", "m/'quote'",
       "m/~tilde", "m/!*()$,:@[]", 'm/"<>\\^`{|}', "m//two", "m/.hidden", "m/a=b", "/first", "m/\u0301"]  # fmt: skip
LETTERS = [chr(number) for number in range(33, 127)] + list(" äß日\U0001f600")
KEYS = ODD + ["m/" + "".join(random.Random(seed).choices(LETTERS, k=12)).replace("/", "_") + "x" for seed in range(40)]
PER_REQUEST = ("x-ms-date", "x-ms-client-request-id", "authorization", "user-agent", "accept-encoding")
SAS = "sv=2026-01-01&sp=r&sig=a%2Bb%2Fc%3D&se=2030-01-01T00:00:00Z"


def sent(bucket, server, key):
    before = len(server.requests)
    bucket.read(StoredObject(key, len(CONTENT), "7" if bucket.kind == "gcs" else "v"), 3, 10, bytearray().extend, Stop())
    return server.requests[before]


def of(request):
    return request.method, request.target, {name: value for name, value in request.headers.items() if name not in PER_REQUEST}


@pytest.mark.parametrize("credential", [{"account_key": "c2VjcmV0LW9mLXRlc3Rz"}, {"sas_token": SAS}, {"anonymous": "true"}], ids=str)
def test_azure_is_asked_as_by_its_library(credential):
    """Target, range, condition, version; what is signed is an emulator's to check."""
    with Hell(honest(CONTENT, {**VERSIONS["azure"], "ETag": '"v"'})) as server:
        bucket = bucket_of(values("azure", server.url, **{"account_key": "", **credential}))
        key, token = credential.get("account_key"), credential.get("sas_token")
        given = {"account_name": "account", "account_key": key} if key else token
        with BlobServiceClient(f"{server.url}/account", given, retry_total=0) as theirs:
            for name in KEYS:
                ours = sent(bucket, server, name)
                before = len(server.requests)
                options = {"etag": '"v"', "match_condition": MatchConditions.IfNotModified}
                theirs.get_blob_client("b", name).download_blob(offset=3, length=10, **options).readall()
                assert of(ours) == of(server.requests[before]), name
                assert ("authorization" in ours.headers) == ("account_key" in credential)
                assert ours.headers["user-agent"] == server.requests[before].headers["user-agent"]
                assert set(PER_REQUEST) - {"authorization"} <= set(ours.headers)


def test_google_is_asked_as_by_its_library():
    """As `requests` sends the path that the library makes."""
    with Hell(honest(CONTENT, VERSIONS["gcs"])) as server:
        bucket = bucket_of(values("gcs", server.url))
        session = requests.Session()
        session.trust_env = False
        theirs = storage.Client(
            project="none", credentials=AnonymousCredentials(), client_options={"api_endpoint": server.url}, _http=session
        )
        with session:
            for name in KEYS:
                ours = sent(bucket, server, name)
                before = len(server.requests)
                url = f"{server.url}/download/storage/v1{theirs.bucket('b').blob(name).path}"
                session.get(url, params={"alt": "media", "generation": "7"}, headers={"Range": "bytes=3-12"})
                assert of(ours) == of(server.requests[before]), name
                assert ours.headers["accept-encoding"] == "gzip"
                assert ours.headers["user-agent"] == server.requests[before].headers["user-agent"]


def test_a_web_server_is_told_who_asks_and_for_which_host():
    """Once each: what the config says, or what urllib3 says."""
    with Hell(honest(CONTENT, {"ETag": '"v"'})) as server:
        own = {"headers": {"Host": "models.example", "User-Agent": "me"}}
        for fields, host, agent in (({}, f"127.0.0.1:{server.port}", "python-urllib3/"), (own, "models.example", "me")):
            bucket = bucket_of({"type": "http", "url": server.url, **fields})
            request = sent(bucket, server, "m/file")
            assert request.headers["host"] == host and request.headers["user-agent"].startswith(agent)
            assert request.headers["accept-encoding"] == "identity"
