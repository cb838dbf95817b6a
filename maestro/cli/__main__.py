"""``python -m maestro.cli``: the command where its script is not on the path."""

from maestro.cli.main import main

if __name__ == "__main__":
    main()
