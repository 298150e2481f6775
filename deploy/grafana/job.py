# SPDX-License-Identifier: Apache-2.0
"""Which communicator of a job, which rank, and is it network or compute?"""
from columns import COMM_COLUMNS, HIDDEN_JOB_COLUMNS, NODE_COLUMNS, RANK_COLUMNS, SITE_COLUMNS
from grafana_model import Column, Row, dashboard, graph, in_one_line, stat, steps, table
from promql import (COMM_LABELS, JOB, JOB_LABELS, JOB_VARIABLES, NODE_LABELS, ON_RANK, RANK_LABELS, age_in_flight, age_of_progress, alerts, lost_now, moving_data,
                    network_waits, or_zero, rate, wait_deficit, waiting_for_ranks)

MOST_LATE = f'topk(20, max by ({RANK_LABELS}) ({wait_deficit(JOB)}) > 0)'
COMM_LEGEND = '{{comm_name}} {{comm}}'


def of_most_late(series):
    return f'max by ({RANK_LABELS}) ({series}{{{JOB}}} and {ON_RANK} {MOST_LATE})'


NOW = Row('Is the job well?', in_one_line(
    stat('Processes',
         'Processes of the job that the daemons report; ended ones for five minutes. Normal: one per GPU.',
         f'count(nccl_process_alive{{{JOB}}})'),
    stat('Dead or stopped',
         'Processes that have ended or are stopped by a signal, while the daemon still serves their last state. Normal: 0 while the job runs.',
         or_zero(f'count(nccl_process_alive{{{JOB}}} == 0 or nccl_process_stopped{{{JOB}}} == 1)'), thresholds=steps(bad=1)),
    stat('Time in NCCL', 'Share of the time in NCCL kernels, mean of the processes. Normal: steady; a good value depends on the model.',
         f'avg(process:nccl_busy_seconds:rate{{{JOB}}})', 'percentunit'),
    stat('Oldest in flight', 'Age of the oldest operation that has started and is not complete. Normal: below a step. If it grows without '
                             'end, the job hangs.',
         f'max({age_in_flight(JOB)})', 's', steps(watch=30, bad=120), nothing='none'),
    stat('Last progress',
         'Time since an operation started or completed on any rank. Normal: below a step; minutes while the job saves or evaluates.',
         f'min({age_of_progress(JOB)})', 's', steps(watch=60, bad=900)),
    stat('Lost to waiting',
         'Share of the GPUs of the job that its ranks lose because they wait for the last rank of a communicator. Normal: a few per cent. Not '
         'known: no rank has GPU times, or none works.',
         f'{lost_now(JOB)} / sum(job:nccl_gpus:count{{{JOB}}} and on ({JOB_LABELS}) job:nccl_waiting_gpu_seconds:rate)',
         'percentunit', thresholds=steps(watch=0.03, bad=0.1), nothing='not known'),
    stat('Ranks not judged',
         'Ranks of a job in which no rank has GPU times: nobody can see which of them are late. Normal: 0. More: the alert NCCLJobNotJudged has '
         'the reason.',
         or_zero(f'sum(job:nccl_ranks_untimed:count{{{JOB}}})'), thresholds=steps(watch=1)),
    stat('Alerts',
         'Alerts that fire for the job. Normal: 0. The dashboard Fleet lists them.',
         or_zero(f'count({alerts(JOB)})'), thresholds=steps(watch=1)),
))

