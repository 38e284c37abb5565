"""Delivery: one HTTP call to where it may go, and what came back.

call         what the sender is asked for, and what it answers: plain values
sender       sends one request and brings back what became of it
pool         open connections; `connection` is one of them, `answer` reads what comes from it
guard        where calls may go; `address` knows which addresses are public, `lookup` asks for those of a name
site         what one owner has, as far as its name tells
headers      which headers a user may put on a call
secrets      what is shown of a stored call
signing      Standard Webhooks signatures
retry_after  how long a server asks to be left alone
"""
