"""All attacks, by name."""

from __future__ import annotations

from typing import Final

from mainspring.testing.attacks.attack import Attack
from mainspring.testing.attacks.bulk import BULK_ATTACKS
from mainspring.testing.attacks.listener import LISTENER_ATTACKS
from mainspring.testing.attacks.receivers import RECEIVER_ATTACKS
from mainspring.testing.attacks.tenants import TENANT_ATTACKS

ATTACKS: Final[dict[str, Attack]] = {
    attack.name: attack for attack in (*LISTENER_ATTACKS, *RECEIVER_ATTACKS, *TENANT_ATTACKS, *BULK_ATTACKS)
}
