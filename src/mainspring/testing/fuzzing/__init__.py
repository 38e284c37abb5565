"""Nonsense from a seed, thrown at every place where strangers' bytes or texts come in.

    listener    HTTP at a real server, in its own process
    answers     what receivers answer, at the real sender
    bodies      JSON at the API, for every operation
    cron        schedules, and the calendars that they make

    grammar     valid things with something wrong here and there; `mutations` breaks them further
    campaign    one case after another: what is too slow, too large, or not one of our errors

A case is bytes that follow from seed, target and number: `--seed 7 --case 1203` runs it again. `make fuzz` runs all.
Loopback only.
"""
