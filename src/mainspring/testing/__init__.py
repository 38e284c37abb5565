"""The test kit: for programs that use Mainspring, for stores that others write, and for Mainspring itself.

For programs:

    emulated         a whole Mainspring in virtual time
    emulated_thread  the same for tests without an event loop: what the fixture `mainspring` gives
    outside_world    who answers its calls, as the test says
    fake_client      a Mainspring for unit tests: no network, no disk, and nothing is ever called
    target           a local HTTP server to be called, which answers as it is told
    in_process       requests to an application of this process

For stores:

    timer_conformance   what every `TimerStore` must do; its parts are `timer_rows_conformance`,
                        `ownership_conformance` and `unreadable_conformance`
    record_conformance  what every `RecordStore` must do
    store_machines      random sequences of calls, compared with a plain model
    timer_samples       timers, keys and attempts for all of these

For Mainspring itself:

    simulation/  whole histories in simulated time
    torture/     real processes that are killed, frozen and cut off
    oracle/      judges both by the promises
    attacks/     what a hostile world does to a server
    fuzzing/     nonsense, from a seed
    signals      how these commands end
"""
