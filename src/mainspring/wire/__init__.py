"""The floor that all services stand on: what is said over HTTP, and how it is read.

message      what messages are made of, and the fields that several services share
frameworks   what lets pydantic and FastAPI serialise views
instants     moments and durations
cursors      where a page ends
strict_json  bytes in, a typed message out, or an error that names every wrong field
arguments    what a program says in Python, as a message, told in the words of the program
checks       what the types cannot say about fields that several services have
problems     errors as RFC 9457 problems, and the only table from error code to HTTP status
"""
