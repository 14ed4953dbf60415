"""What is odd about web servers: statuses, redirects, missing lengths, cut bodies, TLS; and where stored headers go."""

from __future__ import annotations

import base64

import pytest

from adapter.errors import InvalidRequest, SourceChanged, SourceDenied, SourceUnavailable
from adapter.storage.bucket import StoredObject
from adapter.workers import Stop
from tests.contract.bucket.conftest import bucket_of
from tests.fakes.hell import Hell, redirecting
from tests.fakes.s3_proxy import S3Proxy
from tests.fakes.web import Answer, Web
from tests.real.certificates import server_tls
from tests.real.web import USER, WebServer

CONTENT = bytes(range(256)) * 1200


@pytest.fixture
def web():
    """A web server whose answers a test writes."""
    with Web() as started:
        yield started


@pytest.fixture
def real(web_server):
    """A file of the real server."""
    web_server.put("m/file", CONTENT)
    return web_server


@pytest.fixture
def proxy(real):
    """What spoils its answers."""
    with S3Proxy(real.url) as started:
        yield started


def http_bucket(url, **fields):
    return bucket_of({"type": "http", "url": url} | fields)


def listed(bucket, key="m/file"):
    found = bucket.list_page(key, Stop()).objects
    return found[0] if found else None


def whole(content=b"content", **headers):
    return Answer(200, headers, content)


STATUSES = [(407, SourceDenied), (425, SourceUnavailable), (300, InvalidRequest), (304, InvalidRequest)]


@pytest.mark.parametrize(("status", "expected"), STATUSES)
@pytest.mark.parametrize("call", ["list", "read"])
def test_a_status_has_a_meaning(web, status, expected, call):
    """Named with the place, never with the server's words or the query. The Go adapter stored the page as the model."""
    web.answers["/base/m/file?sig=the-secret"] = Answer(status, {}, b"the server's words")
    bucket = http_bucket(f"{web.url}/base?sig=the-secret")
    with pytest.raises(expected) as caught:
        listed(bucket) if call == "list" else bucket.bytes_of(StoredObject("m/file", 7, "x"))
    assert type(caught.value) is expected
    assert f"HTTP {status}" in caught.value.text and f"{web.url}/base" in caught.value.text
    assert "secret" not in caught.value.text and "words" not in caught.value.text


@pytest.mark.parametrize("status", [404, 410])
def test_what_is_not_there_is_an_empty_page(web, status):
    """The listing rules make the sentence of it."""
    web.answers["/m/file"] = Answer(status, {}, b"a page")
    assert listed(http_bucket(web.url)) is None


# url, model path, target that is asked for
JOINS = [
    ("", "models/some_model_file", "/models/some_model_file"),
    ("/", "a", "/a"),
    ("/base", "a/b", "/base/a/b"),
    ("/base/", "a/b", "/base/a/b"),
    ("?sig=a%2Fb&x=y", "a/b", "/a/b?sig=a%2Fb&x=y"),
    ("/base/?q", "a", "/base/a?q"),
    ("/base", "a b/ü%?#", "/base/a%20b/%C3%BC%25%3F%23"),
]


@pytest.mark.parametrize(("url", "key", "target"), JOINS)
def test_path_and_url_are_joined_and_the_query_kept(web, url, key, target):
    """A key is text, not a part of a URL."""
    web.answers[target] = whole()
    bucket = http_bucket(web.url + url)
    assert bucket.bytes_of(listed(bucket, key)) == b"content"
    assert {request.target for request in web.requests} == {target}
    assert "?" not in bucket.place


def test_a_folder_is_not_asked_for(web):
    """A web server has no listings, only pages that look like some."""
    bucket = http_bucket(web.url)
    assert bucket.list_page("m/", Stop()).objects == bucket.list_page("", Stop()).objects == ()
    assert bucket.list_page("m/file", Stop(), by_folder=True).objects == ()
    assert web.requests == []


def test_headers_go_with_every_request(web):
    """Strings, and lists of strings. Values never show."""
    web.answers["/m/file"] = whole()
    bucket = http_bucket(web.url, headers={"Authorization": "Bearer the-secret", "X-Many": ["a", "b"]})
    bucket.bytes_of(listed(bucket))
    assert [(r.headers["authorization"], r.headers["x-many"]) for r in web.requests] == [("Bearer the-secret", "a, b")] * 2
    assert all(request.headers["accept-encoding"] == "identity" for request in web.requests)


