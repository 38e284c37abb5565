from tests.support.instances import instance

__all__ = ["instance"]
