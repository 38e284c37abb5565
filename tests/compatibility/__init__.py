"""Data that an earlier version has written: a later one opens it, and goes on."""
