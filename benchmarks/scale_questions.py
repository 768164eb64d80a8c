"""What `scale.py` asks the product: every function makes an input of a size and returns what is then timed."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scale_inputs import (
    devices_folder,
    indexed,
    labelled_file,
    latencies,
    long_table,
    measured_table,
    middle_ms,
    report_of,
    reports_folder,
    separable,
    space_of,
    wide_space,
    write_space,
)

import deploynas as dn
from deploynas.search.result import SearchResult

Asked = Callable[[], int]  # what came out: points of a frontier, bytes of a page


@dataclass(frozen=True)
class Question:
    """One thing that is asked of the product, at several sizes; `prepare` is not timed, what it returns is."""

    axis: str
    name: str
    sizes: tuple[int, ...]
    prepare: Callable[[int, Path], Asked]
    note: str = ""  # why it grows as it does


def found_by(search: Callable[[], SearchResult]) -> int:
    """Blocks of the network; an answer that is not proven would not be the same question."""
    found = search()
    assert found.optimal
    return sum(found.architecture.depths)


# -- what is asked: stages ---------------------------------------------------------------------------


def load_space(size: int, folder: Path) -> Asked:
    path = write_space(folder, size)
    return lambda: dn.Space.load(path).decisions.columns


def sample(size: int, _: Path) -> Asked:
    space = space_of(size)
    return lambda: len([space.sample(np.random.default_rng(i)) for i in range(1000)])


def encode(size: int, _: Path) -> Asked:
    space = space_of(size)
    drawn = [space.sample(np.random.default_rng(i)) for i in range(500)]

    def ask() -> int:
        assert all(space.decode(*space.encode(one)) == one for one in drawn)
        return len(drawn)

    return ask


def notation(size: int, _: Path) -> Asked:
    space = space_of(size)
    drawn = [space.sample(np.random.default_rng(i)) for i in range(200)]

    def ask() -> int:
        assert all(dn.Architecture.parse(str(one), space) == one for one in drawn)
        return len(drawn)

    return ask


def frontier(size: int, _: Path) -> Asked:
    space = space_of(size)
    estimator, table = separable(space), latencies(space)
    return lambda: len(dn.frontier(space, estimator, table))


def exact(size: int, _: Path) -> Asked:
    space = space_of(size)
    estimator, table = separable(space), latencies(space)
    budget = middle_ms(space, table)
    return lambda: found_by(lambda: dn.search(space, estimator, [dn.Limit(table, budget)]))


def indexed_exact(size: int, _: Path) -> Asked:
    space = space_of(size, blocks=2)
    estimator, table = indexed(space), latencies(space)
    budget = middle_ms(space, table)
    return lambda: found_by(lambda: dn.search(space, estimator, [dn.Limit(table, budget)]))


def indexed_frontier(size: int, _: Path) -> Asked:
    space = space_of(size, blocks=2)
    estimator, table = indexed(space), latencies(space)
    return lambda: len(dn.frontier(space, estimator, table))


def several_limits(size: int, _: Path) -> Asked:
    space = space_of(size)
    estimator, table = separable(space), latencies(space)
    typical = dn.Costs.of(space, space.architecture([[2] * 2] * size))
    limits = [
        dn.Limit(table, middle_ms(space, table)),
        dn.Limit("params", typical.params),
        dn.Limit("macs", typical.macs),
    ]
    return lambda: found_by(lambda: dn.search(space, estimator, limits, solver="milp"))


def explorer(size: int, _: Path) -> Asked:
    """A frontier of so many networks under the slider; the pipeline draws 80."""
    from deploynas.report.html import html

    report = report_of(space_of(5), size)
    return lambda: len(html(report))


def stages_of_explorer(size: int, _: Path) -> Asked:
    from deploynas.report.html import html

    report = report_of(space_of(size), 80)
    return lambda: len(html(report))


# -- entries of a table ------------------------------------------------------------------------------


def table_save(size: int, folder: Path) -> Asked:
    table = measured_table(size)

    def ask() -> int:
        table.save(folder / "table.json")
        return (folder / "table.json").stat().st_size

    return ask


def table_load(size: int, folder: Path) -> Asked:
    measured_table(size).save(folder / "table.json")
    return lambda: sum(len(row) for stage in dn.LatencyTable.load(folder / "table.json").block_ms for row in stage)


def table_predict(size: int, _: Path) -> Asked:
    table = long_table(size)
    drawn = [table.space.sample(np.random.default_rng(i)) for i in range(100)]
    return lambda: len([table.predict(one) for one in drawn])


def table_cost(size: int, _: Path) -> Asked:
    table = long_table(size)
    return lambda: len(table.cost().blocks)


def table_check(size: int, folder: Path) -> Asked:
    from deploynas.latency.comparison import compare

    for name in ("base", "new"):
        measured_table(size).save(folder / f"{name}.json")
    return lambda: len(compare(folder / "base.json", folder / "new.json").rows)


def table_search(size: int, _: Path) -> Asked:
    table = long_table(size)
    estimator, limit = separable(table.space), dn.Limit(table, middle_ms(table.space, table))
    return lambda: found_by(lambda: dn.search(table.space, estimator, [limit]))


def resource_limit(size: int, _: Path) -> Asked:
    """What a limit on parameters has to know: the costs of every configuration."""
    from deploynas.costs import resource_table

    space = long_table(size).space
    return lambda: len(resource_table(space, "params")[1])


# -- networks of a frontier --------------------------------------------------------------------------


def long_frontier(size: int, _: Path) -> Asked:
    space, estimator, table = _long(size)
    return lambda: len(dn.frontier(space, estimator, table))


def long_frontier_asked(size: int, _: Path) -> Asked:
    """A thousand budgets, the knee, and the eighty networks of a report, of a frontier that is there."""
    space, estimator, table = _long(size)
    found = dn.frontier(space, estimator, table)
    budgets = np.linspace(found.latencies_ms[0], found.latencies_ms[-1], 1000)

    def ask() -> int:
        assert found.knee() and all(found.best(float(budget)) for budget in budgets)
        assert len(list(found.thin(80))) <= 80
        return len(found)

    return ask


def long_frontier_read(size: int, _: Path) -> Asked:
    space, estimator, table = _long(size)
    found = dn.frontier(space, estimator, table)
    return lambda: sum(1 for _ in found)


def _long(size: int) -> tuple[dn.Space, dn.BilinearEstimator, dn.LatencyTable]:
    """20 stages of two blocks. The closer worth is to proportional, the more networks no other beats."""
    space = space_of(20, blocks=2, options=6)
    return space, separable(space, off=100 / size), latencies(space)


# -- devices and bundles -----------------------------------------------------------------------------


def index_page(size: int, folder: Path) -> Asked:
    from deploynas.report.index import write_index

    reports_folder(folder, size)
    return lambda: write_index(folder).stat().st_size


def devices_listed(size: int, folder: Path) -> Asked:
    from deploynas.cli import devices

    devices_folder(folder, size)
    os.chdir(folder)

    def ask() -> int:
        with contextlib.redirect_stdout(io.StringIO()) as said:
            devices.command.main(["--json"], standalone_mode=False)
        return len(json.loads(said.getvalue())["devices"])

    return ask


def devices_by_name(size: int, folder: Path) -> Asked:
    """A hundred of them."""
    names = devices_folder(folder, size)
    os.chdir(folder)
    return lambda: len([dn.Device.load(name) for name in names[:: max(1, size // 100)][:100]])


# -- classes -----------------------------------------------------------------------------------------


def pages_of_classes(size: int, _: Path) -> Asked:
    from deploynas.report.bill_of_materials import bill_of_materials
    from deploynas.report.card import card
    from deploynas.report.html import html
    from deploynas.report.markdown import markdown
    from deploynas.report.publication import Publication

    report = report_of(space_of(5), 80, classes=size)

    def ask() -> int:
        listed = bill_of_materials(report, Publication(), {"model.onnx": "0" * 64})
        return sum(map(len, (html(report), markdown(report), card(report), json.dumps(listed))))

    return ask


def file_of_classes(size: int, folder: Path) -> Asked:
    """Labels into the file, and out again through the `predict.py` of a bundle, all classes of one image as JSON."""
    from deploynas.export import predict

    model, image = labelled_file(folder, size)
    sys.argv = ["predict.py", str(image), "--model", str(model), "--top", str(size), "--json"]

    def ask() -> int:
        with contextlib.redirect_stdout(io.StringIO()) as said:
            assert predict.main() == 0
        return len(json.loads(said.getvalue())[0]["classes"])

    return ask


# -- parameters --------------------------------------------------------------------------------------


def costs_on_paper(size: int, _: Path) -> Asked:
    space = wide_space(size)
    return lambda: dn.Costs.of(space, space.heaviest()).params


def shapes_on_paper(size: int, _: Path) -> Asked:
    space = wide_space(size)
    return lambda: sum(math.prod(shape) for shape in dn.graph.weight_shapes(space, space.heaviest()).values())


def search_on_paper(size: int, _: Path) -> Asked:
    space = wide_space(size)
    estimator, typical = separable(space), dn.Costs.of(space, space.heaviest())
    limits = [dn.Limit("params", typical.params / 2), dn.Limit("macs", typical.macs / 2)]
    return lambda: dn.search(space, estimator, limits).costs.params


def graph_of_weights(size: int, _: Path) -> Asked:
    """What does allocate: a graph with its weights in it."""
    space = wide_space(size)
    return lambda: dn.graph.network(space, space.smallest()).ByteSize()


STAGES, ENTRIES, LONG = (5, 10, 15, 20), (3_000, 10_000, 30_000, 100_000), (1_000, 10_000, 30_000, 100_000)
DEVICES, CLASSES, WIDTHS = (100, 1_000, 3_000, 10_000), (10, 100, 1_000, 10_000), (256, 512, 1024, 2048)

QUESTIONS = (
    Question("stages", "`Space.load`", STAGES, load_space),
    Question("stages", "1000 × `sample`", STAGES, sample),
    Question("stages", "500 × `encode` and `decode`", STAGES, encode),
    Question("stages", "200 × notation, printed and read", STAGES, notation),
    Question("stages", "`dn.frontier`, separable", STAGES, frontier),
    Question("stages", "`dn.search`, separable", STAGES, exact),
    Question("stages", "`dn.frontier`, two indices", (5, 8, 11, 14), indexed_frontier),
    Question("stages", "`dn.search`, two indices", (5, 8, 11, 14), indexed_exact),
    Question("stages", "`milp`, three limits", STAGES, several_limits),
    Question("stages", "report, 80 networks", STAGES, stages_of_explorer),
    Question("networks drawn", "report", (80, 320, 1280, 5120), explorer),
    Question("entries", "`LatencyTable.save`", ENTRIES, table_save),
    Question("entries", "`LatencyTable.load`", ENTRIES, table_load),
    Question("entries", "100 × `predict`", ENTRIES, table_predict),
    Question("entries", "`cost`", ENTRIES, table_cost),
    Question("entries", "`check`", ENTRIES, table_check),
    Question("entries", "`dn.search`", ENTRIES, table_search),
    Question("entries", "parameters of every entry", ENTRIES, resource_limit),
    Question("frontier", "`dn.frontier`", LONG, long_frontier),
    Question("frontier", "1000 × `best`, `knee`, `thin`", LONG, long_frontier_asked),
    Question("frontier", "every network read", (1_000, 3_000, 10_000, 30_000), long_frontier_read),
    Question("devices", "`write_index`", DEVICES, index_page),
    Question("devices", "`deploynas devices --json`", DEVICES, devices_listed),
    Question("devices", "100 × `Device.load` by name", DEVICES, devices_by_name),
    Question("classes", "report, card, bill of materials", CLASSES, pages_of_classes),
    Question("classes", "`predict.py --json`", CLASSES, file_of_classes),
    Question("width", "`Costs.of`", WIDTHS, costs_on_paper),
    Question("width", "`graph.weight_shapes`", WIDTHS, shapes_on_paper),
    Question("width", "`dn.search`, two resources", WIDTHS, search_on_paper),
    Question("width", "`graph.network`, which writes weights", (128, 256, 512, 1024), graph_of_weights),
)
