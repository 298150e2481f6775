#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The dashboards as Grafana reads them, without Grafana: complete, consistent, linked, and what the generator writes."""
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(os.path.abspath('deploy/grafana'))
sys.path[:0] = [str(HERE / 'tests'), str(HERE.parent / 'tests')]
import dashboards
import report

import yaml

DASHBOARDS = dashboards.read(HERE / 'dashboards')
# By name, their types: //proto:proto_test compares the table with what the daemon serves.
FAMILIES = dict(re.findall(r'^\| `((?:nccl|process)_\w+)` \| (counter|gauge|histogram|info)(?:, alerts)? \|', pathlib.Path('docs/metrics.md').read_text(), re.M))
RULES = yaml.safe_load(pathlib.Path('deploy/prometheus/nccl-exporter.rules.yml').read_text())
RECORDED = {rule['record'] for group in RULES['groups'] for rule in group['rules'] if 'record' in rule}
FOREIGN = {'up', 'ALERTS', 'scrape_samples_scraped', 'DCGM_FI_DEV_SM_CLOCK', 'DCGM_FI_DEV_POWER_USAGE',
           'DCGM_FI_DEV_GPU_TEMP'}
# Fields that the rules read: docs/why.md lists them, and a panel shows which of them arrive.
OF_SUSPECTS = set(re.findall(r'\bDCGM_\w+', pathlib.Path('deploy/prometheus/nccl-exporter.rules.yml').read_text()))
FOREIGN |= OF_SUSPECTS
# Families that no panel shows, since something better stands for them.
NOT_SHOWN = {
    'nccl_api_calls_total': 'for releases that announce calls without operations; operations are what panels count',
    'nccl_p2p_recv_bytes_total': 'as many as are sent',
    'nccl_p2p_send_duration_seconds': 'the means by node tell waiting from sending',
    'nccl_p2p_recv_duration_seconds': 'the means by node tell waiting from receiving',
    'nccl_operations_unseen': 'in windows only: the panel of operations in flight is empty where there are such',
    'nccl_exporter_snapshot_timestamp_seconds': 'every scrape reads the segments anew: it is the time of the scrape',
    'nccl_exporter_log_lines_dropped_total': 'the log says so when it goes on; while it is blocked, the daemon is not ready',
    'nccl_exporter_extension_faults_total': 'of nodes with extensions only; the log says what is wrong',
    'nccl_exporter_limit_bytes': 'a constant of the program: what meets it is counted as a refused request',
    'nccl_exporter_limit_seconds': 'the same',
    'nccl_exporter_user_segment_errors_total': 'errors by cause are shown; whose files they are is for the runbook',
    'nccl_exporter_user_segments_unusable': 'an alert names user and reason',
    'nccl_exporter_user_uncompared_communicators': 'of one user with more communicators than a node has: a matter between him and the operator',
    'nccl_process_environment_info': 'a long text; `report` names the variables that differ between ranks',
    'nccl_process_unserved_communicators': 'for rules: they do not take ranks without room for missing ones',
    'nccl_exporter_unread_communicators': 'a matter of limits: errors by cause are shown',
    'nccl_rank_timed_operations_total': 'for rules: panels show its detail, by collective and size',
    'nccl_rank_steps_total': 'the same',
    'nccl_rank_step_wait_seconds_total': 'the same',
    'nccl_rank_p2p_kernel_seconds_total': 'the same',
    'nccl_rank_p2p_operations_total': 'the same',
    'nccl_node_progress_total': 'the same: panels show what was started and completed',
    'nccl_stalled_communicator_ranks': 'the same',
    'nccl_stalled_progress': 'the same',
    'nccl_stalled_process_progress': 'the same',
    'nccl_node_large_bus_bytes_total': 'the same',
    'nccl_node_large_busy_seconds_total': 'the same',
    'nccl_node_large_timed_operations_total': 'the same',
    'nccl_stalled_started_sequence': 'the same: panels show the sequences of all communicators',
    'nccl_stalled_completed_sequence': 'the same',
    'nccl_stalled_operations_in_flight': 'the same',
    'nccl_stalled_oldest_in_flight_start_timestamp_seconds': 'the same',
    'nccl_process_halted': 'the same: panels tell dead from stopped',
    'nccl_process_operations_unfollowed_total': 'the same: panels show them by cause',
    'nccl_process_operations_rejected_total': 'the same',
    'nccl_process_kernel_seconds_total': 'the same',
    'nccl_process_p2p_operations_total': 'the same',
    'nccl_process_chained_callbacks_total': 'of processes with a chained plugin only; nccl_rank_info and the log say if it is over its budget',
    'nccl_process_chained_seconds_total': 'the same',
    'process_virtual_memory_bytes': 'resident memory is what the node lacks',
    'process_open_fds': 'segments, of which there is a panel, and connections, whose limit is below',
    'process_max_fds': 'the same',
    'process_start_time_seconds': 'a restart shows in what is up',
    'process_threads': 'as many as connections and a few more',
}
UNITS = {'short', 'none', 's', 'percentunit', 'Bps', 'bytes', 'ops', 'hertz', 'watt', 'celsius'}
FORMS = {'stat': 'time_series', 'timeseries': 'time_series', 'table': 'table', 'heatmap': 'heatmap',
         'state-timeline': 'time_series'}
