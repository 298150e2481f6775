# SPDX-License-Identifier: Apache-2.0
"""Overlap: whether computation and communication still run at the same time if launches are marked, or kernel events are on.

A step has matrix products on one stream and AllReduces, or copies, on another. The overlap is the part of the shorter one that is hidden
behind the longer one: 1 if both streams run at once, 0 if they run one after the other."""
from machine import Failed
from verdict import LIMITS, line, not_judged

NAME = 'overlap'
LIMIT_SECONDS = 90
REPETITIONS = 7
MARKS = ('none', 'timing', 'sampled', 'untimed', 'write')
KERNEL_EVENTS = 'kernel events'
LEAST = 0.2  # where less overlaps without anything, there is nothing to lose
POSSIBLE = -0.2, 1.2  # beyond, something else disturbs the machine


def share(run):
    alone = sorted((run['beside_us'], run['compute_us']))
    return (alone[0] + alone[1] - run['step_us']) / alone[0]


def variables_of(machine, folder, marks):
    if marks == KERNEL_EVENTS:
        return machine.with_plugin(folder, 'on')
    return {'NCCL_PROFILER_PLUGIN': 'none' if marks == 'none' else str(machine.probe), 'PROBE_MARKS': marks}


def measure(machine, data, save):
    shape = machine.shape()
    data['runs'] = []
    for limit in ({}, {'CUDA_DEVICE_MAX_CONNECTIONS': '1'}):
        for beside in ('AllReduce', 'copy'):
            # Ranks that share a GPU wait for its time slices.
            own = dict(shape, bytes=(64 if shape['one_host'] else 4) << 20) if beside == 'AllReduce' else dict(ranks=1, one_host=True, bytes=32 << 20)
            for marks in (*MARKS, KERNEL_EVENTS) if beside == 'AllReduce' else MARKS:
                run = {'connections': ''.join(limit.values()) or 'unset', 'beside': beside, 'marks': marks}
                with machine.folder() as folder:
                    options = dict(own, marks=marks if beside == 'copy' else 'none', repetitions=REPETITIONS, directory=folder, limit_seconds=machine.seconds(30))
                    try:
                        found = machine.run('overlap', options, **variables_of(machine, folder, marks), **limit)
                    except Failed as problem:
                        run['failed'] = str(problem)
                    else:
                        run.update(min(found, key=share))
                data['runs'].append(run)
                save()


def judge(data):
    runs = {(run['connections'], run['beside'], run['marks']): run for run in data.get('runs', [])}
    lines = []
    for (connections, beside, marks), run in runs.items():
        if marks == 'none':
            continue
        limit = 'kernel events' if marks == KERNEL_EVENTS else 'marks'
        about = f'{marks}, {beside}, CUDA_DEVICE_MAX_CONNECTIONS {connections}'
        without = runs[connections, beside, 'none']
        if 'failed' in run or 'failed' in without:
            lines.append(line(limit, False, run.get('failed') or without['failed'], about))
        elif not all(POSSIBLE[0] <= share(each) <= POSSIBLE[1] for each in (run, without)):
            lines.append(not_judged(limit, f'the times contradict each other: {share(run):.2f} of {share(without):.2f}', about))
        elif share(without) < LEAST:
            lines.append(not_judged(limit, f'{share(without):.2f} overlaps without anything', about))
        else:
            lost = (share(without) - share(run)) / share(without)
            lines.append(line(limit, lost <= LIMITS[limit][0], f'{lost:.2f} of {share(without):.2f}', about))
    return lines


def table(data):
    text = ['| connections | beside products | marks | each alone, us | step, us | overlap |', '|---|---|---|---:|---:|---:|']
    for run in data.get('runs', []):
        if 'failed' not in run:
            text.append(f'| {run["connections"]} | {run["beside"]} | {run["marks"]} | {run["compute_us"]:.0f} + {run["beside_us"]:.0f} | '
                        f'{run["step_us"]:.0f} | {share(run):.2f} |')
    return '\n'.join(text) + '\n'
