"""Simulated time, and the deterministic simulation of the whole product in it.

    python -m mainspring.testing.simulation --seeds 500        search; see docs/guides/simulation.md for more

A seed makes a *plan*: a world, what its users do, and what befalls it. `simulate.simulate` runs the product by it, in
one thread, and writes the journal; `mainspring.testing.oracle` judges that. The same plan gives the same journal, in
every process. What a simulation is made of:

    loop, clock     time that jumps; processes that can die or stand still
    draws           chance, from the seed, a label and its count
    plan, swarm     a run as data; drawing one from a seed
    store, tables   a database as an actor: it is slow, fails, and commits what nobody waits for any more
    wire, receivers the network, and whoever answers at its other end
    node            one production instance with its API
    users           what clients do
    run             all of it together, to the end
    search, shrinking, timeline, counters               for whoever searches

For tests of a single part there are `run_simulated` and `FaultyStore`.
"""

from mainspring.testing.simulation.clock import EPOCH_MS, SimulatedClock
from mainspring.testing.simulation.faulty_store import FaultyStore
from mainspring.testing.simulation.loop import SimulatedLoop, run_simulated

__all__ = ["EPOCH_MS", "FaultyStore", "SimulatedClock", "SimulatedLoop", "run_simulated"]
