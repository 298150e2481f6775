# SPDX-License-Identifier: Apache-2.0
"""One communicator: speed, late ranks, and the operation of each rank."""
from columns import HIDDEN_COMM_COLUMNS, HIDDEN_JOB_COLUMNS, RANK_COLUMNS
from grafana_model import Column, Row, custom_variable, dashboard, graph, heat_map, query_variable, stat, steps, table, timeline
from promql import (COMM, JOB, JOB_LABELS, JOB_VARIABLES, ON_RANK, RANK_LABELS, age_in_flight, alerts, distribution_of, named, network_waits,
                    quantile_of, rate, wait_deficit, waiting)

COLLECTIVES = ['AllReduce', 'AllGather', 'ReduceScatter', 'Broadcast', 'Reduce', 'AlltoAll', 'Gather', 'Scatter']
OF = f'{COMM}, collective=~"$collective"'
VARIABLES = [
    *JOB_VARIABLES,
    query_variable('comm_name', 'Name', f'label_values(nccl_communicator_info{{{JOB}}}, comm_name)'),
    query_variable('comm', 'Communicator', f'label_values(nccl_communicator_info{{{JOB}, comm_name=~"$comm_name"}}, comm)', is_one=True),
    custom_variable('collective', 'Collective', COLLECTIVES),
]
BUSY, TIMED = 'nccl_collective_busy_seconds_total', 'nccl_collective_timed_operations_total'
COMPARED = f'sum by (instance) ({rate("nccl_collective_compared_operations_total", COMM)})'  # counted once per node
STARTED = f'nccl_collective_started_sequence{{{COMM}}}'
SEND = f'{COMM}, direction="send"'
SEND_NETWORK = f'{SEND}, state="network"'
BEHIND = f'max by ({JOB_LABELS}, comm) ({STARTED}) - on ({JOB_LABELS}, comm) group_right () {STARTED}'

WHAT = Row('Which communicator is it?', [
    stat('Ranks seen',
         'Ranks of the communicator that are reported. Normal: as many as Ranks. Fewer if ranks run without the plugin or a node is not '
         'monitored.',
         f'count(count by (rank) (nccl_rank_info{{{COMM}}}))', width=3),
    stat('Ranks',
         'Ranks in the communicator, as NCCL reports it (2.27 and later). Normal: as in the layout of the job.',
         f'max(nccl_communicator_ranks{{{COMM}}})', nothing='unknown', width=3),
    stat('Operations timed',
         'Share of the operations with a measured duration. Normal: 100 %; counts and bytes are exact in any '
         'case.',
         f'sum({rate(TIMED, COMM)}) / (sum({rate("nccl_collective_operations_total", COMM)}) > 0)', 'percentunit', nothing='none', width=3),
    table('Identity',
          'Name, number of nodes and software, as its ranks report them, and the source of durations. Normal: one line; several timing '
          'sources are not compared with each other.',
          [f'count by (comm_name, nnodes, nccl_version, api_version, timing_source, timing_reason) (nccl_communicator_info{{{COMM}}} '
           f'* {ON_RANK} group_left (timing_source, timing_reason) nccl_rank_info{{{COMM}}})'],
          [Column('comm_name', 'Name'), Column('nnodes', 'Nodes'), Column('nccl_version', 'NCCL'), Column('api_version', 'Profiler API'),
           Column('timing_source', 'Timing source'), Column('timing_reason', 'Because'), Column('A', 'Ranks',
               'short')], width=15, height=4),
])

