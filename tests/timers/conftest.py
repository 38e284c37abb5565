from tests.support.instances import instance, target

__all__ = ["instance", "target"]
