# SPDX-License-Identifier: Apache-2.0
"""Many nodes with more than one Prometheus: real agents scrape a part of the played nodes each, and write to receivers, each of which has the jobs of one
shard and evaluates the rules. A real Alertmanager is behind them. Each agent that scrapes a node with an alert is killed and started again, one after the
other. Exit code 1 if a sample is lost between agent and receiver, if an alert of the play is missing, reported by two receivers or notified twice, if a
trouble is not reported any more because an agent is killed, if Alertmanager is notified of an alert that is not of the play, or if some kind of alert is of
no killed agent's nodes.
"""
import argparse
import collections
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import typing

import played_cluster
import servers

ROOT = pathlib.Path(__file__).resolve().parents[2]
INTERVAL = 15  # seconds between scrapes and evaluations, before they are divided by the time scale
LOOKBACK = 300  # of a query
NAMED_WITHIN = 900  # by then every trouble of the play has its alert
DOWN = 2  # intervals between the end of an agent and its new start
WATCHED = 14  # intervals in which the alerts are watched after that: rates of a minute miss scrapes for 4, then `for` or the hold of the rules lasts 6
CUTS = 4  # moments within an interval; a node is counted at the one that is farthest from its scrapes
CATCH_UP = 120  # seconds that a busy machine may take to write what the agents have scraped
JOB_LABELS = ['namespace', 'nccl_job', 'uid']  # no rule joins series that differ in these


class Notifications(servers.Server):
    """Notifications of Alertmanager: time, status and labels of each alert."""

    def __init__(self):
        self.lock = threading.Lock()
        self.received = []
        super().__init__(NotificationHandler)

    def of(self, status, since=0):
        """Moment and labels."""
        with self.lock:
            return [(moment, labels) for moment, of_alert, labels in self.received if of_alert == status and moment >= since]


class NotificationHandler(servers.Handler):
    def do_POST(self):
        alerts = json.loads(self.rfile.read(int(self.headers['Content-Length'])))['alerts']
        with self.server.lock:
            self.server.received += [(time.time(), alert['status'], alert['labels']) for alert in alerts]
        self.answer(200)


def key(labels):
    return tuple(sorted(labels.items()))


def identities(alerts):
    return {(labels['alertname'], *played_cluster.identity(labels)) for labels in alerts if labels['alertname'] in played_cluster.IDENTITY}


def shard_of_job(number, count):
    """Series of the jobs of one shard; what has no job is in one of the shards as a whole."""
    return [{'source_labels': JOB_LABELS, 'modulus': count, 'target_label': '__tmp_shard', 'action': 'hashmod'},
            {'source_labels': ['__tmp_shard'], 'regex': str(number), 'action': 'keep'},
            {'regex': '__tmp_shard', 'action': 'labeldrop'}]


def agent_flags(program, directory):
    version = subprocess.run([program, '--version'], capture_output=True, text=True, check=True)
    is_old = 'version 2.' in version.stdout + version.stderr
    return ['--enable-feature=agent' if is_old else '--agent', f'--storage.agent.path={directory}/data']


