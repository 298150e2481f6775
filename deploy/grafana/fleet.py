# SPDX-License-Identifier: Apache-2.0
"""Which job, and is it the job or the hardware?"""
import job_labels
from columns import COMM_COLUMNS, JOB_COLUMNS, NODE_COLUMNS, RANK_COLUMNS
from findings import COLORS, KINDS_IN_WORDS, SEVERITIES_IN_WORDS, worst
from grafana_model import Column, Row, dashboard, graph, in_one_line, link_to, stat, steps, table, timeline
from promql import JOB, JOB_LABELS, JOB_VARIABLES, NODE_LABELS, RANK_LABELS, age_in_flight, age_of_progress, alerts, gpu_hours, lost_gpu_hours, lost_hours, lost_now, or_zero, rate, silent

CLUSTER = 'cluster=~"$cluster"'  # findings are of nodes, and nodes have jobs of all users
GPU_LABELS = f'cluster, {NODE_LABELS}, gpu, gpu_uuid'
LOST = f'max by ({JOB_LABELS}) (comm_rank:nccl_straggler:deficit{{{JOB}}} or comm_node:nccl_straggler:deficit{{{JOB}}})'
ALIVE = f'sum by ({JOB_LABELS}) (nccl_process_alive{{{JOB}}})'
NAMED = f'max_over_time(comm_rank:nccl_straggler:deficit{{{JOB}}}[$__range])'
LATE = 'NCCLStraggler(Rank|Node)|NCCLLastArriver'

NOW = Row('Is anything wrong now?', in_one_line(
    stat('Jobs seen',
         'Jobs with processes that load the plugin, distinguished by cluster, namespace and Slurm job. Normal: all jobs that should be '
         'measured.',
         f'count(count by ({JOB_LABELS}) (nccl_rank_info{{{JOB}}}))'),
    stat('Processes alive', 'Living training processes (nccl_process_alive). Normal: as many as the jobs have GPUs.',
         f'sum(nccl_process_alive{{{JOB}}})'),
    stat('Jobs that hang',
         'Jobs with an operation in flight for longer than the threshold (2 min) without any progress on its communicator. Normal: 0.',
         or_zero(f'count(count by ({JOB_LABELS}) ({alerts(JOB, "NCCLCollectiveHang")}))'), thresholds=steps(bad=1)),
    stat('Jobs with a late rank', 'Jobs in which an alert names a rank or node that the others wait for. Normal: 0.',
         or_zero(f'count(count by ({JOB_LABELS}) ({alerts(JOB, LATE)}))'), thresholds=steps(watch=1)),
    stat('Communicators below their bandwidth',
         'Communicators in which large messages reach less than 60 % of the bus bandwidth of the hour before. Normal: 0.',
         or_zero(f'count(count by ({JOB_LABELS}, comm) ({alerts(JOB, "NCCLBandwidthDegraded")}))'), thresholds=steps(watch=1)),
    stat('GPUs lost to waiting now',
         'GPUs that ranks lose because they wait for the last rank of a communicator: of each communicator the time in kernels beyond that of '
         'the rank that waits least, at most one GPU per rank, and all of a rank that hangs. Normal: a few per cent of the GPUs.',
         lost_now(JOB), nothing='not known'),
    stat('GPU hours lost to waiting in 24 h',
         'The same, summed over the last 24 hours. Divide by the GPU hours of a day (24 for each GPU) for the share of the fleet. Normal: a '
         'few per cent of them.',
         f'sum({lost_hours(JOB, "24h")})', nothing='not known'),
    stat('Nodes not watched',
         'Targets that do not answer now and did within the last hour. Their ranks are not monitored. Normal: 0. More: the dashboard '
         'Exporter.',
         or_zero(silent()), thresholds=steps(watch=1)),
))

