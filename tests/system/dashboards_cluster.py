# SPDX-License-Identifier: Apache-2.0
"""A cluster in which all goes wrong that the rules know: simulated jobs with the real plugin, a real daemon for each node, a replacement of
dcgm-exporter, and two real Prometheuses with the rules, one of which reads native histograms."""
import contextlib
import http.server
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

DAEMON, SIMULATOR, PLUGIN = (os.path.abspath(path) for path in ('exporter/nccl-exporter', 'simulator/nccl-sim',
                                                                'plugin/libnccl-profiler-exporter.so'))
GENERATE_RULES = os.path.abspath('deploy/prometheus/generate-rules')
PROMETHEUS = os.environ.get('NCCL_EXPORTER_PROMETHEUS', '/usr/bin/prometheus')

TIME_SCALE = 15  # by which the rules' durations are divided
RETENTION_SECONDS = 20  # the default by the same
# Shorter than by the scale alone, so that bandwidth has a past and a pause is a stall within the test.
RULE_OPTIONS = ['--time-scale', str(TIME_SCALE), '--bandwidth-window', '150s', '--baseline', '10m', '--stall-threshold', '2m']
DETAIL_SECONDS = 4  # between two scrapes of it, where alerts are scraped apart: the 60 s of the chart by the same
NODES = 4
SECONDS = 400  # of the jobs: longer than any test waits

# Options of nccl-sim by job. The first has labels of Slurm, the second of Kubernetes, as --slurm-job-id and --env give them.
JOBS = {
    'slow-rank': (2, ['--layout', 'dp', '--incident', 'slow-rank:rank=3,percent=50,from=5', '--slurm-job-id', '4711']),
    'mixed': (2, ['--layout', 'mixed', '--incident', 'slow-link:node=0,to=1,times=6,from=24', '--env', 'POD_NAMESPACE=research', '--env',
                  'POD_NAME=trainer-%r',
                  '--env', 'CONTAINER_NAME=main', '--env', 'SLURM_JOB_NAME=llm']),
    'slow-node': (2, ['--layout', 'dp', '--incident', 'slow-node:node=1,percent=50,from=5', '--slurm-job-id', '4712']),
    'missing-call': (2, ['--layout', '3d', '--incident', 'missing-call:rank=2,from=10', '--slurm-job-id', '4713']),
    'pipeline': (1, ['--layout', 'pp', '--slurm-job-id', '4714']),
    'mismatched-call': (1, ['--layout', 'dp', '--incident', 'mismatched-call:rank=1,from=10', '--slurm-job-id', '4715']),
    'network-hang': (1, ['--layout', 'dp', '--incident', 'network-hang:node=0,to=1,from=10', '--slurm-job-id', '4716']),
    'killed': (1, ['--layout', 'dp', '--incident', 'kill:rank=2,from=10', '--slurm-job-id', '4717']),
    'paused': (1, ['--layout', 'dp', '--incident', 'pause:from=20,seconds=60', '--slurm-job-id', '4718']),
    'untimed': (1, ['--layout', 'dp', '--fault', 'zero:every=2', '--slurm-job-id', '4719']),
    'crowded': (1, ['--layout', 'moe', '--recreate-every', '4', '--slurm-job-id', '4720', '--env', 'NCCL_EXPORTER_COMMUNICATORS=1']),
    'not-judged': (1, ['--layout', 'dp', '--nccl-version', '22907', '--env', 'NCCL_ALLGATHERV_ENABLE=1', '--slurm-job-id', '4722']),
    'revoked': (1, ['--layout', 'dp', '--elastic', 'revoke@40', '--slurm-job-id', '4723']),
    'slow-way': (1, ['--layout', 'dp', '--incident', 'slow-link:node=0,to=1,times=6', '--network-chunk', '4194304', '--network-poll', '20000',
                     '--network-repeats', '4', '--env', 'NCCL_EXPORTER_NETWORK_TIMING=always', '--slurm-job-id', '4721']),
}


def free_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


def get(url, timeout=20):
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=timeout) as answer:
        return answer.read().decode()


# Without what would give jobs other labels than theirs.
FOREIGN_NAMES = 'SLURM_|POD_|CONTAINER_NAME|NODE_NAME|NCCL_|RANK|LOCAL_RANK'
OWN_ENVIRONMENT = {name: value for name, value in os.environ.items() if not re.match(FOREIGN_NAMES, name)}


class PrometheusServer:
    def __init__(self, port):
        self.url = f'http://127.0.0.1:{port}/api/v1/'

    def ask(self, path, **parameters):
        """Answer or error of Prometheus, as it says it."""
        try:
            return json.loads(get(self.url + path + '?' + urllib.parse.urlencode(parameters)))
        except urllib.error.HTTPError as error:
            return json.loads(error.read())

    def series(self, expression):
        return [series['metric'] for series in self.ask('query', query=expression)['data']['result']]


