# SPDX-License-Identifier: Apache-2.0
"""Cost: an AllReduce without a plugin, with an empty one that asks for the same events, and with ours, in alternating blocks."""
from verdict import LIMITS, at_most, line, median, not_judged

NAME = 'cost'
LIMIT_SECONDS = 110
REPETITIONS = 9
# Those of the tables, in their order.
OFF, EMPTY, OURS, ALL_EVENTS, UNTIMED = 'off', 'empty', 'ours', 'empty, all events', 'ours, no kernel events'


def competitors(machine, folder):
    """Name and variables of each plugin."""
    ours = machine.with_plugin(folder)
    every = {
        OFF: {'NCCL_PROFILER_PLUGIN': 'none'},
        EMPTY: {'NCCL_PROFILER_PLUGIN': machine.empty.name, 'EMPTY_PROFILER_LIKE': str(machine.plugin), 'NCCL_EXPORTER_DIR': folder},
        OURS: ours,
        UNTIMED: dict(ours, NCCL_EXPORTER_KERNEL_TIMING='off'),
        # All events of NCCL, as others have measured it: 7.64 us of 26.4 us on one node, 0.33 us of 22.1 us between nodes.
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
            data[kind] = machine.run('cost', options)
        save()


def difference_us(row, one, other, what):
    """Median over the rounds: the blocks of a round are neighbours in time."""
    return median([(a - b) / 1e3 for a, b in zip(row['costs'][one][what], row['costs'][other][what])])


def judge(data):
    lines = []
    for kind in ('eager', 'graph'):
        rows = data.get(kind) or []
        if not rows:
            lines.append(not_judged('call', 'not measured', kind))
            continue
        call = median([difference_us(row, OURS, EMPTY, 'call_ns') for row in rows])
        lines.append(at_most('call', call, f'{call:.2f}', kind))
        if not data['one_host']:
            lines.append(not_judged('time', 'the ranks share a GPU: its time slices are longer than an AllReduce', kind))
            continue
        slower = {row['bytes']: 100 * difference_us(row, OURS, OFF, 'time_ns') / (median(row['costs'][OFF]['time_ns']) / 1e3) for row in rows}
        worst = max(slower, key=slower.get)
        lines.append(line('time', slower[worst] <= LIMITS['time'][0], f'{slower[worst]:+.1f} at {worst} B', kind))
    return lines


def table(data):
    """Markdown: medians in microseconds per AllReduce."""
    text = []
    for kind in ('eager', 'graph'):
        rows = data.get(kind) or []
        if not rows:
            continue
        names = sorted(rows[0]['costs'], key=lambda name: (name not in (OFF, EMPTY, OURS), [OFF, EMPTY, OURS].index(name) if name in (OFF, EMPTY, OURS) else 0))
        text.append(f'{data["ranks"]} ranks {"on one host" if data["one_host"] else "on one GPU, as separate hosts"}, {kind}; '
                    f'microseconds per AllReduce, medians of {REPETITIONS} blocks:\n')
        text.append('| bytes | ' + ' | '.join(f'{what} {name}' for what in ('time', 'call', 'CPU') for name in names) + ' |')
        text.append('|---:|' + '---:|' * (3 * len(names)))
        for row in rows:
            cells = [f'{median(row["costs"][name][what]) / 1e3:.2f}' for what in ('time_ns', 'call_ns', 'cpu_ns') for name in names]
            text.append(f'| {row["bytes"]} | ' + ' | '.join(cells) + ' |')
        text.append('')
    return '\n'.join(text)
