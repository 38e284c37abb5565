"""`python -m mainspring` is the command `mainspring`."""

from mainspring.cli import main

if __name__ == "__main__":
    main(prog_name="mainspring")
