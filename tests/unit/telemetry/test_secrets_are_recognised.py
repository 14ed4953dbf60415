"""What has the shape of a credential is removed; what people need to read stays."""

import time

import pytest

from adapter.telemetry import redaction
from adapter.telemetry.redaction import KEPT_CHARACTERS, KEPT_VALUES, MASK, Remembered, redact, remember

SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
"""The secret of AWS's own documentation."""
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The public key of Azure's storage emulator."""


@pytest.fixture(autouse=True)
def _nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets of other tests are words here."""
    for name in ("_own", "_of_requests"):
        monkeypatch.setattr(redaction, name, Remembered())


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("https://user@host/p", "https://host/p"),
        ("https://user:p@ss@host/p", "https://host/p"),
        ("s3://AKIAIOSFODNN7EXAMPLE:x@host/p", "s3://host/p"),
        ('"https://h/p?sig=abc", next', '"https://h/p", next'),
        ("see https://h/p?a=b&c=d#e and https://h/q?x", "see https://h/p and https://h/q"),
        ("id AKIAIOSFODNN7EXAMPLE.", f"id {MASK}."),
        ("id=ASIAIOSFODNN7EXAMPLE", f"id={MASK}"),
        (f"secret {SECRET}", f"secret {MASK}"),
        (f"aws_secret={SECRET}", f"aws_secret={MASK}"),
        (f"secret_access_key: '{SECRET}'", f"secret_access_key: {MASK}"),
        ('{"secret_access_key": "minio123", "region": "x"}', f'{{"secret_access_key": {MASK}, "region": "x"}}'),
        ("SecretAccessKey=minio123 x", f"SecretAccessKey={MASK} x"),
        ('{"secretKey": "minio123", "accessKey": "minio"}', f'{{"secretKey": {MASK}, "accessKey": {MASK}}}'),
        ("secret_key: minio123 access-key-id: minio", f"secret_key: {MASK} access-key-id: {MASK}"),
        ("oauth_token=abc id_token=def", f"oauth_token={MASK} id_token={MASK}"),
        ("access_key_id=minio region=x", f"access_key_id={MASK} region=x"),
        ("Authorization: Bearer abc.def", f"Authorization: {MASK}"),
        ("password = hunter2; next", f"password = {MASK}; next"),
        (f"AccountName=a;AccountKey={AZURE_KEY};EndpointSuffix=core", f"AccountName=a;AccountKey={MASK};EndpointSuffix=core"),
        (f"the key {AZURE_KEY} is wrong", f"the key {MASK} is wrong"),
        ("BlobEndpoint=b;SharedAccessSignature=sv=2022-11-02&sig=a%3D", f"BlobEndpoint=b;SharedAccessSignature={MASK}"),
        ("sv=2022-11-02&sp=r&sig=aBc%2Fd%3D&se=2030", f"sv=2022-11-02&sp=r&sig={MASK}&se=2030"),
        ('{"sas_token": "?sv=1&sig=x", "type": "azure"}', f'{{"sas_token": {MASK}, "type": "azure"}}'),
        ("GET /b/k?X-Amz-Credential=AK%2F1&X-Amz-Signature=0aF9&x=1", f"GET /b/k?X-Amz-Credential={MASK}&X-Amz-Signature={MASK}&x=1"),
        ("/b/o?X-Goog-Credential=a%40b&x-goog-signature=77ff", f"/b/o?X-Goog-Credential={MASK}&x-goog-signature={MASK}"),
        ("url=/b?AWSAccessKeyId=minio&Signature=x%2By", f"url=/b?AWSAccessKeyId={MASK}&Signature={MASK}"),
        ("AWS4-HMAC-SHA256 SignedHeaders=host, Signature=0123abcd", f"AWS4-HMAC-SHA256 SignedHeaders=host, Signature={MASK}"),
        ("sent Bearer abcdefgh1 to h", f"sent Bearer {MASK} to h"),
        ("sent basic dXNlcjpwYXNz= to h", f"sent basic {MASK} to h"),
        ("SharedKey account:c2lnbmF0dXJl=", f"SharedKey {MASK}"),
        ("Proxy-Authorization: Basic dXNlcjpw", f"Proxy-Authorization: {MASK}"),
        ("headers {'x-api-key': 'k1', 'Accept': '*/*'}", f"headers {{'x-api-key': {MASK}, 'Accept': '*/*'}}"),
        ("token ya29.a0AfH6SMBx-y_z.1 expired", f"token {MASK} expired"),
        ("HMAC GOOG1EABCDEFGHIJKLMNOPQRSTUV", f"HMAC {MASK}"),
        ("jwt eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln!", f"jwt {MASK}!"),
        (r"{\"access_token\": \"abc\", \"x\": 1}", rf"{{\"access_token\": {MASK}, \"x\": 1}}"),
        ("a -----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE----- b", f"a [PEM {MASK}] b"),
        ("cut -----BEGIN PRIVATE KEY-----\\nMII", f"cut [PEM {MASK}]"),
    ],
)
def test_credentials_go(raw: str, clean: str) -> None:
    """Users and queries of URLs, keys and tokens of the clouds, signatures, PEM blocks, assignments."""
    assert redact(raw) == clean


@pytest.mark.parametrize(
    "text",
    [
        "",
        "bucket 'models' has nothing below 'team/resnet50'; near: 'team/resnet', 'team/resnet-v2'",
        "s3://bucket/path/to/model.onnx was not found",
        "http://minio:9000 refused the connection",
        "etag d41d8cd98f00b204e9800998ecf8427e, commit da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "model onnx-mnist__isvc-3642375d03 of type onnx",
        "the storage key 'localMinIO' names no file in /storage-config; there are 'default', 's3a'",
        "unable to load model 'm', version 1: tensor 'input': the model expects 4 dimensions",
        "models/onnx/mnist/first/second/third/four",
        "user@example.com asked",
        "https://host/@scope/package",
        "the server wants Basic authentication, we have no bearer token",
        'WWW-Authenticate: Bearer authorization_uri="x"',
        "invalid_token: The access token expired",
        "the signature of 'forward' has 2 inputs, signature_def 'serving_default' has 3",
        "tokenizer: 'eyJ' is unknown to the key 'vocabulary'; basic blocks: 12",
        "keyboard and monkey: no secrets here, a design of significance",
    ],
)
def test_everything_else_stays(text: str) -> None:
    """A text without its cause would be of no use."""
    assert redact(text) == text


def test_the_adapters_own_secret_outlives_any_number_of_others() -> None:
    """Else a client could reveal it by many loads, each with a secret of its own; also by values that are long."""
    remember("of-the-adapter", lasts=True)
    for number in range(2 * KEPT_VALUES):
        remember(f"many-{number:04}-values")
    remember("x" * KEPT_CHARACTERS)

    assert redact("of-the-adapter many-0001-values") == "*** many-0001-values"


@pytest.mark.parametrize(
    "piece",
    [
        "a", "://", "x://", "x://@", "AKIA", "-----BEGIN A-----", "password=", "password=' ", "aA1/", "? ", "@", "-----END ",
        "\n", "sig=", "Bearer ", "Bearer a", "eyJ", "eyJ.", "eyJaaaaaaaa.", "ya29.", "AIza", "GOOG", "key=", "token",
        "X-Amz-Signature=", "hunter", "hunterhunter2", "SharedKey ", "Az0/", "cookie:",
    ],
)  # fmt: skip
def test_time_is_linear_in_the_text(piece: str) -> None:
    """Texts come from clients: none may keep the event loop busy."""
    for number in range(600):
        remember(f"hunterhunter{number}")
    started = time.process_time()

    redact(piece * (200_000 // len(piece)))

    assert time.process_time() - started < 1
