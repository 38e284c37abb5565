"""What is wrong with a namespace is said of its field."""

from __future__ import annotations

import random

import pytest

from mainspring.errors import FieldError, InvalidInput
from mainspring.instance import Instance
from mainspring.surroundings import Surroundings
from mainspring.timers.messages import CreateNamespace, UpdateNamespace


@pytest.mark.parametrize("secret", ["", "x", "whsec_", "whsec_c2hvcnQ=", "whsec_not base64"])
async def test_a_bad_secret_is_named_by_its_pointer_and_not_repeated(instance: Instance, secret: str) -> None:
    for ask in (
        instance.namespaces.create(CreateNamespace(name="new", secret=secret)),
        instance.namespaces.update(UpdateNamespace(name="default", secret=secret)),
    ):
        with pytest.raises(InvalidInput) as refused:
            await ask
        assert refused.value.errors == (FieldError("/secret", refused.value.detail),)
        assert len(secret) < 7 or secret not in refused.value.detail
    assert [namespace.name for namespace in instance.namespaces.known] == ["default"]


def test_secrets_are_drawn_from_what_ids_tell_nothing_about() -> None:
    """Delivery ids are drawn from the same source, and everybody sees them."""
    assert isinstance(Surroundings().randomness, random.SystemRandom)
