"""The processes that the command line starts.

startup     what each of them does at its start and its end
server      one server, from its configuration to an orderly end
supervisor  several servers behind one port; `neighbours` is what they know of each other
executor    one executor of a pool, which makes the calls of fetches
"""
