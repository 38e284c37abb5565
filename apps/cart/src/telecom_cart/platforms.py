"""Which platform the cart stands in front of: one setting, and what each of them needs besides."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final, Literal
from urllib.parse import urlsplit

from mainspring import Mainspring
from telecom_cart.once import FetchOnce
from telecom_cart.provider import Lookup, Provider
from telecom_cart.providers.double import DoubleProvider
from telecom_cart.providers.platform import Platform
from telecom_cart.providers.salesforce import SalesforceProvider, SalesforceSettings
from telecom_cart.providers.shopify import ShopifyProvider, ShopifySettings

Name = Literal["salesforce", "shopify", "double"]
PREFIX: Final = "TELECOM_CART_"


class NotConfigured(Exception):
    """A setting is missing."""


@dataclass(frozen=True)
class PlatformChoice:
    name: Name
    url: str = ""
    lookup: Lookup = Lookup(None)  # noqa: RUF009 - it is frozen
    """Believed as it is said, so strong is for somebody to say who knows."""
    is_simulated: bool = False
    """Simulators take any credentials."""
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    @property
    def is_local(self) -> bool:
        """Whether requests to it stay on this machine, which Mainspring has to be allowed to call."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    def provider(self, ms: Mainspring) -> Provider:
        if self.name == "double":
            return DoubleProvider(Platform(time.time, run=secrets.token_hex(3)), lookup=self.lookup)
        if not self.url:
            raise NotConfigured(f"Expected --provider-url, the address of {self.name}.")
        if self.name == "salesforce":
            return SalesforceProvider(self._salesforce(), FetchOnce(ms))
        return ShopifyProvider(self._shopify(), FetchOnce(ms))

    def _salesforce(self) -> SalesforceSettings:
        return SalesforceSettings(
            base_url=self.url,
            organization=self._read("SALESFORCE_ORGANIZATION"),
            site=self._read("SALESFORCE_SITE"),
            client_id=self._read("SALESFORCE_CLIENT_ID"),
            client_secret=self._read("SALESFORCE_CLIENT_SECRET"),
            lookup=self.lookup,
            admin_client_id=self._read("SALESFORCE_ADMIN_CLIENT_ID", is_needed=self.lookup.lag_seconds != 0),
            admin_client_secret=self._read("SALESFORCE_ADMIN_CLIENT_SECRET", is_needed=self.lookup.lag_seconds != 0),
            admin_token_url=self._read("SALESFORCE_ADMIN_TOKEN_URL", is_needed=False),
        )

    def _shopify(self) -> ShopifySettings:
        return ShopifySettings(
            base_url=self.url,
            storefront_token=self._read("SHOPIFY_STOREFRONT_TOKEN"),
            admin_token=self._read("SHOPIFY_ADMIN_TOKEN"),
            lookup=self.lookup,
        )

    def _read(self, name: str, *, is_needed: bool = True) -> str:
        value = self.environment.get(PREFIX + name, "")
        if value or (not is_needed and not self.is_simulated):
            return value
        if self.is_simulated:
            return "" if name.endswith("URL") else "simulated"
        raise NotConfigured(f"Expected {PREFIX}{name} in the environment, got nothing.")
