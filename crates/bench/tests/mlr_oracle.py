#!/usr/bin/env python3
"""Runs the published MLRsearch (PyPI, 1.2.1) on simulated devices and prints its trials and results as JSON.

`mlr_oracle.json` is its recorded output; tests/mlr_oracle.rs compares the bench's own search with it.
"""

import json

from MLRsearch import AbstractMeasurer, Config, MeasurementResult, MultipleLossRatioSearch, SearchGoal

MIN_PPS, MAX_PPS = 10_000, 10_000_000


def hard(load, _n):
    return max(0.0, 1.0 - 1_234_567 / load)


def gradual(load, _n):
    return min(1.0, max(0.0, (load - 700_000) / 700_000 * 0.02))


def hiccups(load, n):
    return max(0.0, 1.0 - 3_000_000 / load) if load > 3_000_000 else (1e-5 if n % 4 == 0 else 0.0)


def inversion(load, _n):
    """Loses a little just above 400,000 packets a second, nothing from 600,000 to 2,000,000."""
    if 400_000 < load < 600_000:
        return 0.001
    return max(0.0, 1.0 - 2_000_000 / load)


def beyond(_load, _n):
    return 0.0


DEVICES = [hard, gradual, hiccups, inversion, beyond]


class Simulated(AbstractMeasurer):
    def __init__(self, loss):
        self.loss, self.trials = loss, []

    def measure(self, intended_duration, intended_load):
        sent = int(intended_duration * intended_load)
        lost = int(sent * self.loss(intended_load, len(self.trials)) + 0.999999)
        self.trials.append([intended_load, intended_duration, sent, sent - lost])
        return MeasurementResult(intended_duration, intended_load, offered_count=sent, loss_count=lost)


def search(device):
    goals = [
        SearchGoal(loss_ratio=0.0, exceed_ratio=0.5, duration_sum=11.0, preceding_targets=2, fail_fast=False),
        SearchGoal(loss_ratio=0.005, exceed_ratio=0.5, duration_sum=11.0, preceding_targets=2, fail_fast=False),
    ]
    config = Config()
    config.goals = goals
    config.min_load, config.max_load = MIN_PPS, MAX_PPS
    config.search_duration_max, config.warmup_duration = 10_000.0, None
    measurer = Simulated(device)
    results = MultipleLossRatioSearch(config).search(measurer)
    bound = lambda stat: float(stat) if stat else None
    found = [
        {
            "loss_ratio": goal.loss_ratio,
            "lower": bound(results[goal].relevant_lower_bound),
            "upper": bound(results[goal].relevant_upper_bound),
            "throughput": bound(results[goal].conditional_throughput),
        }
        for goal in goals
    ]
    return {"device": device.__name__, "goals": found, "trials": measurer.trials}


print(json.dumps({"min_pps": MIN_PPS, "max_pps": MAX_PPS, "devices": [search(device) for device in DEVICES]}))
