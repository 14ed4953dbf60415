"""From a model path to a listing: all pages, nothing of a sibling, and words that help when nothing is there."""

from __future__ import annotations

import time

import pytest

from adapter.errors import InvalidRequest, SourceDenied, SourceNotFound, SourceUnavailable
from adapter.storage.bucket import Page, StoredObject
from adapter.storage.pull import listing
from adapter.storage.pull.listing import find_model
from tests.fakes.memory_bucket import MemoryBucket
from tests.real.blocking import blocking, run
from tests.unit.storage.rigs import make_search


def find(bucket, path, schema_path=None, search=None):
    return run(find_model(bucket, search or make_search(path, schema_path=schema_path), blocking()))


def paths(found):
    return [file.path for file in found.listing.files]


def filled(*keys, **options):
    return MemoryBucket(dict.fromkeys(keys, b"x" * 10), **options)


TARGETS = [
    (["path/to/modeldir/file.ext", "path/to/modeldir/subdir/another_file"], "path/to/modeldir", ["file.ext", "subdir/another_file"]),
    (["dir/file1", "dir/file2", "another_dir/x"], "dir", ["file1", "file2"]),
    (["another_dir/another_file", "another_dir/subdir1/subdir2/nested_file", "another_file"], "another_dir",
     ["another_file", "subdir1/subdir2/nested_file"]),
    (["some_file"], "some_file", ["some_file"]),
    (["deep/er/another_file"], "deep/er/another_file", ["another_file"]),
    (["m/model.onnx"], "m/", ["model.onnx"]),
    (["m/model.onnx"], "/m", ["model.onnx"]),
    (["m/model.onnx"], "//m//", ["model.onnx"]),
    (["m/model.onnx"], "/m/model.onnx/", ["model.onnx"]),
    ([f"resnet-v2/f{number:03}" for number in range(100)] + ["resnet/model.onnx"], "resnet", ["model.onnx"]),
    (["resnet.v2", "resnet-v2/x", "resnet", "resnet_2"], "resnet", ["resnet"]),
    (["path_with_more/obj", "path/obj"], "path", ["obj"]),
    (["path/", "path/obj", "path/sub/"], "path", ["obj"]),
    (["m", "m/model.onnx"], "m", ["m"]),
    (["m", "m/../x", "m/a", "m/a/b"], "m", ["m"]),
    (["m/m", "m/m/x"], "m/m/", ["m"]),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "path", "expected"), TARGETS)
def test_the_files_of_a_path(keys, path, expected):
    """An object wins over a folder of its name, whatever is in there; siblings and folder markers are no files."""
    assert paths(find(filled(*keys), path)) == expected


@pytest.mark.parametrize("path", ["", "/", "///"])
def test_an_empty_path_is_invalid(path):
    """The whole bucket is no model."""
    with pytest.raises(InvalidRequest, match="modelPath is empty"):
        find(filled("model.onnx"), path)


# key below the model `m`, what is wrong with it
BAD_KEYS = [
    ("m/../other/x", "has a '..' in it"),
    ("m/a/../../x", "has a '..' in it"),
    ("m/./x", "has a '.' in it"),
    ("m//x", "is absolute"),
    ("m/a//x", "has an empty segment"),
    ("m/a\0b", "contains a NUL byte"),
    ("m/" + "x" * 256, "has a segment of more than 255 bytes"),
    ("m/" + "ü" * 128 + "/x", "has a segment of more than 255 bytes"),
]


@pytest.mark.parametrize(("key", "problem"), BAD_KEYS)
def test_a_key_that_cannot_be_a_file_refuses_the_model(key, problem):
    """The sentence names the key."""
    with pytest.raises(InvalidRequest) as caught:
        find(filled("m/good", key), "m")
    assert problem in caught.value.text
    assert repr(key)[1:20] in caught.value.text


@pytest.mark.parametrize("keys", [("m/a", "m/a/b"), ("m/x/y", "m/x/y/z/w"), ("m/a", "m/a-", "m/a/b/c")])
def test_a_file_that_is_also_a_directory_refuses_the_model(keys):
    """S3 can hold both, a file system cannot."""
    with pytest.raises(InvalidRequest, match="both as an object and as a folder"):
        find(filled(*keys), "m")


def test_too_many_objects_are_refused(monkeypatch):
    """The path is the whole bucket."""
    monkeypatch.setattr(listing, "MAX_OBJECTS", 20)
    assert len(find(filled(*[f"m/{number}" for number in range(20)]), "m").listing.files) == 20
    with pytest.raises(InvalidRequest, match="holds more than 20 objects"):
        find(filled(*[f"m/{number}" for number in range(21)]), "m")


NEAR_MISSES = [
    (["models/resnet50/1/x", "models/bert/x"], "models/resnet5", ["'models/resnet50/'"]),
    (["models/resnet50/1/x", "models/bert/x"], "models/resnt50", ["'models/resnet50/'"]),
    (["mnist.onnx", "other.onnx"], "mnst.onnx", ["'mnist.onnx'"]),
    (["m-2/x", "m-3/x", "m.onnx", "my/x", "mz/x"], "m", ["'m-2/'", "'m-3/'", "'m.onnx'"]),
    (["a/b/c"], "a/zzzzzz", []),
    ([], "nope", []),
]


@pytest.mark.parametrize(("keys", "path", "near"), NEAR_MISSES)
def test_nothing_found_names_what_is_near(keys, path, near):
    """Bucket, path, and up to three names that were perhaps meant."""
    text = refused_at(filled(*keys), path)
    assert text.startswith(f"there is no model at {path!r} in memory://b")
    assert all(name in text for name in near)
    assert ("close to it" in text) is bool(near)
    assert text.count(", ") <= 2


