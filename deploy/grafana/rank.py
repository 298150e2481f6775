# SPDX-License-Identifier: Apache-2.0
"""One process and its GPU in all its communicators: culprit or victim, stuck or not, and DCGM's data of the GPU."""
from columns import NODE_COLUMNS
from grafana_model import BAD, OK, Column, Row, dashboard, graph, heat_map, link_to, query_variable, stat, steps, table
from promql import (JOB, JOB_LABELS, JOB_VARIABLE_NAMES, JOB_VARIABLES, NODE_LABELS, ON_PROCESS, ON_RANK, PROCESS, RATE, age_in_flight, age_of_progress, alerts,
                    below_median, busy, distribution_of, of_process, rate)

VARIABLES = [
    *JOB_VARIABLES,
    query_variable('hostname', 'Host', f'label_values(nccl_rank_info{{{JOB}}}, hostname)', is_one=True),
    query_variable('gpu_uuid', 'GPU', f'label_values(nccl_rank_info{{{JOB}, hostname=~"$hostname"}}, gpu_uuid)', is_one=True),
    query_variable('pid', 'PID', f'label_values(nccl_rank_info{{{JOB}, hostname=~"$hostname", gpu_uuid=~"$gpu_uuid"}}, pid)', is_one=True),
]
INFO = f'comm_rank:nccl_rank:info{{{PROCESS}}}'
BY = 'comm, comm_name, rank'
LEGEND = '{{comm_name}} {{comm}} rank {{rank}}'
BUSY = f'({of_process(busy(JOB))})'
STATE = f'{{{JOB}, pid=~"$pid"}} and {ON_PROCESS} {INFO}'
STARTED = f'nccl_collective_started_sequence{{{JOB}}}'
BEHIND = f'(max by ({JOB_LABELS}, comm) ({STARTED}) - on ({JOB_LABELS}, comm) group_right () {STARTED})'
TO_COMMUNICATOR = link_to('nccl-communicator', 'comm', fixed=JOB_VARIABLE_NAMES)
GPUS_OF_JOB = f'max by (UUID) (label_replace(comm_rank:nccl_rank:info{{{JOB}}}, "UUID", "$1", "gpu_uuid", "(.+)"))'


# The rules of the group nccl_suspects read these; docs/why.md lists them.
DCGM_FIELDS = ['DCGM_FI_DEV_SM_CLOCK', 'DCGM_FI_DEV_XID_ERRORS', 'DCGM_FI_DEV_CLOCKS_EVENT_REASONS', 'DCGM_FI_DEV_CLOCK_THROTTLE_REASONS',
               *(f'DCGM_FI_DEV_NVLINK_{kind}_ERROR_COUNT_TOTAL' for kind in ('CRC_DATA', 'REPLAY', 'RECOVERY'))]


def of_peers(counter):
    """Rate of a counter for all ranks of the communicators that the process is in."""
    return f'sum by ({JOB_LABELS}, comm, rank, collective) ({rate(counter, JOB)} and on ({JOB_LABELS}, comm) {INFO})'


def beside_job(name):
    """A rate of this process, and the median of its job."""
    return [(f'max({rate(name, JOB + ", pid=~" + chr(34) + "$pid" + chr(34))} and {ON_PROCESS} {INFO})', 'this process'),
            (f'quantile(0.5, {rate(name, JOB)})', 'median of the job')]


def dcgm(name):
    return f'{name}{{UUID=~"$gpu_uuid"}}'


def of_job(name):
    return f'quantile(0.5, {name} * on (UUID) group_left () {GPUS_OF_JOB})'


WHO = Row('Which process is it?', [
    stat('Alive',
         'Whether the process lives. 0: it has ended, and its last state is still served. Normal: 1.',
         f'min(nccl_process_alive{STATE})', thresholds=[{'color': BAD, 'value': None}, {'color': OK, 'value': 1}], width=3),
    stat('Stopped', 'Whether a signal or a debugger has stopped the process; unknown if the daemon does not see it in /proc. Normal: 0.',
         f'max(nccl_process_stopped{STATE})', thresholds=steps(bad=1), nothing='unknown', width=3),
    table('Process', 'The process, its GPU, and the source of its durations. Normal: one line per timing source.',
          [f'count by (global_rank, local_rank, {NODE_LABELS}, gpu, gpu_uuid, pci_bus_id, pid, pod, container, timing_source, timing_reason) '
           f'(nccl_rank_info{{{PROCESS}}})'],
          [Column('global_rank', 'Global rank'), Column('local_rank', 'Local rank'), *NODE_COLUMNS, Column('gpu', 'GPU', width=60),
           Column('gpu_uuid', 'GPU UUID'), Column('pci_bus_id', 'PCI'), Column('pid', 'PID'), Column('pod', 'Pod'),
           Column('container', 'Container'), Column('timing_source', 'Timing source'), Column('timing_reason', 'Because'),
           Column('A', 'Communicators', 'short')], width=18,
           height=4),
])

