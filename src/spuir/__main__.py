"""``python -m spuir`` is the command ``spuir``."""

from spuir.cli import main

if __name__ == "__main__":
    main(prog_name="spuir")
