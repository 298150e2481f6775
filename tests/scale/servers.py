# SPDX-License-Identifier: Apache-2.0
"""Real servers for a run: Prometheus and Alertmanager as processes, and the pages of a played cluster by HTTP."""
import http.server
import json
import os
import pathlib
import re
import socket
import subprocess
import threading
import time
import typing
import urllib.error
import urllib.parse
import urllib.request

import yaml

import played_cluster

PROMETHEUS = '/usr/bin/prometheus'
ALERTMANAGER = '/usr/bin/prometheus-alertmanager'
START_SECONDS = 120  # a server that replays its log takes long on a busy machine
QUERY_SECONDS = 600
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # all servers are on this machine


def free_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


class Rule(typing.NamedTuple):
    group: str
    name: str
    expression: str
    is_alert: bool
    labels: dict


def rules_of(text):
    """All rules in their order."""
    for group in yaml.safe_load(text)['groups']:
        for rule in group['rules']:
            yield Rule(group['name'], rule.get('record') or rule['alert'], rule['expr'], 'alert' in rule, rule.get('labels', {}))


def seconds_of(duration):
    """Seconds of a duration as generate-rules spells it."""
    number, unit = re.fullmatch(r'(\d+)(ms|[smhd])', duration).groups()
    return int(number) * {'ms': 0.001, 's': 1, 'm': 60, 'h': 3600, 'd': 86400}[unit]


def group_intervals(text):
    """Seconds between two evaluations, of the groups that state them."""
    return {group['name']: seconds_of(group['interval']) for group in yaml.safe_load(text)['groups'] if 'interval' in group}


def families_read(text):
    """Families of the exporter that the rules read; recorded series have a colon in their names."""
    return {name for rule in rules_of(text) for name in re.findall(r'(?<![:\w])nccl_(?!job\b)\w+(?![:\w])', rule.expression)}


