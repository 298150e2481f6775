# SPDX-License-Identifier: Apache-2.0
"""Right: jobs that count what they ask of NCCL. What the daemon serves must equal it."""
import json
import pathlib
import socket
import subprocess
import sys
import time

from machine import Failed, objects
from parts import facts
from verdict import LIMITS, at_most, line, not_judged

NAME = 'right'
LIMIT_SECONDS = 170
JOB_SECONDS = 50
SHOWN = 10
COUNTED = ('nccl_api_calls_total', 'nccl_collective_operations_total', 'nccl_collective_bytes_total', 'nccl_p2p_send_operations_total',
           'nccl_p2p_send_bytes_total', 'nccl_p2p_recv_operations_total', 'nccl_p2p_recv_bytes_total')
# With sends to oneself, which NCCL up to 2.30 gives wrong times: all of them may be rejected.
UNTIMED = 'spreads'
TIMED_BY_EVENTS = 'timed'
# NCCL reports replays that stay inside a node only with kernel events.
REPLAYED = 'graph'


def expected(communicators, named):
    """{(metric, communicator, function, size): value} by the account of the job. Up to 2.26 NCCL names no communicators: all are one."""
    sums = {}

    def add(value, *key):
        if value:
            sums[key] = sums.get(key, 0) + value
    for communicator in communicators:
        own = (communicator['name'], str(communicator['rank'])) if named else ()
        for function, counts in communicator['functions'].items():
            add(counts['calls'], 'nccl_api_calls_total', own, function, '')
            for size, both in counts['sizes'].items():
                for what, value in both.items():
                    if function in ('Send', 'Recv'):
                        add(value, f'nccl_p2p_{function.lower()}_{what}_total', own, function, '')
                    else:
                        add(value, f'nccl_collective_{what}_total', own, function, size)
    return sums


def served(samples, named):
    """Those sums by the daemon."""
    sums = {}
    for name, labels, value in samples:
        if name in COUNTED and value:
            own = (labels['comm_name'], labels['rank']) if named else ()
            function = labels.get('function') or labels.get('collective') or name.split('_')[2].capitalize()
            key = (name, own, function, labels.get('size', ''))
            sums[key] = sums.get(key, 0) + value
    return sums


def differences(truth, found):
    return [f'{" ".join([key[0], *key[1], key[2], key[3]]).strip()}: {found.get(key, 0):.0f} and not {truth.get(key, 0):.0f}'
            for key in sorted(set(truth) | set(found)) if truth.get(key, 0) != found.get(key, 0)]


def total(samples, name, **labels):
    return sum(value for found, own, value in samples if found == name and all(own.get(key) == wanted for key, wanted in labels.items()))


def timed_share(samples):
    """Share of the operations with a duration, on communicators whose kernels are timed; None where there are none."""
    timed = {(labels['comm'], labels['rank']) for name, labels, _ in samples
             if name == 'nccl_rank_info' and labels['timing_source'].startswith('kernel') and labels['comm_name'] != UNTIMED}
    sums = {'operations': 0, 'timed_operations': 0}
    for name, labels, value in samples:
        for what in sums:
            if (labels.get('comm'), labels.get('rank')) in timed and name in [f'nccl_{kind}_{what}_total' for kind in ('collective', 'p2p_send', 'p2p_recv')]:
                sums[what] += value
    return sums['timed_operations'] / sums['operations'] if sums['operations'] else None


def duration_ratio(samples, communicators):
    """Mean duration by the plugin, divided by that of the events around the calls; None where it timed nothing."""
    events = [ns for communicator in communicators for ns in communicator['event_ns']]
    of_job = {'comm_name': TIMED_BY_EVENTS, 'collective': 'AllReduce'}
    timed = total(samples, 'nccl_collective_timed_operations_total', **of_job)
    if not timed or not events:
        return None
    return total(samples, 'nccl_collective_busy_seconds_total', **of_job) / timed / (sum(events) / len(events) * 1e-9)


def compare(samples, communicators, one_host):
    decisions = facts.decisions(samples)
    sees_replays = not one_host or any(source.startswith('kernel') for source, _ in decisions)
    named = any(labels.get('comm_name') for _, labels, _ in samples)
    truth = expected([own for own in communicators if sees_replays or own['name'] != REPLAYED], named)
    found = differences(truth, served([sample for sample in samples if sees_replays or sample[1].get('comm_name') != REPLAYED], named))
    return {'compared': len(truth), 'differences': len(found), 'first_differences': found[:SHOWN], 'timed_share': timed_share(samples),
            'duration_ratio': duration_ratio(samples, communicators), 'decisions': decisions}