CULPRIT = Row('Culprit or victim?', [
    graph('Waits less than the others, by communicator',
          'Median of the communicator minus this rank\'s share of time in kernels. Above 0: the others wait for this rank. Below 0: it waits '
          'for others. Culprit: above 0 in one communicator and below 0 in none. Victim: above 0 in one, below 0 in another. Normal: within '
          '3 %.',
          [(below_median(BUSY, JOB), LEGEND)], 'percentunit',
          thresholds=steps(watch=0.03),
          is_compared=True, nothing='No other rank to compare with'),
    graph('Time in NCCL, by communicator',
          'Share of the time that the process spends in kernels of each of its communicators. Normal: steady. A late rank has less than its '
          'peers, a waiting one more.',
          [(BUSY, LEGEND)], 'percentunit', is_stacked=True),
    graph('Mean time of an operation, by collective',
          'Measured time over timed operations, this rank and the median of all ranks of its communicators. Normal: alike. This rank below '
          'the median: it is late. Both rise: network or larger messages.',
          [(f'sum by (collective) ({of_process(rate("nccl_collective_busy_seconds_total", JOB))}) '
            f'/ (sum by (collective) ({of_process(rate("nccl_collective_timed_operations_total", JOB))}) > 0)', '{{collective}}, this rank'),
           (f'quantile by (collective) (0.5, {of_peers("nccl_collective_busy_seconds_total")} '
            f'/ ({of_peers("nccl_collective_timed_operations_total")} > 0))',
            '{{collective}}, median')], 's'),
    heat_map('Durations',
             'Timed collectives per second of this rank by duration, waiting included. Normal: as on the communicator\'s dashboard. If this '
             'rank has only short ones, it is late.',
             distribution_of('nccl_collective_duration_seconds', JOB, f' and {ON_RANK} {INFO}'), 's', height=8),
])

STUCK = Row('Is it stuck?', [
    table('Operations in flight',
          'Operations that the process has started and not completed, their age, and how many collectives it is behind the furthest rank. '
          'Normal: ages below a step, Behind 0. If it is behind and nothing is in flight, it has not called; look at its stack.',
          [f'max by ({BY}, function) ({of_process(age_in_flight(JOB))})',
           f'max by ({BY}) ({of_process(BEHIND)})',
           f'max by ({BY}) ({of_process(age_of_progress(JOB))})'],
          [Column('comm_name', 'Name'), Column('comm', 'Communicator', link=TO_COMMUNICATOR), Column('rank', 'Rank', width=70),
           Column('function', 'Operation'), Column('A', 'For', 's', steps(watch=30, bad=120)), Column('B', 'Behind', 'short', steps(watch=1)),
           Column('C', 'Last progress', 's')],
          sort='For', width=14, height=8),
    graph('Operations',
          'Collectives, sends and receives that the process submits to its GPU; exact, even if only some are timed. Normal: steady, as on '
          'its peers.',
          [(f'sum by (collective) ({of_process(rate("nccl_collective_operations_total", JOB))})', '{{collective}}'),
           (f'sum({of_process(rate("nccl_p2p_send_operations_total", JOB))})', 'Send'),
           (f'sum({of_process(rate("nccl_p2p_recv_operations_total", JOB))})', 'Recv')],
          'ops', width=10),
])

HOST = Row('Is it the host?', [
    table('Suspects',
          'Signals of this process where an alert names a rank of its job as late, and the median of the job. They are shares of the time, events, MHz '
          'or ticks: docs/why.md has them by cause. Departs: the rank is late and the signal departs from the median. Normal: empty, or alike.',
          [f'max by (cause) (process:nccl_suspect:signal{STATE})',
           f'max by (cause) (job:nccl_suspect:median{{{JOB}}} and on ({JOB_LABELS}) {INFO})',
           f'count by (cause) (process:nccl_suspect:departure{STATE})'],
          [Column('cause', 'Cause'), Column('A', 'This process', 'short'), Column('B', 'Median of the job', 'short'),
           Column('C', 'Departs', 'short', steps(watch=1))], width=8, nothing='No rank of the job is late'),
    graph('Waits for a CPU',
          'Share of the time in which the thread that waited longest was ready to run and had no CPU. Normal: near 0, and as the median of the job. '
          'Higher: other work on its CPUs.',
          beside_job('nccl_process_cpu_wait_seconds_total'), 'percentunit', width=8, nothing='The daemon does not see the process'),
    graph('CPU of the progress threads',
          'CPU time of NCCL\'s progress threads. Normal: below 1 for each, as the median of the job. Lower while Waits for a CPU is higher: they '
          'are kept from running.',
          beside_job('nccl_process_progress_cpu_seconds_total'), 'percentunit', width=8, nothing='The job does not set NCCL_SET_THREAD_NAME=1'),
    graph('Held back by a CPU quota',
          'Time in which the quota of the cgroup held CPUs back, all CPUs together. Normal: 0. Higher: the limit of the container or job is too low.',
          beside_job('nccl_process_throttled_seconds_total'), 'percentunit', width=6, nothing='No quota, or not seen'),
    graph('Waits for memory',
          'Share of the time in which some task of the cgroup waited for memory (PSI). Normal: 0. Higher: its memory limit is too low.',
          beside_job('nccl_process_memory_stall_seconds_total'), 'percentunit', width=6, nothing='No cgroup v2, or not seen'),
    graph('Major page faults',
          'Page faults per second that waited for a disk. Normal: 0 but for the start and checkpoints, and as the median of the job.',
          beside_job('nccl_process_major_faults_total'), 'ops', width=6, nothing='The daemon does not see the process'),
    graph('Involuntary switches',
          'Times per second that the main thread lost its CPU to another. Normal: as the median of the job. Higher: other work '
          'on its CPUs.',
          beside_job('nccl_process_involuntary_switches_total'), 'ops', width=6, nothing='The daemon does not see the process'),
])

