"""Idempotency keys of checkouts: a key belongs to the cart that it was first used for, and says so ever after.

That is all that is kept for a key. Whether the cart was ordered is looked up each time, so a failure is never given
again as if it were the result.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

from mainspring.idempotency import AsyncIdempotentProcessor, IdempotencyStore
from telecom_cart.errors import FieldProblem, ValidationFailed

KEPT_SECONDS: Final = 30 * 86_400.0


class Keys:
    def __init__(self, store: IdempotencyStore) -> None:
        async def bind(asked: dict[str, Any]) -> str:
            return str(asked["cartId"])

        self._processor = AsyncIdempotentProcessor(
            store,
            bind,
            scope="telecom-cart.checkout",
            exclude_fields=("cartId",),
            ttl_seconds=KEPT_SECONDS,
            safe_to_repeat=True,
            keep=bool,
            result_type=str,
        )

    async def cart_of(self, user_id: str, key: str, cart_id: str | None) -> str | None:
        """The cart that a key stands for; from now on this one, if it is new and there is one."""
        name = sha256(f"{user_id}/{key}".encode()).hexdigest()  # users and keys may be anything, names may not
        record = await self._processor.process({"userId": user_id, "cartId": cart_id or ""}, key=name)
        return record.result or None

    @staticmethod
    def check(key: str) -> str:
        if not 1 <= len(key) <= 255 or not all("!" <= character <= "~" for character in key):
            expected = "Expected 1 to 255 visible ASCII characters"
            raise ValidationFailed(errors=(FieldProblem("Idempotency-Key", expected),))
        return key
