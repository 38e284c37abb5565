"""Which platform the cart stands in front of: one setting, and what each of them needs besides."""

from __future__ import annotations

import os
import re
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


_ADDRESS: Final = "--provider-url to be the address of {name}: http:// or https://, a host, and no user or query"
_SALESFORCE: Final = tuple(f"SALESFORCE_{name}" for name in ("ORGANIZATION", "SITE", "CLIENT_ID", "CLIENT_SECRET"))
_SALESFORCE_ADMIN: Final = ("SALESFORCE_ADMIN_CLIENT_ID", "SALESFORCE_ADMIN_CLIENT_SECRET")
_SHOPIFY: Final = ("SHOPIFY_STOREFRONT_TOKEN", "SHOPIFY_ADMIN_TOKEN")
_SHOPIFY_COMPLETION: Final = "SHOPIFY_COMPLETION_SECONDS"


class NotConfigured(Exception):
    """A setting is missing, or makes no sense."""


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

    def check(self) -> None:
        """Raises `NotConfigured`, which names all that is missing or makes no sense."""
        if self.name == "double":
            if self.url or self.is_simulated:
                raise NotConfigured("Expected no --provider-url and no --simulated: the double lives in this process.")
            return
        wrong = [] if _is_address(self.url) else [_ADDRESS.format(name=self.name)]
        wrong += [f"{PREFIX}{name} in the environment" for name in self._needed if not self._read(name)]
        if self.name == "shopify" and self._completion_seconds is None:
            wrong.append(f"{PREFIX}{_SHOPIFY_COMPLETION} to be a number of seconds from 1 to 3600")
        if wrong:
            raise NotConfigured(f"Expected {'; '.join(wrong)}.")

    @property
    def _needed(self) -> tuple[str, ...]:
        if self.name == "shopify":
            return _SHOPIFY
        return _SALESFORCE if self.lookup.lag_seconds == 0 else _SALESFORCE + _SALESFORCE_ADMIN

    def provider(self, ms: Mainspring) -> Provider:
        self.check()
        if self.name == "double":
            return DoubleProvider(Platform(time.time, run=secrets.token_hex(3)), lookup=self.lookup)
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
            admin_client_id=self._read("SALESFORCE_ADMIN_CLIENT_ID"),
            admin_client_secret=self._read("SALESFORCE_ADMIN_CLIENT_SECRET"),
            admin_token_url=self.environment.get(f"{PREFIX}SALESFORCE_ADMIN_TOKEN_URL", ""),
        )

    @property
    def _completion_seconds(self) -> float | None:
        said = self.environment.get(PREFIX + _SHOPIFY_COMPLETION, "60")
        return float(said) if re.fullmatch(r"\d{1,4}", said) and 1 <= int(said) <= 3600 else None

    def _shopify(self) -> ShopifySettings:
        return ShopifySettings(
            base_url=self.url,
            storefront_token=self._read("SHOPIFY_STOREFRONT_TOKEN"),
            admin_token=self._read("SHOPIFY_ADMIN_TOKEN"),
            lookup=self.lookup,
            completion_seconds=self._completion_seconds or ShopifySettings.completion_seconds,
        )

    def _read(self, name: str) -> str:
        return self.environment.get(PREFIX + name, "") or ("simulated" if self.is_simulated else "")


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        is_plain = not (parts.query or parts.fragment or "@" in parts.netloc) and parts.port != 0
    except ValueError:
        return False
    return is_plain and parts.scheme in ("http", "https") and bool(parts.hostname) and url.isascii() and " " not in url