BAD_HEADERS = [
    ("text", "headers is not an object"),
    (["a"], "headers is not an object"),
    ({"A": 7}, r"headers\.A is not a text"),
    ({"A": [7]}, r"headers\.A is not a text"),
    ({"A": "the-secret\r\nB: x"}, r"headers\.A is not a text of one line"),
    ({"A": "the-secret ü"}, r"headers\.A is not a text of one line"),
    ({"A B": "x"}, "'A B', which is not a header that can be set"),
    ({"": "x"}, "'', which is not a header that can be set"),
    ({"Range": "bytes=0-1"}, "'Range', which is not a header that can be set"),
    ({"if-match": "x"}, "'if-match', which is not a header that can be set"),
]


@pytest.mark.parametrize(("headers", "words"), BAD_HEADERS)
def test_headers_that_cannot_be_sent_are_refused(headers, words):
    """Their values stay unsaid."""
    with pytest.raises(InvalidRequest, match=words) as caught:
        http_bucket("http://h", headers=headers)
    assert "the-secret" not in caught.value.text


@pytest.mark.parametrize("url", ["ftp://h", "http://", "http://user:pw@h", "http://h#part", "http://h:99999", "//", "http:///x"])
def test_a_url_that_is_none_is_refused(url):
    """Not quoted: it may hold a password."""
    with pytest.raises(InvalidRequest, match=r"storage config 'k': url ") as caught:
        http_bucket(url)
    assert "pw" not in caught.value.text


def test_no_url_is_said():
    """Neither in the config nor in the request."""
    with pytest.raises(InvalidRequest, match=r"^no url: neither storage config 'k' nor storage_params has one"):
        http_bucket("")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("location", ["/other/place?q", "{url}/other/place?q", "../other/place?q"])
def test_a_redirect_is_followed(web, status, location):
    """Relative and absolute; on the same server the headers go on."""
    web.answers["/m/file"] = Answer(status, {"Location": location.format(url=web.url)})
    web.answers["/other/place?q"] = whole()
    bucket = http_bucket(web.url, headers={"A": "1"})
    assert bucket.bytes_of(listed(bucket)) == b"content"
    assert all(request.headers.get("a") == "1" for request in web.requests)


def test_redirects_are_bounded(web):
    """Five, then it is said."""
    web.answers["/m/file"] = Answer(302, {"Location": "/m/file"})
    with pytest.raises(InvalidRequest, match="redirected more than 5 times"):
        listed(http_bucket(web.url))
    assert len(web.requests) == 6


@pytest.mark.parametrize("location", [None, "", "ftp://h/x", "http://u:p@h/x", "http://[bad/", "javascript:x"])
def test_a_redirect_to_nowhere_is_refused(web, location):
    """Without the text, which the server wrote."""
    web.answers["/m/file"] = Answer(302, {"Location": location})
    with pytest.raises(InvalidRequest, match="redirected to something that is not"):
        listed(http_bucket(web.url))


def test_a_file_of_unknown_length_is_refused(web):
    """A cut body could not be told from a whole one."""
    web.answers["/m/file"] = Answer(200, {"Content-Length": None}, b"content")
    with pytest.raises(InvalidRequest, match="does not say how long 'm/file' is"):
        listed(http_bucket(web.url))


VERSIONS = [
    ({"ETag": '"abc"'}, "abc"),
    ({"ETag": 'W/"abc"'}, "weak-abc"),
    ({"Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"}, "modified-1445412480"),
    ({"ETag": '"abc"', "Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"}, "abc"),
    ({"Last-Modified": "nonsense"}, ""),
    ({}, ""),
]


@pytest.mark.parametrize(("headers", "etag"), VERSIONS)
def test_the_version_that_a_server_names_is_held_to(web, headers, etag):
    """ETag before date; another one in the answer is a change."""
    web.answers["/m/file"] = whole(**headers)
    bucket = http_bucket(web.url)
    stored = listed(bucket)
    assert stored == StoredObject("m/file", 7, etag, is_divisible=False)
    assert bucket.bytes_of(stored) == b"content"
    assert "range" not in web.requests[-1].headers
    if etag:
        web.answers["/m/file"] = whole(ETag='"other"')
        with pytest.raises(SourceChanged, match="another ETag or date"):
            bucket.bytes_of(stored)


