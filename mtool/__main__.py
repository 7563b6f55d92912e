"""`python -m mtool` is the command `mtool`."""

from mtool.cli import main

if __name__ == "__main__":
    main()
