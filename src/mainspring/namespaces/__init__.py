"""Namespaces: what groups timers, and says how their callbacks are signed and repeated.

messages   what is said about them over the wire
views      stored → shown
service    what users ask; it keeps them in memory, because every create and every callback needs one
rereading  what memory holds of the store, read again while somebody may be changing both
"""
