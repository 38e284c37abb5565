"""The engine: who owns which shard, what is due, who is called when, and what becomes of it.

No HTTP and no SQL here. What a call *is* comes in through the `Carrier` protocol, storage through `store.py`;
clock, randomness and spawning are arguments, so a whole cluster runs in one thread on a simulated clock.

    engine      the engine of one instance; `settings` are its bounds
    ownership   which instance owns which shard; `placement` says which one should
    agenda      the owned shards, and when to look at each
    reader      finds what is due
    dispatcher  from due to done: begin, carry, finish; `unsent` are attempts that may be begun, and were not sent
    window      the due rows in memory; `stages` says where each is, `room` how much there is, `unrecorded_rows` what
                waits for its record
    lanes       one for each destination; `slots` are what they share, `shares` and `turns` who gets them
    carrier     what the engine asks of the outside
    finisher    records how attempts ended
    batches     fenced writes, so that a hanging shard does not hold up others; `fenced` is one of them
    backoff     how long to wait before the next attempt
"""
