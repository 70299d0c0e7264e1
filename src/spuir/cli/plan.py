"""``spuir plan``: recommend batch size, episodes and sketch size."""

import click

from spuir.cli import options
from spuir.cli.output import print_result


@click.command("plan")
@click.option("-t", "--steps", type=int, required=True, help="Total number of decisions (T).")
@click.option("-d", "--dim", type=int, required=True, help="Number of context columns (d).")
@click.option("-m", "--actions", type=int, required=True, help="Number of actions (M).")
@click.option("--blocks", type=int, default=1, show_default=True, help="Number of blocks of the sketch (D).")
@options.JSON
def plan_command(steps: int, dim: int, actions: int, blocks: int, as_json: bool) -> None:
    """Recommend a batch size and a sketch size.

    Shows what each choice costs in memory and time.
    """
    from spuir.cli.terminal import print_plan
    from spuir.planning import plan

    recommended = plan(steps, dim, actions, sketch_blocks=blocks)
    print_result(recommended.to_dict(), lambda: print_plan(recommended), as_json)
