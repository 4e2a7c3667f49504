import pytest

from app.errors import Unavailable
from app.ingestion.patience import MAX_PAUSE_S, Patience


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_pauses_double_up_to_a_bound_and_a_success_ends_them() -> None:
    clock = Clock()
    patience = Patience(10, clock)
    pauses = []
    for _ in range(5):
        pauses.append(patience.failed(Unavailable()))
        clock.now += pauses[-1]

    assert pauses == [10, 20, 40, MAX_PAUSE_S, MAX_PAUSE_S]
    patience.failed(Unavailable("away"))
    with pytest.raises(Unavailable, match="away"):
        patience.check()
    patience.succeeded()
    patience.check()


def test_many_failures_at_once_make_one_pause() -> None:
    clock = Clock()
    patience = Patience(10, clock)

    assert [patience.failed(Unavailable()) for _ in range(3)] == [10, 10, 10]
