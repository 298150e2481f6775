# SPDX-License-Identifier: Apache-2.0
"""Cost of the rules on a cluster of many nodes. A real Prometheus scrapes the played pages of all nodes, with the series that the rules read: at
first without rules, then with them. The difference of its CPU time is the cost of the rules. Then a Prometheus without rules and targets, on the
same data, answers each rule's expression, which shows what each group and rule has of it. With --compare, other rules are tried in the same way
after the first, on the series that they read. What is not warm when the measured time begins, and so costs less than it would, is listed beside
the figures. Exit code 1 if an alert of the play is missing that must fire after --duration, if any other alert fires at any time, or if an
evaluation fails.
"""
import argparse
import collections
import os
import pathlib
import re
import sys
import tempfile
import time

import played_cluster
import servers

RULES = pathlib.Path(__file__).resolve().parents[2] / 'deploy/prometheus/nccl-exporter.rules.yml'
INTERVAL = 15  # seconds between scrapes and evaluations, as in the shipped rules
FIRST_SCRAPES = 45  # seconds in which all series have been created
STEADY = 120  # seconds in which the CPU time of the whole server is counted, without rules and at the end; each group is evaluated in it
SETTLE = 20  # an evaluation that was under way so long ago has ended
LIVE_CORES = 2
EMPTY_QUERIES = 100  # of which the mean is what a query costs without an expression
# All is warm when the last STEADY seconds begin, apart from the bandwidth baseline: the longest offset of another rule is 14 minutes.
DURATION = 1020
BASELINE = 'comm_collective_size:nccl_bus_bandwidth:baseline'  # needs 20 values that are 15 minutes old; with 2400 seconds it is warm, too
LONG_OFFSET = 60  # seconds; a shorter one needs no time to be warm
FIRING = 'ALERTS{alertstate="firing"}'


class Cost:
    """Result of one rule file."""

    def __init__(self, rules):
        self.rules = rules
        self.groups = {}  # name: seconds of CPU per evaluation
        self.listed = list(servers.rules_of(rules.read_text()))
        self.seconds_between = servers.group_intervals(rules.read_text())  # evaluations, by group
        self.by_rule = collections.Counter()

    def is_behind(self):
        return any(self.missed.values())

    def live(self):
        return self.whole - self.scrapes

    def expected(self, alerts):
        """Those of them that the rules have."""
        return {name: identities for name, identities in alerts.items() if any(rule.is_alert and rule.name == name for rule in self.listed)}

    def faults(self):
        """The reasons for which the run has failed, as sentences."""
        due, _ = servers.due_and_false(self.firing, self.due)
        yield from (f'{name}: {named} of {count} fire that must fire by now' for name, (named, count) in due.items() if named < count)
        _, false = servers.due_and_false(self.fired, self.truth)
        yield from sorted({f'false alert: {servers.alert_text(labels)}' for labels in false})
        if self.failed:
            yield f'{self.failed:.0f} evaluations failed'

    def total(self):
        """Seconds of CPU in an interval: a group that is evaluated seldom counts by its share."""
        return sum(spent * INTERVAL / self.seconds_between.get(group, INTERVAL) for group, spent in self.groups.items())


def steady_cpu(server):
    """CPU seconds per interval of the whole server."""
    before, began = server.cpu_seconds(), time.time()
    time.sleep(STEADY)
    return (server.cpu_seconds() - before) / (time.time() - began) * INTERVAL


