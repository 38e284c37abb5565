"""The cart over HTTP.

app             the application: routes, and what stands around them
carts, health   the routes
reading         requests: bodies, If-Match, Idempotency-Key
views           answers
problems        errors: the one table of codes and statuses
refusals        errors of HTTP itself, which the service knows nothing about
correlation     X-Correlation-Id, in answers and in log lines
heads           HEAD, like GET
keyed           Idempotency-Key for adding items
contract        the OpenAPI document
demo            the page and the simulator's controls, for trials only
"""
