"""Whether two names are those of one company: `ACME Ltd.` and `Acme Limited` are, `Acme` and `Apex` are not."""

from __future__ import annotations

import re
import unicodedata
from difflib import SequenceMatcher

SIMILAR = 0.9
_LEGAL_FORMS = frozenset({"ag", "bv", "co", "company", "corp", "corporation", "gmbh", "inc", "limited", "llc", "ltd"})


def normalised(name: str) -> str:
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    words = re.findall(r"[a-z0-9]+", plain.replace("&", " and "))
    return " ".join(word for word in words if word not in _LEGAL_FORMS) or name.casefold().strip()


def is_similar(one: str, other: str) -> bool:
    """Both normalised."""
    return SequenceMatcher(None, one, other).ratio() >= SIMILAR
