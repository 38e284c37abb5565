"""What counts as one site."""

from __future__ import annotations

import pytest

from mainspring.delivery.guard import Guard
from mainspring.delivery.site import site_of


@pytest.mark.parametrize(
    ("host", "site"),
    [
        ("example.com", "example.com"),
        ("a.b.c.example.com", "example.com"),
        ("shop.example.co.uk", "example.co.uk"),
        ("example.co.uk", "example.co.uk"),
        ("www.example.de", "example.de"),
        ("x.ab.de", "ab.de"),
        ("x17.t.co", "t.co"),
        ("shop.example.com.au", "example.com.au"),
        ("a.example.com.", "example.com"),
        ("localhost", "localhost"),
        ("api.svc.cluster.local", "cluster.local"),
        ("192.0.2.17", "192.0.0.0/16"),
        ("2001:db8:1:2::3", "2001:db8:1::/48"),
    ],
)
def test_a_site_is_a_domain_that_can_be_registered_or_a_network(host: str, site: str) -> None:
    assert site_of(host) == site


def test_the_guard_tells_the_site_of_a_url() -> None:
    guard = Guard(allow=["192.0.2.0/24"])
    assert guard.check_url("https://A.Example.com:8443/x").site == "example.com"
    assert guard.check_url("http://0xc0000211/").site == "192.0.0.0/16"
