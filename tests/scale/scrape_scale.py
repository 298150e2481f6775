# SPDX-License-Identifier: Apache-2.0
"""Cost of the metrics of many nodes for a Prometheus: a simulated job of 8 ranks leaves its segments, one daemon serves them, and a real Prometheus
scrapes it as so many nodes. Prints series, memory and CPU time of Prometheus, and the CPU time of the daemon. tools/scrape-scale builds what this
needs, and starts it.
"""
import argparse
import json
import os
import pathlib
import subprocess
import tempfile
import time
import urllib.request

INTERVAL = 15  # seconds between scrapes


def simulate(binaries, segments):
    """3 communicators a rank: one with 5 collectives, one with 3, a pipeline."""
    subprocess.run(
        [binaries / 'simulator/nccl-sim', '--plugin', binaries / 'plugin/libnccl-profiler-exporter.so', '--segment-dir', segments, '--layout', 'mixed',
         '--env', 'NCCL_ALLGATHERV_ENABLE=0', '--ranks-per-node', '8', '--steps', '200', '--rate', '100000'],
        check=True, stdout=subprocess.DEVNULL, env=os.environ | {'NCCL_EXPORTER_KERNEL_TIMING': 'on'})


def configuration(nodes, port):
    return {
        'global': {'scrape_interval': f'{INTERVAL}s', 'scrape_timeout': f'{INTERVAL}s'},
        'scrape_configs': [{
            'job_name': 'nccl-exporter',
            'static_configs': [{'targets': [str(node) for node in range(nodes)]}],
            'relabel_configs': [
                {'source_labels': ['__address__'], 'replacement': 'node$1:9828', 'target_label': 'instance'},
                {'replacement': f'127.0.0.1:{port}', 'target_label': '__address__'}],
        }]}


def own_metric(port, name):
    """The sum over its series."""
    page = urllib.request.urlopen(f'http://127.0.0.1:{port}/metrics').read().decode()
    return sum(float(line.rsplit(' ', 1)[1]) for line in page.splitlines() if line.startswith((name + ' ', name + '{')))


def wait_for(port):
    for _ in range(300):
        try:
            return urllib.request.urlopen(f'http://127.0.0.1:{port}/-/ready')
        except OSError:
            time.sleep(0.2)
    raise SystemExit(f'nothing answers at port {port}')


def report(options, prometheus_port, daemon_port, cpu_before):
    series = own_metric(prometheus_port, 'prometheus_tsdb_head_series')
    memory = own_metric(prometheus_port, 'process_resident_memory_bytes')
    samples = own_metric(prometheus_port, 'prometheus_tsdb_head_samples_appended_total')
    cpu = own_metric(prometheus_port, 'process_cpu_seconds_total')
    daemon_cpu = own_metric(daemon_port, 'process_cpu_seconds_total') - cpu_before
    scrapes = samples / (series / options.nodes)
    print(f'{options.nodes} nodes, {options.duration} s, {"native histograms" if options.native else "classic histograms"} {" ".join(options.flags)}')
    print(f'Prometheus: {series:.0f} series, {memory / 2**20:.0f} MiB resident ({memory / series / 1024:.1f} KiB a series), '
          f'{1e6 * cpu / samples:.1f} us of CPU a sample')
    print(f'daemon: {1000 * daemon_cpu / scrapes:.1f} ms of CPU a scrape, idle time between them included')


def main():
    parser = argparse.ArgumentParser(prog='scrape-scale', description=__doc__)
    parser.add_argument('--nodes', type=int, default=48)
    parser.add_argument('--duration', type=int, default=180, help='seconds')
    parser.add_argument('--native', action='store_true', help='with native histograms')
    parser.add_argument('--port', type=int, default=19841)
    parser.add_argument('flags', nargs='*', help='of the daemon, after --')
    options = parser.parse_args()
    binaries = pathlib.Path(__file__).resolve().parents[2] / 'bazel-bin'
    os.environ['no_proxy'] = '127.0.0.1'
    daemon_port, prometheus_port = options.port, options.port + 1
    with tempfile.TemporaryDirectory() as scratch:
        directory = pathlib.Path(scratch)
        simulate(binaries, directory)
        (directory / 'prometheus.json').write_text(json.dumps(configuration(options.nodes, daemon_port)))
        with open(directory / 'log', 'w') as log:
            processes = [
                subprocess.Popen([binaries / 'exporter/nccl-exporter', f'--segment.dir={directory}', '--segment.retention=1d',
                                  f'--web.listen-address=127.0.0.1:{daemon_port}', *options.flags], stderr=log),
                subprocess.Popen(['prometheus', f'--config.file={directory}/prometheus.json', f'--storage.tsdb.path={directory}/data',
                                  f'--web.listen-address=127.0.0.1:{prometheus_port}', *(['--enable-feature=native-histograms'] if options.native else [])],
                                 stdout=log, stderr=log)]
            try:
                wait_for(daemon_port)
                cpu_before = own_metric(daemon_port, 'process_cpu_seconds_total')
                wait_for(prometheus_port)
                time.sleep(options.duration)
                report(options, prometheus_port, daemon_port, cpu_before)
            finally:
                for process in processes:
                    process.terminate()
                    process.wait()


if __name__ == '__main__':
    main()