class Fleet:
    """Agents, receivers, Alertmanager and the played nodes, until the end of the block."""

    def __init__(self, options, scratch):
        self.options, self.scratch = options, pathlib.Path(scratch)
        self.interval = INTERVAL / options.time_scale
        self.interval_text = f'{round(1000 * self.interval)}ms'
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        with self.stack:
            self.begin()
            self.stack = self.stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def begin(self):
        subprocess.run([ROOT / 'deploy/prometheus/generate-rules', '--time-scale', str(self.options.time_scale), '--output', self.scratch], check=True)
        rules = self.scratch / 'nccl-exporter.rules.yml'
        self.cluster = played_cluster.Cluster(self.options.nodes, time.time(), self.options.time_scale, servers.families_read(rules.read_text()))
        self.pages = self.stack.enter_context(servers.Pages(self.cluster))
        self.notifications = self.stack.enter_context(Notifications())
        self.alertmanager = self.stack.enter_context(servers.alertmanager(self.scratch / 'alertmanager', f'http://127.0.0.1:{self.notifications.port}/'))
        self.receivers = [self.stack.enter_context(self.receiver(number, rules)) for number in range(self.options.receivers)]
        self.cluster.epoch = self.began = time.time()
        self.agents = [self.stack.enter_context(self.agent(number)) for number in range(self.options.agents)]

    def receiver(self, number, rules):
        directory = self.scratch / f'receiver-{number}'
        return servers.Prometheus(directory, {
            'global': {'evaluation_interval': self.interval_text}, 'rule_files': [str(rules)],
            'alerting': {'alertmanagers': [{'static_configs': [{'targets': [f'127.0.0.1:{self.alertmanager.port}']}]}]},
        }, f'--storage.tsdb.path={directory}/data', '--web.enable-remote-write-receiver', '--query.max-samples=500000000', '--query.timeout=10m',
            f'--query.lookback-delta={LOOKBACK / self.options.time_scale:g}s', program=self.options.receiver_program)

    def nodes_of_agent(self, number):
        per_agent = -(-self.options.nodes // self.options.agents)
        return range(self.options.nodes)[number * per_agent:(number + 1) * per_agent]

    def agent(self, number):
        directory = self.scratch / f'agent-{number}'
        return servers.Prometheus(directory, {
            'global': {'external_labels': {'cluster': 'played'}},
            'scrape_configs': [self.pages.scrape_config(self.nodes_of_agent(number), self.interval_text)],
            'remote_write': [{'url': f'{receiver.address}/api/v1/write', 'name': f'shard-{shard}',
                              'write_relabel_configs': shard_of_job(shard, len(self.receivers))}
                             for shard, receiver in enumerate(self.receivers)],
        }, *agent_flags(self.options.agent_program, directory), program=self.options.agent_program)

    def truth(self, moment=None):
        return self.cluster.truth((moment or time.time()) - self.cluster.epoch)

    def firing(self):
        """Alerts in Alertmanager, of all names."""
        return [alert['labels'] for alert in self.alertmanager.get('/api/v2/alerts', active='true')]

    def false_alerts(self, since):
        """Alerts of which Alertmanager was notified since then, and that were not of the play at that moment. No name is exempt, NCCLExporterDown neither:
        an agent that is killed leaves the last `up` of its targets, and it is back long before the lookback ends.
        """
        return sorted({servers.alert_text(labels) for moment, labels in self.notifications.of('firing', since)
                       if servers.due_and_false([labels], self.truth(moment))[1]})

    def of_agent(self, number, alerts):
        """Those of the alerts that are of a node of the agent; that of a job is of all its nodes."""
        nodes = self.nodes_of_agent(number)
        return [labels for labels in alerts if any(node in nodes for node in self.cluster.nodes_of(labels))]


class Verdict:
    """Findings of the run; each is printed when it is known."""

    def __init__(self):
        self.is_good = True

    def say(self, is_good, text):
        self.is_good &= bool(is_good)
        print(('' if is_good else 'FAILED: ') + text, flush=True)


def wait_for_alerts(fleet, verdict):
    deadline = time.time() + NAMED_WITHIN / fleet.options.time_scale
    while True:
        due, _ = servers.due_and_false(fleet.firing(), fleet.truth())
        is_done = all(named == count > 0 for named, count in due.values())
        if is_done or time.time() > deadline:
            break
        time.sleep(fleet.interval / 2)
    for name, (named, count) in due.items():
        verdict.say(named == count > 0, f'{name}: {named} of {count} fire')
    print(f'after {time.time() - fleet.began:.0f} s, which are {(time.time() - fleet.began) * fleet.options.time_scale / 60:.1f} min of the shipped rules')


def by_node(fleet, expression, moment):
    """Sum over the receivers of a query by instance."""
    sums = collections.Counter()
    for receiver in fleet.receivers:
        for series in receiver.query(expression, moment):
            sums[played_cluster.node_of(series['metric']['instance'])] += float(series['value'][1])
    return sums


def cut_of(served, cuts):
    """The moment that is farthest from all scrapes of the node, so that no scrape is under way then."""
    return max(cuts, key=lambda cut: min((abs(cut - moment) for moment, _ in served), default=0))


class Account(typing.NamedTuple):
    """Samples of one node up to its cut."""
    served_scrapes: int  # by the player
    served_samples: int
    scrapes: float  # at the receivers, those without an answer included
    answered: float  # by the account of the agent, which travels on the same way
    scraped: float
    received: float  # samples of the node at the receivers


def missing(accounts):
    """Scrapes of which the receivers know nothing, and samples by which they differ from the account of the agent."""
    return (sum(max(0, account.served_scrapes - account.scrapes) for account in accounts), sum(abs(account.scraped - account.received) for account in accounts))


def accounts_of(fleet, latest):
    """By node."""
    cuts = [latest - number * fleet.interval / CUTS for number in range(CUTS)]
    served = {node: list(times) for node, times in fleet.pages.served.items()}
    cut_of_node = {node: cut_of(times, cuts) for node, times in served.items()}
    result = {}
    for cut in cuts:
        window = f'[{round(cut - fleet.began + fleet.interval)}s]'
        scrapes = by_node(fleet, f'sum by (instance) (count_over_time(up{window}))', cut)
        answered = by_node(fleet, f'sum by (instance) (sum_over_time(up{window}))', cut)
        scraped = by_node(fleet, f'sum by (instance) (sum_over_time(scrape_samples_scraped{window}))', cut)
        received = collections.Counter()
        for family in fleet.cluster.families:  # one by one, because count_over_time drops the name
            received += by_node(fleet, f'sum by (instance) (count_over_time({family}{window}))', cut)
        for node in [node for node, moment in cut_of_node.items() if moment == cut]:
            before = [samples for moment, samples in served[node] if moment < cut]
            result[node] = Account(len(before), sum(before), scrapes[node], answered[node], scraped[node], received[node])
    return result


def check_samples(fleet, verdict):
    latest = time.time()
    deadline = latest + CATCH_UP
    while True:
        time.sleep(fleet.interval)
        accounts = accounts_of(fleet, latest)
        scrapes, samples = missing(accounts.values())
        if not scrapes + samples or time.time() > deadline:
            break
    total = Account(*(sum(column) for column in zip(*accounts.values())))
    verdict.say(len(accounts) == fleet.options.nodes and not scrapes + samples,
                f'normal run: {total.served_scrapes} scrapes and {total.served_samples} samples served; {total.answered:.0f} scrapes and {total.scraped:.0f} samples '
                f'taken by the agents; {total.received:.0f} samples at the receivers; missing {scrapes:.0f} scrapes, {samples:.0f} samples')


def check_each_once(fleet, verdict):
    by_receiver = collections.Counter(key(labels) for receiver in fleet.receivers for labels in receiver.firing())
    twice = [dict(labels) for labels, count in by_receiver.items() if count > 1]
    verdict.say(not twice, f'{len(by_receiver)} alerts at {len(fleet.receivers)} receivers, {len(twice)} at more than one' + (f': {twice[:3]}' if twice else ''))
    notified = collections.Counter(key(labels) for _, labels in fleet.notifications.of('firing'))
    repeated = [dict(labels) for labels, count in notified.items() if count > 1]
    verdict.say(notified and not repeated,
                f'{len(notified)} alerts notified, {len(repeated)} of them more than once' + (f': {repeated[:3]}' if repeated else ''))


def check_false(fleet, verdict, since, text):
    false = fleet.false_alerts(since)
    verdict.say(not false, f'false alerts {text}: ' + ('; '.join(false) or 'none'))


def kill_and_start(fleet, verdict, number):
    """Kills the agent and watches all alerts. Returns the names of the alerts of its nodes."""
    firing = fleet.firing()
    _, false = servers.due_and_false(firing, fleet.truth())
    before = [labels for labels in firing if labels not in false]
    own = fleet.of_agent(number, before)
    agent, killed_at = fleet.agents[number], time.time()
    agent.kill()
    time.sleep(DOWN * fleet.interval)
    agent.start()
    lost = set()  # troubles that no communicator reported for a while; a report by any of them is enough
    ends = time.time() + WATCHED * fleet.interval
    while time.time() < ends:
        lost |= identities(before) - identities(fleet.firing())
        time.sleep(fleet.interval / 2)
    resolved = {key(labels) for _, labels in fleet.notifications.of('resolved', killed_at)}
    ended = lambda alerts: sum(key(labels) in resolved for labels in alerts)
    names = collections.Counter(labels['alertname'] for labels in own)
    verdict.say(own and not lost, f'agent {number} killed for {DOWN} intervals: {ended(own)} of {len(own)} alerts of its nodes ended '
                f'({", ".join(f"{name} {count}" for name, count in sorted(names.items()))}), {ended(before)} of all {len(before)}; '
                f'of {len(identities(before))} troubles {len(lost)} were not reported for a while' + (f': {sorted(lost)}' if lost else ''))
    return set(names)


def check_killed_agents(fleet, verdict):
    """Kills each agent that scrapes a node with an alert, the one with most of them first. So each trouble loses its samples once, that of the silent node
    too: its alert has no hold, and goes on only because receivers keep the last `up`.
    """
    alerts = fleet.firing()
    count = {number: len(fleet.of_agent(number, alerts)) for number in range(len(fleet.agents))}
    began = time.time()
    check_false(fleet, verdict, 0, 'before an agent is killed')
    killed = sorted((number for number in count if count[number]), key=lambda number: -count[number])
    names = set().union(*(kill_and_start(fleet, verdict, number) for number in killed))
    spared = sorted(played_cluster.IDENTITY.keys() - names)
    verdict.say(killed and not spared, f'{len(killed)} of {len(count)} agents were killed, ' + (
        f'none of which scrapes a node with {", ".join(spared)}: their survival is not shown' if spared
        else 'and each kind of alert was of a node of one of them'))
    check_false(fleet, verdict, began, 'since an agent was killed')
    scrapes, samples = missing(accounts_of(fleet, time.time() - fleet.interval).values())
    print(f'lost with what the agents had not written: {scrapes:.0f} scrapes, and {samples:.0f} samples of others')


def costs(fleet):
    seconds = time.time() - fleet.began
    for name, group in (('agent', fleet.agents), ('receiver', fleet.receivers)):
        for number, server in enumerate(group):
            own = server.own_metrics()
            total = lambda metric: sum(value for _, value in own.get(metric, []))
            text = f'{name} {number}: {server.cpu_seconds() / seconds * fleet.interval:.2f} s of CPU every {fleet.interval:g} s, {server.peak_mib():.0f} MiB'
            if name == 'agent':
                text += (f'; {total("prometheus_remote_storage_samples_total"):.0f} samples sent, {total("prometheus_remote_storage_samples_failed_total"):.0f} failed, '
                         f'{total("prometheus_remote_storage_samples_retried_total"):.0f} sent again')
            else:
                text += f'; {total("prometheus_tsdb_head_series"):.0f} series, {total("prometheus_rule_group_iterations_missed_total"):.0f} evaluations missed'
            print(text)


def main():
    parser = argparse.ArgumentParser(prog='scale-out', description=__doc__)
    parser.add_argument('--nodes', type=int, default=1024)
    parser.add_argument('--agents', type=int, default=4)
    parser.add_argument('--receivers', type=int, default=2)
    parser.add_argument('--time-scale', type=float, default=1, help='divides all durations; with 10, 32 nodes take some three minutes')
    parser.add_argument('--agent-program', default=servers.PROMETHEUS)
    parser.add_argument('--receiver-program', default=servers.PROMETHEUS)
    options = parser.parse_args()
    os.environ['GOMAXPROCS'] = '2'
    verdict = Verdict()
    with tempfile.TemporaryDirectory(prefix='scale-out-') as scratch, Fleet(options, scratch) as fleet:
        print(f'{options.nodes} nodes, {options.agents} agents, {options.receivers} receivers, scraped every {fleet.interval:g} s')
        wait_for_alerts(fleet, verdict)
        check_samples(fleet, verdict)
        check_each_once(fleet, verdict)
        costs(fleet)
        check_killed_agents(fleet, verdict)
    sys.exit(not verdict.is_good)


if __name__ == '__main__':
    main()