WHO = Row('Which rank do the others wait for?', [
    table('Late ranks',
          'The ranks that wait least in the kernels: the others wait for them there. Others wait: median of the communicator minus the '
          'rank\'s share of time in kernels. Per step: the same, counted once per step. In all: over all communicators of the process; '
          'negative for a victim of another rank. Last to enter: share of collectives that it entered last on its node. By alert: the loss '
          'that an alert attributes to it. Normal: below 3 %, By alert empty.',
          [MOST_LATE, of_most_late('comm_rank:nccl_step_wait_deficit:rate'), of_most_late('comm_rank:nccl_process_wait_deficit:rate'),
           of_most_late('comm_rank:nccl_last_arrivals:share'), of_most_late('comm_rank:nccl_straggler:deficit')],
          [*HIDDEN_JOB_COLUMNS, *COMM_COLUMNS, *RANK_COLUMNS, Column('A', 'Others wait', 'percentunit', steps(watch=0.03, bad=0.1)),
           Column('B', 'Per step', 'percentunit', steps(watch=0.03, bad=0.1)), Column('C', 'In all', 'percentunit', steps(watch=0.03, bad=0.1)),
           Column('D', 'Last to enter', 'percentunit', steps(bad=0.8)), Column('E', 'By alert', 'percentunit', steps(bad=0))], sort='Others wait',
           nothing='No rank is late'),
    graph('GPUs lost to waiting, by communicator',
          'GPUs that ranks lose in each communicator by waiting for its last rank, without waits that another communicator of the rank counts '
          'already. Normal: a few per cent of the ranks.',
          [(f'sum by ({COMM_LABELS}) (comm:nccl_waiting_gpu_seconds:rate{{{JOB}}})', COMM_LEGEND)], 'short', is_stacked=True),
    graph('GPUs lost to waiting, by the rank that is waited for',
          'The same by the rank that waits least in the communicator. A victim of another rank is waited for as well: Late ranks tells the '
          'two apart. Normal: a few per cent of the ranks, spread over many.',
          [(f'topk(10, sum by ({RANK_LABELS}) (comm_rank:nccl_waited_for_gpu_seconds:rate{{{JOB}}}) > 0)',
            '{{comm_name}} rank {{rank}} GPU {{gpu}} on {{hostname}}')], 'short', is_stacked=True),
    table('Late nodes', 'Nodes in which all ranks wait less than the median node, by more than 3 % of the time in kernels, which may count '
          'a wait several times per step. By alert: the share of the step that an alert attributes to it. Normal: empty.',
          [f'max by ({COMM_LABELS}, {NODE_LABELS}) (comm_node:nccl_wait_deficit:late{{{JOB}}})',
           f'max by ({COMM_LABELS}, {NODE_LABELS}) (comm_node:nccl_straggler:deficit{{{JOB}}})'],
          [*HIDDEN_JOB_COLUMNS, *COMM_COLUMNS, *NODE_COLUMNS, Column('A', 'Others wait', 'percentunit', steps(watch=0.03, bad=0.1)),
           Column('B', 'By alert', 'percentunit', steps(bad=0))],
          sort='Others wait', width=8, height=7, nothing='No node is late'),
    table('Hang: the rank that the others wait for',
          'During a hang: ranks that have not entered the operation that the others wait in, and that wait for no rank themselves. Behind: '
          'by how many operations. Also ranks in another call. Normal: empty. Empty during a hang: all ranks are inside (network, NVLink, '
          'GPU fault).',
          [f'max by ({RANK_LABELS}, verdict) (label_replace(comm_rank:nccl_hang:culprit{{{JOB}}}, "verdict", "has not entered", "", "") '
           f'or label_replace(0 * comm_rank:nccl_hang:mismatched{{{JOB}}}, "verdict", "in another call", "", ""))'],
          [*HIDDEN_JOB_COLUMNS, *COMM_COLUMNS, *RANK_COLUMNS, Column('verdict', 'Verdict'), Column('A', 'Behind', 'short')], width=16, height=7,
          nothing='No rank is waited for'),
])

NETWORK_OR_COMPUTE = Row('Network or compute?', [
    graph('Moving data, by communicator',
          'Time in kernels of the rank that waits least. It arrives last and does not wait, so this is the time of the transfer (and jitter '
          'that all ranks share). Normal: steady. Rises: the network, or more or larger messages.',
          [(moving_data(JOB), COMM_LEGEND)], 'percentunit'),
    graph('Waiting for ranks, by communicator',
          'Time in kernels of the median rank minus that of the rank that waits least: the time spent waiting for late ranks. Normal: a few '
          'per cent; more between stages of a pipeline. Rises: compute, input or host of a late rank; see Late ranks.',
          [(waiting_for_ranks(JOB), COMM_LEGEND)], 'percentunit'),
    graph('Time of a step',
          'Time of a step, by the communicator across nodes with the fewest steps, and the part of it that the mean process spends in NCCL '
          'kernels. Normal: steady. No series: one node.',
          [(f'1 / job:nccl_steps:rate{{{JOB}}}', 'step'),
           (f'job:nccl_communication:share{{{JOB}}} / job:nccl_steps:rate{{{JOB}}}', 'in NCCL')], 's', width=24,
          nothing='No communicator across nodes has steps'),
])

