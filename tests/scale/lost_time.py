# SPDX-License-Identifier: Apache-2.0
"""Compares `job:nccl_waiting_gpu_seconds:rate` with the waits of a simulated job: real plugin, daemons and Prometheus, and the simulator's list of operations.

The true wait of a rank in an operation is the time from the start of its own kernel to that of the last rank. What a rank waits in several
communicators at once counts once. All durations of the rules are divided by --time-scale.
"""
import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import typing

import servers

ROOT = pathlib.Path(__file__).resolve().parents[2]
SIMULATOR, DAEMON = ROOT / 'bazel-bin/simulator/nccl-sim', ROOT / 'bazel-bin/exporter/nccl-exporter'
PLUGIN = ROOT / 'bazel-bin/plugin/libnccl-profiler-exporter.so'
GENERATE = ROOT / 'deploy/prometheus/generate-rules'
LOOKBACK = 300  # seconds of a query, before they are divided by the time scale
SETTLE = 25  # seconds until the rates and the samples of a window are those of the straggler
TOLERANCE = 0.03
QUIET = 0.02  # GPUs that may seem to wait where none is late
NANOSECONDS = 1e9
STEPS = 5  # per second
REGULAR = 0.5  # share of the steps that an operation is in at least


class Case(typing.NamedTuple):
    name: str
    layout: str
    percent: float  # of a step, by which a rank is late; 0: none is
    options: tuple = ()
    environment: dict = {}


def cases():
    for percent in (3, 10, 30, 0):
        yield Case(f'dp-{percent}', 'dp', percent)
        yield Case(f'tp-{percent}', 'tp', percent)
        yield Case(f'groups-{percent}', 'fsdp', percent, ('--aggregate', '4'))


def true_waits(truth, begin, end):
    """Seconds per second in which ranks wait for a later one. A rank's wait is the mean of the operation of a step that it waits longest in, because the
    late rank comes late once in a step. What all ranks wait, each for another, is jitter.
    """
    operations = collections.defaultdict(list)  # by communicator: global rank, its operations
    for rank in truth['ranks']:
        for communicator in rank['communicators']:
            operations[communicator['id']].append((rank['rank'], communicator['operations']))
    waits = collections.defaultdict(lambda: collections.defaultdict(list))  # by communicator and place in the step, then by rank
    for communicator, members in operations.items():
        place, step = 0, None
        for same in zip(*(listed for _, listed in members)):
            starts = [operation['start_ns'] / NANOSECONDS for operation in same]
            if not begin <= max(starts) < end:
                continue
            place, step = (place + 1 if int(min(starts) * STEPS) == step else 0), int(min(starts) * STEPS)
            for (rank, _), start in zip(members, starts):
                waits[communicator, place][rank].append(max(starts) - start)
    longest = collections.Counter()
    for of_ranks in waits.values():
        means = {rank: sum(all_waits) / len(all_waits) * STEPS for rank, all_waits in of_ranks.items() if len(all_waits) > REGULAR * (end - begin) * STEPS}
        for rank, mean in means.items():
            longest[rank] = max(longest[rank], mean - min(means.values()))
    return sum(longest.values())


def prometheus_config(ports, rules, interval):
    return {'global': {'scrape_interval': interval, 'scrape_timeout': interval, 'evaluation_interval': interval}, 'rule_files': [str(rules)],
            'scrape_configs': [{'job_name': 'nccl-exporter', 'static_configs': [
                {'targets': [f'127.0.0.1:{port}'], 'labels': {'instance': f'node-{node}:9828'}} for node, port in enumerate(ports)]}]}


def play(case, options, scratch):
    """GPUs that wait: by the rules, and truly; nothing if Prometheus has no answer."""
    interval = f'{15 / options.time_scale:g}s'
    rules = scratch / 'rules.yml'
    rules.write_text(subprocess.run([GENERATE, '--time-scale', str(options.time_scale)], check=True, capture_output=True, text=True).stdout)
    ports, daemons = [servers.free_port() for _ in range(options.nodes)], []
    for node, port in enumerate(ports):
        (scratch / f'segments{node}').mkdir()
        daemons.append(subprocess.Popen([DAEMON, f'--web.listen-address=127.0.0.1:{port}', f'--segment.dir={scratch}/segments{node}',
                                         f'--findings.time-scale={options.time_scale}', '--log.level=warn']))
    truth = scratch / 'truth.json'
    command = [SIMULATOR, '--plugin', PLUGIN, '--segment-dir', f'{scratch}/segments%n', '--truth', truth, '--truth-operations', '--pace', 'real',
               '--rate', str(STEPS), '--compute-share', '0.6', '--channels', '2', '--slurm-job-id', '4711', '--layout', case.layout, '--nodes', str(options.nodes),
               '--ranks-per-node', str(options.ranks), '--duration', str(SETTLE + options.seconds), *case.options]
    if case.percent:
        command += ['--incident', f'slow-rank:rank=3,percent={case.percent}']
    try:
        with servers.Prometheus(scratch / 'prometheus', prometheus_config(ports, rules, interval), f'--storage.tsdb.path={scratch}/data',
                                f'--query.lookback-delta={LOOKBACK / options.time_scale:g}s', program=options.prometheus) as server:
            subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL,
                           env=os.environ | {'NCCL_EXPORTER_KERNEL_TIMING': 'on', 'NCCL_ALLGATHERV_ENABLE': '0'} | case.environment)
            found = server.query(f'avg_over_time(job:nccl_waiting_gpu_seconds:rate[{options.seconds - 4}s])', time.time() - 2)
    finally:
        for daemon in daemons:
            daemon.terminate()
            daemon.wait()
    waits = true_waits(json.loads(truth.read_text()), SETTLE, SETTLE + options.seconds)
    return (float(found[0]['value'][1]) if found else None), waits


def main():
    parser = argparse.ArgumentParser(prog='lost-gpu-time', description=__doc__)
    parser.add_argument('--nodes', type=int, default=4)
    parser.add_argument('--ranks', type=int, default=4, help='of a node')
    parser.add_argument('--seconds', type=int, default=30, help='of each case that are compared')
    parser.add_argument('--time-scale', type=float, default=15)
    parser.add_argument('--only', default='', help='cases with this in their names')
    parser.add_argument('--prometheus', default=servers.PROMETHEUS, help='program')
    options = parser.parse_args()
    has_failed = False
    for case in cases():
        if options.only not in case.name:
            continue
        with tempfile.TemporaryDirectory(prefix='lost-gpu-time-') as scratch:
            by_rules, truly = play(case, options, pathlib.Path(scratch))
        is_right = by_rules is not None and (abs(by_rules / truly - 1) <= TOLERANCE if case.percent else by_rules <= QUIET)
        has_failed |= not is_right
        told = 'nothing' if by_rules is None else f'{by_rules:.3f} GPUs'
        print(f'{"right" if is_right else "WRONG"} {case.name}: {told} by the rules, {truly:.3f} by the simulator', flush=True)
    sys.exit(has_failed)


if __name__ == '__main__':
    main()
