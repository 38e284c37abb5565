"""The running cart against its own OpenAPI document: what the document allows is answered as it says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from mainspring import Mainspring
from telecom_cart.api.app import create_app
from telecom_cart.providers.double import DoubleProvider
from telecom_cart.providers.platform import Platform
from telecom_cart.shop import Shop
from tests.cart.processes import running
from tests.servers.process import free_port

pytestmark = pytest.mark.slow

schema = schemathesis.openapi.from_dict(
    create_app(Shop(Mainspring("memory://"), DoubleProvider(Platform(lambda: 0.0)))).openapi()
)


@pytest.fixture(scope="module")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    folder = tmp_path_factory.mktemp("cart")
    with running(
        ["serve", "--store", "memory://", "--provider", "double", "--port", str(port)], folder, until="The cart is at"
    ):
        yield f"http://127.0.0.1:{port}"


@schema.parametrize()
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_the_cart_keeps_to_its_document(case: schemathesis.Case[Any], base_url: str) -> None:
    # Rules that a schema cannot say, such as how a tag is quoted, are refused with the documented 400.
    case.call_and_validate(base_url=base_url, timeout=10, excluded_checks=[positive_data_acceptance])
