"""`Idempotency-Key` and webhooks: HTTP requests whose work is done once.

middleware   `Idempotency-Key` for ASGI applications
receiver     signed deliveries: verified, done once, answered again; `views` for web frameworks
answers      an answer as it is kept and given again, and refusals
held_answer  holds an answer back until it is recorded
quota        how many bytes of answers are kept
"""
