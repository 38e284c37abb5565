"""Jobs: calls on a calendar, every instant of which is accounted for.

    schedule   when an expression matches, in local time        pure
    cron       reads expressions                                pure
    zone       time zones as pieces with one offset             pure
    calendar   instants of a schedule in a zone, and DST        pure
    planning   what becomes of instants: launched or skipped    pure

What is pure neither waits nor reads a clock.
"""
