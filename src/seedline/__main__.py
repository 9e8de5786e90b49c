"""`python -m seedline` is the `seedline` command."""

from seedline.cli.main import main

if __name__ == "__main__":
    main()
