"""``python -m maestro.cli`` runs the command ``maestro`` if its script is not on the path."""

from maestro.cli.main import main

if __name__ == "__main__":
    main()