WHICH = Row('Which job, which rank?', [
    table('Firing alerts',
          'Alerts of the rules of nccl-exporter that fire now, with the rank or node that they name. Normal: none. The runbook of each alert '
          'says what to do.',
          [f'max by (alertname, severity, {RANK_LABELS}) ({alerts(JOB)})'],
          [Column('alertname', 'Alert'), Column('severity', 'Severity', width=90), *JOB_COLUMNS, *COMM_COLUMNS, *RANK_COLUMNS], height=7,
          sort='Severity', is_ascending=True, nothing='No alert fires'),
    table('Findings of the daemons',
          'What the daemons find on their nodes now, of all jobs there, by the conditions of the alerts: a hang is a warning after 30 s and '
          'critical after 2 or 10 min. Each daemon sees its own node only, so the alerts decide about a whole job. Normal: none. The page of the '
          'node (its target, in a browser) has rank, cost and what to do.',
          [worst(CLUSTER), f'sum by (cluster, instance, kind) (nccl_exporter_findings{{{CLUSTER}}} > 0)'],
          [Column('cluster', 'Cluster'), Column('instance', 'Target', link=link_to('nccl-exporter', 'cluster', 'instance')),
           Column('kind', 'Finding', words=KINDS_IN_WORDS), Column('A', 'Severity', 'none', COLORS, words=SEVERITIES_IN_WORDS),
           Column('B', 'Findings', 'short')], height=7, sort='Severity', nothing='Nothing found'),
    table('Jobs',
          'One line per job. In NCCL: share of the time that a process spends in NCCL kernels, mean of its processes. Lost: the largest '
          'share of time that ranks wait for a late one; empty if no rank is late. GPUs lost: GPUs that ranks lose by waiting for each other. In flight: age of the oldest operation that is not '
          'complete. Idle: time since an operation started or completed. GPU hours lost: GPUs lost over the time range. '
          'Normal: In flight and Idle below a step, Lost empty.',
          [ALIVE,
           f'count by ({JOB_LABELS}) (count by ({JOB_LABELS}, instance) (nccl_rank_info{{{JOB}}}))',
           f'avg by ({JOB_LABELS}) (process:nccl_busy_seconds:rate{{{JOB}}})',
           LOST,
           f'max by ({JOB_LABELS}) {age_in_flight(JOB)}',
           f'min by ({JOB_LABELS}) {age_of_progress(JOB)}',
           f'sum by ({JOB_LABELS}) ({rate("nccl_collective_bytes_total", JOB)})',
           lost_hours(JOB, '$__range'),
           f'sum by ({JOB_LABELS}) (job:nccl_waiting_gpu_seconds:rate{{{JOB}}})'],
          [*JOB_COLUMNS, Column('A', 'Processes', 'short'), Column('B', 'Nodes', 'short'), Column('C', 'In NCCL', 'percentunit'),
           Column('D', 'Lost', 'percentunit', steps(watch=0.03, bad=0.1)), Column('E', 'In flight', 's', steps(watch=30, bad=120)),
           Column('F', 'Idle', 's', steps(watch=60, bad=900)), Column('G', 'Message bytes', 'Bps'),
           Column('H', 'GPU hours lost', 'short', steps(watch=1, bad=100)), Column('I', 'GPUs lost', 'short')], sort='Lost'),
])

SINCE = Row('Since when?', [
    graph('Time in NCCL, by job',
          'Share of the time that a process spends in NCCL kernels, mean of the job\'s processes; above 1 if communicators overlap. Normal: '
          'steady. It rises when ranks wait for a late one or the network is slow. It falls to 0 when the job stops calling NCCL.',
          [(f'avg by ({JOB_LABELS}) (process:nccl_busy_seconds:rate{{{JOB}}})', '{{cluster}} {{namespace}} {{nccl_job}}')], 'percentunit'),
    graph('Best bus bandwidth, by job',
          'Bus bandwidth (nccl-tests) of messages of 16 MiB and more, of the best communicator, by the rank that waits least. Normal: '
          'steady, near the result of nccl-tests. A drop means slow links, not a late rank.',
          [(f'max by ({JOB_LABELS}) (comm_collective_size:nccl_bus_bandwidth:max{{{JOB}}})', '{{cluster}} {{namespace}} {{nccl_job}}')], 'Bps'),
    graph('GPUs lost to waiting, by job',
          'GPUs that ranks lose because they wait for the last rank of a communicator. Normal: steady, a few per cent of the GPUs of the job. A '
          'step: a rank has become late; the table Jobs leads to it.',
          [(f'sum by ({JOB_LABELS}) (job:nccl_waiting_gpu_seconds:rate{{{JOB}}})', '{{cluster}} {{namespace}} {{nccl_job}}')], 'short',
          width=24),
])

OWNERS = ['team', 'slurm_job_account', 'slurm_job_user']
OF_JOB = [*job_labels.ALL, 'slurm_job_name']


