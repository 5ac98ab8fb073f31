"""Planning against published sample sizes, full enumeration, and simulation."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multinomial

from assay.baselines.errors import InputError
from assay.baselines.stats import intervals, mcnemar, power

# Exact unconditional power for a true drop of 2 points, (exact two-sided, mid-p one-sided) at 200, 600, 1000, 2000.
TABLE = {
    0.02: [(0.21, 0.57), (0.98, 1.0), (1.0, 1.0), (1.0, 1.0)],
    0.04: [(0.17, 0.37), (0.63, 0.81), (0.87, 0.95), (0.99, 1.0)],
    0.06: [(0.13, 0.30), (0.45, 0.65), (0.70, 0.83), (0.95, 0.98)],
    0.10: [(0.10, 0.22), (0.30, 0.46), (0.48, 0.64), (0.79, 0.88)],
    0.16: [(0.07, 0.17), (0.20, 0.33), (0.32, 0.47), (0.59, 0.72)],
}
NEEDED = {0.02: (391, 308), 0.04: (783, 617), 0.06: (1175, 926), 0.10: (1960, 1544), 0.16: (3138, 2471)}


@pytest.mark.parametrize("churn", sorted(TABLE))
def test_power_of_a_two_point_drop(churn: float) -> None:
    for n, (two_sided, one_sided) in zip((200, 600, 1000, 2000), TABLE[churn], strict=True):
        assert power.detection_power(n, churn, 0.02, test="exact") == pytest.approx(two_sided, abs=0.0051)
        assert power.detection_power(n, churn, 0.02) == pytest.approx(one_sided, abs=0.0051)


@pytest.mark.parametrize("churn", sorted(NEEDED))
def test_examples_for_a_two_point_drop(churn: float) -> None:
    assert power.examples_to_detect(churn, 0.02, test="exact") == NEEDED[churn][0]
    assert power.examples_to_detect(churn, 0.02) == NEEDED[churn][1]


@pytest.mark.parametrize("churn", sorted(NEEDED))
def test_closed_form_is_near_the_exact_answer(churn: float) -> None:
    exact = power.exact_examples_to_detect(churn, 0.02)
    assert power.detection_power(exact, churn, 0.02) >= 0.8
    assert power.detection_power(exact - 1, churn, 0.02) < 0.8
    # When nearly every change breaks, few changes decide and the normal approximation is wide of it, on the safe side.
    assert float(power.examples_to_detect(churn, 0.02)) / exact == pytest.approx(
        1.0, abs=0.13 if churn < 0.04 else 0.06
    )


def test_published_sample_sizes() -> None:
    # Chow, Shao and Wang 2008, section 6.4.3: 0.5 and 0.2 discordant, 59 subjects (58.63 before rounding).
    assert power.connor(0.7, 0.3, 0.025, 0.8) == pytest.approx(58.63, abs=0.005)
    assert power.examples_to_detect(0.7, 0.3, test="midp") == 59
    # R package MESS, power_mcnemar_test(paid = .05, psi = .45 / .05): 22 two-sided, 17 one-sided, not rounded up.
    assert power.connor(0.5, 0.4, 0.025, 0.8) == pytest.approx(22, abs=0.1)
    assert power.connor(0.5, 0.4, 0.05, 0.8) == pytest.approx(17, abs=0.1)
    # Miller 2024, arXiv 2411.00640, section 5: omega^2 = 1/9, a difference of 3 points, two-sided: 969 questions.
    assert power.examples_to_detect_mean(1 / 3, 0.03, sides=2) == 969


def test_smallest_detectable_drop_at_two_hundred() -> None:
    assert power.smallest_detectable_drop(200, 0.08, test="exact") == pytest.approx(0.057, abs=0.002)
    assert power.smallest_detectable_drop(200, 0.08) == pytest.approx(0.048, abs=0.002)
    # Without the approximation: 4.8 and 5.7 points are where the exact power passes 80%.
    for test, drop in (("midp-worse", 0.048), ("exact", 0.057)):
        assert power.detection_power(200, 0.08, drop - 0.0006, test=test) < 0.8
        assert power.detection_power(200, 0.08, drop + 0.0006, test=test) > 0.8


def test_the_trap_needs_more_than_nine_hundred_examples() -> None:
    """8 broke and 4 fixed of 200: the verdict is inconclusive, and the same rates at the n asked for are significant."""
    needed = int(power.examples_to_detect(12 / 200, 4 / 200))
    assert needed == 926
    assert mcnemar.midp_worse(8, 4) > 0.05
    assert mcnemar.midp_worse(round(needed * 0.04), round(needed * 0.02)) < 0.05


@pytest.mark.parametrize("test", ["midp-worse", "exact-worse", "midp", "exact"])
def test_power_by_full_enumeration(test: power.Test) -> None:
    n, churn, drop = 25, 0.4, 0.3
    p_value = {
        "midp-worse": mcnemar.midp_worse,
        "exact-worse": mcnemar.exact_worse,
        "midp": mcnemar.midp,
        "exact": mcnemar.exact,
    }[test]
    total = 0.0
    for b, c in itertools.product(range(n + 1), repeat=2):
        if b + c <= n and b > c and p_value(b, c) < 0.05:
            total += multinomial.pmf([b, c, n - b - c], n, [0.35, 0.05, 0.6])
    assert power.detection_power(n, churn, drop, test=test) == pytest.approx(total, rel=1e-9)


def test_power_by_simulation() -> None:
    rng = np.random.default_rng(5)
    counts = rng.multinomial(700, [0.045, 0.02, 0.935], size=40_000)
    found = np.mean(mcnemar.midp_worse(counts[:, 0], counts[:, 1]) < 0.05)
    assert power.detection_power(700, 0.065, 0.025) == pytest.approx(found, abs=0.009)


@given(st.integers(0, 3000), st.sampled_from([0.001, 0.01, 0.05, 0.2]))
@settings(deadline=None, max_examples=80)
def test_fewest_broke_is_the_boundary(discordant: int, alpha: float) -> None:
    for test, p_value in (("midp-worse", mcnemar.midp_worse), ("exact", mcnemar.exact)):
        fewest = int(power.fewest_broke(discordant, alpha, test))  # type: ignore[arg-type]
        if fewest <= discordant:
            assert p_value(fewest, discordant - fewest) < alpha
        if 0 < fewest <= discordant + 1:
            assert p_value(fewest - 1, discordant - fewest + 1) >= alpha or 2 * (fewest - 1) < discordant


@given(st.floats(0.01, 0.3), st.floats(0.003, 0.05), st.floats(0.55, 0.95))
@settings(deadline=None, max_examples=60)
def test_detectable_drop_inverts_examples(churn: float, drop: float, chance: float) -> None:
    n = power.connor(np.maximum(churn, drop), drop, 0.05, chance)
    assert power.smallest_detectable_drop(n, churn, power=chance) == pytest.approx(drop, rel=1e-6)


@given(st.floats(0.005, 0.3), st.floats(0.001, 0.1))
@settings(deadline=None, max_examples=60)
def test_more_is_needed_for_less(churn: float, drop: float) -> None:
    base = power.examples_to_detect(churn, drop)
    assert power.examples_to_detect(churn, drop / 2) >= base
    assert power.examples_to_detect(churn, drop, alpha=0.01) >= base
    assert power.examples_to_detect(churn, drop, power=0.9) >= base
    assert power.examples_to_detect(min(churn + 0.05, 1), drop) >= base - 1e-9


def test_a_drop_needs_at_least_its_own_churn() -> None:
    assert power.examples_to_detect(0.01, 0.03) == power.examples_to_detect(0.03, 0.03)
    assert power.detection_power(200, 0.0, 0.03) == power.detection_power(200, 0.03, 0.03)
    assert power.smallest_detectable_drop(200, 0.0) == pytest.approx(float(power.smallest_detectable_drop(200, 0.01)))


def test_no_drop_is_never_detected() -> None:
    assert math.isinf(power.examples_to_detect(0.1, 0.0))
    assert math.isinf(power.examples_to_detect(0.1, -0.02))
    assert power.detection_power(100, 0.0, 0.0) == 0.0
    # No drop: the power of the test is its size.
    assert 0.03 < power.detection_power(1000, 0.1, 0.0) < 0.055
    with pytest.raises(InputError, match="positive drop"):
        power.exact_examples_to_detect(0.1, 0.0)


@pytest.mark.parametrize(
    ("broke", "fixed", "n", "margin"), [(33, 29, 2000, 0.01), (0, 0, 200, 0.02), (5, 9, 400, 0.02)]
)
@pytest.mark.parametrize("side", ["worse", "better", "both"])
def test_bounds_fit_exactly_at_the_n_asked_for(broke: int, fixed: int, n: int, margin: float, side: power.Side) -> None:
    needed = float(power.examples_to_bound(broke, fixed, n, margin, side=side))
    for examples, expected in ((needed * 1.001, True), (needed * 0.97, False)):
        scale = examples / n
        low, high = intervals.tango(broke * scale, fixed * scale, examples, 0.9)
        fits = {"worse": low > -margin, "better": high < margin, "both": low > -margin and high < margin}[side]
        assert fits == expected


def test_bounds_outside_the_margin_never_fit() -> None:
    assert math.isinf(power.examples_to_bound(20, 0, 1000, 0.01, side="worse"))
    assert math.isfinite(power.examples_to_bound(20, 0, 1000, 0.03, side="both"))
    assert math.isinf(power.examples_to_bound(0, 20, 1000, 0.01, side="both"))
    assert math.isfinite(power.examples_to_bound(0, 20, 1000, 0.01, side="worse"))


def test_bound_with_power_by_simulation() -> None:
    """At the n for 80% power, the lower bound clears the margin about that often."""
    rng = np.random.default_rng(9)
    n = int(power.examples_to_bound(30, 30, 1000, 0.01, side="worse", power=0.8))
    counts = rng.multinomial(n, [0.03, 0.03, 0.94], size=20_000)
    low = intervals.tango(counts[:, 0], counts[:, 1], n, 0.9).low
    assert np.mean(low > -0.01) == pytest.approx(0.8, abs=0.015)


def test_margin_that_no_flips_just_prove() -> None:
    for n in (50, 200, 1319, 14_042):
        margin = float(power.smallest_provable_margin(n))
        assert intervals.tango(0, 0, n, 0.9).low == pytest.approx(-margin, abs=1e-12)
        assert power.examples_to_bound(0, 0, n, margin, side="worse") == pytest.approx(n, abs=1)
    assert power.smallest_provable_margin(200, alpha=0.025) == pytest.approx(0.0188, abs=5e-5)


def test_means() -> None:
    n = power.examples_to_detect_mean(0.25, 0.02)
    assert power.smallest_detectable_drop_mean(n, 0.25) == pytest.approx(0.02, rel=1e-3)
    rng = np.random.default_rng(2)
    means = rng.normal(-0.02, 0.25 / math.sqrt(n), size=40_000)
    assert np.mean(means < -1.6449 * 0.25 / math.sqrt(n)) == pytest.approx(0.8, abs=0.01)
    assert power.examples_to_bound_mean(-0.004, 0.25, 0.01, side="worse") == math.ceil((1.6448536 * 0.25 / 0.006) ** 2)
    assert math.isinf(power.examples_to_bound_mean(-0.02, 0.25, 0.01))
    assert math.isinf(power.examples_to_detect_mean(0.25, 0.0))


def test_vectorised_over_tasks() -> None:
    churn, drop = np.full(57, 0.06), np.linspace(-0.01, 0.03, 57)
    needed = power.examples_to_detect(churn, drop)
    assert needed.shape == (57,)
    assert needed[56] == power.examples_to_detect(0.06, 0.03)


def test_report_path_is_fast() -> None:
    start = time.process_time()
    for _ in range(50):
        power.examples_to_detect(0.06, 0.02)
        power.smallest_detectable_drop(200, 0.06)
        power.examples_to_bound(8, 4, 200, 0.05)
    assert (time.process_time() - start) / 50 < 0.005


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: power.examples_to_detect(1.5, 0.02), "proportions"),
        (lambda: power.examples_to_detect(0.1, 2.0), "proportions"),
        (lambda: power.examples_to_detect(0.1, 0.02, power=1.0), "power"),
        (lambda: power.examples_to_detect(0.1, 0.02, alpha=0.0), "alpha"),
        (lambda: power.examples_to_detect(0.1, 0.02, test="z"), "no test"),
        (lambda: power.detection_power(0, 0.1, 0.02), "positive whole"),
        (lambda: power.examples_to_bound(1, 1, 100, 0.0), "margin"),
        (lambda: power.examples_to_bound(1, 1, 100, 1.0), "margin"),
    ],
)
def test_bad_input(call: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()  # type: ignore[operator]
