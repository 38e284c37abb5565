"""A service with a job: POST /jobs/trigger/daily-report writes a report, once for each run.

    application   HTTP: who may call, and what becomes of a repeat
    reports       the work: one report for each day, in SQLite

Run it with `make daily-report`, beside `make serve`. It prints the two commands that create the job and run it.
"""
