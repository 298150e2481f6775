# SPDX-License-Identifier: Apache-2.0
"""Limits, which were written down before anything was measured, and lines that say whether each is met."""
import statistics

# docs/measurements.md has the same table; a test compares.
LIMITS = {
    'counts': (0, 'differences between the job\'s own counts and `/metrics`: calls, operations, bytes'),
    'torch counts': (0, 'the same of a PyTorch script that counts its calls in Python'),
    'durations': ((0.5, 1.2), 'mean duration by the plugin, divided by that of CUDA events around the call, 64 MiB or less'),
    'timed': (0.8, 'least share of the operations with a duration, where kernel events are on'),
    'jobs end': (0, 'jobs that do not end by themselves, ncclCommDestroy included'),
    'call': (20, 'CPU time of the calling thread per AllReduce beyond an empty plugin with the same events, in readings of the clock (some 20 ns)'),
    'time': (5, '% that an AllReduce takes longer with the plugin, each rank on a GPU of its own, fastest of the blocks'),
    'kernel events': (0.1, 'share of the overlap of computation and NCCL that is lost with kernel events'),
    'marks': (0.1, 'share of the overlap that is lost with marks around a launch: an experiment'),
    'clocks': (0, 'windows of 5 s in which GPU time stamps contradict the CPU\'s clock'),
    'placed': (100, 'microseconds within which a GPU time stamp is placed on the CPU\'s clock'),
    'delivered': (10, 'milliseconds until 99 % of the kernel events are delivered'),
    'absent named': (45, 'seconds until a rank that does not join is named'),
    'killed named': (45, 'seconds until a killed rank is named'),
    'destroy': (10, 'seconds that ncclCommDestroy takes after the absent rank has joined, and ncclCommAbort after the other was killed'),
}
EXPERIMENTS = {'marks'}


def line(limit, met, value, about=''):
    """One line; `met` is None where it cannot be judged, and `value` says why."""
    return {'limit': limit, 'about': about, 'value': value, 'met': met}


def at_most(limit, value, shown=None, about=''):
    return line(limit, value <= LIMITS[limit][0], shown or f'{value:.4g}', about)


def not_judged(limit, why, about=''):
    return line(limit, None, why, about)


def median(values):
    return statistics.median(values) if values else None


def failed(lines):
    return [entry for entry in lines if entry['met'] is False and entry['limit'] not in EXPERIMENTS]


def limit_text(limit):
    value, meaning = LIMITS[limit]
    return (f'{value[0]} to {value[1]}' if isinstance(value, tuple) else f'at least {value}' if limit == 'timed' else f'at most {value}'), meaning
