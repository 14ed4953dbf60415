"""TRITON_RESTRICTED_*: half of it, two of it, and values that no call can carry end the start in words, which never hold the value."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapter.settings import Settings, SettingsError, read_group
from adapter.settings.triton import TritonSettings

ENOUGH = {"CONTAINER_MEM_REQ_BYTES": "8Gi"}
SECRET = "s3cr3t-Value,=:x"
KEY, VALUE, FILE = "TRITON_RESTRICTED_KEY", "TRITON_RESTRICTED_VALUE", "TRITON_RESTRICTED_VALUE_FILE"


def headers(**variables: str) -> tuple[tuple[str, str], ...]:
    return Settings.from_env(ENOUGH | variables).triton.call_headers


def problem(**variables: str) -> str:
    """The only one."""
    with pytest.raises(SettingsError) as caught:
        Settings.from_env(ENOUGH | variables)
    assert SECRET not in str(caught.value)
    (text,) = caught.value.problems
    return text


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "value"
    path.write_text(f"{SECRET}\n")
    return path


def test_without_a_key_calls_carry_nothing() -> None:
    assert headers() == ()


def test_key_and_value_become_a_header() -> None:
    assert headers(**{KEY: "adapter", VALUE: SECRET}) == (("triton-grpc-protocol-adapter", SECRET),)


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_file_holds_the_value_without_the_end_of_its_line(file: Path, end: str) -> None:
    file.write_bytes(f"{SECRET}{end}".encode())

    assert headers(**{KEY: "adapter", FILE: str(file)}) == (("triton-grpc-protocol-adapter", SECRET),)


def test_a_file_that_changes_after_the_start_changes_nothing(file: Path) -> None:
    """Triton too reads its value once."""
    settings = Settings.from_env(ENOUGH | {KEY: "adapter", FILE: str(file)})
    file.unlink()

    assert settings.triton.call_headers == (("triton-grpc-protocol-adapter", SECRET),)


def test_half_of_it_is_a_mistake(file: Path) -> None:
    assert problem(**{KEY: "adapter"}) == f"{KEY} is set, but neither {VALUE} nor {FILE} is"
    assert problem(**{VALUE: SECRET}) == f"{VALUE} is set, but {KEY} is not"
    assert problem(**{FILE: str(file)}) == f"{FILE} is set, but {KEY} is not"
    assert problem(**{KEY: "adapter", VALUE: SECRET, FILE: str(file)}) == f"{VALUE} and {FILE} are both set; set one of them"


@pytest.mark.parametrize("key", ["Adapter", "a b", "a:b", "ä", "x-bin", "a\nb"])
def test_a_key_that_no_header_can_have_is_a_mistake(key: str) -> None:
    """gRPC sends names in small letters; Triton compares the key as it was written, so one with a capital never matches."""
    assert "cannot be part of a gRPC header" in problem(**{KEY: key, VALUE: SECRET})


@pytest.mark.parametrize(("name", "given"), [(KEY, f"adapter={SECRET}"), (KEY, SECRET), (FILE, SECRET), (FILE, f"../{SECRET}")])
def test_a_value_in_the_wrong_place_is_not_shown(name: str, given: str) -> None:
    """`KEY=VALUE` as Triton's flag has it, and the value where the name of its file belongs."""
    variables = {KEY: "adapter", VALUE: SECRET} | {name: given}

    with pytest.raises(SettingsError, match=name) as caught:
        Settings.from_env(ENOUGH | variables)

    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("value", [f"{SECRET}ä", f"{SECRET}\n{SECRET}", f" {SECRET}", f"{SECRET} ", f"{SECRET}\t"])
def test_a_value_that_no_header_can_have_is_a_mistake(value: str, tmp_path: Path) -> None:
    (tmp_path / "v").write_text(value)

    assert problem(**{KEY: "adapter", VALUE: value}).startswith(f"{VALUE}: a gRPC header cannot carry it")
    assert problem(**{KEY: "adapter", FILE: str(tmp_path / "v")}).startswith(f"{FILE}: a gRPC header cannot carry it")


def test_a_file_without_a_value_is_a_mistake(tmp_path: Path) -> None:
    """Absent, empty, too long, no text, and nothing that could keep the start waiting."""
    path = tmp_path / "v"
    variables = {KEY: "adapter", FILE: str(path)}
    assert problem(**variables) == f"{FILE}: {path} cannot be read: No such file or directory"
    path.write_bytes(b"\n")
    assert problem(**variables) == f"{FILE}: it is empty"
    path.write_bytes(b"x" * 5000)
    assert problem(**variables) == f"{FILE}: it has more than 4096 characters"
    path.write_bytes(b"\xff\xfe")
    assert problem(**variables) == f"{FILE}: {path} cannot be read: it is no text"
    path.unlink()
    path.mkdir()
    assert problem(**variables) == f"{FILE}: {path} cannot be read: it is no file"


def test_the_value_is_in_no_text_of_the_settings(file: Path) -> None:
    for variables in ({VALUE: SECRET}, {FILE: str(file)}):
        settings = Settings.from_env(ENOUGH | {KEY: "adapter"} | variables)
        settings.triton.call_headers  # noqa: B018 - whatever it remembers
        assert SECRET not in f"{settings!r} {settings.triton.restricted_value} {vars(settings.triton)}"


def test_one_group_alone_is_checked_too() -> None:
    """`models` reads no more than it needs."""
    with pytest.raises(SettingsError, match=KEY):
        read_group(TritonSettings, {VALUE: SECRET})