WHOSE = Row('Whose GPU hours?', [
    table('GPU hours lost, by team and user',
          'GPU hours in the time range, and those that were lost by waiting and by slow transfers. Team is a label of the job; account and '
          'user are those of Slurm. Normal: a few per cent are lost.',
          [gpu_hours(JOB, *OWNERS), lost_gpu_hours(JOB, *OWNERS), f'{lost_gpu_hours(JOB, *OWNERS)} / ({gpu_hours(JOB, *OWNERS)})'],
          [Column('team', 'Team'), Column('slurm_job_account', 'Account'), Column('slurm_job_user', 'User'), Column('A', 'GPU hours', 'short'),
           Column('B', 'GPU hours lost', 'short'), Column('C', 'Share', 'percentunit')], sort='GPU hours lost', width=14),
    table('GPU hours lost, by cause',
          'The same hours by the alert that fired, as a share of all GPU hours. A cause like cpu_wait is a suspect of a late rank; uneven_work '
          'had no alert. The documentation on reports has more. Normal: most is uneven_work.',
          [lost_gpu_hours(JOB, 'cause'), f'{lost_gpu_hours(JOB, "cause")} / on () group_left () (sum({gpu_hours(JOB, "cluster")}))'],
          [Column('cause', 'Cause'), Column('A', 'GPU hours lost', 'short'), Column('B', 'Share of all', 'percentunit')], sort='GPU hours lost',
          width=10, nothing='Nothing recorded'),
    table('GPU hours lost, by job',
          'The same hours by job, with its name. Normal: a few per cent are lost.',
          [gpu_hours(JOB, *OF_JOB), lost_gpu_hours(JOB, *OF_JOB), f'{lost_gpu_hours(JOB, *OF_JOB)} / ({gpu_hours(JOB, *OF_JOB)})'],
          [*JOB_COLUMNS, Column('slurm_job_name', 'Name'), Column('A', 'GPU hours', 'short'), Column('B', 'GPU hours lost', 'short'),
           Column('C', 'Share', 'percentunit')], sort='GPU hours lost', width=24),
])

NOT_JUDGED = f'job:nccl_ranks_untimed:count{{{JOB}}}'
UNSEEN = Row('What is not known?', [
    table('Jobs that are not judged',
          'Jobs in which no rank has GPU times: late ranks, bandwidth and lost GPUs of these are not known. Hangs are detected. Normal: none. '
          'The runbook of NCCLJobNotJudged says what to set for each reason.',
          [f'count by ({JOB_LABELS}, timing_reason) (group by ({JOB_LABELS}, timing_reason, {NODE_LABELS}, pod, container, pid, gpu, gpu_uuid) '
           f'(nccl_rank_info{{timing_source=~"none|proxy", {JOB}}} and on ({JOB_LABELS}) {NOT_JUDGED}))'],
          [*JOB_COLUMNS, Column('timing_reason', 'Reason'), Column('A', 'Ranks', 'short')], sort='Ranks', width=12, nothing='All jobs have GPU times'),
])

# Below the others: its height is that of many nodes.
WHERE = Row('Which nodes, since when?', [
    timeline('Findings, by node and kind',
             'The worst severity of what the daemons find on their nodes, over time. Normal: empty. Several nodes that begin at the same '
             'moment have a cause in common: a job that hangs, the network, a file system.',
             [(worst(CLUSTER), '{{instance}} {{kind}}')], 'none', COLORS, nothing='Nothing found', words=SEVERITIES_IN_WORDS),
])

HARDWARE = Row('Is it the hardware?', [
    table('GPUs that were late in this time range',
          'GPUs that a communicator had to wait for: the largest share of lost time, and the number of jobs. One job: look at the job first. '
          'The same GPU in several jobs: hardware. Normal: empty, or a few small shares.',
          [f'max by ({GPU_LABELS}) (topk by (gpu_uuid) (1, {NAMED}))', f'count by (gpu_uuid) (count by (gpu_uuid, {JOB_LABELS}) ({NAMED}))'],
          [Column('cluster', 'Cluster'), *NODE_COLUMNS, Column('gpu', 'GPU', width=60),
           Column('gpu_uuid', 'GPU UUID', link=link_to('nccl-rank', 'cluster', 'hostname', 'gpu_uuid')),
           Column('A', 'Lost, at most', 'percentunit', steps(watch=0.03, bad=0.1)), Column('B', 'Jobs', 'short', steps(bad=2))],
          sort='Lost, at most', width=14, nothing='No GPU was late'),
    table('Nodes with late ranks in this time range',
          'The same by node, all of its ranks together, with the number of its GPUs that were late. Several GPUs of one node: a fault of the '
          'node (CPU, cooling, file system). Normal: empty, or a few small shares.',
          [f'max by (cluster, instance) ({NAMED} or max_over_time(comm_node:nccl_straggler:deficit{{{JOB}}}[$__range]))',
           f'count by (cluster, instance) (count by (cluster, instance, gpu_uuid) ({NAMED}))'],
          [Column('cluster', 'Cluster'), Column('instance', 'Target'), Column('A', 'Lost, at most', 'percentunit', steps(watch=0.03, bad=0.1)),
           Column('B', 'GPUs', 'short', steps(bad=2))],
          sort='Lost, at most', width=10, nothing='No node was late'),
])

DASHBOARD = dashboard('nccl-fleet', 'Fleet', 'Which job is slow or stuck, and is it the job or the hardware?', JOB_VARIABLES, alerts(JOB),
                      [NOW, WHICH, SINCE, WHOSE, UNSEEN, HARDWARE, WHERE])
