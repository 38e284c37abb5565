"""Mainspring beside BullMQ, pg-boss and Celery: the same jobs to the same sink on the same machine, in turn.

comparison      the benchmark: rounds, medians, figures
contenders      what can be asked of each, and with which store it runs
programs        the peers' programs: installed, started, asked
celery_program  the program on Celery; those on BullMQ and pg-boss are `bullmq.mjs` and `pgboss.mjs`
"""
