# SPDX-License-Identifier: Apache-2.0
"""Clocks: how closely a GPU time stamp is placed on the CPU's clock, and when kernel events are delivered.

A kernel starts after its launch, and is delivered after its stop. So each kernel bounds the offset of the clocks from both sides: from above by
its start minus its launch, from below by its stop minus its delivery."""
import json
import pathlib

from machine import Skip
from verdict import at_most, not_judged

NAME = 'clocks'
LIMIT_SECONDS = 85
OPERATIONS = 600
PAUSE_US = 100_000
WINDOW_NS = 5_000_000_000


def windows(records):
    """For each 5 s: the middle of the window, and the bounds of GPU minus CPU in nanoseconds."""
    found = {}
    for launch, gpu_start, _, gpu_stop, stop_seen in records:
        at = launch // WINDOW_NS
        low, high = found.get(at, (None, None))
        found[at] = (gpu_stop - stop_seen if low is None else max(low, gpu_stop - stop_seen),
                     gpu_start - launch if high is None else min(high, gpu_start - launch))
    return [((at + 0.5) * WINDOW_NS, low, high) for at, (low, high) in sorted(found.items())]


def quantile(values, share):
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def summary(records):
    bounds = windows(records)
    first, last = bounds[0], bounds[-1]
    offset = {at: (low + high) / 2 for at, low, high in bounds}
    moved = offset[last[0]] - offset[first[0]]
    delays = [(stop_seen - (gpu_stop - offset[(launch // WINDOW_NS + 0.5) * WINDOW_NS])) / 1e6 for launch, _, _, gpu_stop, stop_seen in records]
    return {
        'records': len(records), 'windows': len(bounds), 'contradicting_windows': sum(low > high for _, low, high in bounds),
        'widest_us': max(high - low for _, low, high in bounds) / 1e3, 'narrowest_us': min(high - low for _, low, high in bounds) / 1e3,
        'seconds': (last[0] - first[0]) / 1e9, 'drift_us': moved / 1e3,
        'drift_ppm': moved / (last[0] - first[0]) * 1e6 if last != first else None,
        'delivery_ms': {f'{100 * share:g} %': quantile(delays, share) for share in (0.5, 0.99, 1)},
    }


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