GPU = Row('Is it the GPU? (DCGM, by UUID)', [
    graph('SM clock',
          'Clock of this GPU and the median of the GPUs of the job, from dcgm-exporter. Normal: alike. Below the others under load: '
          'throttled; see power and temperature.',
          [(dcgm('DCGM_FI_DEV_SM_CLOCK') + ' * 1e6', 'this GPU'), (of_job('DCGM_FI_DEV_SM_CLOCK') + ' * 1e6', 'median of the job')], 'hertz',
          width=6, nothing='No DCGM metrics of this GPU'),
    graph('Power',
          'Power draw of this GPU and the median of the GPUs of the job. Normal: alike. A late rank with less power: its GPU waits for '
          'input. With as much: it computes more, or slower.',
          [(dcgm('DCGM_FI_DEV_POWER_USAGE'), 'this GPU'), (of_job('DCGM_FI_DEV_POWER_USAGE'), 'median of the job')], 'watt', width=6,
          nothing='No DCGM metrics of this GPU'),
    graph('Temperature',
          'Temperature of this GPU and the median of the GPUs of the job. Normal: within some degrees; GPUs slow down at 85 to 90 degrees.',
          [(dcgm('DCGM_FI_DEV_GPU_TEMP'), 'this GPU'), (of_job('DCGM_FI_DEV_GPU_TEMP'), 'median of the job')], 'celsius', width=6,
          nothing='No DCGM metrics of this GPU'),
    graph('Last XID error',
          'Number of the last XID error of this GPU. Normal: 0. 79: fell off the bus; 48, 63, 64, 94, 95: memory errors; 74: NVLink.',
          [(dcgm('DCGM_FI_DEV_XID_ERRORS'), 'XID')], 'none', width=6, thresholds=steps(bad=1), nothing='No DCGM metrics of this GPU'),
    table('Fields of DCGM that the rules read',
          'Series of each field of dcgm-exporter that the rules of suspects read, for all GPUs. Normal: all fields of docs/why.md, one or more series '
          'per GPU. A field that is missing is not looked at.',
          [f'count by (__name__) ({{__name__=~"{"|".join(DCGM_FIELDS)}"}})'],
          [Column('__name__', 'Field'), Column('A', 'Series', 'short')], width=12, height=7, nothing='No DCGM metrics'),
    stat('Devices for verbs',
         'Adapters for InfiniBand, RoCE or EFA that the process holds open. Normal: as many as the node has. 0 in a job across nodes: NCCL sends over '
         'sockets.',
         f'min(nccl_process_verbs_devices{STATE})', nothing='not known', width=12),
])

LOST = Row('Is anything of it lost?', [
    graph('Lost or untimed, by cause',
          'Operations of this process that were not followed, events without an operation, and operations left untimed because of '
          'implausible time stamps. Normal: 0. docs/metrics.md explains the causes.',
          [(f'sum by (reason) (rate(nccl_process_events_dropped_total{{{JOB}, pid=~"$pid"}}[{RATE}]) and {ON_PROCESS} {INFO}) > 0 '
            f'or vector(0)', 'dropped: {{reason}}'),
           (f'sum by (reason) (rate(nccl_process_timestamps_rejected_total{{{JOB}, pid=~"$pid"}}[{RATE}]) and {ON_PROCESS} {INFO}) > 0 '
            f'or vector(0)', 'untimed: {{reason}}')], 'ops', width=24, height=6),
])

DASHBOARD = dashboard('nccl-rank', 'Rank', 'One process and its GPU: culprit or victim, stuck, slow hardware or a busy host?', VARIABLES,
                      alerts(f'{JOB}, hostname=~"$hostname|", gpu_uuid=~"$gpu_uuid|"'), [WHO, CULPRIT, STUCK, HOST, GPU, LOST])