class Process:
    """A server in `directory`, until the end of the block; ready when the block begins."""
    READY_PATH = '/-/ready'

    def __init__(self, directory, command, port):
        self.directory, self.command, self.port = pathlib.Path(directory), [str(word) for word in command], port
        self.address = f'http://127.0.0.1:{port}'

    def start(self):
        self.directory.mkdir(parents=True, exist_ok=True)
        with open(self.directory / 'log', 'a') as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                OPENER.open(f'{self.address}{self.READY_PATH}', timeout=5).close()
                return self
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.process.kill()
                    raise SystemExit(f'{self.command[0]} did not start:\n' + (self.directory / 'log').read_text()[-2000:])
                time.sleep(0.1)

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def get(self, path, **arguments):
        try:
            return json.load(OPENER.open(f'{self.address}{path}?' + urllib.parse.urlencode(arguments), timeout=QUERY_SECONDS))
        except urllib.error.HTTPError as error:
            raise SystemExit(f'{self.command[0]} answers {arguments} with {error.code}: {error.read().decode()[:500]}')

    def own_metrics(self):
        """The server's metrics about itself, by name: a list of labels and value."""
        metrics = {}
        for line in OPENER.open(f'{self.address}/metrics', timeout=60).read().decode().splitlines():
            if match := re.fullmatch(r'(\w+)(?:\{(.*)\})? (\S+)', line):
                metrics.setdefault(match[1], []).append((dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match[2] or '')), float(match[3])))
        return metrics

    def own_sum(self, name):
        return sum(value for _, value in self.own_metrics().get(name, []))

    def cpu_seconds(self):
        fields = pathlib.Path(f'/proc/{self.process.pid}/stat').read_text().rsplit(')', 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')

    def peak_mib(self):
        status = pathlib.Path(f'/proc/{self.process.pid}/status').read_text()
        return int(status.split('VmHWM:')[1].split()[0]) / 1024


class Prometheus(Process):
    def __init__(self, directory, config, *flags, program=PROMETHEUS, port=None):
        directory = pathlib.Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        port = port or free_port()
        self.path = directory / 'prometheus.yml'
        self.configure(config)
        super().__init__(directory, [program, f'--config.file={self.path}', f'--web.listen-address=127.0.0.1:{port}', *flags], port)

    def configure(self, config):
        self.config = config
        self.path.write_text(json.dumps(config))  # JSON is YAML

    def reload(self, config):
        self.configure(config)
        OPENER.open(urllib.request.Request(f'{self.address}/-/reload', b''), timeout=QUERY_SECONDS).close()

    def query(self, expression, moment):
        return self.get('/api/v1/query', query=expression, time=moment)['data']['result']

    def number(self, expression, moment):
        result = self.query(expression, moment)
        return float(result[0]['value'][1]) if result else 0

    def firing(self):
        """Labels of the alerts that fire now."""
        return [alert['labels'] for alert in self.get('/api/v1/alerts')['data']['alerts'] if alert['state'] == 'firing']


def alertmanager(directory, webhook):
    """An Alertmanager that notifies of each alert by itself, and of none a second time."""
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    (directory / 'alertmanager.yml').write_text(json.dumps({
        'route': {'receiver': 'all', 'group_by': ['...'], 'group_wait': '0s', 'group_interval': '1s', 'repeat_interval': '24h'},
        'receivers': [{'name': 'all', 'webhook_configs': [{'url': webhook, 'send_resolved': True}]}]}))
    return Process(directory, [ALERTMANAGER, f'--config.file={directory}/alertmanager.yml', f'--storage.path={directory}/data',
                               f'--web.listen-address=127.0.0.1:{port}', '--cluster.listen-address='], port)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def answer(self, status, body=b''):
        self.send_response(status)
        self.send_header('Content-Type', 'text/plain; version=0.0.4')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    """Answers by `handler` on a port of its own, until the end of the block."""
    request_queue_size = 1024
    daemon_threads = True

    def __init__(self, handler):
        super().__init__(('127.0.0.1', 0), handler)
        self.port = self.server_port

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()

    def handle_error(self, *_):
        pass  # a client that has gone


class Pages(Server):
    """The pages of the nodes of a cluster, and when each was served with how many samples."""

    def __init__(self, cluster):
        super().__init__(PageHandler)
        self.cluster = cluster
        self.served = {}  # node: list of time and samples

    def scrape_config(self, nodes, interval):
        return {
            'job_name': 'nccl-exporter', 'honor_labels': True, 'scrape_interval': interval, 'scrape_timeout': interval,
            'static_configs': [{'targets': [str(node) for node in nodes]}],
            'relabel_configs': [
                {'source_labels': ['__address__'], 'target_label': '__param_node'},
                {'source_labels': ['__address__'], 'replacement': 'node$1:9828', 'target_label': 'instance'},
                {'replacement': f'127.0.0.1:{self.port}', 'target_label': '__address__'}]}


class PageHandler(Handler):
    def do_GET(self):
        arrived = time.time()
        node = int(self.path.rsplit('=', 1)[1])
        page = self.server.cluster.page(node, arrived)
        if page is None:
            return self.answer(503)
        text, samples = page
        self.answer(200, text.encode())
        self.server.served.setdefault(node, []).append((arrived, samples))


def due_and_false(firing, truth):
    """By name, how many alerts of the truth fire and how many there are; and the alerts that are not of it, whatever their name."""
    named, false = {name: set() for name in truth}, []
    for labels in firing:
        identity = played_cluster.identity(labels)
        if identity in truth.get(labels['alertname'], ()):
            named[labels['alertname']].add(identity)
        else:
            false.append(labels)
    return {name: (len(named[name]), len(truth[name])) for name in truth}, false


def alert_text(labels):
    return ' '.join([labels['alertname'], *(f'{name}={value}' for name, value in sorted(labels.items()) if name not in ('alertname', 'severity', 'job'))])