NETWORK = Row('Where does network time go?', [
    graph('Sends in the network, by communicator',
          'Share of the time of timed sends to other nodes in which the adapter has the data. Normal: steady. Rises: adapters or links, see '
          'Communicator. No series: one node, or NCCL before 2.24.',
          [(network_waits(JOB, 'send', COMM_LABELS, 'network'), COMM_LEGEND)], 'percentunit', most=1, nothing='No network operation was timed'),
    graph('Sends that wait for the receiver, by communicator',
          'Share of the time of timed sends in which the receiver has posted no buffer. Normal: near 0. Rises: receivers are late, by their GPU '
          'or host.',
          [(network_waits(JOB, 'send', COMM_LABELS, 'peer'), COMM_LEGEND)], 'percentunit', most=1, nothing='No network operation was timed'),
])

WHICH = Row('Which communicator?', [
    table('Communicators',
          'One line per communicator. Bus bandwidth: of all its messages, by the rank that waits least; small messages are always slow. In '
          'flight: age of its oldest operation. Normal: Ranks seen equals Ranks, In flight below a step.',
          [f'count by ({COMM_LABELS}) (count by ({COMM_LABELS}, rank) (nccl_rank_info{{{JOB}}}))',
           f'max by ({COMM_LABELS}) (nccl_communicator_ranks{{{JOB}}})',
           f'count by ({COMM_LABELS}) (count by ({COMM_LABELS}, instance) (nccl_rank_info{{{JOB}}}))',
           f'max by ({COMM_LABELS}) (sum by ({COMM_LABELS}, rank) ({rate("nccl_collective_operations_total", JOB)}))',
           f'sum by ({COMM_LABELS}) ({rate("nccl_collective_bytes_total", JOB)} or {rate("nccl_p2p_send_bytes_total", JOB)})',
           f'max by ({COMM_LABELS}) (sum by ({COMM_LABELS}, rank) ({rate("nccl_collective_bus_bytes_total", JOB)}) '
           f'/ (sum by ({COMM_LABELS}, rank) ({rate("nccl_collective_busy_seconds_total", JOB)}) > 0))',
           f'max by ({COMM_LABELS}) {age_in_flight(JOB)}'],
          [*HIDDEN_JOB_COLUMNS, *COMM_COLUMNS, Column('A', 'Ranks seen', 'short'), Column('B', 'Ranks', 'short'), Column('C', 'Nodes', 'short'),
           Column('D', 'Collectives of a rank', 'ops'),
           Column('E', 'Message bytes', 'Bps'), Column('F', 'Bus bandwidth', 'Bps'), Column('G', 'In flight', 's', steps(watch=30, bad=120))],
           sort='Message bytes'),
])

WHAT = Row('What job is it?', [
    table('Nodes', 'Job, node and software of the processes, as far as the job\'s environment contains them. Normal: one NCCL release, one '
                   'timing source.',
          [f'count by ({JOB_LABELS}, slurm_job_name, {NODE_LABELS}, timing_source) '
           f'(count by ({JOB_LABELS}, slurm_job_name, {NODE_LABELS}, timing_source, pod, container, pid) (nccl_rank_info{{{JOB}}}))'],
          [Column('cluster', 'Cluster'), Column('namespace', 'Namespace'), Column('nccl_job', 'Job'),
           Column('uid', 'User', width=80), *SITE_COLUMNS, Column('slurm_job_name', 'Job name'), *NODE_COLUMNS, Column('timing_source', 'Timing source'),
           Column('A', 'Processes', 'short')], height=7),
])

DASHBOARD = dashboard('nccl-job', 'Job', 'Which communicator, which rank, since when, network or compute?', JOB_VARIABLES, alerts(JOB),
                      [NOW, WHO, NETWORK_OR_COMPUTE, NETWORK, WHICH, WHAT])
