"""Where the URL and the token come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainspring.client import Client
from mainspring.client.discovery import DEFAULT_URL, find_token, find_url
from mainspring.errors import ConfigError


def test_the_url_is_the_argument_then_the_environment_then_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_url(None) == DEFAULT_URL
    monkeypatch.setenv("MAINSPRING_URL", "https://one.example/prefix/")
    assert find_url(None) == "https://one.example/prefix"
    assert find_url("http://two.example:1") == "http://two.example:1"


@pytest.mark.parametrize(
    "url", ["ftp://x", "x", "http://", "http://x:99999", "http://u:p@x", "http://x/?a", "http://[", ""]
)
def test_what_is_no_url_of_a_server_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_URL", url or "//")
    with pytest.raises(ConfigError, match="Expected a server URL"):
        Client(url)


def test_the_token_is_the_argument_then_the_environment_then_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_token(None, url=DEFAULT_URL) == ""
    Path(".mainspring").mkdir()
    Path(".mainspring/token").write_text("from-the-file-0123456789\n")
    Path(".mainspring/token").chmod(0o600)
    assert find_token(None, url=DEFAULT_URL) == "from-the-file-0123456789"
    monkeypatch.setenv("MAINSPRING_TOKEN", "from-the-environment-0123456789")
    assert find_token(None, url=DEFAULT_URL) == "from-the-environment-0123456789"
    assert find_token("from-argument", url=DEFAULT_URL) == "from-argument"


def test_the_token_file_is_looked_for_in_the_data_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("there-0123456789-0123456789")
    (tmp_path / "token").chmod(0o600)
    monkeypatch.setenv("MAINSPRING_DATA_DIR", str(tmp_path))
    assert find_token(None, url="http://localhost:1") == "there-0123456789-0123456789"
    assert find_token(None, url="http://[::1]:1") == "there-0123456789-0123456789"


def test_the_token_file_is_never_sent_to_another_machine() -> None:
    Path(".mainspring").mkdir()
    Path(".mainspring/token").write_text("secret")
    for url in ELSEWHERE:
        assert find_token(None, url=url) == ""


ELSEWHERE = ("https://elsewhere.example", "http://10.0.0.1", "http://localhost.example", "http://0.0.0.0")


@pytest.mark.parametrize("setting", ["token", "token_file"])
def test_the_token_of_a_configuration_file_is_sent_to_its_own_server_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, setting: str
) -> None:
    token = "of-the-server-0123456789"
    (tmp_path / "token").write_text(token)
    (tmp_path / "token").chmod(0o600)
    value = token if setting == "token" else tmp_path / "token"
    file = tmp_path / "mainspring.toml"
    monkeypatch.setenv("MAINSPRING_CONFIG", str(file))
    for host, own in (("0.0.0.0", ()), ("10.1.2.3", ("http://10.1.2.3:8700",)), ("box", ("http://Box:8700",))):
        file.write_text(f'host = "{host}"\n{setting} = "{value}"\n')
        for url in (DEFAULT_URL, *own):
            assert find_token(None, url=url) == token
        for url in ELSEWHERE:
            assert find_token(None, url=url) == ""
    assert find_token("given", url=ELSEWHERE[0]) == "given"


@pytest.mark.parametrize("token", ["a b", "a\r\nx: y", "ä"])
def test_a_token_that_cannot_be_a_header_is_refused(token: str) -> None:
    with pytest.raises(ConfigError, match="visible ASCII"):
        find_token(token, url=DEFAULT_URL)
