# SPDX-License-Identifier: Apache-2.0
"""Are the other dashboards right: is every node monitored, what is lost and why, what does it cost?"""
from findings import COLORS, SEVERITIES_IN_WORDS, worst
from grafana_model import Column, Row, dashboard, graph, query_variable, stat, steps, table, timeline
from promql import or_zero, quantile_of, rate, silent

VARIABLES = [
    query_variable('cluster', 'Cluster', 'label_values(nccl_exporter_build_info, cluster)'),
    query_variable('instance', 'Target', 'label_values(nccl_exporter_build_info{cluster=~"$cluster"}, instance)'),
]
OF = 'cluster=~"$cluster", instance=~"$instance"'
DAEMON = f'on (job, instance) nccl_exporter_build_info{{{OF}}}'
SEEN = f'nccl_process_alive{{{OF}}} and on (job, instance) nccl_exporter_unmeasured_processes'
LOST_OPERATIONS = rate('nccl_process_events_dropped_total', OF)


def by_cause(title, says, name, width=8, label='reason'):
    return graph(title, says, [(f'sum by ({label}) ({rate(name, OF)})', f'{{{{{label}}}}}')], 'ops', width=width, height=7)


WATCHED = Row('Is every node watched?', [
    stat('Daemons',
         'Daemons that answer. Normal: one per GPU node, and one per pod with a sidecar.',
         f'count(nccl_exporter_build_info{{{OF}}})'),
    stat('Silent targets', 'Targets that do not answer now and did within the last hour. Normal: 0.',
         or_zero(silent(f'{{{OF}}}')), thresholds=steps(bad=1)),
    stat('Unusable segments', 'Processes whose segments cannot be read: other versions, damage, permissions. Normal: 0.',
         f'sum(nccl_exporter_segments{{state="unusable", {OF}}})', thresholds=steps(watch=1)),
    stat('Operations timed',
         'Share of the collectives with a measured duration. Normal: 100 %. Below that: see the causes.',
         f'sum({rate("nccl_collective_timed_operations_total", OF)}) / (sum({rate("nccl_collective_operations_total", OF)}) > 0)', 'percentunit',
         nothing='none'),
    stat('Series, of the limit',
         'Samples of a scrape over the limit of series that a daemon serves, of the daemon with most. Above the limit detail is lost first. '
         'Normal: below 50 %.',
         f'max(sum by (job, instance) (scrape_samples_scraped{{{OF}}}) / on (job, instance) nccl_exporter_limit{{limit="series", {OF}}})', 'percentunit',
         steps(watch=0.9, bad=1)),
    stat('Processes measured',
         'Share of the processes with NCCL and a GPU that have a segment, on nodes whose daemon may look at all processes. Normal: 100 %. '
         'Less: processes without the plugin, or before their first communicator; nccl-exporter doctor lists them.',
         f'sum({SEEN}) / (sum({SEEN}) + sum(nccl_exporter_unmeasured_processes{{{OF}}}))', 'percentunit', nothing='not known'),
    graph('Segments, by state',
          'Files of processes in the watched directories. Normal: as many live ones as there are processes; ended ones disappear after the '
          'retention time.',
          [(f'sum by (state) (nccl_exporter_segments{{{OF}}})', '{{state}}')], 'short', width=8, height=7),
    by_cause('Reads that failed, by cause',
             'Reads of a segment that failed. Normal: 0. A few at the start and end of processes do no harm.',
             'nccl_exporter_segment_errors_total'),
    table('Versions',
          'Daemons by version. Normal: one, or two during an upgrade.',
          [f'count by (version, compiler) (nccl_exporter_build_info{{{OF}}})'],
          [Column('version', 'Version'), Column('compiler', 'Compiler'), Column('A', 'Daemons', 'short')], width=8, height=7),
])

FOUND = Row('What do the daemons find?', [
    timeline('Findings, by kind',
             'The worst severity of what the chosen daemons find on their nodes, over time. Normal: empty. unusable files and not followed '
             'mean that the other dashboards are incomplete; the rest is about jobs, see the dashboard Fleet.',
             [(worst(OF), '{{instance}} {{kind}}')], 'none', COLORS, height=8, nothing='Nothing found', words=SEVERITIES_IN_WORDS),
])

LOST = Row('What is lost, and why?', [
    by_cause('Not followed, by cause',
             'Communicators or operations that the plugin could not follow: counted, not timed. Normal: 0; incomplete_at_finalize when jobs '
             'end.',
             'nccl_process_events_dropped_total'),
    by_cause('Time stamps rejected, by cause',
             'Operations left untimed because their GPU time stamps were implausible. Normal: below 1 % of the operations; ring_overrun if '
             'the host is far ahead.',
             'nccl_process_timestamps_rejected_total'),
    by_cause('Events without operation, by cause',
             'Profiler events without a live operation; ignored. Normal: 0. foreign_process: proxies work for other processes (PXN).',
             'nccl_process_events_unmatched_total'),
    by_cause('Arrivals not compared, by cause',
             'Timed collectives without a known order of arrival on the node. Normal: some together, since nobody was late. '
             'ring_overrun: the daemon was blocked.',
             'nccl_exporter_uncompared_operations_total'),
    by_cause('Series left out, by cause',
             'Series above the limit of a daemon: first detail; then communicators are folded into comm="other", or left out. Normal: 0.',
             'nccl_exporter_series_dropped_total'),
    by_cause('Requests refused, by limit',
             'Scrapes and other requests that met a limit of the daemon. Normal: 0.',
             'nccl_exporter_requests_refused_total'),
    table('Where durations come from',
          'Ranks by source of their durations, with the reason. kernel: GPU clock; proxy: network operations only; none: counts only. '
          'Normal: one line per NCCL release in use.',
          [f'count by (timing_source, timing_reason, plugin_version) (nccl_rank_info{{{OF}}})'],
          [Column('timing_source', 'Timing source'), Column('timing_reason', 'Because'),
           Column('plugin_version', 'Plugin'), Column('A', 'Ranks', 'short')], width=24, height=6),
])

COST = Row('What does it cost?', [
    graph('CPU of the daemons',
          'CPU seconds per second of the daemon that uses most, and of the largest comparison of arrivals, which is a part of it. Normal: '
          'below 0.1.',
          [(f'max({rate("process_cpu_seconds_total", OF)} and {DAEMON})', 'daemon'),
           (f'max({rate("nccl_exporter_arrival_matching_seconds_total", OF)})', 'comparison of arrivals')], 'percentunit', width=8, height=7),
    graph('Memory of the daemons', 'Resident memory, largest and median daemon. Normal: tens of MiB, steady.',
          [(f'max(process_resident_memory_bytes{{{OF}}} and {DAEMON})', 'largest'), (f'quantile(0.5, process_resident_memory_bytes{{{OF}}} and '
                                                                                     f'{DAEMON})', 'median')],
          'bytes', width=8, height=7),
    graph('Time of a scrape', 'Time that the daemon takes to answer a scrape: median and 99th percentile, all daemons. Normal: milliseconds.',
          [(quantile_of(0.5, 'nccl_exporter_scrape_duration_seconds', OF), 'median'), (quantile_of(0.99, 'nccl_exporter_scrape_duration_seconds',
              OF), 'p99')],
          's', width=8, height=7),
])

DASHBOARD = dashboard('nccl-exporter', 'Exporter', 'Are the other dashboards right? Nodes that are not monitored, losses by cause, cost.',
                      VARIABLES,
                      f'ALERTS{{alertname=~"NCCLExporter.+", alertstate="firing", {OF}}}', [WATCHED, FOUND, LOST, COST])
