"""What a hostile world does to a server, in bounded pieces: each attack runs for a given time and ends what it began.

    listener    peers without a token, at the HTTP listener
    witness     a good client beside them: how long it waits, and how much memory the server takes meanwhile

An attack is `async def attack(port, *, seconds, connections) -> int` and says how much it got through. Loopback only.
`python -m mainspring.testing.attacks` runs one.
"""