SAMPLE = {'__rate_interval': '1m', '__range': '1h', '__interval': '15s'}


def places():
    for uid, dashboard in DASHBOARDS.items():
        for panel in dashboards.panels(dashboard):
            yield uid, panel


def units(panel):
    defaults = [panel['fieldConfig']['defaults'].get('unit')] + [panel['options'].get('yAxis', {}).get('unit')]
    overrides = [p['value'] for o in panel['fieldConfig']['overrides'] for p in o['properties'] if p['id'] == 'unit']
    return {unit for unit in defaults + overrides if unit}


def links(panel):
    for override in panel['fieldConfig']['overrides']:
        for setting in override['properties']:
            if setting['id'] == 'links':
                yield from setting['value']


def labels_of_result(expression):
    """By the outermost aggregation: the first `by`, within topk the one that follows."""
    return set(re.search(r' by \(([^)]*)\)', expression)[1].split(', '))


def generated(*arguments):
    """File name to content."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, '-B', HERE / 'generate-dashboards', '--output', folder, *arguments], check=True)
        return {path.name: path.read_text() for path in pathlib.Path(folder).iterdir()}


def expressions(of):
    return {query.place: query.expression for dashboard in of.values() for query in dashboards.queries(dashboard)}


def fields(panel):
    organize = next(t['options'] for t in panel['transformations'] if t['id'] == 'organize')
    return organize['renameByName']


def expect_columns_of_labels(test, panel):
    labels = {label for target in panel['targets'] for label in labels_of_result(target['expr'])}
    test.assertEqual({name for name in fields(panel) if not name.startswith('Value')}, labels, panel['title'])


def read_by_promtool(test, of):
    rules = [{'record': 'a:b', 'expr': dashboards.substituted(expression, SAMPLE), 'labels': {'number': str(number)}}
             for number, expression in enumerate(expressions(of).values())]
    test.assertGreater(len(rules), 100)
    with tempfile.NamedTemporaryFile('w', suffix='.yml') as file:
        json.dump({'groups': [{'name': 'dashboards', 'rules': rules}]}, file)
        file.flush()
        done = subprocess.run(['promtool', 'check', 'rules', file.name], capture_output=True, text=True)
    test.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Structure(unittest.TestCase):
    def test_the_committed_files_are_what_the_generator_writes(self):
        self.assertEqual({path.name: path.read_text() for path in (HERE / 'dashboards').iterdir()}, generated(),
                         'run deploy/grafana/generate-dashboards')

    def test_rates_span_two_scrapes_of_the_detail(self):
        """Regression: with detail every 60 s and the data source as it comes, a rate of a minute had one sample, and 39 panels were empty."""
        short = [query.place for dashboard in DASHBOARDS.values() for query in dashboards.queries(dashboard)
                 if '$__rate_interval' in query.expression and dashboards.rate_interval_seconds(query, 1) < 2 * 60]
        self.assertEqual(short, [])

    def test_ages_are_those_of_the_scrape(self):
        """Regression: the age of what a daemon said a minute ago was a minute, in a job that makes a step a second."""
        self.assertEqual([query.place for dashboard in DASHBOARDS.values() for query in dashboards.queries(dashboard) if 'time() - ' in query.expression], [])

    def test_a_silent_target_counts_once(self):
        """Regression: its two scrapes counted as two nodes."""
        for uid in ('nccl-fleet', 'nccl-exporter'):
            of_up = [query.expression for query in dashboards.queries(DASHBOARDS[uid]) if re.search(r'\bup\b', query.expression)]
            self.assertEqual([expression for expression in of_up if 'max without (part) (up' not in expression], [])
            self.assertTrue(of_up)

    def test_a_committed_file_has_a_line_for_each_panel(self):
        """So that a change of one is a change of one line."""
        for uid, dashboard in DASHBOARDS.items():
            lines = {line.rstrip(',') for line in (HERE / f'dashboards/{uid}.json').read_text().splitlines()}
            for panel in dashboard['panels'] + dashboard['templating']['list']:
                self.assertTrue(json.dumps(panel) in lines, f'{uid}: {panel.get("title", panel.get("name"))}')

    def test_each_has_an_identity_of_its_own_and_no_data_source(self):
        self.assertEqual(len(DASHBOARDS), 6)
        for uid, dashboard in DASHBOARDS.items():
            self.assertEqual(dashboard['uid'], uid)
            self.assertRegex(uid, r'^[a-z-]{8,40}$')
            self.assertEqual(dashboards.variables(dashboard)[0]['type'], 'datasource')
            text = json.dumps(dashboard)
            self.assertEqual(set(re.findall(r'"datasource": (.{46})', text)), {'{"type": "prometheus", "uid": "${datasource}"}'})
            self.assertNotIn('"id": null', text)
        self.assertEqual(len({dashboard['title'] for dashboard in DASHBOARDS.values()}), len(DASHBOARDS))

    def test_panels_have_numbers_and_room_of_their_own(self):
        for uid, dashboard in DASHBOARDS.items():
            numbers = [panel['id'] for panel in dashboard['panels']]
            self.assertEqual(len(set(numbers)), len(numbers), uid)
            taken = {}
            for panel in dashboard['panels']:
                at = panel['gridPos']
                self.assertLessEqual(at['x'] + at['w'], 24, panel['title'])
                for cell in itertools.product(range(at['x'], at['x'] + at['w']), range(at['y'], at['y'] + at['h'])):
                    self.assertNotIn(cell, taken, f'{uid}: {panel["title"]} stands on {taken.get(cell)}')
                    taken[cell] = panel['title']

    def test_queries_are_complete(self):
        for uid, panel in places():
            self.assertTrue(panel['targets'], panel['title'])
            letters = [target['refId'] for target in panel['targets']]
            self.assertEqual(letters, [chr(ord('A') + i) for i in range(len(letters))], panel['title'])
            for target in panel['targets']:
                self.assertTrue(target['expr'])
                self.assertEqual(target['format'], FORMS[panel['type']], panel['title'])
                self.assertNotEqual(target['instant'], target['range'], panel['title'])

    def test_every_panel_says_what_it_shows_and_what_is_normal(self):
        for uid, panel in places():
            says = panel['description']
            self.assertRegex(says, r'^[A-Z].{40,700}\.$', f'{uid}: {panel["title"]}')
            self.assertIn('Normal: ', says, f'{uid}: {panel["title"]}')

    def test_no_panel_is_there_twice(self):
        seen = {}
        for uid, panel in places():
            shown = (panel['type'], tuple(target['expr'] for target in panel['targets']))
            self.assertIsNone(seen.get(shown), f'{uid}: {panel["title"]}')
            seen[shown] = f'{uid}: {panel["title"]}'
        for uid, dashboard in DASHBOARDS.items():
            titles = [panel['title'] for panel in dashboard['panels']]
            self.assertEqual(len(set(titles)), len(titles), uid)

    def test_units_are_grafanas(self):
        for uid, panel in places():
            self.assertLessEqual(units(panel), UNITS, f'{uid}: {panel["title"]}')
            if panel['type'] != 'table':
                self.assertTrue(units(panel), f'{uid}: {panel["title"]}')

    def test_variables_are_defined_before_they_are_used_and_all_are_used(self):
        for uid, dashboard in DASHBOARDS.items():
            known = set()
            for variable in dashboards.variables(dashboard):
                used = dashboards.variables_in(json.dumps(variable.get('query', '')))
                self.assertLessEqual(used, known, f'{uid}: {variable["name"]}')
                self.assertNotIn(variable['name'], known)
                known.add(variable['name'])
            used = dashboards.variables_in(json.dumps([dashboard['panels'], dashboard['annotations'], dashboards.variables(dashboard)]))
            self.assertLessEqual(used, known | dashboards.BUILT_IN | {'__all'}, uid)
            self.assertLessEqual(known, used, uid)

    def test_variables_come_from_info_metrics(self):
        for uid, dashboard in DASHBOARDS.items():
            for variable in dashboards.variables(dashboard)[1:]:
                if variable['type'] == 'query':
                    self.assertRegex(variable['query']['query'], r'^label_values\(nccl_\w+_info[{,]', uid)
                    self.assertEqual(variable['query']['query'], variable['definition'])

    def test_links_lead_to_dashboards_with_variables_and_columns_that_exist(self):
        followed = set()
        for uid, panel in places():
            for link in links(panel):
                target, _, arguments = link['url'].removeprefix('/d/').partition('?')
                self.assertIn(target, DASHBOARDS, panel['title'])
                followed.add(target)
                names = {variable['name'] for variable in dashboards.variables(DASHBOARDS[target])}
                self.assertIn('${__url_time_range}', arguments)
                self.assertIn('${datasource:queryparam}', arguments)
                self.assertRegex(arguments, r'var-cluster=\$\{__data\.fields\.cluster\}|\$\{cluster:queryparam\}', panel['title'])
                for name, field in re.findall(r'var-(\w+)=\$\{__data\.fields\.(\w+)\}', arguments):
                    self.assertIn(name, names, f'{panel["title"]} to {target}')
                    self.assertIn(field, fields(panel), panel['title'])
                for name in re.findall(r'\$\{(\w+):queryparam\}', arguments):
                    self.assertIn(name, names, f'{panel["title"]} to {target}')
                    self.assertIn(name, {v['name'] for v in dashboards.variables(DASHBOARDS[uid])}, panel['title'])
        self.assertEqual(followed, {'nccl-job', 'nccl-communicator', 'nccl-rank', 'nccl-exporter'})
        for uid, dashboard in DASHBOARDS.items():
            self.assertIn('nccl-exporter', next(link['tags'] for link in dashboard['links'] if link['title'] == 'NCCL'), uid)
            self.assertIn('nccl-exporter', dashboard['tags'], uid)

    def test_settings_of_columns_are_those_of_columns_that_exist(self):
        for uid, panel in places():
            if panel['type'] == 'table':
                titles = list(fields(panel).values())
                self.assertEqual(len(set(titles)), len(titles), panel['title'])
                expect_columns_of_labels(self, panel)
                settings = [o['matcher']['options'] for o in panel['fieldConfig']['overrides']] + [s['displayName'] for s in panel['options']['sortBy']]
                self.assertLessEqual(set(settings), set(titles), f'{uid}: {panel["title"]}')


class JobLabels(unittest.TestCase):
    """Dashboards of a site whose jobs differ by further labels."""
    MORE = ['team', 'slurm_job_account']  # both are in a panel of owners already

    @classmethod
    def setUpClass(cls):
        texts = generated('--job-labels', ','.join(['cluster', 'namespace', 'nccl_job', *cls.MORE]))
        cls.of_site = {name.removesuffix('.json'): json.loads(text) for name, text in texts.items()}

    def test_group_wherever_jobs_are_distinguished(self):
        shipped, of_site, more = expressions(DASHBOARDS), expressions(self.of_site), ''.join(f', {label}' for label in self.MORE)
        self.assertEqual(set(shipped), set(of_site))
        grouped = 0
        for place, expression in of_site.items():
            for labels in re.findall(r'\b(?:by|on) \(([^)]*)\)', expression):
                if {'namespace', 'nccl_job', 'uid'} <= set(labels.split(', ')):
                    self.assertLessEqual({*self.MORE}, set(labels.split(', ')), place)
                    grouped += 1
            without_copies = [re.sub(r'group_left \([^)]*\)', '', text) for text in (expression.replace(more, ''), shipped[place])]
            self.assertEqual(*without_copies, place)
        self.assertGreater(grouped, 100)

    def test_are_columns(self):
        tables = [panel for dashboard in self.of_site.values() for panel in dashboards.panels(dashboard) if panel['type'] == 'table']
        for panel in tables:
            expect_columns_of_labels(self, panel)
        self.assertGreater(sum('team' in fields(panel) for panel in tables), 5)

    def test_can_be_read(self):
        read_by_promtool(self, self.of_site)

    def test_of_other_things_are_refused(self):
        for labels, why in (('team,,', "'' is not a label name"), ('cost-center', "'cost-center' is not a label name"),
                            ('team,hostname', "'hostname' is a label of ranks, not of jobs")):
            done = subprocess.run([sys.executable, '-B', HERE / 'generate-dashboards', '--output', '/dev/null/none', '--job-labels', labels],
                                  capture_output=True, text=True)
            self.assertEqual((2, True), (done.returncode, f'argument --job-labels: {why}\n' in done.stderr), done.stderr)


class Findings(unittest.TestCase):
    def mappings(self, title):
        """Value to text, as the panel shows it."""
        panel, = [panel for _, panel in places() if panel['title'] == title]
        settings = [panel['fieldConfig']['defaults'].get('mappings', [])]
        settings += [p['value'] for o in panel['fieldConfig']['overrides'] for p in o['properties'] if p['id'] == 'mappings']
        return {value: shown['text'] for setting in settings for mapping in setting for value, shown in mapping['options'].items()}

    def test_they_have_the_words_of_the_page(self):
        page = pathlib.Path('exporter/web/page/words.js').read_text()
        words = dict(re.findall(r"(\w+): '([^']+)'", page[page.index('const kinds'):page.index('};')]))
        kinds = {value: text.partition(':')[0] for value, text in self.mappings('Findings of the daemons').items() if not value.isdigit()}
        self.assertEqual(kinds, words)

    def test_every_severity_has_its_number_in_order_and_its_word(self):
        header = pathlib.Path('exporter/findings/finding.h').read_text()
        severities = re.findall(r'\{Severity::\w+, "(\w+)"', header)
        self.assertEqual(len(severities), 3)
        numbers = {str(number): name for number, name in enumerate(severities, 1)}
        for title in ('Findings of the daemons', 'Findings, by node and kind', 'Findings, by kind'):
            self.assertEqual({value: text for value, text in self.mappings(title).items() if value.isdigit()}, numbers, title)
            panel, = [panel for _, panel in places() if panel['title'] == title]
            asked = dict(re.findall(r'severity="(\w+)"[^)]*\) \+ (\d)', panel['targets'][0]['expr']))
            self.assertEqual({number: name for name, number in asked.items()}, numbers, title)


class Guide(unittest.TestCase):
    def test_it_names_dashboards_and_panels_that_exist(self):
        text = pathlib.Path('docs/dashboards.md').read_text()
        self.assertEqual(set(re.findall(r'^\| (NCCL / \w+) \|', text, re.M)), {dashboard['title'] for dashboard in DASHBOARDS.values()})
        reading = text[text.index('## Read them'):text.index('## Change them')]
        titles = {panel['title'] for _, panel in places()}
        columns = {title for _, panel in places() if panel['type'] == 'table' for title in fields(panel).values()}
        named = set(re.findall(r'(?<!\*)\*([A-Z][^*]+)\*(?!\*)', reading))
        self.assertGreater(len(named), 30)
        self.assertEqual(named - titles - columns, set())
        self.assertLessEqual({f'NCCL / {name}' for name in re.findall(r'\*\*(\w+)\*\*', reading)},
                             {dashboard['title'] for dashboard in DASHBOARDS.values()})

    def test_variables_are_explained(self):
        text = pathlib.Path('docs/dashboards.md').read_text()
        section = text[text.index('## Variables'):text.index('## Read them')]
        for dashboard in DASHBOARDS.values():
            for variable in dashboards.variables(dashboard):
                if variable['type'] == 'query':
                    self.assertIn(variable['label'], section)

    def test_grafana_is_told_where_to_find_them(self):
        provider, = yaml.safe_load((HERE / 'provider.yaml').read_text())['providers']
        self.assertEqual(provider['type'], 'file')
        self.assertIn(provider['options']['path'], pathlib.Path('docs/dashboards.md').read_text())


class Suspects(unittest.TestCase):
    def test_fields_of_dcgm_are_listed_and_checked_by_a_panel(self):
        listed = pathlib.Path('docs/why.md').read_text().partition('## Fields of DCGM')[2]
        self.assertEqual(set(re.findall(r'\bDCGM_\w+', listed)), OF_SUSPECTS)
        panel, = [panel for _, panel in places() if panel['title'] == 'Fields of DCGM that the rules read']
        self.assertEqual(set(re.findall(r'\bDCGM_\w+', panel['targets'][0]['expr'])), OF_SUSPECTS)


class Expressions(unittest.TestCase):
    def test_promtool_reads_them_all(self):
        read_by_promtool(self, DASHBOARDS)

    def test_joins_of_communicators_are_of_one_job_and_user(self):
        """Any user may write the id of another user's communicator."""
        joins = [(query.place, set(labels.split(', '))) for dashboard in DASHBOARDS.values() for query in dashboards.queries(dashboard)
                 for labels in re.findall(r'\bon \(([^)]*)\)', query.expression)]
        of_communicators = [(place, labels) for place, labels in joins if 'comm' in labels]
        self.assertGreater(len(of_communicators), 50)
        for place, labels in of_communicators:
            self.assertLessEqual({'cluster', 'namespace', 'nccl_job', 'uid'}, labels, place)

    def test_they_use_what_the_daemon_serves_and_the_rules_record(self):
        families = set(FAMILIES)
        buckets = {name + '_bucket' for name, kind in FAMILIES.items() if kind == 'histogram'}
        self.assertGreater(len(families), 40)
        known = families | buckets | RECORDED | FOREIGN
        used = set()
        for dashboard in DASHBOARDS.values():
            for query in dashboards.queries(dashboard):
                series = re.sub(r'\b(by|on|group_left|group_right) ?\([^)]*\)', '', query.expression)
                used |= set(re.findall(r'\b(nccl_(?!job\b)\w+|(?:process|scrape|DCGM)_\w+|(?:comm\w*|job|process):[\w:]+|up|ALERTS)\b', series))
        self.assertEqual(used - known, set())
        self.assertEqual(families - used, set(NOT_SHOWN), 'families that no panel shows')
        self.assertEqual(FOREIGN - used, set())


if __name__ == '__main__':
    report.main()
