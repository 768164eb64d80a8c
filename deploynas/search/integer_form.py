"""A problem as an integer linear program (`scipy.optimize.milp`): any number of limits, estimators that couple stages.

Products of eq. 3 need no products here. With beta[s,d] (stage s has depth d) and z[s,b,c] (block b takes
part, with configuration c) both binary, `sum_c z[s,b,c] = sum_{d >= b} beta[s,d]` says all there is to say,
and worth and cost are linear: 255 variables and 25 rows for the 5 x 4 x 12 space, against 720 products in the
naive form. Products across stages are linearised row against row (see `_products`), which is much tighter
than one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from deploynas.errors import DeployNASError
from deploynas.search.problem import Problem
from deploynas.search.solver import separable
from deploynas.search.solver_output import nothing_on_stdout
from deploynas.space import Architecture, Decisions
from deploynas.space.coefficients import CoupledObjective, SeparableObjective, Walk

SCALE = 1e3  # rows and objective are scaled so that the solver's absolute tolerances (1e-6) mean 1e-9 of ours
Block = dict[int, int]  # configuration -> its variable
MAX_REJECTED = 50  # networks over by a rounding error, before all that come so close are given up
OPTIMAL, INFEASIBLE = 0, 2  # of `scipy.optimize.milp`


def nearest_network(problem: Problem) -> Architecture:
    """A network within all limits if there is one, else one that minimises the largest cost / budget."""
    form = IntegerForm(replace(problem, objective=SeparableObjective.nothing(problem.space)), stretch=True)
    nearest: Architecture | None = None
    for _ in range(MAX_REJECTED):
        outcome = form.maximise(60.0)
        if outcome is None:
            break
        nearest = outcome[0]
        if problem.allows(nearest) or any(c.total(nearest) > c.budget * (1 + 1e-7) for c in problem.additive):
            break
        form.cut_off(nearest)  # over by a rounding error: another may fit
    assert nearest is not None, "limits on a maximum were checked before"
    return nearest


def networks_within(problem: Problem, count: int) -> list[Architecture]:
    """`count` networks within all limits, in no particular order; fewer if there are fewer."""
    form = IntegerForm(replace(problem, objective=SeparableObjective.nothing(problem.space)))
    found: list[Architecture] = []
    rejected = 0
    while len(found) < count and rejected < MAX_REJECTED:
        outcome = form.maximise(60.0)
        if outcome is None:
            break
        form.cut_off(outcome[0])
        if problem.allows(outcome[0]):
            found.append(outcome[0])
        else:
            rejected += 1  # over by a rounding error
    return found


@dataclass
class _Rows:
    """Constraints `low <= row . variables <= high`, as sparse triples."""

    row: list[int] = field(default_factory=list)
    column: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)

    def add(self, entries: dict[int, float], low: float, high: float) -> None:
        self.row += [len(self.low)] * len(entries)
        self.column += entries.keys()
        self.value += entries.values()
        self.low.append(low)
        self.high.append(high)


class IntegerForm:
    """A problem as variables, rows and an objective; networks are cut off one by one as they are found."""

    def __init__(self, problem: Problem, stretch: bool = False) -> None:
        self.problem, self.rows = problem, _Rows()
        self.objective: list[float] = []
        self.integral: list[int] = []
        self.upper: list[float] = []
        self.beta: list[list[int]] = []  # [stage][depth]
        self.blocks: list[tuple[int, int, Block]] = []  # (stage, block, its variables), of all walks
        self.walk: list[list[list[Block]]] = []  # [stage][depth] -> the blocks of the walk that ends there
        coupled = problem.objective if isinstance(problem.objective, CoupledObjective) else None
        objective = SeparableObjective.nothing(problem.space) if coupled else separable(problem, "the integer form")
        for s, walks in enumerate(objective.stages):
            self._stage(s, walks)
        self._limits(self._variable(-1.0, integral=False, upper=np.inf) if stretch else None)
        if coupled:
            self._products(coupled)

    def _variable(self, worth: float, integral: bool = True, upper: float = 1.0) -> int:
        self.objective.append(worth)
        self.integral.append(int(integral))
        self.upper.append(upper)
        return len(self.objective) - 1

    def _stage(self, s: int, walks: tuple[Walk, ...]) -> None:
        exits = sorted((leave for walk in walks for leave in walk.exits), key=lambda e: e.depth_index)
        beta = [self._variable(leave.bonus) for leave in exits]
        self.rows.add(dict.fromkeys(beta, 1.0), 1, 1)
        by_depth: list[list[Block]] = [[] for _ in beta]
        for walk in walks:
            blocks: list[Block] = []
            for b in range(walk.exits[-1].depth):
                allowed = np.flatnonzero(self.problem.allowed[s][b])
                blocks.append({int(c): self._variable(float(walk.value[b, c])) for c in allowed})
                row = dict.fromkeys(blocks[b].values(), 1.0)
                row.update({beta[leave.depth_index]: -1.0 for leave in walk.exits if leave.depth > b})
                self.rows.add(row, 0, 0)
                self.blocks.append((s, b, blocks[b]))
            for leave in walk.exits:
                by_depth[leave.depth_index] = blocks
        self.beta.append(beta)
        self.walk.append(by_depth)

    def _limits(self, stretch: int | None) -> None:
        """Cost at most the budget, or with `stretch` at most that many times the budget."""
        self.first_limit = len(self.rows.low)
        for cost in self.problem.additive:
            scale = SCALE / cost.budget
            row = {
                variable: scale * float(cost.blocks[s][b, c])
                for s, b, block in self.blocks
                for c, variable in block.items()
            }
            if stretch is None:
                self.rows.add(row, -np.inf, scale * (cost.budget - cost.fixed))
            else:
                self.rows.add({**row, stretch: -SCALE}, -np.inf, -scale * cost.fixed)

    def _products(self, form: CoupledObjective) -> None:
        """Add base + linear . x + pairs, with x written in our variables.

        x[i] x[j] summed over the pairs of two one-hot rows R and Q: subtracting the least value of every i
        leaves nothing negative (a row sums to one, so the subtracted part is linear), and then y[i,j] <=
        needs only sum_j y[i,j] <= x[i] and sum_i y[i,j] <= x[j].
        """
        decisions = form.decisions
        entries = self._entries(decisions)
        linear = form.linear.copy()
        column_of = np.repeat(np.arange(decisions.columns), decisions.sizes)[decisions.encoding]
        places = [decisions.encoded_at[where] for where in decisions.slices]  # of a column's options in x
        coupled = {(column_of[i], column_of[j]) for i, j in zip(form.first, form.second, strict=True)}
        for r, q in sorted(coupled, key=lambda pair: (places[pair[0]][0], places[pair[1]][0])):
            if r == q:
                continue  # two entries of a one-hot row are never both 1
            values = form.matrix[np.ix_(places[r], places[q])]
            least = values.min(axis=1)
            linear[places[r]] += least
            self._product_rows(entries, places[r], places[q], values - least[:, None])
        for i, (expression, _) in enumerate(entries):
            for variable, factor in expression.items():
                self.objective[variable] += factor * linear[i]

    def _product_rows(
        self,
        entries: list[tuple[dict[int, float], float]],
        rows: np.ndarray,
        columns: np.ndarray,
        worth: np.ndarray,
    ) -> None:
        by_column: dict[int, dict[int, float]] = {}
        for i, values in zip(rows, worth, strict=True):
            by_row: dict[int, float] = {}
            for j, value in zip(columns, values, strict=True):
                if value > 0:
                    y = self._variable(float(value), integral=False)
                    by_row[y] = 1.0
                    by_column.setdefault(int(j), {})[y] = 1.0
            self._at_most(by_row, entries[i])
        for j, products in by_column.items():
            self._at_most(products, entries[j])

    def _at_most(self, products: dict[int, float], entry: tuple[dict[int, float], float]) -> None:
        if products:
            expression, constant = entry
            self.rows.add({**products, **{v: -factor for v, factor in expression.items()}}, -np.inf, constant)

    def _entries(self, decisions: Decisions) -> list[tuple[dict[int, float], float]]:
        """Every entry of the encoding as (variables with factors, constant).

        alpha[s,b,c] is z[s,b,c], but a block that takes no part is encoded as configuration 0.
        """
        entries: list[tuple[dict[int, float], float]] = [({}, 0.0) for _ in range(len(decisions))]
        for s, (group, beta) in enumerate(zip(decisions.groups, self.beta, strict=True)):
            for b, block in enumerate(self.walk[s][-1]):
                places = decisions.encoded_at[decisions.slices[decisions.column(s, b)]]
                for c, variable in block.items():
                    entries[places[c]][0][variable] = 1.0
                entries[places[0]][0].update({beta[i]: 1.0 for i, depth in enumerate(group.depths) if depth <= b})
            for place, variable in zip(decisions.encoded_at[decisions.slices[s]], beta, strict=True):
                entries[place][0][variable] = 1.0
        return entries

    def cut_off(self, architecture: Architecture) -> None:
        """Exclude one network: not all of its decisions may be taken together."""
        taken = []
        for s, choice in enumerate(architecture.choices):
            i = self.problem.space.decisions.groups[s].depths.index(len(choice))
            taken += [self.beta[s][i], *(self.walk[s][i][b][c] for b, c in enumerate(choice))]
        self.rows.add(dict.fromkeys(taken, 1.0), -np.inf, len(taken) - 1)

    def tighten(self) -> None:
        """Lower the budgets by ten times what the solver's tolerance lets through."""
        for row in range(self.first_limit, self.first_limit + len(self.problem.additive)):
            self.rows.high[row] -= 1e-8 * SCALE

    def maximise(self, time_limit_s: float) -> tuple[Architecture, float] | None:
        """The best network that is left and its proven gap; None if there is none."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array

        worth = np.array(self.objective)
        scale = SCALE / (float(np.abs(worth).max()) or 1.0)
        shape = (len(self.rows.low), len(worth))
        places = np.array([self.rows.row, self.rows.column], np.int32)  # SciPy < 1.15 takes no wider ones
        matrix = csr_array((self.rows.value, (places[0], places[1])), shape=shape)
        with nothing_on_stdout():
            result = milp(
                -scale * worth,
                integrality=np.array(self.integral),
                bounds=Bounds(0, np.array(self.upper)),
                constraints=LinearConstraint(matrix, np.array(self.rows.low), np.array(self.rows.high)),
                options={"mip_rel_gap": 0.0, "time_limit": time_limit_s},
            )
        if result.status == INFEASIBLE:
            return None
        if result.x is None:
            raise DeployNASError(
                f"the integer solver found nothing in {time_limit_s:g} s ({result.message})",
                hint="use `--solver evolution`",
            )
        proven = result.status == OPTIMAL
        gap = 0.0 if proven else max(0.0, float(result.fun - result.mip_dual_bound) / scale)
        return self.architecture(result.x), gap

    def architecture(self, x: np.ndarray) -> Architecture:
        choices = []
        for s, (group, beta) in enumerate(zip(self.problem.space.decisions.groups, self.beta, strict=True)):
            i = int(x[beta].argmax())
            blocks = self.walk[s][i][: group.depths[i]]
            choices.append([max(block, key=lambda c: x[block[c]]) for block in blocks])
        return self.problem.space.architecture(choices)
