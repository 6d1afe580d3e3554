"""``python -m gpusched`` is the ``gpusched`` command."""

from gpusched.cli import main

if __name__ == "__main__":
    main(prog_name="gpusched")
