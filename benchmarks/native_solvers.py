"""The same problems handed to SCIP or CPLEX, when they are installed: formulation and solver told apart.

`products` is the paper's formulation (alpha * beta, eqs. 3 and 5), `compact` the linear one of
`deploynas.search.integer_form`. Neither solver is a dependency: `pip install pyscipopt` or `pip install cplex` (its
community edition is large enough).
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

import numpy as np

from deploynas.search.integer_form import IntegerForm
from deploynas.search.problem import Problem
from deploynas.space import Architecture
from deploynas.space.coefficients import SeparableObjective


@dataclass(frozen=True)
class Products:
    """accuracy and latency as linear[v] * x[v] plus pair[k] * x[first[k]] * x[second[k]]; rows of x are
    one-hot.
    """

    problem: Problem
    rows: list[list[int]]
    worth: np.ndarray  # linear part of the accuracy, of all variables
    first: np.ndarray
    second: np.ndarray
    pair_worth: np.ndarray
    pair_cost: np.ndarray
    alpha: list[list[list[int]]]  # [stage][block][configuration] -> variable
    beta: list[list[int]]

    @classmethod
    def of(cls, problem: Problem) -> Products:
        assert isinstance(problem.objective, SeparableObjective)
        (cost,) = problem.additive
        worth: list[float] = []
        rows, alpha, beta, pairs = [], [], [], []
        for s, ((walk,), stage) in enumerate(zip(problem.objective.stages, problem.space.stages, strict=True)):
            beta.append(list(range(len(worth), len(worth) + len(stage.depths))))
            worth += [leave.bonus for leave in walk.exits]
            rows.append(beta[s])
            alpha.append([])
            for b in range(stage.max_depth):
                variables = list(range(len(worth), len(worth) + len(stage.configs)))
                worth += [0.0] * len(variables)
                rows.append(variables)
                alpha[s].append(variables)
                for c, v in enumerate(variables):
                    for leave in walk.exits:
                        if leave.depth > b:
                            terms = (float(walk.value[b, c]), float(cost.blocks[s][b, c]))
                            pairs.append((v, beta[s][leave.depth_index], *terms))
        i, j, pair_worth, pair_cost = (np.array(column) for column in zip(*pairs, strict=True))
        return cls(problem, rows, np.array(worth), i, j, pair_worth, pair_cost, alpha, beta)

    def architecture(self, x: np.ndarray) -> Architecture:
        choices = []
        for stage, alpha, beta in zip(self.problem.space.stages, self.alpha, self.beta, strict=True):
            depth = stage.depths[int(np.argmax(x[beta]))]
            choices.append([int(np.argmax(x[row])) for row in alpha[:depth]])
        return self.problem.space.architecture(choices)


def installed() -> list[str]:
    modules = {"scip": "pyscipopt", "cplex": "cplex"}
    return [name for name, module in modules.items() if importlib.util.find_spec(module)]


def solve(name: str, form: str, problem: Problem, time_limit_s: float) -> tuple[Architecture | None, bool]:
    """(architecture, proven) from `scip` or `cplex` with the form `products` or `compact`."""
    model = _Scip(time_limit_s) if name == "scip" else _Cplex(time_limit_s)
    if form == "compact":
        compact = IntegerForm(problem)
        x, proven = model.linear(compact)
        return (None if x is None else compact.architecture(x)), proven
    products = Products.of(problem)
    x, proven = model.products(products)
    return (None if x is None else products.architecture(x)), proven


def _room(form: Products) -> float:
    (cost,) = form.problem.additive
    return cost.budget - cost.fixed


def _linear_rows(form: IntegerForm) -> list[tuple[list[int], list[float], float, float]]:
    """(variables, factors, low, high) of every row."""
    rows: list[tuple[list[int], list[float], float, float]] = [
        ([], [], low, high) for low, high in zip(form.rows.low, form.rows.high, strict=True)
    ]
    for row, column, value in zip(form.rows.row, form.rows.column, form.rows.value, strict=True):
        rows[row][0].append(column)
        rows[row][1].append(value)
    return rows


class _Scip:
    def __init__(self, time_limit_s: float) -> None:
        from pyscipopt import Model

        self.model = Model()
        self.model.hideOutput()
        self.model.setParam("limits/time", time_limit_s)
        self.model.setParam("parallel/maxnthreads", 1)

    def linear(self, form: IntegerForm) -> tuple[np.ndarray | None, bool]:
        from pyscipopt import quicksum

        x = [self.model.addVar(vtype="B") for _ in form.objective]
        for variables, factors, low, high in _linear_rows(form):
            total = quicksum(f * x[v] for v, f in zip(variables, factors, strict=True))
            self.model.addCons(total == high if low == high else total <= high)
        self.model.setObjective(quicksum(w * v for w, v in zip(form.objective, x, strict=True)), "maximize")
        return self._solution(x)

    def products(self, form: Products) -> tuple[np.ndarray | None, bool]:
        from pyscipopt import quicksum

        model = self.model
        x = [model.addVar(vtype="B") for _ in form.worth]
        for row in form.rows:
            model.addCons(quicksum(x[v] for v in row) == 1)
        pairs = [x[i] * x[j] for i, j in zip(form.first, form.second, strict=True)]
        model.addCons(quicksum(t * p for t, p in zip(form.pair_cost, pairs, strict=True)) <= _room(form))
        accuracy = model.addVar(lb=None, ub=None)
        linear = quicksum(w * v for w, v in zip(form.worth, x, strict=True))
        model.addCons(accuracy <= linear + quicksum(w * p for w, p in zip(form.pair_worth, pairs, strict=True)))
        model.setObjective(accuracy, "maximize")
        return self._solution(x)

    def _solution(self, x: list) -> tuple[np.ndarray | None, bool]:
        self.model.optimize()
        if not self.model.getNSols():
            return None, False
        best = self.model.getBestSol()
        return np.array([self.model.getSolVal(best, v) for v in x]), self.model.getStatus() == "optimal"


class _Cplex:
    def __init__(self, time_limit_s: float) -> None:
        import cplex

        self.model = model = cplex.Cplex()
        for set_stream in (model.set_log_stream, model.set_results_stream, model.set_warning_stream):
            set_stream(None)
        model.parameters.timelimit.set(time_limit_s)
        model.parameters.threads.set(1)
        model.objective.set_sense(model.objective.sense.maximize)

    def _binaries(self, worth: list[float]) -> None:
        self.model.variables.add(obj=worth, types=[self.model.variables.type.binary] * len(worth))

    def _row(self, variables: list[int], factors: list[float], sense: str, bound: float) -> None:
        self.model.linear_constraints.add([[variables, factors]], sense, [bound])

    def linear(self, form: IntegerForm) -> tuple[np.ndarray | None, bool]:
        self._binaries(form.objective)
        for variables, factors, low, high in _linear_rows(form):
            self._row(variables, factors, "E" if low == high else "L", float(high))
        return self._solution()

    def products(self, form: Products) -> tuple[np.ndarray | None, bool]:
        self.model.parameters.optimalitytarget.set(3)  # the objective is not concave
        self._binaries(form.worth.tolist())
        for row in form.rows:
            self._row(row, [1.0] * len(row), "E", 1.0)
        first, second = form.first.tolist(), form.second.tolist()
        worths = zip(first, second, form.pair_worth.tolist(), strict=True)
        self.model.objective.set_quadratic_coefficients(list(worths))
        costs = [first, second, form.pair_cost.tolist()]
        self.model.quadratic_constraints.add(quad_expr=costs, sense="L", rhs=_room(form))
        return self._solution()

    def _solution(self) -> tuple[np.ndarray | None, bool]:
        self.model.solve()
        if not self.model.solution.is_primal_feasible():
            return None, False
        proven = self.model.solution.get_status() in (101, 102)  # optimal, optimal within tolerance
        return np.array(self.model.solution.get_values()), proven