class Cluster:
    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.processes = []
        self.ports = [free_port() for _ in range(NODES + 1)]  # the last node has no ranks, and dies
        self.daemons = [self.start_daemon(node) for node in range(NODES + 1)]
        (self.directory / 'segments0/damaged.seg').write_text('no segment')
        for name, (ranks_per_node, options) in JOBS.items():
            self.start_job(name, ranks_per_node, options)
        self.dcgm = self.start_dcgm()
        self.classic, self.native = (self.start_prometheus(name, flags) for name, flags in
                                     (('classic', []), ('native', ['--enable-feature=native-histograms'])))

    def start(self, name, command, **environment):
        log = (self.directory / f'{name}.log').open('w')
        process = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log, env=OWN_ENVIRONMENT | environment, start_new_session=True)
        self.processes.append(process)
        return process

    def start_daemon(self, node):
        segments = self.directory / f'segments{node}'
        segments.mkdir()
        return self.start(f'daemon{node}', [DAEMON, f'--web.listen-address=127.0.0.1:{self.ports[node]}', f'--segment.dir={segments}',
                                            f'--segment.retention={RETENTION_SECONDS}s', f'--findings.time-scale={TIME_SCALE}', '--log.level=warn'])

    def start_job(self, name, ranks_per_node, options):
        self.start(f'job-{name}', [SIMULATOR, '--plugin', PLUGIN, '--segment-dir', self.directory / 'segments%n', '--nodes', NODES,
                                   '--ranks-per-node', ranks_per_node,
                                   '--pace', 'real', '--rate', 4, '--compute-share', 0.6, '--channels', 2, '--duration', SECONDS, *options],
                   NCCL_EXPORTER_KERNEL_TIMING='on', NCCL_ALLGATHERV_ENABLE='0',
                   NCCL_EXPORTER_RETENTION_SECONDS=str(RETENTION_SECONDS))

    def start_dcgm(self):
        """Serves what dcgm-exporter would of the GPUs that the daemons know."""
        cluster = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                uuids = {uuid for port in cluster.ports[:NODES] for uuid in re.findall(r'gpu_uuid="([^"]+)"',
                                                                                       get(f'http://127.0.0.1:{port}/metrics'))}
                names = ('SM_CLOCK', 'POWER_USAGE', 'GPU_TEMP', 'XID_ERRORS', 'CLOCKS_EVENT_REASONS', 'NVLINK_REPLAY_ERROR_COUNT_TOTAL')
                self.send_response(200)
                self.send_header('Content-Type', 'text/plain; version=0.0.4')
                self.end_headers()
                self.wfile.write(''.join(f'DCGM_FI_DEV_{name}{{UUID="{uuid}"}} 60\n' for name in names for uuid in sorted(uuids)).encode())

            def log_message(self, *_):
                pass
        server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    def start_prometheus(self, name, flags):
        """From release 3 on the native one keeps the classic buckets, too: panels must then show one of the two."""
        version = subprocess.run([PROMETHEUS, '--version'], capture_output=True, text=True, check=True)
        both = {'always_scrape_classic_histograms': True} if flags and 'version 3' in version.stdout + version.stderr else {}
        rules = self.directory / 'rules'
        subprocess.run([GENERATE_RULES, *RULE_OPTIONS, '--output', rules], check=True)
        port = free_port()
        nodes = [{'targets': [f'127.0.0.1:{target}'], 'labels': {'instance': f'node-{node}:9828', 'cluster': 'test'}} for node,
                 target in enumerate(self.ports)]
        dcgm = [{'targets': [f'127.0.0.1:{self.dcgm.server_address[1]}']}]
        all_at_once = {'job_name': 'nccl-exporter', 'honor_labels': True, 'static_configs': nodes, **both}
        of_part = lambda part: all_at_once | {'params': {'collect[]': [part]}}
        detail = of_part('detail') | {'job_name': 'nccl-exporter-detail', 'scrape_interval': f'{DETAIL_SECONDS}s', 'relabel_configs': [
            {'target_label': 'job', 'replacement': 'nccl-exporter'}, {'target_label': 'part', 'replacement': 'detail'}]}
        of_daemons = [all_at_once] if flags else [of_part('alerts'), detail]
        (self.directory / f'{name}.yml').write_text(json.dumps({
            'global': {'scrape_interval': '1s', 'scrape_timeout': '1s', 'evaluation_interval': '1s'}, 'rule_files': [str(rules / '*.yml')],
            'scrape_configs': [*of_daemons, {'job_name': 'dcgm-exporter', 'scrape_interval': '5s', 'scrape_timeout': '5s', 'static_configs': dcgm}]}))
        self.start(f'prometheus-{name}', [PROMETHEUS, f'--config.file={self.directory / name}.yml', f'--storage.tsdb.path={self.directory / name}',
                                          f'--web.listen-address=127.0.0.1:{port}', '--query.lookback-delta=20s', '--log.level=warn', *flags])
        return PrometheusServer(port)

    def kill_last_daemon(self):
        self.daemons[-1].kill()

    def log(self, name):
        return (self.directory / f'{name}.log').read_text()

    def close(self):
        self.dcgm.shutdown()
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with the processes of a job
            process.wait()
        self.dcgm.server_close()


def eventually(condition, seconds, pause=0.2):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True
