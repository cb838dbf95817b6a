"""``python -m maestro.cli`` runs the command ``maestro``, also where its script is not on the PATH."""

from maestro.cli.main import main

if __name__ == "__main__":
    main()
