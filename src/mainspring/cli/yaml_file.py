"""YAML as the JSON that it stands for, read as strictly: a key occurs once, and what is short does not become huge.

Anchors and merge keys are what people use YAML for, so they are read. What they repeat counts as often as it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mainspring.errors import InvalidInput

if TYPE_CHECKING:
    import yaml

MOST_VALUES: Final = 1_000_000


def read_yaml(data: bytes) -> object:
    """The one document of a file, as plain values. Raises `InvalidInput` and nothing else."""
    import yaml  # noqa: PLC0415  (heavy)

    try:
        loader = yaml.SafeLoader(data)
        node = loader.get_single_node()
        if node is None:
            return None
        _size(node, {})
        value: object = loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f" at line {error.problem_mark.line + 1}"
        hint = "; quote a value that begins with @ or *" if "'@'" in str(error) or "alias" in str(error) else ""
        raise InvalidInput(f"Expected YAML, got{line}: {error.problem}{hint}") from error
    except (yaml.YAMLError, ValueError) as error:  # of a date that does not exist, for instance
        raise InvalidInput(f"Expected YAML, got: {error}") from error
    except RecursionError as error:
        raise InvalidInput("Expected YAML with fewer levels, got more") from error
    return value


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """How many values it stands for. Raises `InvalidInput` for too many, for a key that occurs twice, and for a value
    that contains itself."""
    if id(node) in known:
        if known[id(node)] == 0:
            raise _wrong(node, "values that end, got one that contains itself")
        return known[id(node)]
    known[id(node)] = 0
    size = 1
    if isinstance(node.value, list):
        keys: set[str] = set()
        for part in node.value:
            key, value = part if isinstance(part, tuple) else (None, part)
            if key is not None and not isinstance(key.value, str):
                raise _wrong(key, "text as a key, got something else")
            if key is not None and key.value in keys:
                raise _wrong(key, f"each key once, got {key.value[:255]!r} again")
            keys |= set() if key is None else {key.value}
            size += _size(value, known)
            if size > MOST_VALUES:
                raise _wrong(node, f"at most {MOST_VALUES} values, got more")
    known[id(node)] = size
    return size


def _wrong(node: yaml.Node, expected: str) -> InvalidInput:
    return InvalidInput(f"Expected {expected} at line {node.start_mark.line + 1}")
