"""Calendars: from the text of a schedule to instants.

cron      reads schedules
schedule  when one matches, by the clock on the wall
zone      time zones as pieces with one offset
calendar  the instants of a schedule in a zone
"""
