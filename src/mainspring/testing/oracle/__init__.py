"""Decides from the journal of a finished history whether the promises were kept. Pure: nothing runs, nothing waits."""
