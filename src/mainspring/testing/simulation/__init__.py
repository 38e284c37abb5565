"""Simulated time, and the deterministic simulation of the whole product in it.

    python -m mainspring.testing.simulation --seeds 500        search; see docs/guides/simulation.md for more

A seed makes a *plan*: a world, what its users do, and what befalls it. `simulate.simulate` runs the product by it, in
one thread, and writes the journal; `mainspring.testing.oracle` judges that. The same plan gives the same journal, in
every process. What a simulation is made of:

    loop, clock      time that jumps; processes that can die or stand still
    draws, chance    chance, from the seed, a label and its count; as plans are drawn with it
    services         the services that are simulated: for each a `swarm` and a `run`
    plan             a run as data
    swarm            draws one from a seed; so do `swarm_fetches`, `swarm_jobs` and `swarm_keys`
    scenes           runs that are staged, for what chance brings about too rarely
    database, store  a database as an actor: it is slow, fails, and commits what nobody is waiting for
    tables, sqlite   what it holds, in dictionaries or in SQLite
    commits          which writes of a request took effect
    foreign          programs with transactions of their own
    wire, receivers  the network, and whoever answers at its other end; `desks` knows what is asked of them
    node             one production instance with its API
    users/           what clients do
    run              all of it together, to the end; so do `run_fetches`, `run_jobs` and `run_keys`
    observing, left  what the oracle is told: peaks on the way, and what is left at the end
    simulate         a plan in, an outcome out; `unwinding` ends what still waits

    search, worker   many seeds, each process of it
    shrinking        a failing history made smaller
    timeline         a journal for people
    counters         what has to happen sometimes
    faulty_store     a store with a bad connection, for tests of a single part, like `run_simulated`
"""

from mainspring.testing.simulation.clock import EPOCH_MS, SimulatedClock
from mainspring.testing.simulation.faulty_store import FaultyStore
from mainspring.testing.simulation.loop import SimulatedLoop, run_simulated

__all__ = ["EPOCH_MS", "FaultyStore", "SimulatedClock", "SimulatedLoop", "run_simulated"]
