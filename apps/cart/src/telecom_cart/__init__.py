"""A telecom shop's cart whose checkout cannot order twice, in front of commerce platforms whose baskets expire.

money, taxes, totals    pure functions on integers
model                   carts, attempts, orders: the documents, and what is derived from them
checks                  what users may ask for; every field that is wrong is named
provider                THE CONTRACT with a commerce platform; providers/ has the implementations
guarding                a provider that breaks the contract is taken at its worst
repository              the documents in the store, by version
queues                  one at a time per user
carts                   what users do with carts
contexts                the platform's basket made equal to the cart
sync                    the same in the background, by timers
checkout                an attempt to order, step by step
recovery                what became of an attempt that nobody finished
cleanup                 what is no longer needed, by jobs
shop                    all of it put together, on one Mainspring
api, pages              HTTP
platforms               which platform it is: one setting
serving                 the process that serves
demo                    a trial on one machine, with a simulated platform
"""

__version__ = "0.1.0"