WHO = Row('Which rank is late?', [
    timeline('Waiting, by rank',
             'Share of the time that a rank waits in kernels of the communicator: its time there minus that of the rank that waits least. '
             'Normal: all green. One green line among orange and red ones: all others wait for that rank.',
             [(waiting(COMM), 'rank {{rank}} {{hostname}} GPU {{gpu}}')], 'percentunit', steps(watch=0.03, bad=0.1),
             nothing='Nothing was timed'),
    graph('Waits less than the others, by rank',
          'Median time in kernels of the communicator minus that of the rank, as share of the time: the time that the others lose by it. The '
          'ten largest. Normal: below 3 %, and changing between ranks. One rank that stays on top is late. Needs 4 ranks.',
          [(f'topk(10, {wait_deficit(COMM)} > 0)', 'rank {{rank}} {{hostname}} GPU {{gpu}}')], 'percentunit', thresholds=steps(watch=0.03),
          nothing='No rank waits less than the median'),
    graph('Mean time of an operation, by rank',
          'Measured time over timed operations, waiting for late ranks included; the ten shortest. The shortest is the rank that the others '
          'wait for. Normal: all alike.',
          [(f'bottomk(10, sum by (rank, gpu, instance) ({rate(BUSY, OF)}) / (sum by (rank, gpu, instance) ({rate(TIMED, OF)}) > 0))',
                                  'rank {{rank}} {{instance}} GPU {{gpu}}')], 's'),
    graph('Last on its node, by rank',
          'Share of compared collectives that the rank was the last of its node to enter; the ten largest. Normal: shared among the '
          'ranks. Near 100 %: this rank is late. Needs two ranks on a node and kernel timing.',
          [(f'topk(10, sum by (rank, gpu, instance) ({rate("nccl_collective_last_arrivals_total", COMM)}) '
            f'/ on (instance) group_left () ({COMPARED} > 0))', 'rank {{rank}} {{instance}} GPU '
                '{{gpu}}')],
          'percentunit', most=1, thresholds=steps(bad=0.8)),
    graph('Lateness on its node, by rank',
          'Mean time between the first rank of the node and this rank entering a compared collective; the ten largest. Normal: well below '
          'the step; the first rank shows 0.',
          [(f'topk(10, sum by (rank, gpu, instance) ({rate("nccl_collective_arrival_lateness_seconds_total", COMM)}) '
            f'/ on (instance) group_left () ({COMPARED} > 0))', 'rank {{rank}} {{instance}} GPU '
                '{{gpu}}')], 's'),
])

PROGRESS = Row('Does it make progress, and which rank is in which operation?', [
    graph('Progress',
          'Collectives started and completed since the communicator was created, of the rank with the most and the rank with the fewest. '
          'Normal: lines that rise together. Flat: a hang or a pause. If the started lines are apart, some rank has not called.',
          [(f'max(nccl_collective_started_sequence{{{COMM}}})', 'started by the first'), (f'min(nccl_collective_started_sequence{{{COMM}}})',
                                                                                          'started by the last'),
           (f'min(nccl_collective_completed_sequence{{{COMM}}})', 'completed by the last')], 'short', width=8, height=9),
    table('In flight',
          'Ranks with an operation that is not complete, its function and age, and how many collectives fewer than the furthest rank it has '
          'started. Normal: ages below a step. In a hang look for the rank that is behind, or in another collective. A rank without an '
          'operation in flight shows Behind only.',
          [f'topk(50, max by ({RANK_LABELS}, function) ({named(age_in_flight(COMM))}))',
           f'topk(50, max by ({RANK_LABELS}) ({named(BEHIND + " > 0")}))',
           f'max by ({RANK_LABELS}) ({named(f"nccl_operations_in_flight{{{COMM}}} > 0")})'],
          [*HIDDEN_JOB_COLUMNS, *HIDDEN_COMM_COLUMNS, *RANK_COLUMNS, Column('function', 'Operation'), Column('A', 'For', 's',
              steps(watch=30, bad=120)), Column('B', 'Behind', 'short', steps(watch=1)),
           Column('C', 'Operations', 'short')], sort='For', width=16, nothing='Nothing is in flight'),
])

