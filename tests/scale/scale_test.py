#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The players and counters of the tools for scale. The cluster is played without waiting: its pages are functions of time."""
import argparse
import collections
import pathlib
import struct
import sys
import tempfile
import time
import unittest

sys.path[:0] = ['deploy/tests', 'tests/scale']
import lost_time
import played_cluster
import remote_write
import report
import rules_scale
import same_answers
import scale_out
import servers

RULES = pathlib.Path('deploy/prometheus/nccl-exporter.rules.yml').read_text()
EPOCH = 1_700_000_000
NODES = played_cluster.LEAST_NODES
LAST = 1200  # seconds; every job that restarts has done so twice


def samples(cluster, node, t):
    page = cluster.page(node, EPOCH + t)
    return {text.rpartition(' ')[0]: float(text.rpartition(' ')[2]) for text in page[0].splitlines()} if page else None


def of(values, family, **labels):
    wanted = [f'{name}="{value}"' for name, value in labels.items()]
    return [value for series, value in values.items() if series.split('{')[0] == family and all(text in series for text in wanted)]


class LostTime(unittest.TestCase):
    """Steps of 200 ms on two communicators; their second operation repeats the wait of the first, of which 3 ms less are seen."""

    @staticmethod
    def truth(lateness, ranks=4, steps=50):
        def operations(rank):
            late = lateness.get(rank, 0)
            return [{'start_ns': int((step * 0.2 + 0.1 + place * 0.05 + max(late - place * 0.003, 0)) * 1e9)} for step in range(steps) for place in range(2)]
        return {'ranks': [{'rank': rank, 'communicators': [{'id': str(rank // 2), 'operations': operations(rank)}, {'id': 'world', 'operations': operations(rank)}]}
                          for rank in range(ranks)]}

    def test_each_rank_loses_its_longest_wait_once_per_step(self):
        self.assertAlmostEqual(lost_time.true_waits(self.truth({1: 0.02}), 2, 8), 3 * 0.02 * lost_time.STEPS, places=6)

    def test_the_longest_wait_is_for_the_last_of_two_late_ranks(self):
        self.assertAlmostEqual(lost_time.true_waits(self.truth({1: 0.02, 2: 0.01}), 2, 8), (0.02 + 0.01 + 0.02) * lost_time.STEPS, places=6)

    def test_equal_ranks_lose_nothing(self):
        self.assertEqual(lost_time.true_waits(self.truth({rank: 0.02 for rank in range(4)}), 2, 8), 0)


class PlayedCluster(unittest.TestCase):
    def setUp(self):
        self.cluster = played_cluster.Cluster(NODES, EPOCH)

    def job(self, kind):
        return next(job for job in self.cluster.jobs if job.fault and job.fault.kind == kind)

    def test_a_thousand_nodes_have_jobs_of_three_sizes_and_a_tenth_restarts(self):
        jobs = played_cluster.jobs_of(1024)
        self.assertEqual(collections.Counter(len(job.nodes) * played_cluster.RANKS for job in jobs), {4096: 1, 256: 8, 16: 128})
        self.assertEqual(sorted(node for job in jobs for node in job.nodes), list(range(1024)))
        self.assertEqual(sum(job.restarts_at is not None for job in jobs), 14)

    def test_at_every_size_each_trouble_has_a_job_of_its_own(self):
        for nodes in range(played_cluster.LEAST_NODES, 130):
            with self.subTest(nodes):
                jobs = played_cluster.jobs_of(nodes)
                self.assertEqual(sorted(node for job in jobs for node in job.nodes), list(range(nodes)))
                troubles = [bool(job.late) + bool(job.fault) + (job.restarts_at is not None) for job in jobs]
                self.assertEqual((max(troubles), sum(bool(job.late) for job in jobs), sum(bool(job.fault) for job in jobs)), (1, 3, 3))
                self.assertGreater(sum(job.restarts_at is not None for job in jobs), 0)

    def test_too_few_nodes_are_refused(self):
        with self.assertRaisesRegex(SystemExit, 'at least 24'):
            played_cluster.jobs_of(played_cluster.LEAST_NODES - 1)

    def test_every_family_that_the_rules_read_is_played(self):
        played = {series.split('{')[0].strip() for node in range(NODES) for t in (0, 200) for series in samples(self.cluster, node, t) or {}}
        self.assertEqual(servers.families_read(RULES) - played - played_cluster.ONLY_IN_TROUBLE, set())

    def test_other_families_are_left_out(self):
        cluster = played_cluster.Cluster(NODES, EPOCH, families={'nccl_process_alive'})
        self.assertEqual(len(samples(cluster, 0, 0)), played_cluster.RANKS)

    def test_no_counter_goes_back(self):
        for node in range(NODES):
            last = {}
            for t in range(0, LAST, 30):
                values = samples(self.cluster, node, t) or {}
                for series, value in values.items():
                    if series.split('{')[0].endswith(('_total', '_sequence')):
                        self.assertGreaterEqual(value, last.get(series, 0), f'{series} at {t}')
                last = values

    def test_the_count_of_samples_is_that_of_the_page(self):
        text, count = self.cluster.page(0, EPOCH)
        self.assertEqual(count, len(text.splitlines()))

    def test_a_job_that_restarts_is_away_and_comes_back_with_new_communicators(self):
        job = next(job for job in self.cluster.jobs if job.restarts_at is not None)
        comms = lambda t: {series.split('comm="')[1][:16] for series in samples(self.cluster, job.nodes[0], t) if 'comm="' in series}
        before, away, after = (comms(job.restarts_at + seconds) for seconds in (-1, 1, played_cluster.RESTART_PAUSE + 1))
        self.assertTrue(before and after)
        self.assertEqual((away, before & after), (set(), set()))

    def test_a_late_rank_spends_least_in_kernels_and_its_node_peers_wait_in_their_own_communicator(self):
        job = self.cluster.jobs[0]
        (node, local), share = next(iter(job.late.items()))
        first, second = (samples(self.cluster, job.nodes[node], t) for t in (0, 600))
        spent = lambda gpu, kind: (of(second, 'nccl_rank_kernel_seconds_total', gpu=gpu, comm_name=kind)[0]
                                   - of(first, 'nccl_rank_kernel_seconds_total', gpu=gpu, comm_name=kind)[0]) / 600
        peer = (local + 1) % played_cluster.RANKS
        self.assertAlmostEqual(spent(peer, 'tp') - spent(local, 'tp'), share, delta=0.01)
        self.assertAlmostEqual(spent(peer, 'dp') - spent(local, 'dp'), 0, delta=0.01)

    def test_in_a_hang_nothing_advances_and_only_the_culprit_has_not_called(self):
        job = self.job('stuck')
        first, second = (samples(self.cluster, job.nodes[0], job.fault.at + seconds) for seconds in (played_cluster.QUIET, 300))
        self.assertEqual(first, second)
        started = of(second, 'nccl_collective_started_sequence', comm_name='tp')
        self.assertEqual([max(started) - value for value in started], [float(local == job.fault.local) for local in range(played_cluster.RANKS)])
        self.assertEqual(of(second, 'nccl_process_alive'), [1] * played_cluster.RANKS)

    def test_a_communicator_has_the_series_of_a_stalled_one_when_it_is_quiet(self):
        job = self.job('stuck')
        of_stalled = lambda seconds: {series for series in samples(self.cluster, job.nodes[0], job.fault.at + seconds) if series.startswith('nccl_stalled_')}
        self.assertEqual((of_stalled(-1), of_stalled(played_cluster.QUIET - 1)), (set(), set()))
        values = samples(self.cluster, job.nodes[0], job.fault.at + played_cluster.QUIET)
        self.assertEqual(of(values, 'nccl_stalled_started_sequence'), of(values, 'nccl_collective_started_sequence'))

    def test_what_a_node_has_once_is_served_by_its_lowest_rank(self):
        values = samples(self.cluster, 0, 0)
        for family in ('nccl_communicator_ranks', 'nccl_node_large_bus_bytes_total'):
            self.assertEqual((len(of(values, family, comm_name='tp')), len(of(values, family, comm_name='tp', rank=0))), (1, 1))

    def test_a_killed_rank_is_dead_and_later_forgotten(self):
        job = self.job('killed')
        values = samples(self.cluster, job.nodes[0], job.fault.at + 1)
        self.assertEqual(of(values, 'nccl_process_alive', global_rank=job.fault.local), [0])
        values = samples(self.cluster, job.nodes[0], job.fault.at + played_cluster.RETENTION)
        self.assertEqual((of(values, 'nccl_process_alive', global_rank=job.fault.local), len(of(values, 'nccl_process_alive'))), ([], played_cluster.RANKS - 1))

    def test_a_silent_node_does_not_answer(self):
        job = self.job('silent')
        self.assertIsNotNone(samples(self.cluster, job.nodes[-1], job.fault.at - 1))
        self.assertIsNone(samples(self.cluster, job.nodes[-1], job.fault.at))

    @staticmethod
    def counted(alerts):
        return {name: len(identities) for name, identities in alerts.items() if identities}

    def test_the_truth_has_the_troubles_that_have_begun(self):
        late = {'NCCLStragglerRank': 3, 'NCCLLastArriver': 3}
        hangs = {'NCCLHangCulprit': 2, 'NCCLCollectiveHang': 2}
        self.assertEqual(self.counted(self.cluster.truth(0)), late)
        self.assertEqual(self.counted(self.cluster.truth(played_cluster.KILL_AT)), late | hangs)
        self.assertEqual(self.counted(self.cluster.truth(played_cluster.SILENCE_AT)), late | hangs | {'NCCLExporterDown': 1, 'NCCLRanksMissing': 8})
        forgotten = played_cluster.KILL_AT + played_cluster.RETENTION
        self.assertEqual(self.counted(self.cluster.truth(forgotten)), late | hangs | {'NCCLExporterDown': 1, 'NCCLRanksMissing': 9})

    def test_an_alert_is_due_later_than_its_trouble_begins(self):
        self.assertEqual(self.counted(self.cluster.due(played_cluster.KILL_AT)), {})
        self.assertEqual(self.cluster.due(LAST), self.cluster.truth(LAST))
        for t in range(0, LAST, 15):
            for name, identities in self.cluster.due(t).items():
                self.assertLessEqual(identities, self.cluster.truth(t)[name])

    def test_an_alert_is_of_the_node_of_its_target_or_of_all_nodes_of_its_job(self):
        job = self.job('stuck')
        self.assertEqual(self.cluster.nodes_of({'instance': 'node7:9828', 'nccl_job': job.name}), [7])
        self.assertEqual(self.cluster.nodes_of({'nccl_job': job.name}), list(job.nodes))


class Counting(unittest.TestCase):
    def test_families_are_those_of_the_exporter_and_not_what_rules_record(self):
        rules = '''groups: [{name: g, rules: [{record: a, expr: 'sum(rate(nccl_a_total[1m])) / comm:nccl_b:rate'},
            {alert: b, expr: '{__name__=~"nccl_c|nccl_d_total"} > 0 unless comm_rank:nccl_e'}]}]'''
        self.assertEqual(servers.families_read(rules), {'nccl_a_total', 'nccl_c', 'nccl_d_total'})

    def test_a_group_counts_by_its_share_of_an_interval(self):
        with tempfile.NamedTemporaryFile('w', suffix='.yml') as file:
            file.write('groups: [{name: each, rules: []}, {name: second, interval: 30s, rules: []}, {name: slow, interval: 2m, rules: []}]')
            file.flush()
            cost = rules_scale.Cost(pathlib.Path(file.name))
        self.assertEqual(cost.seconds_between, {'second': 30, 'slow': 120})
        cost.groups = {'each': 1, 'second': 4, 'slow': 24}
        self.assertEqual(cost.total(), 1 + 2 + 3)

    def test_each_group_is_evaluated_while_the_cpu_time_is_counted(self):
        self.assertLessEqual(max(servers.group_intervals(RULES).values()), rules_scale.STEADY)

    def test_alerts_are_compared_with_the_truth_by_identity(self):
        truth = {'NCCLCollectiveHang': {('1',), ('2',)}}
        firing = [{'alertname': 'NCCLCollectiveHang', 'nccl_job': job, 'uid': '5'} for job in '13'] + [{'alertname': 'Other'}]
        self.assertEqual(servers.due_and_false(firing, truth), ({'NCCLCollectiveHang': (1, 2)}, firing[1:]))

    def test_by_default_all_is_warm_when_the_measured_time_begins(self):
        offsets = [servers.seconds_of(selector.split()[-1]) for selector in rules_scale.with_long_offset(servers.rules_of(RULES))]
        self.assertEqual(len(offsets), 6)
        warm = rules_scale.DURATION - rules_scale.STEADY
        self.assertLessEqual(max(offsets) + 2 * rules_scale.INTERVAL, warm)
        cluster = played_cluster.Cluster(NODES, EPOCH)
        self.assertEqual(cluster.due(warm), cluster.truth(rules_scale.DURATION))

    def test_a_run_fails_by_a_missing_alert_and_by_a_false_one(self):
        cost = rules_scale.Cost(pathlib.Path('deploy/prometheus/nccl-exporter.rules.yml'))
        hang = lambda job: {'alertname': 'NCCLCollectiveHang', 'nccl_job': job}
        cost.truth, cost.due, cost.failed = {'NCCLCollectiveHang': {('1',), ('2',)}}, {'NCCLCollectiveHang': {('1',)}}, 0
        cost.firing = cost.fired = [hang('1')]
        self.assertEqual(list(cost.faults()), [])
        cost.firing, cost.fired, cost.failed = [], [hang('1'), hang('3')], 2
        self.assertEqual(list(cost.faults()), ['NCCLCollectiveHang: 0 of 1 fire that must fire by now', 'false alert: NCCLCollectiveHang nccl_job=3',
                                               '2 evaluations failed'])

    def test_a_trouble_with_two_alerts_is_reported_as_long_as_one_of_them_fires(self):
        late = [{'alertname': 'NCCLStragglerRank', 'nccl_job': '7', 'global_rank': '3', 'comm_name': name} for name in ('tp', 'dp')]
        self.assertEqual(scale_out.identities(late) - scale_out.identities(late[:1]), set())
        self.assertEqual(scale_out.identities(late) - scale_out.identities([]), {('NCCLStragglerRank', '7', '3')})

    def test_an_alert_of_the_play_is_false_before_its_trouble_and_any_other_one_is_always(self):
        fleet = scale_out.Fleet(argparse.Namespace(nodes=NODES, agents=2, time_scale=1), '.')
        fleet.cluster = played_cluster.Cluster(NODES, EPOCH)
        hang = {'alertname': 'NCCLCollectiveHang', 'nccl_job': next(job.name for job in fleet.cluster.jobs if job.fault and job.fault.kind == 'stuck')}
        with scale_out.Notifications() as fleet.notifications:
            fleet.notifications.received = [(EPOCH + 1, 'firing', hang), (EPOCH + 2, 'firing', {'alertname': 'Other'}), (EPOCH + 200, 'firing', hang)]
            self.assertEqual(len(fleet.false_alerts(0)), 2)
            self.assertEqual(fleet.false_alerts(EPOCH + 2), ['Other'])
            self.assertEqual(fleet.false_alerts(EPOCH + 3), [])

    def test_each_kind_of_alert_is_of_a_node_of_an_agent(self):
        for nodes, agents in ((24, 2), (32, 2), (1024, 4), (1024, 16)):
            fleet = scale_out.Fleet(argparse.Namespace(nodes=nodes, agents=agents, time_scale=1), '.')
            fleet.cluster = played_cluster.Cluster(nodes, EPOCH)
            hangs = [{'alertname': 'NCCLCollectiveHang', 'nccl_job': job.name} for job in fleet.cluster.jobs if job.fault]
            with self.subTest(nodes=nodes, agents=agents):
                self.assertEqual([node for number in range(agents) for node in fleet.nodes_of_agent(number)], list(range(nodes)))
                self.assertEqual(sum(len(fleet.of_agent(number, hangs)) for number in range(agents)), len(hangs))

    def test_a_group_is_evaluated_at_its_own_interval(self):
        seconds_between = servers.group_intervals(RULES)
        steps = lambda group: [step for step in range(17) if same_answers.evaluated_at(step, group, seconds_between)]
        self.assertEqual((steps('nccl_hangs'), steps('nccl_bandwidth'), steps('nccl_names')), (list(range(17)), [0, 4, 8, 12, 16], [0, 8, 16]))

    def test_a_node_is_counted_at_the_moment_farthest_from_its_scrapes(self):
        served = [(100.0, 5), (115.0, 5), (130.0, 5)]
        self.assertEqual(scale_out.cut_of(served, [130.5, 126.75, 123.0, 119.25]), 123.0)

    def test_what_is_missing_of_one_node_is_not_made_up_by_another(self):
        account = scale_out.Account
        self.assertEqual(scale_out.missing([account(4, 40, 4, 4, 40, 40), account(4, 40, 5, 4, 40, 40)]), (0, 0))
        self.assertEqual(scale_out.missing([account(4, 40, 3, 3, 30, 30), account(4, 40, 5, 5, 50, 50)]), (1, 0))
        self.assertEqual(scale_out.missing([account(4, 40, 4, 4, 40, 39), account(4, 40, 4, 4, 40, 41)]), (0, 2))

    def test_answers_differ_by_series_and_by_values_beyond_rounding(self):
        difference = same_answers.Difference()
        difference.add({('a',): 1.0, ('b',): float('nan')}, {('a',): 1.0 + 1e-15, ('b',): float('nan')})
        self.assertTrue(difference.is_none())
        difference.add({('a',): 1.0, ('b',): 2.0, ('d',): 1.0}, {('a',): 1.1, ('c',): 2.0, ('d',): float('nan')})
        self.assertEqual((difference.missing, difference.extra, difference.unequal), (1, 1, 2))


class RemoteWrite(unittest.TestCase):
    def test_long_content_is_split_into_literals(self):
        content = bytes(range(256)) * 300
        packed = remote_write.snappy(content)
        self.assertEqual(packed[:3], remote_write.varint(len(content)))
        at, found = 3, b''
        while at < len(packed):
            self.assertEqual(packed[at], 0xf4)
            length = struct.unpack('<H', packed[at + 1:at + 3])[0] + 1
            found += packed[at + 3:at + 3 + length]
            at += 3 + length
        self.assertEqual(found, content)

    def test_prometheus_answers_what_was_written_until_the_series_ends(self):
        now = round(time.time())
        series = [(remote_write.labels_of({'__name__': 'written', 'number': str(number), 'empty': ''}),
                   b''.join(remote_write.sample_of(1000 * (now + t), value) for t, value in ((-30, number), (-15, None))))
                  for number in range(3)]
        with tempfile.TemporaryDirectory() as scratch, same_answers.PrometheusStore(scratch, servers.PROMETHEUS) as store:
            store.write(series)
            self.assertEqual(store.answer('written', now - 20), {(('number', str(number)),): float(number) for number in range(3)})
            self.assertEqual(store.answer('written', now - 15), {})


if __name__ == '__main__':
    report.main()
