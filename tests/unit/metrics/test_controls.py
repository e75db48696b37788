"""Control variates of single servers, against queues whose mean wait is known exactly."""

import numpy as np
import pytest

from cosched.metrics.controls import corrected, mean_wait, single_servers, waits


def queue(jobs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Submissions a second apart on the average, and exponential work of 1."""
    draws = np.random.default_rng(seed)
    return np.cumsum(draws.exponential(1.0, jobs)), draws.exponential(1.0, jobs)


def test_waits_at_a_single_server() -> None:
    assert waits(np.array([0.0, 1.0, 2.0, 30.0]), np.array([5.0, 5.0, 5.0, 5.0])).tolist() == [0, 4, 8, 0]


def test_the_mean_wait_is_that_of_an_exponential_server() -> None:
    assert mean_wait(1.0, 0.8, 2 * 0.8**2) == pytest.approx(0.8 * 0.8 / (1 - 0.8))
    submit_s, work = queue(400_000, 1)
    assert waits(submit_s, 0.5 * work).mean() == pytest.approx(mean_wait(1.0, 0.5, 2 * 0.25), rel=0.03)


def test_controls_have_a_mean_of_0() -> None:
    submit_s, work = queue(400_000, 2)
    found = single_servers(submit_s, work, (0.5, 0.7), 1.0, (1.0, 2.0))
    assert found.shape == (400_000, 2)
    assert np.abs(found.mean(axis=0)).max() < 0.1


def test_what_controls_explain_is_taken_out() -> None:
    controls = np.random.default_rng(1).normal(0, 1, (20, 2)) + 0.5
    values = 7 + controls @ np.array([2.0, -1.0])
    value, residuals, degrees = corrected(float(values.mean()), values - values.mean(), controls)
    assert value == pytest.approx(7)
    assert residuals == pytest.approx(np.zeros(20))
    assert degrees == 17


def test_corrected_intervals_are_narrower_and_hold_the_truth_as_often_as_they_say() -> None:
    """A server with a load of 0.85, corrected by one with 0.75, whose mean is known too; 20 batches of 2000 jobs."""
    truth = mean_wait(1.0, 0.85, 2 * 0.85**2)
    held, plain, ours = 0, [], []
    for seed in range(100):
        submit_s, work = queue(42_000, seed)
        values, controls = (
            each[2000:].reshape(20, 2000, -1).mean(axis=1)
            for each in (waits(submit_s, 0.85 * work), single_servers(submit_s, work, (0.75,), 1.0, (1.0, 2.0)))
        )
        values = values[:, 0]
        mean, residuals, degrees = corrected(float(values.mean()), values - values.mean(), controls)
        assert degrees == 18
        half = 2.101 * residuals.std(ddof=1) / np.sqrt(20)
        held += abs(mean - truth) <= half
        plain.append(values.mean())
        ours.append(mean)
    assert 88 <= held <= 100
    assert np.std(ours) < 0.6 * np.std(plain)
    assert np.mean(ours) == pytest.approx(truth, rel=0.02)
