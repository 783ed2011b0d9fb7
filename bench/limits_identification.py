"""Share of right answers of the identification of limits: random token buckets, and devices without a rule.

    python bench/limits_identification.py [--volumes 100] [--devices 200] [--first 0]

Neither storage nor the engine is needed: the stages are answered by `tests/features/rate_limits/volume_models.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "features" / "rate_limits"))

from shared import options
from volume_models import Volume, device_with_recorded_noise, random_device, random_servers, random_volume, run

from iosonde.features.rate_limits.identify import Settings

SETTINGS = Settings(probe_s=5, drain_s=900, rest_s=7200, writes=True)


def main() -> None:
    given = options(__doc__, volumes=100, devices=200, first=0)
    volumes = range(given.first, given.first + given.volumes)
    show("limited volumes", {seed: mistakes(random_volume(seed)) for seed in volumes})
    for name, device in (
        ("devices", random_device),
        ("devices with recorded noise", device_with_recorded_noise),
        ("devices of constant service time", random_servers),
    ):
        seeds = range(given.first, given.first + given.devices)
        show(name, {seed: [run(SETTINGS, device(seed)).verdict] for seed in seeds})


def show(name: str, found: dict[int, list[str]]) -> None:
    """Print how often each outcome was, and the first seeds that had it."""
    outcomes: dict[str, list[int]] = {}
    for seed, each in found.items():
        for outcome in each or ["right"]:
            outcomes.setdefault(outcome, []).append(seed)
    print(f"{name}:", *(f"\n  {outcome}: {len(seeds)} {seeds[:12]}" for outcome, seeds in sorted(outcomes.items())))


def mistakes(volume: Volume) -> list[str]:
    """Wrong and missing conclusions."""
    found = run(SETTINGS, volume)
    if found.verdict != "limited":
        return [found.verdict]
    truth = volume.limits[0]
    rule = found.rules[0]
    wrong = []
    if rule.counts != truth.counts or rule.unit_bytes != truth.unit_bytes:
        wrong.append(f"wrong rule: {rule.counts} {rule.unit_bytes} for {truth.counts} {truth.unit_bytes}")
        return wrong
    if abs(rule.rate.value / truth.rate - 1) > 0.02:
        wrong.append("rate")
    if truth.bucket:
        if not rule.bucket or abs(rule.bucket.value / truth.bucket - 1) > 0.05:
            wrong.append("bucket")
        if not rule.refill or abs(rule.refill.value / truth.rate - 1) > 0.05:
            wrong.append("refill")
    elif rule.burst_rate:
        wrong.append("wrong burst")
    if truth.merge and rule.merges is not True:
        wrong.append(f"merge {rule.merges}")
    both = [each for each in volume.limits if each.counts == "bytes"] if truth.counts == "operations" else []
    if both and (len(found.rules) < 2 or abs(found.rules[1].rate.value / both[0].rate - 1) > 0.02):
        wrong.append("second limit")
    shared = truth.write_weight > 0
    if found.sharing == "unknown":
        wrong.append("sharing undecided")
    elif (found.sharing == "shared") is not shared:
        wrong.append("wrong sharing")
    elif shared and (not found.write_weight or abs(found.write_weight.value / truth.write_weight - 1) > 0.05):
        wrong.append("weight")
    if found.change:
        wrong.append("change")
    return wrong


if __name__ == "__main__":
    main()
