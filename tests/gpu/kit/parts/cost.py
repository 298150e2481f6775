# SPDX-License-Identifier: Apache-2.0
"""Cost: an AllReduce without a plugin, with an empty one that asks for the same events, and with ours, in alternating blocks."""
from verdict import LIMITS, at_most, line, median, not_judged

NAME = 'cost'
LIMIT_SECONDS = 110
REPETITIONS = 9
REPORTED = 'Others have measured `empty, all events` beyond `off`: 7.64 us of 26.4 us on one node, and 0.33 us of 22.1 us between nodes.\n'
MANY = 100  # operations of a block, so that its first ones do not count
# Those of the tables, in their order.
OFF, EMPTY, OURS, UNTIMED, ALL_EVENTS = NAMES = 'off', 'empty', 'ours', 'ours, no kernel events', 'empty, all events'


def competitors(machine, folder):
    """Name and variables of each plugin."""
    every = {
        OFF: {'NCCL_PROFILER_PLUGIN': 'none'},
        EMPTY: dict(machine.with_plugin(folder, 'on'), NCCL_PROFILER_PLUGIN=machine.empty.name, EMPTY_PROFILER_LIKE=str(machine.plugin)),
        OURS: machine.with_plugin(folder, 'on'),
        UNTIMED: machine.with_plugin(folder, 'off'),
        ALL_EVENTS: {'NCCL_PROFILER_PLUGIN': machine.empty.name, 'EMPTY_PROFILER_MASK': '4095'},
    }
    every.update({name: {'NCCL_PROFILER_PLUGIN': path.name} for name, path in machine.others.items()})
    return [{'name': name, 'environment': variables} for name, variables in every.items()]


def measure(machine, data, save):
    shape = machine.shape()
    data.update(shape, eager=[], graph=[])
    # Ranks that share a GPU wait for each other's time slices: large messages would take minutes.
    largest = 256 << 20 if shape['one_host'] else 1 << 20
    for kind in ('eager', 'graph'):
        with machine.folder() as folder:
            options = dict(shape, largest_bytes=largest, graph=kind == 'graph', repetitions=REPETITIONS, directory=folder,
                           plugins=competitors(machine, folder))
            for row in machine.rows('cost', options):
                data[kind].append(row)
                save()


def fastest(row, name, what):
    """The least of the blocks: all else that runs on the machine only adds to them."""
    return min(row['costs'][name][what])


def call(rows):
    """Cost of the calling thread beyond the empty plugin, in readings of the clock: the median of the sizes with many operations."""
    return median([(fastest(row, OURS, 'call_ns') - fastest(row, EMPTY, 'call_ns')) / fastest(row, OURS, 'clock_ns')
                   for row in rows if row['operations'] >= MANY])


def judge(data):
    lines = []
    for kind in ('eager', 'graph'):
        rows = data.get(kind) or []
        if not any(row['operations'] >= MANY for row in rows):
            lines.append(not_judged('call', 'not measured', kind))
            continue
        lines.append(at_most('call', call(rows), f'{call(rows):.1f}', kind))
        for name in (OURS, UNTIMED):
            about = f'{name}, {kind}'
            if not data['one_host']:
                lines.append(not_judged('time', 'the ranks share a GPU: its time slices are longer than an AllReduce', about))
                continue
            slower = {row['bytes']: 100 * (fastest(row, name, 'time_ns') / fastest(row, OFF, 'time_ns') - 1) for row in rows}
            worst = max(slower, key=slower.get)
            lines.append(line('time', slower[worst] <= LIMITS['time'][0], f'{slower[worst]:+.1f} at {worst} B', about))
    return lines


def table(data):
    """Markdown: medians in microseconds per AllReduce."""
    text = []
    for kind in ('eager', 'graph'):
        rows = data.get(kind) or []
        if not rows:
            continue
        names = sorted(rows[0]['costs'], key=lambda name: NAMES.index(name) if name in NAMES else len(NAMES))
        text.append(f'{data["ranks"]} ranks {"on one host" if data["one_host"] else "on one GPU, as separate hosts"}, {kind}; '
                    f'microseconds per AllReduce, medians of {REPETITIONS} blocks:\n')
        text.append('| bytes | ' + ' | '.join(f'{what} {name}' for what in ('time', 'call', 'CPU') for name in names) + ' |')
        text.append('|---:|' + '---:|' * (3 * len(names)))
        for row in rows:
            cells = [f'{median(row["costs"][name][what]) / 1e3:.2f}' for what in ('time_ns', 'call_ns', 'cpu_ns') for name in names]
            text.append(f'| {row["bytes"]} | ' + ' | '.join(cells) + ' |')
        text.append('')
    if text:
        text.append(REPORTED)
    return '\n'.join(text)
