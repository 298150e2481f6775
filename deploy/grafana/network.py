# SPDX-License-Identifier: Apache-2.0
"""Is it the network, inside of nodes or between them, and on which rail? NCCL reports no counters of adapters, so communicators are compared."""
from columns import COMM_COLUMNS, HIDDEN_JOB_COLUMNS, RANK_COLUMNS
from grafana_model import BAD, OK, WATCH, Column, Row, dashboard, graph, heat_map, table
from promql import (COMM_LABELS, JOB, JOB_LABELS, JOB_VARIABLES, NODE_LABELS, ON_RANK, RANK_LABELS, alerts, distribution_of, moving_data,
                    rate)

COMM = f'{JOB_LABELS}, comm'
LARGE = 'size=~"1048576|16777216|268435456"'
# Communicators that span nodes, as NCCL reports (2.27 and later): pods and targets need not be nodes.
BETWEEN = f'nccl_communicator_info{{{JOB}, nnodes=~"[2-9]|[1-9][0-9]+"}}'
INSIDE = f'nccl_communicator_info{{{JOB}, nnodes="1"}}'
# All ranks have the same number of GPU on their nodes: with one adapter a GPU, one rail.
ONE_RAIL = f'count by ({COMM}) (count by ({COMM}, gpu) ({BETWEEN[:-1]}, gpu!=""}})) == 1'
BANDWIDTH = 'comm_collective_size:nccl_bus_bandwidth:max'
NAME = f'* on ({COMM}) group_left (comm_name) group by ({COMM_LABELS}) (nccl_communicator_info{{{JOB}}})'
LEGEND = '{{comm_name}} {{comm}} {{collective}} from {{size}} B'


def best(nodes):
    return f'({BANDWIDTH}{{{JOB}}} and on ({COMM}) {nodes}) {NAME}'


def of_sends(direction):
    busy, timed = (rate(f'nccl_p2p_{direction}_{name}_total', JOB) for name in ('busy_seconds', 'timed_operations'))
    return f'sum by ({NODE_LABELS}) ({with_node(busy)}) / (sum by ({NODE_LABELS}) ({with_node(timed)}) > 0)'


def with_node(expression):
    return f'{expression} * {ON_RANK} group_left (hostname) comm_rank:nccl_rank:info{{{JOB}}}'


WHERE = Row('Between nodes, or inside of them?', [
    graph('Best bus bandwidth between nodes',
          'Bus bandwidth (nccl-tests) of communicators that span nodes, for messages of 16 MiB and more, by the rank that waits least. So '
          'late ranks do not count. NCCL 2.27 and later reports the number of nodes. Normal: steady, near the result of nccl-tests. If it '
          'drops here and not inside of nodes, suspect the network between nodes.',
          [(best(BETWEEN), LEGEND)], 'Bps'),
    graph('Best bus bandwidth inside of nodes',
          'The same of communicators within one node, all sizes: NVLink or PCIe. Normal: steady. Drops here: links or switches inside of the '
          'node, or GPUs in which kernels compete with computation.',
          [(f'max by ({COMM_LABELS}, collective, size) (sum by ({COMM_LABELS}, rank, collective, size) '
            f'({rate("nccl_collective_bus_bytes_total", JOB)} and on ({COMM}) {INSIDE}) '
            f'/ (sum by ({COMM_LABELS}, rank, collective, size) ({rate("nccl_collective_busy_seconds_total", JOB)}) > 0))', LEGEND)], 'Bps'),
    graph('Moving data between nodes',
          'Time in kernels of the rank that waits least, of communicators that span nodes: the cost of the network in each step. Normal: '
          'steady; without waiting for late ranks.',
          [(f'{moving_data(JOB)} and on ({COMM}) {BETWEEN}', '{{comm_name}} {{comm}}')], 'percentunit'),
    heat_map('Bus bandwidth between nodes',
             'Timed collectives of 1 MiB and more by bus bandwidth, on all ranks of communicators that span nodes. Normal: steady bands. A '
             'band that sinks: the network. A second, lower band: ranks that wait.',
             distribution_of('nccl_collective_bus_bandwidth_bytes_per_second', JOB, f' and on ({COMM}) {BETWEEN}'), 'Bps', height=8),
])

