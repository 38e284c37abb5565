"""A telecom shop's cart whose checkout cannot order twice, in front of commerce platforms whose baskets expire.

taxes, totals           pure functions on integers
model                   carts, attempts, orders: the documents, and what is derived from them
checks                  what users may ask for; every field that is wrong is named
errors                  what users are told went wrong
provider                THE CONTRACT with a commerce platform; `providers` has the implementations
guarded_provider        a provider that breaks the contract is taken at its worst
once                    the request that makes an order, as a fetch: made at most once
repository              the documents in the store, by version
queues                  one at a time per user
touches                 when carts were last read
wakes                   what has to happen later, as timers
carts                   what users do with carts
contexts                the platform's basket made equal to the cart
sync                    the same in the background, by timers
checkout                an attempt to order, step by step
keys                    idempotency keys of checkouts: which cart a key stands for
closer                  how an attempt ends, whoever finds out
recovery                what became of an attempt that nobody finished
trust                   how far a platform's look-up is believed
settlement              what a person decides, because nothing else can
cleanup                 what is no longer needed, by jobs
shop                    all of it put together, on one Mainspring
settings                what can be set
api, pages              HTTP
sites                   whether a page of another site asks
platforms               which platform it is: one setting
server, shutdown        the process that serves, and when it ends
loglines                what a log line looks like
simulators              commerce platforms to try the cart against
crashes                 places at which tests have the process die
demo                    a trial on one machine, with a simulated platform
"""

__version__ = "0.1.0"
