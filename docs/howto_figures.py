"""Draw the figures of the how-tos: run the Python blocks of a page, and keep the figure that they make.

Run ``python docs/howto_figures.py`` after changing one of these pages or what it draws.
"""

import os
import runpy
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))


def drawn(page: str) -> dict[str, object]:
    """Run the Python blocks of a page in the current folder, and return its names."""
    from tests.docs.test_snippets import blocks, call_spuir, script

    program = Path("page.py")
    program.write_text(script(blocks((DOCS / "howto" / page).read_text(encoding="utf-8"))), encoding="utf-8")
    return runpy.run_path(str(program), init_globals={"call_spuir": call_spuir})


def main() -> None:
    """Draw all figures."""
    from spuir.evaluation.tuning_figure import draw_tuning
    from spuir.results.figures import save

    here = Path.cwd()
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            save(draw_tuning(drawn("tune.md")["found"]), "howto-tune.svg")  # pyright: ignore[reportArgumentType]
            drawn("explain.md")
            for name in ("howto-tune.svg", "howto-explain.svg"):
                (DOCS / "figures" / name).write_bytes(Path(name).read_bytes())
        finally:
            os.chdir(here)


if __name__ == "__main__":
    main()