def run_job(machine, folder, options, kernel_timing):
    began = time.monotonic()
    with machine.daemon(folder) as daemon:
        result = dict(options, kernel_timing=kernel_timing, ended=True)
        try:
            machine.run('job', dict(options, directory=folder, limit_seconds=machine.seconds(JOB_SECONDS)), **machine.with_plugin(folder, kernel_timing))
        except Failed as problem:
            return dict(result, ended=False, problem=str(problem))
        ranks = [json.loads((pathlib.Path(folder) / f'truth.{rank}').read_text()) for rank in range(options['ranks'])]
        communicators = [communicator for rank in ranks for communicator in rank['communicators']]
        result.update(compare(daemon.samples(), communicators, options['one_host']))
    return dict(result, seconds=round(time.monotonic() - began, 1))


def run_torch(machine, folder, ranks):
    """A PyTorch job of as many processes; the sums of what they counted in Python against the sums of the daemon."""
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    with machine.daemon(folder) as daemon:
        processes = []
        for rank in range(ranks['ranks']):
            own = dict(machine.with_plugin(folder), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks['ranks']),
                       LOCAL_WORLD_SIZE=str(ranks['ranks']), MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port))
            if not ranks['one_host']:
                own.update(NCCL_HOSTID=f'host-{rank}', NCCL_SOCKET_IFNAME='lo', NCCL_NET='Socket', NCCL_MNNVL_ENABLE='0')
            processes.append(subprocess.Popen([sys.executable, str(machine.kit / 'torch_job.py')], env=machine.environment(**own), stdout=subprocess.PIPE,
                                              universal_newlines=True))
        outputs = [process.communicate(timeout=machine.seconds(JOB_SECONDS))[0] for process in processes]
        if any(process.returncode for process in processes):
            raise Failed('the PyTorch job failed')
        counted = {}
        for output in outputs:
            for key, value in list(objects(output.splitlines()))[-1]['counts'].items():
                counted[key] = counted.get(key, 0) + value
        found = {}
        for (name, _, function, _), value in served(daemon.samples(), named=False).items():
            if name != COUNTED[0]:
                key = f'{function} {name.split("_")[-2]}'
                found[key] = found.get(key, 0) + int(value)
    return {'counted': counted, 'served': found, 'differences': sum(counted.get(key) != found.get(key) for key in set(counted) | set(found))}


def measure(machine, data, save):
    shape = machine.shape()
    largest = 256 << 20 if shape['one_host'] else 32 << 20
    data['jobs'] = []
    settings = [(dict(shape, largest_bytes=largest), 'on'), (dict(shape, largest_bytes=largest), 'auto')]
    if shape['one_host']:
        settings.append(({'ranks': 2, 'one_host': False, 'largest_bytes': 32 << 20}, 'on'))
    for options, kernel_timing in settings:
        with machine.folder() as folder:
            data['jobs'].append(run_job(machine, folder, options, kernel_timing))
        save()
    found, version = facts.torch_version(machine)
    if not found:
        data['torch'] = {'skipped': version}
        return
    with machine.folder() as folder:
        try:
            data['torch'] = run_torch(machine, folder, shape)
        except (Failed, subprocess.TimeoutExpired) as problem:
            data['torch'] = {'failed': str(problem)}


def judge(data):
    lines = []
    for job in data.get('jobs', []):
        about = f'{job["ranks"]} ranks {"on one host" if job["one_host"] else "as separate hosts"}, kernel timing {job["kernel_timing"]}'
        lines.append(line('jobs end', job['ended'], job.get('problem', 'all'), about))
        if not job['ended']:
            continue
        lines.append(at_most('counts', job['differences'], f'{job["differences"]} of {job["compared"]}', about))
        share, ratio = job['timed_share'], job['duration_ratio']
        if share is None:
            reasons = ', '.join(reason for _, reason in job['decisions'])
            lines.append(not_judged('timed', f'no kernel events: {reasons}', about))
            continue
        lines.append(line('timed', share >= LIMITS['timed'][0], f'{share:.3f}', about))
        low, high = LIMITS['durations'][0]
        lines.append(not_judged('durations', 'nothing was timed', about) if ratio is None else line('durations', low <= ratio <= high, f'{ratio:.3f}', about))
    torch = data.get('torch', {'skipped': 'the part did not come so far'})
    if 'differences' in torch:
        lines.append(at_most('torch counts', torch['differences'], f'{torch["differences"]} of {len(torch["counted"])}'))
    else:
        lines.append(line('torch counts', False if 'failed' in torch else None, torch.get('failed') or torch['skipped']))
    return lines
