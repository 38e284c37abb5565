"""Worlds and programs that tests of several parts share."""
