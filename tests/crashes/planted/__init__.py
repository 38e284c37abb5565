"""Bugs that real servers can be given, to see that a torture finds them."""
