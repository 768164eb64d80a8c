"""`deploynas run`: the whole path with one command, from nothing to bundles with reports."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import click

from deploynas.cli.console import json_option, progress_bar, say, seconds_since_start
from deploynas.cli.export import require_by_the_clock, say_bundles, show
from deploynas.cli.options import (
    estimation_of,
    goal_of,
    out_option,
    recipe_changes,
    resources_of,
    wishes_of,
    with_bundle_options,
    with_estimation_options,
    with_goal_options,
    with_recipe_options,
    with_resource_options,
)
from deploynas.progress import OnProgress


class _OnConsole:
    """A run watched by a person."""

    def step(self, title: str) -> AbstractContextManager[OnProgress]:
        return progress_bar(title)

    def note(self, message: str) -> None:
        say(message)


@click.command("run")
@click.option(
    "--device", "devices", multiple=True, metavar="DEVICE[:MS]", help="With its budget; repeatable.  [default: cpu-1t]"
)
@with_goal_options
@click.option("--space", "space_name", default="fashion", show_default=True, help="Preset, or a YAML file.")
@click.option("--data", default="fashion-mini", show_default=True, help="As for `train`.")
@out_option("Folder.  [default: runs/SPACE]", folder=True)
@with_recipe_options
@click.option("--teacher", metavar="FILE|timm:NAME[:WEIGHTS]", help="For fine-tuning.  [default: w_h]")
@with_estimation_options(passes=16, unseen=50)
@click.option("--refine", type=click.IntRange(min=0), default=3, show_default=True, metavar="N",
              help="Rounds of measuring networks where the search goes, at most; 0: none.")  # fmt: skip
@with_resource_options
@click.option("--solver", default="exact", show_default=True, help="exact, milp, bcfw, evolution or best-of.")
@click.option("--force", is_flag=True, help="Do every step again.")
@with_bundle_options
@json_option
def command(
    devices: tuple[str, ...],
    space_name: str,
    data: str,
    out: Path | None,
    recipe_name: str | None,
    changes: tuple[str, ...],
    seed: int | None,
    teacher: str | None,
    refine: int,
    solver: str,
    force: bool,
    as_json: bool,
    **options: object,
) -> None:
    """Profile, train, estimate, search, fine-tune and export, with no options needed.

    The same command resumes where it stopped, and does not repeat what is done from the same inputs. A further --device
    costs only its own profile, search, fine-tuning and export. Without a budget, here or in the device file, a device
    gets the fastest network that is expected to be within one point of the best.
    """
    from deploynas.pipeline.device_run import RunSettings
    from deploynas.pipeline.run import DeviceWish, default_recipe, run_steps
    from deploynas.pipeline.run_folder import RunFolder
    from deploynas.space import Space

    space, wishes = Space.load(space_name), [DeviceWish.parse(text) for text in devices or ["cpu-1t"]]
    settings = RunSettings(
        recipe=default_recipe(space, recipe_name, recipe_changes(changes, seed)),
        teacher=teacher,
        estimation=estimation_of(options),
        goal=goal_of(options),
        refine=refine,
        limits=tuple(resources_of(options)),
        solver=solver,
        wishes=wishes_of(options),
        force=force,
    )
    folder = RunFolder(out) if out else RunFolder.of_space(space.name)
    result = run_steps(space, data, wishes, folder, settings, _OnConsole())
    show([delivery.report for delivery in result.bundles], as_json)
    say(f"done in {seconds_since_start():.0f} s")
    if len(result.bundles) > 1:
        say(f"all reports: {result.index}")
    say_bundles(result.bundles)
    if options["strict"]:
        require_by_the_clock(result.bundles)
    result.require_all()