def live(server, pages, options, cost):
    """Runs without rules, and then with them for the whole duration; what can be read only from the running server."""
    time.sleep(FIRST_SCRAPES)
    cost.scrapes = steady_cpu(server)
    config = server.config | {'rule_files': [str(cost.rules.resolve())]}
    server.reload(config)
    rules_began = time.time()
    time.sleep(options.duration - STEADY)
    cost.measured_from = time.time()
    cost.whole = steady_cpu(server)
    cost.firing, cost.ended = server.firing(), time.time()
    cost.moment = cost.ended - SETTLE
    own = server.own_metrics()
    cost.missed = {labels['rule_group'].rsplit(';', 1)[1]: value for labels, value in own['prometheus_rule_group_iterations_missed_total']}
    cost.seconds = {labels['rule_group'].rsplit(';', 1)[1]: value for labels, value in own['prometheus_rule_group_last_duration_seconds']}
    cost.failed = sum(value for _, value in own['prometheus_rule_evaluation_failures_total'])
    cost.memory = server.peak_mib()
    cost.truth = cost.expected(pages.cluster.truth(cost.ended - pages.cluster.epoch))
    cost.due = cost.expected(pages.cluster.due(cost.ended - rules_began))


def labels_of(series):
    return [{name: value for name, value in one['metric'].items() if name not in ('__name__', 'alertstate')} for one in series]


def with_long_offset(rules):
    """Series of some time ago as the rules read them, and the names of these rules."""
    readers = collections.defaultdict(set)
    for rule in rules:
        for selector, offset in re.findall(r'([\w:]*:[\w:]+(?:\[\w+\])? offset (\w+))', rule.expression):
            if servers.seconds_of(offset) >= LONG_OFFSET and not rule.name.endswith(':baseline'):
                readers[selector].add(rule.name)
    return readers


def cold_parts(server, cost):
    """Parts of the rules that had no series yet when the measured time began."""
    then, _ = servers.due_and_false(labels_of(server.query(FIRING, cost.measured_from)), cost.truth)
    yield from (f'{name} not yet reported: {named} of {count}' for name, (named, count) in then.items() if named < count)
    for selector, readers in with_long_offset(cost.listed).items():
        instant = f'last_over_time({selector})' if '[' in selector else selector
        if not server.number(f'count({instant})', cost.measured_from):
            yield f'`{selector}` empty, which {", ".join(sorted(readers))} read'
    if any(rule.name == BASELINE for rule in cost.listed) and not server.number(f'count({BASELINE})', cost.measured_from):
        yield f'bandwidth baseline empty (`{BASELINE}`)'


def evaluate(server, cost, duration, rounds):
    cost.input = server.number('sum(scrape_samples_scraped)', cost.moment)
    cost.targets = server.number('sum(up)', cost.moment)
    cost.recorded = server.number('count({__name__=~".+:.+"})', cost.moment)
    cost.fired = cost.firing + labels_of(server.query(f'last_over_time({FIRING}[{duration}s])', cost.ended))
    cost.cold = list(cold_parts(server, cost))
    before = server.cpu_seconds()
    for _ in range(EMPTY_QUERIES):
        server.query('vector(0)', cost.moment)
    empty = (server.cpu_seconds() - before) / EMPTY_QUERIES
    for _ in range(rounds):
        for rule in cost.listed:
            before = server.cpu_seconds()
            server.query(rule.expression, cost.moment)
            spent = (server.cpu_seconds() - before - empty) / rounds
            cost.groups[rule.group] = cost.groups.get(rule.group, 0) + spent
            cost.by_rule[rule.group, rule.name] += spent


def measure(rules, options, scratch):
    cost = Cost(rules)
    families = servers.families_read(rules.read_text()) - (set() if options.network else played_cluster.NETWORK_FAMILIES)
    cluster = played_cluster.Cluster(options.nodes, time.time() + FIRST_SCRAPES + STEADY, families=families)  # troubles begin when the rules do
    cost.families = collections.Counter()
    data = f'--storage.tsdb.path={scratch}/data'
    with servers.Pages(cluster) as pages:
        config = {'global': {'evaluation_interval': f'{INTERVAL}s'}, 'scrape_configs': [pages.scrape_config(range(options.nodes), f'{INTERVAL}s')]}
        with servers.Prometheus(scratch, config, data, '--web.enable-lifecycle', program=options.prometheus) as server:
            live(server, pages, options, cost)
    for line in cluster.page(0, time.time())[0].splitlines():
        cost.families[line.split('{')[0].split(' ')[0]] += 1
    with servers.Prometheus(scratch, {}, data, '--query.timeout=10m', '--query.max-samples=500000000', program=options.prometheus) as server:
        evaluate(server, cost, options.duration, options.rounds)
    return cost


