"""Mainspring: the durable clock and courier of HTTP services."""

__version__ = "0.1.0"
