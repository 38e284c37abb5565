"""Namespaces: what groups timers, and says how their callbacks are signed and repeated.

messages   what is said about them over the wire
views      stored → shown
service    what users ask; it keeps them in memory, because every create and every callback needs one
program    `ms.namespaces`
deletion   how one is deleted, in steps that are repeated until it is gone
reshard    how one gets more shards while it is in use
steps      what the steps of these two share
cache      what memory holds of the store, read again while somebody may be changing both
"""