def test_names_made_to_be_compared_slowly_have_an_end():
    """A thousand long names, each nearly the one that was asked for: only their first letters are compared."""
    name = "ab" * 99
    keys = [name[:place] + "b" * (199 - place) for place in range(100)] * 10
    bucket = MemoryBucket()

    async def list_page(prefix, **_):
        return Page(objects=tuple(StoredObject(key, 1, "e") for key in keys) if prefix else ())

    bucket.list_page = list_page
    begun = time.process_time()
    refused_at(bucket, name)
    assert time.process_time() - begun < 20


def refused_at(bucket, path):
    with pytest.raises(SourceNotFound) as caught:
        find(bucket, path)
    return caught.value.text


def test_a_schema_that_is_missing_is_not_found():
    """Named as a schema, so that the user does not look for the model."""
    with pytest.raises(SourceNotFound, match=r"there is no schema at 's/schema.json' in memory://b; close to it: 's/schema2.json'"):
        find(filled("m/x", "s/schema2.json"), "m", "/s/schema.json")


def many(start, count=60):
    return [f"{start}{number:03}" for number in range(count)]


# keys, what the model `m` is, what is asked for; a page has 25 rows
ASKED = [
    (["m/x", "m/y"], ["x", "y"], ["m"]),
    (["m"], ["m"], ["m"]),
    (["m", *many("m-"), *many("m/")], ["m"], ["m"]),
    (["m-v2/x", "m.txt", "m/x", "m0/x"], ["x"], ["m"]),
    (many("m/"), many(""), ["m", "m", "m"]),
    ([*many("m/"), "m0", "mm/x"], many(""), ["m", "m", "m"]),
    ([*many("m-"), "m/x"], ["x"], ["m", "m/"]),
    ([*many("m0"), "m/x"], ["x"], ["m", "m/"]),
    ([f"{model}/{file}" for model in ("m", *many("m1")) for file in ("1/x", "c")], ["1/x", "c"], ["m", "m/"]),
    ([f"{model}/x" for model in ("m", *many("m1"))], ["x"], ["m", "m/"]),
    ([f"{model}/{file}" for model in ("m", *many("ma")) for file in ("1/x", "c")], ["1/x", "c"], ["m", "m/"]),
    ([*many("m-"), "m/", *many("m/")], many(""), ["m", "m/", "m/", "m/"]),
    ([*many("m0"), *many("m/f", 40)], many("f", 40), ["m", "m", "m/", "m/"]),
]


@pytest.mark.parametrize(("keys", "files", "asked"), ASKED)
def test_one_listing_finds_a_model(keys, files, asked):
    """The folder is listed by itself only where its siblings fill a page, and whatever is found is told to the search once."""
    bucket, search = filled(*keys, page_objects=25), make_search()
    search.wanted = lambda _: ()
    found = find(bucket, "m", search=search)
    assert paths(found) == files
    assert bucket.calls == [f"list {prefix}" for prefix in asked]
    assert search.seen_bytes == found.listing.size_bytes


class Unsorted(MemoryBucket):
    """As S3's directory buckets and some gateways list: in an order of the store's own, here last things first."""

    async def list_page(self, prefix, *, token=None, limit=25, **_):
        self.calls.append(f"list {prefix}")
        keys = sorted((key for key in self._objects if key.startswith(prefix)), reverse=True)
        start = int(token or 0)
        end = start + min(limit, 25)
        return Page(objects=tuple(map(self.stored, keys[start:end])), next_token=str(end) if end < len(keys) else None)


UNSORTED = [
    (["m/x", "m-v2/x"], ["x"]),
    (["m", "m/x", "m-v2/x"], ["m"]),
    ([*many("m-"), "m/x", *many("m0")], ["x"]),
    (["m", *many("m-"), *many("m0")], ["m"]),
    (["m", *many("m-"), *many("m/"), *many("m0")], ["m"]),
    ([*many("m-"), *many("m/"), *many("m0")], many("")),
]


@pytest.mark.parametrize(("keys", "files"), UNSORTED)
def test_a_store_that_does_not_sort_hides_nothing(keys, files):
    """Its listing is read to its end, since the exact key may come last."""
    assert paths(find(Unsorted(dict.fromkeys(keys, b"x")), "m")) == files


class Narrow(MemoryBucket):
    """Refuses a prefix without a slash: by a policy for `m/*` alone, or as S3's directory buckets do."""

    refusal: Exception = SourceDenied("403 for the listing")

    async def list_page(self, prefix, **options):
        page = await super().list_page(prefix, **options)
        if not prefix.endswith("/"):
            raise self.refusal
        return page


@pytest.mark.parametrize("refusal", [SourceDenied("403 for the listing"), InvalidRequest("prefixes end in a slash here")])
def test_leave_to_list_the_folder_is_enough(refusal):
    """The folder's own listing is asked for; the refusal is told when that is empty."""
    bucket = Narrow({"m/x": b"1", "m/y": b"2"})
    bucket.refusal = refusal
    search = make_search()
    assert paths(find(bucket, "m", search=search)) == ["x", "y"] and search.seen_bytes == 2
    assert bucket.calls == ["list m", "list m/"]
    with pytest.raises(type(refusal)) as caught:
        find(bucket, "n")
    assert caught.value is refusal


def test_a_refusal_holds_when_the_store_goes_away_after_it():
    """What is away is stood in for by a kept copy, which is not for the one who was refused."""
    bucket = filled("m/x")
    bucket.fail("list", SourceDenied("403 for the listing"))
    bucket.fail("list", SourceUnavailable("away"))
    with pytest.raises(SourceDenied, match="403"):
        find(bucket, "m")
