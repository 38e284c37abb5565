"""Fetches: an outbound call that is made at most once, and whose answer is brought back, whatever crashes meanwhile."""
