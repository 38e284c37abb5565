"""Every crash point: the process dies there, and its successor makes up for it."""
