# SPDX-License-Identifier: Apache-2.0
"""Clocks: how closely a GPU time stamp is placed on the CPU's clock, and when kernel events are delivered.

A kernel starts after its launch, and is delivered after its stop. So each kernel bounds the offset of the clocks from both sides: from above by
its start minus its launch, from below by its stop minus its delivery."""
import json
import math
import pathlib

from machine import Skip
from verdict import at_most, not_judged

NAME = 'clocks'
LIMIT_SECONDS = 85
OPERATIONS = 600
PAUSE_US = 100_000
WINDOW_NS = 5_000_000_000
TOLERANCE_NS = 2000  # of the drift, which is not quite steady


def drift(records):
    """Nanoseconds that the GPU's clock gains per nanosecond, by the tightest upper bound of each 5 s."""
    tightest = {}
    for launch, gpu_start, *_ in records:
        at = launch // WINDOW_NS
        tightest[at] = min(tightest.get(at, (gpu_start - launch, launch)), (gpu_start - launch, launch))
    points = [(launch, high) for high, launch in tightest.values()]
    middle, mean = (sum(values) / len(points) for values in zip(*points))
    spread = sum((launch - middle) ** 2 for launch, _ in points)
    return sum((launch - middle) * (high - mean) for launch, high in points) / spread if spread else 0


def bounds(records, slope):
    """For each 5 s the bounds of GPU minus CPU, in nanoseconds, without the drift since the first launch."""
    began, found = records[0][0], {}
    for launch, gpu_start, _, gpu_stop, stop_seen in records:
        gained = slope * (launch - began)
        low, high = found.get(launch // WINDOW_NS, (-math.inf, math.inf))
        found[launch // WINDOW_NS] = max(low, gpu_stop - stop_seen - gained), min(high, gpu_start - launch - gained)
    return found


def quantile(values, share):
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def summary(records):
    slope = drift(records)
    found = bounds(records, slope)
    widths = [high - low for low, high in found.values()]
    delays = [(stop_seen - gpu_stop + sum(found[launch // WINDOW_NS]) / 2 + slope * (launch - records[0][0])) / 1e6
              for launch, _, _, gpu_stop, stop_seen in records]
    return {'records': len(records), 'windows': len(widths), 'contradicting_windows': sum(width < -TOLERANCE_NS for width in widths),
            'widest_us': max(widths) / 1e3, 'narrowest_us': min(widths) / 1e3, 'drift_ppm': slope * 1e6,
            'delivery_ms': {f'{100 * share:g} %': quantile(delays, share) for share in (0.5, 0.99, 1)}}


def measure(machine, data, save):
    with machine.folder() as folder:
        options = dict(machine.shape(), faulty_rank=-1, is_killed=False, bytes=1 << 20, operations=OPERATIONS, pause_us=PAUSE_US, directory=folder,
                       limit_seconds=machine.seconds(LIMIT_SECONDS))
        machine.run('loop', options, NCCL_PROFILER_PLUGIN=str(machine.probe), PROBE_RECORDS=f'{folder}/records')
        files = sorted(pathlib.Path(folder).glob('records.*'))
        ranks = [[json.loads(row) for row in file.read_text().splitlines()] for file in files]
    if not any(ranks):
        raise Skip('NCCL has delivered no kernel events: profiler API v5 and later have what this needs (NCCL 2.28)')
    data['ranks'] = [summary(records) for records in ranks if records]


def judge(data):
    ranks = data.get('ranks')
    if not ranks:
        return [not_judged('clocks', 'not measured')]
    widest, slowest = max(rank['widest_us'] for rank in ranks), max(rank['delivery_ms']['99 %'] for rank in ranks)
    return [at_most('clocks', sum(rank['contradicting_windows'] for rank in ranks)), at_most('placed', widest, f'{widest:.1f}'),
            at_most('delivered', slowest, f'{slowest:.2f}')]
