"""One instance, and what instances know about each other.

instance      store, engine and services of one process, put together
surroundings  what it gets from its machine: time, chance, who it is
wakeups       tells other instances of rows in their shards, and of new members
messages      instances and shards on the wire; `views` makes them from what is stored
"""
