"""`Idempotency-Key` and webhooks: HTTP requests whose work is done once.

middleware   `Idempotency-Key` for ASGI applications; `wsgi` for WSGI: Flask, Django
rules        what both go by: whose key it is, which answers are kept, what is refused
receiver     signed deliveries: verified, done once, answered again; `views` for web frameworks
answers      an answer as it is kept and given again, and refusals
held_answer  holds an answer back until it is recorded
quota        how many bytes of answers are kept
"""