def report(cost, options):
    ranks = options.nodes * played_cluster.RANKS
    print(f'\n{cost.rules}: {options.nodes} nodes, {ranks} ranks, {options.duration} s')
    print(f'{cost.input:.0f} series read ({cost.input / ranks:.1f} per rank, {cost.targets:.0f} targets), {cost.recorded:.0f} recorded; '
          f'{cost.memory:.0f} MiB at most; {cost.failed:.0f} evaluations failed')
    if cost.is_behind():
        print('evaluations were missed, so the CPU time of the running server is that of fewer evaluations')
    print(f'CPU every {INTERVAL} s: {cost.live():.2f} s for the rules ({cost.whole:.2f} s with rules, {cost.scrapes:.2f} s without); '
          f'{cost.total():.2f} s for their expressions alone:')
    for part in cost.cold:
        print(f'  NOT WARM, these figures lack it: {part}')
    for group, spent in cost.groups.items():
        print(f'  {group}, every {cost.seconds_between.get(group, INTERVAL)} s: {spent:.2f} s of CPU, {cost.seconds[group]:.1f} s of time at last, {cost.missed[group]:.0f} evaluations missed')
        for (_, name), of_rule in [item for item in cost.by_rule.most_common() if item[0][0] == group][:options.dearest]:
            print(f'    {of_rule:6.2f} s  {name}')
    at_end, _ = servers.due_and_false(cost.firing, cost.truth)
    print('alerts that fire at the end: ' + ', '.join(f'{name} {named} of {count}' for name, (named, count) in at_end.items()))
    print('series of the first node by family: ' + ', '.join(f'{family} {count}' for family, count in cost.families.most_common(options.dearest * 2)))
    for fault in cost.faults():
        print(f'FAILED: {fault}')


def main():
    parser = argparse.ArgumentParser(prog='rules-scale', description=__doc__)
    parser.add_argument('--nodes', type=int, default=64)
    parser.add_argument('--duration', type=int, default=DURATION,
                        help='seconds with rules; by default all is warm but the bandwidth baseline, which needs 2400')
    parser.add_argument('--rules', type=pathlib.Path, default=RULES)
    parser.add_argument('--compare', type=pathlib.Path, help='other rules, such as those of an older commit, tried after the first')
    parser.add_argument('--prometheus', default=servers.PROMETHEUS, help='program')
    parser.add_argument('--network', action='store_true', help='with network time, which is detail: a cluster without it, or that scrapes no detail, has none')
    parser.add_argument('--rounds', type=int, default=3, help='evaluations of each rule whose mean is its cost')
    parser.add_argument('--dearest', type=int, default=4, help='rules of each group to print')
    options = parser.parse_args()
    if options.duration <= STEADY + SETTLE:
        parser.error(f'--duration must be above {STEADY + SETTLE}')
    os.environ['GOMAXPROCS'] = str(LIVE_CORES)
    costs = []
    for rules in filter(None, (options.rules, options.compare)):
        with tempfile.TemporaryDirectory(prefix='rules-scale-') as scratch:
            costs.append(measure(rules, options, pathlib.Path(scratch)))
        report(costs[-1], options)
    if options.compare:
        first, other = costs
        ratios = {'CPU of the expressions': (other.total(), first.total()), 'series read': (other.input, first.input), 'memory': (other.memory, first.memory)}
        if not first.is_behind() and not other.is_behind():
            ratios |= {'CPU of the rules': (other.live(), first.live()), 'CPU of the server': (other.whole, first.whole)}
        print(f'\n{options.compare} against {options.rules}: ' + ', '.join(f'{name} {a / b:.1f} times' for name, (a, b) in ratios.items() if b > 0)
              + ('; NOT WARM, as listed above' if first.cold or other.cold else ''))
    sys.exit(any(list(cost.faults()) for cost in costs))


if __name__ == '__main__':
    main()
