"""The updates go where a model that can be solved says they go: to closed forms, not to what one would like.

L_p = a w - 2 a + 1 and L_a = (w - a)^2: the bilevel optimum is w = a = 1 (example 2.4 of the thesis).
"""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from torch import Tensor, nn

from deploynas.errors import InputError
from deploynas.training.relaxed_updates import RULES, Losses, RelaxedUpdates, UpdateSettings, Variables


class Number(nn.Module):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.tensor(value, dtype=torch.float64))


def primary(copy: nn.Module, alpha: Tensor) -> Tensor:
    return alpha * copy.value - 2 * alpha + 1


def auxiliary(copy: nn.Module, alpha: Tensor) -> Tensor:
    return (copy.value - alpha) ** 2


LOSSES = Losses(primary, auxiliary, torch.zeros_like)


def begun(settings: UpdateSettings, u: float = 0.0, w: float = -2.0, a: float = 2.0) -> RelaxedUpdates:
    second = Number(u) if settings.rule == "rarts" else None
    return RelaxedUpdates(Variables(Number(w), second, torch.tensor(a, dtype=torch.float64)), settings)


def place(updates: RelaxedUpdates) -> tuple[float, ...]:
    """(u, w, a), or (w, a)."""
    own = updates.variables
    copies = [copy.value for copy in (own.u, own.w) if copy is not None]
    return tuple(value.item() for value in (*copies, own.alpha))


def lagrangian(settings: UpdateSettings, u: float, w: float, a: float) -> float:
    return a * u - 2 * a + 1 + settings.lam * (w - a) ** 2 + settings.beta / 2 * (u - w) ** 2


def closed_form(lam: int, beta: int) -> tuple[Fraction, ...]:
    scale = 4 * beta * lam - beta - 2 * lam
    return tuple(
        Fraction(value, scale)
        for value in (4 * beta * lam - 2 * beta - 4 * lam, 4 * beta * lam - 2 * beta, 4 * beta * lam)
    )


def test_the_closed_forms() -> None:
    assert closed_form(10, 10) == (Fraction(34, 37), Fraction(38, 37), Fraction(40, 37))
    assert closed_form(10, 20)[1] == 1


def test_rarts_descends_in_every_step_to_its_closed_form() -> None:
    """At a rate of 0.01 for all three; biased at finite lam and beta, so not to (1, 1)."""
    settings, goal = UpdateSettings("rarts"), closed_form(10, 10)
    updates, steps = begun(settings), 0
    value = lagrangian(settings, *place(updates))
    while max(abs(x - float(y)) for x, y in zip(place(updates), goal, strict=True)) >= 1e-6:
        updates.step(LOSSES)
        steps += 1
        before, value = value, lagrangian(settings, *place(updates))
        assert value < before
    assert steps == 1851


@pytest.mark.parametrize(("lam", "beta"), [(10, 20), (20, 10)])
def test_rarts_ends_at_the_closed_form(lam: int, beta: int) -> None:
    updates = begun(UpdateSettings("rarts", lam=lam, beta=beta))
    for _ in range(3000):
        updates.step(LOSSES)
    assert place(updates) == pytest.approx([float(value) for value in closed_form(lam, beta)], abs=1e-6)


@pytest.mark.parametrize("rule", ["darts", "milenas"])
@pytest.mark.parametrize("lam", [0.5, 1.0])
def test_with_one_copy_of_the_weights_they_end_at_two(rule, lam: float) -> None:
    updates = begun(UpdateSettings(rule, lam=lam, eta_w=0.1, eta_alpha=0.1))
    for _ in range(1000):
        updates.step(LOSSES)
    assert place(updates) == pytest.approx([2.0, 2.0], abs=1e-5)


def test_the_order_of_the_updates() -> None:
    """u moves by the new w, alpha by the new u and w: one step, by hand."""
    settings = UpdateSettings("rarts", lam=3.0, beta=2.0, gamma=0.5, eta_w=0.1, eta_u=0.2, eta_alpha=0.3)
    u, w, a = 0.5, -1.0, 2.0
    updates = begun(settings, u, w, a)
    losses = updates.step(Losses(primary, auxiliary, lambda alpha: 7.0 * torch.ones_like(alpha)))
    assert losses == pytest.approx((a * u - 2 * a + 1, (w - a) ** 2))
    w -= 0.1 * (3 * 2 * (w - a) + 2 * (w - u))
    u -= 0.2 * (a + 2 * (u - w))
    a -= 0.3 * (3 * 2 * (a - w) + (u - 2) + 0.5 * 7)
    assert place(updates) == pytest.approx((u, w, a))


@pytest.mark.parametrize("rule", RULES)
def test_one_rule_has_two_copies_the_others_one(rule) -> None:
    wrong = Number(0.0) if rule != "rarts" else None
    with pytest.raises(InputError, match=r"cop(y|ies) of weights"):
        RelaxedUpdates(Variables(Number(0.0), wrong, torch.tensor(0.0)), UpdateSettings(rule))


@pytest.mark.parametrize("wrong", [{"rule": "unheard"}, {"lam": -1.0}, {"gamma": -1.0}, {"eta_u": 0.0}])
def test_settings_that_mean_nothing_are_refused(wrong: dict) -> None:
    with pytest.raises(InputError):
        UpdateSettings(**wrong)
