"""A coordinator that is wrong on purpose is caught by the simulation, each time within a few seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from atonce.coordinator.decision import ProducerIdAndEpoch, WriteMarkers
from atonce.coordinator.groups.offsets import Offsets
from atonce.coordinator.transactions import end as transaction_end
from atonce.coordinator.transactions import transactions
from atonce.coordinator.transactions.transactions import TransactionCoordinator
from tests.simulation.coordinator import world
from tests.simulation.coordinator.test_transactions_under_crashes import check, play
from tests.simulation.coordinator.world import Task, World

SEEDS = 40

Patch = Callable[[pytest.MonkeyPatch], None]


def no_verification(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        TransactionCoordinator, "verify_partitions", lambda _, __, ___, wanted: dict.fromkeys(wanted, ErrorCode.none)
    )


def no_epoch_fencing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transactions, "_identity_error", lambda _, __: ErrorCode.none)


def prepared_forgotten_on_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionCoordinator, "unfinished", lambda _: [])


def aborted_offsets_visible(patch: pytest.MonkeyPatch) -> None:
    right = Offsets.apply_marker
    patch.setattr(Offsets, "apply_marker", lambda self, producer_id, _: right(self, producer_id, True))


def lost_marker(patch: pytest.MonkeyPatch) -> None:
    right = World.finish

    def finish(self: World, effect: WriteMarkers) -> Task:
        kept = frozenset(sorted(effect.partitions)[:-1]) if len(effect.partitions) > 2 else effect.partitions
        return right(self, replace(effect, partitions=kept))

    patch.setattr(World, "finish", finish)


def no_epoch_bump(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transaction_end, "_bump", lambda prepared, _: (replace(prepared, client_version=2), ()))


def end_without_epoch_check(patch: pytest.MonkeyPatch) -> None:
    right = transaction_end.decide_end

    def decide(now_ms: int, metadata: Any, _: ProducerIdAndEpoch, **options: Any) -> Any:
        return right(now_ms, metadata, ProducerIdAndEpoch(metadata.producer_id, metadata.producer_epoch), **options)

    patch.setattr(transactions, "decide_end", decide)


def answer_before_flush(patch: pytest.MonkeyPatch) -> None:
    def settled(self: World, decision: Any) -> Task:
        for effect in decision.effects:
            self.spawn(self.finish(effect))
        yield
        return decision.answer

    patch.setattr(World, "_settled", settled)


MUTANTS: list[Patch] = [
    no_verification,
    no_epoch_fencing,
    prepared_forgotten_on_restart,
    aborted_offsets_visible,
    lost_marker,
    no_epoch_bump,
    end_without_epoch_check,
    answer_before_flush,
]


@pytest.mark.parametrize("mutate", MUTANTS, ids=lambda mutate: mutate.__name__)
def test_wrong_coordinator_is_caught(mutate: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch)
    monkeypatch.setattr(world, "_STUCK_AFTER", 5_000)
    for seed in range(SEEDS):
        try:
            check(play(seed))
        except Exception:
            return
    pytest.fail(f"{mutate.__name__} was not noticed in {SEEDS} worlds")