WHICH = Row('Which communicator, which rail, which node?', [
    table('Bandwidth against the best of this time range',
          'Communicators that span nodes, by collective and size: bus bandwidth now, its best in the time range, and the share of it that '
          'remains. Normal: above 80 %. Communicators that fell share the broken hardware; those that did not fall exclude theirs.',
          [f'max by ({COMM_LABELS}, collective, size) ({best(BETWEEN)})',
           f'max by ({COMM_LABELS}, collective, size) ((max_over_time({BANDWIDTH}{{{JOB}}}[$__range]) and on ({COMM}) {BETWEEN}) {NAME})',
           f'min by ({COMM_LABELS}, collective, size) (({BANDWIDTH}{{{JOB}}} / max_over_time({BANDWIDTH}{{{JOB}}}[$__range]) and on ({COMM}) '
           f'{BETWEEN}) {NAME})'],
          [*HIDDEN_JOB_COLUMNS, *COMM_COLUMNS, Column('collective', 'Collective'), Column('size', 'Size from', 'bytes'),
           Column('A', 'Bus bandwidth', 'Bps'), Column('B', 'Best', 'Bps'),
           Column('C', 'Left', 'percentunit', [{'color': BAD, 'value': None}, {'color': WATCH, 'value': 0.6}, {'color': OK, 'value': 0.8}])],
          sort='Left', is_ascending=True, width=14, height=9),
    graph('Best bus bandwidth, by rail',
          'Communicators between nodes in which all ranks have the same GPU number. If each GPU has its own adapter, that number is the '
          'rail. Best of their bandwidths, messages of 1 MiB and more. Normal: rails alike. One below the others: its adapters, cables or '
          'switch.',
          [(f'max by (gpu, size) (sum by ({COMM}, rank, gpu, size) ({rate("nccl_collective_bus_bytes_total", f"{JOB}, {LARGE}")} '
            f'and on ({COMM}) ({ONE_RAIL})) / (sum by ({COMM}, rank, gpu, size) ({rate("nccl_collective_busy_seconds_total", JOB)}) > 0))',
            'GPU {{gpu}}, from {{size}} B')],
          'Bps', width=10, height=9, nothing='No communicator keeps to one rail'),
    graph('Messages between nodes, by node',
          'Message bytes of the ranks of a node in collectives that span nodes, and in sends. Normal: nodes alike, or as in the layout of '
          'the pipeline. One node below: it does less, or later.',
          [(f'sum by ({NODE_LABELS}) ({with_node("(" + rate("nccl_collective_bytes_total", JOB) + f" and on ({COMM}) {BETWEEN})")})', 'collectives '
              '{{hostname}} {{instance}}'),
           (f'sum by ({NODE_LABELS}) ({with_node(rate("nccl_p2p_send_bytes_total", JOB))})', 'sends {{hostname}} {{instance}}')], 'Bps'),
    graph('Mean time of sends and receives, by node',
          'Measured time over timed operations. A send waits for its receiver, a receive for its sender. Normal: nodes of one stage alike. '
          'If a node has long receives and short sends, it waits for others. In the reverse case others are late to receive.',
          [(of_sends('send'), 'sends {{hostname}} {{instance}}'), (of_sends('recv'), 'receives {{hostname}} {{instance}}')], 's',
          nothing='No sends or receives are timed'),
])

SEND = f'{JOB}, direction="send"'
SEND_NETWORK = f'{SEND}, state="network"'
SLOW = f'comm_rank:nccl_send_network:slow{{{JOB}}}'
NETWORK_TIME = Row('Where does network time go?', [
    table('Slow sends',
          'GPUs whose sends are in the network at least twice as long for a byte as those of the same GPU number on other nodes of the '
          'communicator. Times: how many times as long. Share: of the time of their sends. Normal: empty.',
          [f'max by ({RANK_LABELS}) ({SLOW} * {ON_RANK} group_left (comm_name, hostname, gpu_uuid, pid) comm_rank:nccl_rank:info{{{JOB}}})',
           f'max by ({RANK_LABELS}) ((comm_rank:nccl_send_network:share{{{JOB}}} and {SLOW}) * {ON_RANK} '
           f'group_left (comm_name, hostname, gpu_uuid, pid) comm_rank:nccl_rank:info{{{JOB}}})'],
          [*HIDDEN_JOB_COLUMNS, *COMM_COLUMNS, *RANK_COLUMNS, Column('A', 'Times', 'none', [{'color': WATCH, 'value': None}]),
           Column('B', 'Share', 'percentunit')], sort='Times', width=24, height=7, nothing='No sends are slow'),
    graph('Bytes to other nodes, by node',
          'Bytes per second of sends: those of timed operations, scaled to all by the bus bytes of both. Normal: nodes alike. None: plugin or '
          'daemon before layout 1.6, NCCL before 2.24, or network timing is off.',
          [(f'sum by ({NODE_LABELS}) (sum by ({COMM}, {NODE_LABELS}) ({with_node(rate("nccl_network_timed_bytes_total", SEND))}) '
            f'* on ({COMM}, instance) group_left () (sum by ({COMM}, instance) ({rate("nccl_node_network_bus_bytes_total", SEND)}) '
            f'/ (sum by ({COMM}, instance) ({rate("nccl_node_network_timed_bus_bytes_total", SEND)}) > 0)))', '{{hostname}} {{instance}}')],
          'Bps', width=8, nothing='No network operation was timed'),
    graph('Speed of sends in the network, by node',
          'Bytes of timed sends over their time in the network, all GPUs of the node. Normal: nodes alike. One below the others: its adapters, '
          'or the way from there. Compare GPUs in Communicator.',
          [(f'sum by ({NODE_LABELS}) ({with_node(rate("nccl_network_timed_bytes_total", SEND))}) / (sum by ({NODE_LABELS}) '
            f'({with_node(rate("nccl_network_wait_seconds_total", SEND_NETWORK))}) > 0)', '{{hostname}} {{instance}}')],
          'Bps', width=8, nothing='No network operation was timed'),
    graph('Timed network operations, by node',
          'Sends to other nodes and receives whose waits were measured: one channel of an operation, to or from one peer. Normal: nodes alike. '
          'Windows cover a tenth of the time. None: old plugin, NCCL before 2.24, or network timing is off.',
          [(f'sum by ({NODE_LABELS}, direction) ({with_node(rate("nccl_network_timed_operations_total", JOB))})',
            '{{direction}} {{hostname}} {{instance}}')], 'ops', width=8, nothing='No network operation was timed'),
])

DASHBOARD = dashboard('nccl-network', 'Network', 'Is it the network: between nodes or inside of them, which communicator, which rail?',
                      JOB_VARIABLES, alerts(JOB), [WHERE, WHICH, NETWORK_TIME])