@pytest.mark.parametrize(("second", "etag"), [(0, ""), (1, "modified-1445412480")])
def test_the_date_of_a_change_in_this_very_second_is_no_version(web, second, etag):
    """Another change in the same second would have the same date: the two must never be taken for each other."""
    changed = "Wed, 21 Oct 2015 07:28:00 GMT"
    web.answers["/m/file"] = whole(**{"Last-Modified": changed, "Date": f"Wed, 21 Oct 2015 07:28:0{second} GMT"})
    bucket = http_bucket(web.url)
    stored = listed(bucket)
    assert stored.etag == etag
    assert bucket.bytes_of(stored) == b"content"


def test_another_length_is_a_change_too(web):
    """All that is left when a server names no version."""
    web.answers["/m/file"] = whole()
    bucket = http_bucket(web.url)
    stored = listed(bucket)
    web.answers["/m/file"] = whole(b"longer content")
    with pytest.raises(SourceChanged, match="has 14 bytes, and had 7"):
        bucket.bytes_of(stored)


BAD_PARTS = [
    {"Content-Range": "bytes 5-7/10"},
    {"Content-Range": "bytes */10"},
    {"Content-Range": "items 4-6/10"},
    {},
]


@pytest.mark.parametrize("headers", BAD_PARTS)
def test_another_part_than_the_one_asked_for_is_unavailable(web, headers):
    """Never written at the wrong place."""
    web.answers["/m/file"] = Answer(206, {"ETag": '"v"', **headers}, b"456")
    with pytest.raises(SourceUnavailable, match="did not answer the range of 'm/file'"):
        http_bucket(web.url).bytes_of(StoredObject("m/file", 10, "v"), 4, 3)


def test_a_password_goes_into_a_header():
    """Of a real server; without it, or with a wrong one, access is denied."""
    with WebServer(wants_password=True) as server:
        server.put("m/file", CONTENT)
        token = base64.b64encode(f"{USER}:{server.password}".encode()).decode()
        bucket = http_bucket(server.url, headers={"Authorization": f"Basic {token}"})
        assert bucket.bytes_of(listed(bucket)) == CONTENT
        with pytest.raises(SourceDenied, match=r"denied access with no headers of storage config 'k' \(HTTP 401\)"):
            listed(http_bucket(server.url))
        with pytest.raises(SourceDenied, match=r"denied access with the headers of storage config 'k' \(HTTP 401\)") as caught:
            listed(http_bucket(server.url, headers={"Authorization": "Basic d3Jvbmc6d3Jvbmc="}))
        assert "d3Jv" not in caught.value.text


@pytest.fixture(scope="module")
def tls_server():
    """A server of a private authority that wants to see a client certificate of it."""
    with WebServer(tls=True, wants_client_certificate=True) as server:
        server.put("m/file", CONTENT)
        yield server


def trusted(server, url=""):
    given = server.certificates
    fields = {"certificate": given.ca_pem, "client_certificate": given.client_certificate, "client_key": given.client_key}
    return http_bucket(url or server.url, **fields)


def test_a_certificate_and_a_client_certificate_are_used(tls_server):
    """The Go adapter's process died of either."""
    bucket = trusted(tls_server)
    assert bucket.bytes_of(listed(bucket), 5, 1000) == CONTENT[5:1005]


def test_a_client_certificate_is_shown_to_its_server_only(tls_server, web):
    """A redirect elsewhere gets none: that server hangs up."""
    web.answers["/m/file"] = Answer(302, {"Location": f"{tls_server.url}/m/file"})
    with pytest.raises(SourceUnavailable):
        listed(trusted(tls_server, web.url))


def test_a_redirect_from_https_to_http_is_not_followed(web, tmp_path):
    """What was private would be sent in the open."""
    context, certificates = server_tls(tmp_path)
    with Hell(redirecting(f"{web.url}/x"), tls=context) as server, pytest.raises(InvalidRequest, match="from https to plain http"):
        listed(http_bucket(server.url, certificate=certificates.ca_pem))
    assert not web.requests
