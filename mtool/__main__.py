"""`python -m mtool`: the command line, for a Python whose scripts are not on PATH."""

from mtool.cli import main

if __name__ == "__main__":
    main()