SPEED = Row('How fast is it, and since when?', [
    heat_map('Durations',
             'Timed collectives per second by duration, waiting for late ranks included, on all ranks. Normal: steady bands, one per message '
             'size. A band that climbs: slower. A second band above: some ranks wait.',
             distribution_of('nccl_collective_duration_seconds', OF), 's'),
    heat_map('Bus bandwidth',
             'Timed collectives of 1 MiB and more by bus bandwidth (nccl-tests). Normal: steady bands; waiting ranks show the lower values.',
             distribution_of('nccl_collective_bus_bandwidth_bytes_per_second', OF), 'Bps'),
    graph('Duration, by collective',
          'Median and 99th percentile of the timed operations on all ranks, waiting included. Normal: steady; a p99 far above the median '
          'means that ranks wait.',
          [(quantile_of(0.5, 'nccl_collective_duration_seconds', OF, 'collective'), '{{collective}} median'),
           (quantile_of(0.99, 'nccl_collective_duration_seconds', OF, 'collective'), '{{collective}} p99')], 's'),
    graph('Best bus bandwidth, by collective and size',
          'Bus bytes over busy seconds of the rank that waits least, by the lower bound of the message size. Normal: steady, higher for '
          'larger messages. A drop on all sizes: links.',
          [(f'max by (collective, size) (sum by (rank, collective, size) ({rate("nccl_collective_bus_bytes_total", OF)}) '
            f'/ (sum by (rank, collective, size) ({rate(BUSY, OF)}) > 0))', '{{collective}} from {{size}} B')], 'Bps'),
    graph('Operations of a rank, by collective and size',
          'Collectives per second that a rank submits to its GPU, graph replays included; exact, even if only some are timed. Normal: the '
          'same for every step. Falls with the speed of the job.',
          [(f'max by (collective, size) ({rate("nccl_collective_operations_total", OF)})', '{{collective}} from {{size}} B')], 'ops'),
    graph('Sends and receives of all ranks',
          'Point-to-point operations submitted to the GPU. Normal: as many sends as receives; AlltoAll counts here up to NCCL 2.30.',
          [(f'sum({rate("nccl_p2p_send_operations_total", COMM)})', 'sends'), (f'sum({rate("nccl_p2p_recv_operations_total", COMM)})', 'receives')],
          'ops'),
])

NO_NETWORK_TIME = 'No network operation was timed'
NETWORK = Row('Where does network time go?', [
    graph('What sends wait for',
          'Share of the time of timed sends to other nodes, all ranks: data of the own GPU, the receiver (peer), the network. Normal: steady; '
          'mostly gpu if the host runs ahead. Rises of network: adapters or links. Rises of peer: receivers that are late.',
          [(network_waits(COMM, 'send'), '{{state}}')], 'percentunit', most=1, is_stacked=True, nothing=NO_NETWORK_TIME),
    graph('What receives wait for',
          'Share of the time of timed receives from other nodes, all ranks: the own GPU, data (network), the flush into GPU memory. Normal: '
          'mostly network, because receives wait there for late senders too. Rises of flush: PCIe or GPUDirect.',
          [(network_waits(COMM, 'recv'), '{{state}}')], 'percentunit', most=1, is_stacked=True, nothing=NO_NETWORK_TIME),
    graph('Speed of sends in the network, by rank',
          'Bytes of timed sends over their time in the network; the ten slowest ranks. Normal: ranks of one GPU number alike. One below half '
          'of them: its adapter or the way from there.',
          [(f'bottomk(10, sum by (rank, gpu, instance) ({rate("nccl_network_timed_bytes_total", SEND)}) '
            f'/ (sum by (rank, gpu, instance) ({rate("nccl_network_wait_seconds_total", SEND_NETWORK)}) > 0))',
            'rank {{rank}} GPU {{gpu}} {{instance}}')], 'Bps', nothing=NO_NETWORK_TIME),
    graph('Share of the network in sends, by rank',
          'Time of timed sends in the network over all of their time; the ten largest ranks. Normal: ranks of one GPU number alike. A rank '
          'above the others that is not slow in the panel beside it waits less for its GPU: its host is late.',
          [(f'topk(10, {network_waits(COMM, "send", "rank, gpu, instance", "network")})', 'rank {{rank}} GPU {{gpu}} {{instance}}')],
          'percentunit', most=1, nothing=NO_NETWORK_TIME),
])

DASHBOARD = dashboard('nccl-communicator', 'Communicator',
                      'How fast is it, which rank is late, which rank is in which operation since when?', VARIABLES,
                      alerts(f'{JOB}, comm=~"$comm|"'), [WHAT, WHO, PROGRESS, SPEED, NETWORK])
