"""Delivery: one HTTP call to where it may go, and what came back.

call         what the sender is asked for, and what it returns: plain values
sender       sends one request and brings back what became of it
pool         open connections; `connection` is one of them, `answer` reads what comes from it
guard        where calls may go; `address` knows which addresses are public, `lookup` finds those of a name
egress       how calls leave: authorities that are trusted, and a proxy
site         what belongs to one owner, as far as names tell
headers      which headers a user may put on a call
secrets      what is shown of a stored call
signatures   Standard Webhooks signatures
webhook      a signed call, and how long its receiver may ask to be left alone
"""
