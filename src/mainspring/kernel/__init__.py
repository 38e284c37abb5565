"""The engine: who owns which shard, what is due, who is called when, and what becomes of it.

No HTTP and no SQL here. What a call *is* comes in through the `Carrier` protocol, storage through `store.py`;
clock, randomness and spawning are arguments, so a whole cluster runs in one thread on a simulated clock.
"""
