"""The updates of a relaxed search: gradient descent in turn on weights and on alpha, a logit for every option.

RARTS (Xue 2022, chapter 2) has two copies of the weights, u on one half of the images and w on the other, and descends

    L = L_p(u, a) + lam L_a(w, a) + beta/2 |u - w|^2 + gamma P(a)                                           (2.11)
    w+ = w - eta_w (lam grad_w L_a(w, a) + beta (w - u))
    u+ = u - eta_u (grad_u L_p(u, a) + beta (u - w+))
    a+ = a - eta_a (lam grad_a L_a(w+, a) + grad_a L_p(u+, a) + gamma grad P(a))

Beside it, with one copy of the weights, first-order DARTS (2.21) and MiLeNAS (2.23):

    w+ = w - eta_w grad_w L_a(w, a)
    a+ = a - eta_a (grad_a L_p(w+, a) + gamma grad P(a))                                                    DARTS
    a+ = a - eta_a (grad_a L_a(w+, a) + lam grad_a L_p(w+, a) + gamma grad P(a))                            MiLeNAS

What the losses are is not known here: a supernet's on batches of images, or the two of a model that can be solved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from deploynas.errors import InputError

Rule = Literal["rarts", "darts", "milenas"]
RULES: tuple[Rule, ...] = ("rarts", "darts", "milenas")
W, U, ALPHA = range(3)  # the groups of the optimizer

Loss = Callable[[nn.Module, Tensor], Tensor]  # of one copy of the weights, at an alpha


@dataclass(frozen=True)
class Losses:
    """What is descended in one step."""

    primary: Loss  # L_p
    auxiliary: Loss  # L_a
    penalty: Callable[[Tensor], Tensor]  # the gradient of P by alpha


@dataclass(frozen=True)
class UpdateSettings:
    rule: Rule = "rarts"
    lam: float = 10.0  # the weight of the second loss: L_a for RARTS, L_p in the alpha of MiLeNAS
    beta: float = 10.0  # how strongly the two copies of RARTS are held together
    gamma: float = 0.0  # the weight of P
    eta_w: float = 0.01
    eta_u: float = 0.01
    eta_alpha: float = 0.01

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise InputError(f"no updates `{self.rule}`", hint=f"one of {', '.join(RULES)}")
        wrong = [name for name in ("lam", "beta", "gamma") if getattr(self, name) < 0]
        wrong += [name for name in ("eta_w", "eta_u", "eta_alpha") if getattr(self, name) <= 0]
        if wrong:
            raise InputError(f"`{wrong[0]}` of a relaxed search cannot be {getattr(self, wrong[0])}")


def updates_for(rule: str) -> UpdateSettings:
    """Settings for a supernet, by which weights and alpha move as far with each rule: rate times weights of losses."""
    match rule:
        case "rarts":
            return UpdateSettings("rarts", eta_alpha=0.1)
        case "darts":
            return UpdateSettings("darts", eta_w=0.1, eta_alpha=1.0)
        case "milenas":
            return UpdateSettings("milenas", lam=1.0, eta_w=0.1, eta_alpha=0.5)
        case _:
            raise InputError(f"no updates `{rule}`", hint=f"one of {', '.join(RULES)}")


class Variables(nn.Module):
    """What a relaxed search changes: alpha, and one or two copies of the weights."""

    def __init__(self, w: nn.Module, u: nn.Module | None, alpha: Tensor) -> None:
        super().__init__()
        self.w, self.u, self.alpha = w, u, nn.Parameter(alpha)


class RelaxedUpdates:
    """Takes steps by one of the rules. Nothing is drawn and nothing is remembered: a step depends on the variables."""

    def __init__(self, variables: Variables, settings: UpdateSettings) -> None:
        if (settings.rule == "rarts") != (variables.u is not None):
            raise InputError(
                f"`{settings.rule}` takes {'two copies' if variables.u is None else 'one copy'} of weights"
            )
        self.variables, self.settings = variables, settings
        groups = [
            {"params": list(self._copy("w").parameters()), "lr": settings.eta_w},
            {"params": list(self._copy("u").parameters()), "lr": settings.eta_u},
            {"params": [variables.alpha], "lr": settings.eta_alpha},
        ]
        self.optimizer = torch.optim.SGD(groups, lr=settings.eta_w)  # x - eta * gradient, and no more

    def step(self, losses: Losses) -> tuple[float, float]:
        """L_p and L_a as they were before the step."""
        match self.settings.rule:
            case "rarts":
                return self._rarts(losses)
            case "darts" | "milenas":
                return self._with_one_copy(losses)
            case rule:
                raise InputError(f"no updates `{rule}`")

    def _rarts(self, losses: Losses) -> tuple[float, float]:
        own, u, w = self.settings, self._copy("u"), self._copy("w")
        auxiliary, by_w = self._by_weights(losses.auxiliary, w)
        self._descend(W, [own.lam * g + own.beta * d for g, d in zip(by_w, _apart(w, u), strict=True)])
        primary, by_u = self._by_weights(losses.primary, u)
        self._descend(U, [g + own.beta * d for g, d in zip(by_u, _apart(u, w), strict=True)])
        by_alpha = own.lam * self._by_alpha(losses.auxiliary, w) + self._by_alpha(losses.primary, u)
        self._descend(ALPHA, [by_alpha + self._by_penalty(losses)])
        return primary, auxiliary

    def _with_one_copy(self, losses: Losses) -> tuple[float, float]:
        own, w = self.settings, self._copy("w")
        auxiliary, by_w = self._by_weights(losses.auxiliary, w)
        self._descend(W, by_w)
        primary, by_alpha = self._value_by_alpha(losses.primary, w)
        if own.rule == "milenas":
            by_alpha = self._by_alpha(losses.auxiliary, w) + own.lam * by_alpha
        self._descend(ALPHA, [by_alpha + self._by_penalty(losses)])
        return primary, auxiliary

    def _copy(self, name: Literal["u", "w"]) -> nn.Module:
        found = self.variables.w if name == "w" else self.variables.u
        return found if found is not None else nn.Module()

    def _by_weights(self, loss: Loss, copy: nn.Module) -> tuple[float, list[Tensor]]:
        """The loss, and its gradient by the weights; zeros by those that take no part."""
        weights = list(copy.parameters())
        value = loss(copy, self.variables.alpha.detach())
        found = torch.autograd.grad(value, weights, allow_unused=True)
        return value.item(), [torch.zeros_like(w) if g is None else g for w, g in zip(weights, found, strict=True)]

    def _by_alpha(self, loss: Loss, copy: nn.Module) -> Tensor:
        return self._value_by_alpha(loss, copy)[1]

    def _value_by_alpha(self, loss: Loss, copy: nn.Module) -> tuple[float, Tensor]:
        alpha = self.variables.alpha.detach().requires_grad_()
        value = loss(copy, alpha)
        return value.item(), torch.autograd.grad(value, alpha)[0]

    def _by_penalty(self, losses: Losses) -> Tensor:
        return self.settings.gamma * losses.penalty(self.variables.alpha.detach())

    def _descend(self, group: int, gradients: Sequence[Tensor]) -> None:
        """Of one group alone: the optimizer passes over what has no gradient."""
        for weight, gradient in zip(self.optimizer.param_groups[group]["params"], gradients, strict=True):
            weight.grad = gradient
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def _apart(first: nn.Module, second: nn.Module) -> list[Tensor]:
    """first - second, weight by weight."""
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    return [a.detach() - b.detach() for a, b in pairs]
