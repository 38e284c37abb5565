"""The same random requests to instances on different databases, and their answers compared, step by step.

    asking      draws requests: all verbs of all services, good and bad, with strings that databases stumble over
    twin        an instance on one store, whose clock stands still until it is moved
    answers     makes what must differ equal: delivery ids, secrets, durations
    comparing   asks two or more twins the same and stops at the first difference

`python -m tests.differential --steps 2000 --seed 7 postgresql mysql` compares for longer.
"""
