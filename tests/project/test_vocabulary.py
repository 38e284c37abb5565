"""One thing has one name: in the API, in both clients, in both forms of the library, and on the command line."""

from __future__ import annotations

import pytest
from tools import vocabulary
from tools.generate_docs import routes


def test_every_operation_has_the_same_names_everywhere() -> None:
    assert [*vocabulary.differences(routes())] == []


def test_what_is_called_otherwise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "ONLY_PYTHON", {})
    monkeypatch.setattr(vocabulary, "OTHER_FLAGS", {})
    monkeypatch.setattr(vocabulary, "ONLY_COMMAND_LINE", {})
    found = {*vocabulary.differences(routes())}
    assert found >= {
        "library.timers.create has handler=, which is no field of the API",
        "client.fetches.create has json=, which is no field of the API",
        "sync client.fetches.create has json=, which is no field of the API",
        "`mainspring job create` has no --url",
        "`mainspring job create` has --callback-url, which is no field of the API",
        "`mainspring timer delete` has --yes, which is no field of the API",
    }


def test_a_field_without_keyword_or_flag_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "FILLED_IN", {})
    monkeypatch.setattr(vocabulary, "WITHOUT_FLAG", {})
    found = {*vocabulary.differences(routes())}
    assert "sync library.namespaces.delete has no created_at=" in found
    assert "`mainspring namespace delete` has no --created-at" in found
