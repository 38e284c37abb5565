"""Counts stale writes: begins and outcomes that were written by anybody but the owner of their shard."""
