#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`nccl-exporter otlp` between the real daemon and a played receiver: what it pushes equals a scrape, and what it does when the
receiver refuses, delays, breaks or is away."""
import pathlib
import shutil
import signal
import ssl
import subprocess
import sys
import time

sys.path[:0] = [str(pathlib.Path(folder).resolve()) for folder in ('deploy/tests', 'tests/system/newcomer', 'tests/system/otlp')]
import report
from processes import free_port
from pushing import PushTest
from receiver import Receiver

OWN = 'nccl_otlp_'
# Values of the daemon itself differ from one scrape to the next.
OF_RANKS = ('nccl_collective_', 'nccl_api_', 'nccl_rank_', 'nccl_communicator_')


class PushesTo(PushTest):
    def start_receiver(self, tls=None):
        self.receiver = Receiver(free_port(), tls).start()
        self.addCleanup(lambda: self.receiver.stop())
        self.endpoint = f'{"https" if tls else "http"}://127.0.0.1:{self.receiver.port}'

    def wait_for(self, count, process):
        self.eventually(lambda: len(self.receiver.accepted) >= count, process.text)

    def expect_all_in_order(self):
        times = [min(request.times) / 1e9 for request in self.receiver.accepted]
        self.assertEqual(sorted(set(times)), times)
        self.assertLess(max(after - before for before, after in zip(times, times[1:])), 2 * 0.3 + 1, 'none is missing')


class Pushes(PushesTo):
    def setUp(self):
        super().setUp()
        self.start_receiver()

    def flat(self, request):
        """As the text of a scrape has it: buckets are cumulative."""
        series = {}
        for (name, labels), point in request.points.items():
            if point.kind != 'histogram':
                series[name, labels] = point.value
                continue
            count, total, bounds, counts = point.value
            self.assertEqual(count, sum(counts))
            for i, bound in enumerate([*bounds, float('inf')]):
                series[f'{name}_bucket', labels | {('le', bound)}] = float(sum(counts[:i + 1]))
            series[f'{name}_count', labels], series[f'{name}_sum', labels] = float(count), total
        return {key: value for key, value in series.items() if not key[0].startswith(OWN)}

    @staticmethod
    def by_bound(scraped):
        return {(name, frozenset((key, float(text) if key == 'le' else text) for key, text in labels)): value
                for (name, labels), value in scraped.items()}

    def test_are_what_a_scrape_has(self):
        process = self.push(self.endpoint, environment={'NODE_NAME': 'node-7'})
        self.wait_for(2, process)
        request = self.receiver.accepted[1]
        pushed, scraped = self.flat(request), self.by_bound(self.scraped())
        # Families that count requests begin with the first request.
        self.assertEqual({key for key in scraped if key[0].startswith(OF_RANKS)}, {key for key in pushed if key[0].startswith(OF_RANKS)})
        self.assertEqual(set(), {key for key in pushed if key not in scraped})
        self.assertEqual(set(), {name for name, _ in scraped} - {name for name, _ in pushed})
        of_ranks = {key: value for key, value in scraped.items() if key[0].startswith(OF_RANKS)}
        self.assertGreater(len(of_ranks), 100)
        self.assertEqual(of_ranks, {key: pushed[key] for key in of_ranks})
        self.expect_truth(pushed)
        self.assertEqual(1, len(request.times))
        self.assertEqual({''}, {point.unit for point in request.points.values()})
        self.assertEqual({'service.name', 'service.instance.id', 'host.name', 'k8s.node.name'}, set(request.resource))
        self.assertEqual(('nccl-exporter', 'node-7', 'node-7'),
                         tuple(request.resource[key] for key in ('service.name', 'service.instance.id', 'k8s.node.name')))
        [path] = {path for path, _ in self.receiver.heads}
        self.assertEqual('/v1/metrics', path)
        self.assertEqual(('application/x-protobuf', 'gzip'), tuple(self.receiver.heads[0][1][key] for key in ('Content-Type', 'Content-Encoding')))

    def test_begin_when_the_daemon_says(self):
        process = self.push(self.endpoint)
        self.wait_for(1, process)
        points = self.receiver.accepted[0].points
        created = {(name.replace('_created', ''), labels): value for (name, labels), value in self.scraped('application/openmetrics-text;version=1.0.0').items()
                   if name.endswith('_created')}
        seen = set()
        for (name, labels), point in points.items():
            if point.kind == 'gauge':
                self.assertEqual(0, point.start, name)
            else:
                self.assertLessEqual(point.start, point.time)
                seen.add(point.start)
            if not name.startswith(OWN) and (name.removesuffix('_total'), labels) in created:
                self.assertAlmostEqual(created[name.removesuffix('_total'), labels], point.start / 1e9, places=3)
        self.assertNotIn(0, seen)
        self.assertGreater(len(seen), 2, 'of the daemon, of this command and of the job')

    def test_of_a_restarted_daemon_have_its_start(self):
        process = self.push(self.endpoint)
        self.wait_for(1, process)
        first = self.receiver.accepted[0].points
        key = next(key for key in first if key[0].startswith('nccl_exporter_') and first[key].kind == 'sum')
        self.daemon.kill()
        self.daemon.wait()
        self.start_daemon()

        def has_new_start():
            point = self.receiver.accepted[-1].points.get(key)
            return point and not point.flags and point.start > first[key].start
        self.eventually(has_new_start, process.text)

    def test_have_exponential_histograms_by_choice(self):
        process = self.push(self.endpoint, '--histograms=exponential', '--compression=none')
        self.wait_for(1, process)
        self.assertNotIn('Content-Encoding', self.receiver.heads[0][1])
        scraped = self.by_bound(self.scraped())
        histograms = {key: point for key, point in self.receiver.accepted[0].points.items() if point.kind == 'exponential'}
        compared = 0
        for (name, labels), point in histograms.items():
            count, total, scale, zeros, threshold, buckets = point.value
            self.assertEqual(count, zeros + sum(buckets.values()))
            self.assertEqual(total, scraped[f'{name}_sum', labels])
            for (bucket, bucket_labels), value in scraped.items():
                bound = dict(bucket_labels).get('le')
                if bucket != f'{name}_bucket' or bucket_labels - {('le', bound)} != labels:
                    continue
                # Bucket i ends at 2^((i + 1) / 2^scale).
                below = sum(number for index, number in buckets.items() if 2 ** ((index + 1) / 2 ** scale) <= bound * (1 + 1e-9))
                self.assertEqual(value, below + (zeros if threshold <= bound else 0), (name, bound))
                compared += value > 0
        self.assertGreater(compared, 20)
        # Those of the daemon itself have no native buckets.
        self.assertEqual(set(), {name for (name, _), point in self.receiver.accepted[0].points.items() if point.kind == 'histogram' and name.startswith(OF_RANKS)})

    def test_are_tried_again_after_429_and_503(self):
        began = time.monotonic()
        self.receiver.answers.extend([(429, {'Retry-After': '3'}, b'slow down', 0), (503, {}, b'', 0)])
        process = self.push(self.endpoint)
        self.wait_for(1, process)
        self.assertGreater(time.monotonic() - began, 3, 'Retry-After')
        self.assertEqual([self.receiver.tries[0].times] * 3, [request.times for request in self.receiver.tries[:3]], 'the oldest first')
        self.wait_for(12, process)
        self.expect_all_in_order()
        self.eventually(lambda: self.receiver.accepted[-1].value('nccl_otlp_failed_tries_total') == 2, process.text)
        self.assertIn(f'cannot push to http://127.0.0.1:{self.receiver.port}/v1/metrics: status 429: slow down; trying again', process.text())
        self.assertIn('accepts requests again', process.text())

    def test_that_are_refused_are_dropped_and_counted(self):
        self.receiver.answers.extend([(400, {}, b'\x12\x03bad', 0), (413, {}, b'', 0), (301, {'Location': '/'}, b'', 0)])
        process = self.push(self.endpoint)
        self.wait_for(2, process)
        self.eventually(lambda: self.receiver.accepted[-1].value('nccl_otlp_requests_total', result='refused') == 3, process.text)
        self.assertIn('refuses a request, which is dropped: status 400: bad', process.text())
        self.assertEqual(len(self.receiver.tries), len({min(request.times) for request in self.receiver.tries}), 'none was tried again')

    def test_that_are_accepted_in_part_are_counted(self):
        partial = b'\x0a\x0b\x08\x05\x12\x07too old'
        self.receiver.answers.append((200, {}, partial, 0))
        process = self.push(self.endpoint)
        self.wait_for(2, process)
        self.eventually(lambda: self.receiver.accepted[-1].value('nccl_otlp_rejected_points_total') == 5, process.text)
        self.assertIn('accepts a request in part: too old', process.text())

    def test_outlast_garbage_and_slowness(self):
        self.receiver.answers.extend([b'', b'\x15\x03\x01garbage', b'HTTP/1.1 abc\r\n\r\n', (200, {}, b'', 12)])
        process = self.push(self.endpoint, '--timeout=5s')
        self.wait_for(3, process)
        self.assertEqual([self.receiver.tries[0].times] * 5, [request.times for request in self.receiver.tries[:5]])
        self.wait_for(20, process)
        self.expect_all_in_order()
        self.eventually(lambda: self.receiver.accepted[-1].value('nccl_otlp_failed_tries_total') == 4, process.text)
        self.receiver.answers.append((200, {}, b'\x0a\xffgarbage', 0))
        self.wait_for(len(self.receiver.accepted) + 2, process)
        self.assertEqual(0, self.receiver.accepted[-1].value('nccl_otlp_rejected_points_total'))

    def test_wait_for_a_receiver_that_is_away_and_for_a_restart(self):
        self.receiver.stop()
        queue = self.root / 'queue'
        queue.mkdir()
        first = self.push(self.endpoint, f'--queue.dir={queue}')
        self.eventually(lambda: len(list(queue.glob('*.otlp'))) >= 8, first.text)
        second = self.push(self.endpoint, f'--queue.dir={queue}')
        self.assertEqual(1, second.wait())
        self.assertIn(f'cannot use --queue.dir={queue}: another process uses it', second.text())
        first.send_signal(signal.SIGKILL)
        first.wait()
        (queue / 'unfinished').write_bytes(b'cut')
        (queue / 'other.otlp').write_bytes(b'of somebody else')
        waiting = len(list(queue.glob('0*.otlp')))
        self.receiver = Receiver(self.receiver.port).start()
        third = self.push(self.endpoint, f'--queue.dir={queue}', '--compression=none')
        self.wait_for(waiting + 2, third)
        self.expect_all_in_order()
        third.send_signal(signal.SIGTERM)
        self.assertEqual(0, third.wait())
        self.assertEqual({'other.otlp'}, {file.name for file in queue.iterdir()} - {'unfinished'})
        encodings = [head.get('Content-Encoding') for _, head in self.receiver.heads]
        self.assertEqual(['gzip'] * waiting, encodings[:waiting])
        self.assertEqual({None}, set(encodings[waiting:]))

    def test_beyond_the_size_of_the_queue_are_dropped_the_oldest_first(self):
        self.receiver.stop()
        for flags in [f'--queue.dir={self.root}/queue'], []:
            (self.root / 'queue').mkdir(exist_ok=True)
            process = self.push(self.endpoint, '--queue.size=1', '--compression=none', *flags, interval='20ms')
            self.eventually(lambda: 'the queue is full, and the oldest requests are dropped' in process.text(), process.text)
            time.sleep(1)
            self.assertLessEqual(sum(file.stat().st_size for file in (self.root / 'queue').iterdir()), 1 << 20)
            self.receiver = Receiver(self.receiver.port).start()
            self.eventually(lambda: self.receiver.accepted and self.receiver.accepted[-1].value('nccl_otlp_requests_total', result='dropped') > 0, process.text)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(0, process.wait())
            self.receiver.stop()
        self.receiver.start()

    def test_say_that_the_daemon_is_away_and_what_is_stale(self):
        process = self.push(self.endpoint)
        self.wait_for(1, process)
        served = {key for key in self.receiver.accepted[0].points if not key[0].startswith(OWN)}
        self.daemon.kill()
        self.daemon.wait()
        self.eventually(lambda: 'no metrics of the daemon at' in process.text(), process.text)
        count = len(self.receiver.accepted)
        self.wait_for(count + 2, process)
        stale = {}
        for request in self.receiver.accepted:
            for key, point in request.points.items():
                if point.flags:
                    self.assertEqual({point.time}, request.times)
                    stale[key] = stale.get(key, 0) + 1
        self.assertEqual(set(), served - set(stale))
        self.assertEqual({1}, set(stale.values()), 'each once')
        self.assertEqual({OWN}, {name[:len(OWN)] for name, _ in self.receiver.accepted[-1].points})
        self.start_daemon()
        self.eventually(lambda: served <= set(self.receiver.accepted[-1].points), process.text)
        lines = [line for line in process.text().splitlines() if 'no metrics of the daemon' in line]
        self.assertEqual(sorted(set(lines)), sorted(lines), 'each once')

    def test_end_with_one_last_try(self):
        self.receiver.answers.extend([(503, {'Retry-After': '600'}, b'', 0)])
        process = self.push(self.endpoint)
        self.eventually(lambda: len(self.receiver.tries) == 1 and 'trying again' in process.text(), process.text)
        time.sleep(1)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(0, process.wait())
        self.assertIn('ended; 0 requests were not pushed', process.text())
        self.assertGreaterEqual(len(self.receiver.accepted), 3)
        self.receiver.answers.extend([(503, {}, b'', 0)] * 100)
        process = self.push(self.endpoint)
        self.eventually(lambda: 'trying again' in process.text(), process.text)
        process.send_signal(signal.SIGINT)
        self.assertEqual(0, process.wait())
        self.assertRegex(process.text(), r'ended; [1-9]\d* requests were not pushed')

    def test_take_the_variables_of_opentelemetry(self):
        environment = {'OTEL_EXPORTER_OTLP_HEADERS': 'a=of%20all', 'OTEL_EXPORTER_OTLP_METRICS_HEADERS': 'X-Scope = team%2C a,b=2',
                       'OTEL_EXPORTER_OTLP_METRICS_ENDPOINT': f'{self.endpoint}/as/it/is', 'OTEL_EXPORTER_OTLP_COMPRESSION': 'none',
                       'OTEL_METRIC_EXPORT_INTERVAL': '200', 'OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE': 'Cumulative'}
        process = self.start([self.root / 'nccl-exporter', 'otlp', f'--daemon=http://127.0.0.1:{self.port}'], env=environment)
        self.wait_for(3, process)
        path, head = self.receiver.heads[0]
        self.assertEqual('/as/it/is', path)
        self.assertEqual(('team, a', '2', None, None), (head['X-Scope'], head['b'], head.get('a'), head.get('Content-Encoding')))
        for name, value, why in (('OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE', 'delta', 'only cumulative is supported'),
                                 ('OTEL_EXPORTER_OTLP_PROTOCOL', 'grpc', 'only http/protobuf is supported'),
                                 ('OTEL_EXPORTER_OTLP_TIMEOUT', '10s', 'it is no number of milliseconds'),
                                 ('OTEL_EXPORTER_OTLP_HEADERS', 'a=b%0d%0aHost: c', 'a header has a character that it cannot have'),
                                 ('OTEL_EXPORTER_OTLP_HEADERS', 'token', 'it is no list of key=value'),
                                 ('OTEL_EXPORTER_OTLP_COMPRESSION', 'zstd', 'it is neither gzip nor none')):
            with self.subTest(name):
                process = self.start([self.root / 'nccl-exporter', 'otlp'], env={name: value})
                self.assertEqual(1, process.wait())
                self.assertEqual(f'nccl-exporter: {name} is wrong: {why}\n', process.text())

    def test_need_little_memory(self):
        self.receiver.stop()
        process = self.push(self.endpoint, '--queue.size=8', '--compression=none', interval='20ms')
        self.eventually(lambda: 'the queue is full' in process.text(), process.text)
        time.sleep(3)
        status = pathlib.Path(f'/proc/{process.pid}/status').read_text()
        self.assertLess(int(status.split('VmHWM:')[1].split()[0]), 64 << 10, 'KiB')
        self.receiver.start()


class PushesByTls(PushesTo):
    """To a receiver that takes clients with a certificate of its authority only."""
    VARIABLES = {'OTEL_EXPORTER_OTLP_CERTIFICATE': 'ca.pem', 'OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE': 'client.pem', 'OTEL_EXPORTER_OTLP_CLIENT_KEY': 'client.key'}

    def setUp(self):
        if not shutil.which('openssl'):
            self.skipTest('openssl is missing')
        super().setUp()
        for authority in 'ca', 'other-ca':
            self.certify(authority, '-addext', 'basicConstraints=critical,CA:TRUE')
        self.issue('ca', 'receiver', 'IP:127.0.0.1')
        self.issue('ca', 'client', 'DNS:node-7')

    def certify(self, name, *arguments):
        subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2', '-config', '/dev/null',
                        '-subj', f'/CN={name}', '-keyout', f'{name}.key', '-out', f'{name}.pem', *arguments],
                       cwd=self.root, check=True, capture_output=True)

    def issue(self, authority, name, alternative):
        self.certify(name, '-CA', f'{authority}.pem', '-CAkey', f'{authority}.key', '-addext', f'subjectAltName={alternative}')

    def server_context(self, name='receiver'):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.root / f'{name}.pem', self.root / f'{name}.key')
        context.load_verify_locations(self.root / 'ca.pem')
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    def variables(self, **changed):
        return {name: str(self.root / file) for name, file in {**self.VARIABLES, **changed}.items() if file}

    def configuration(self, name, text):
        (self.root / name).write_text(text)
        return f'--endpoint.config.file={self.root / name}'

    def expect_clients(self):
        self.assertEqual({'client'}, {dict(field for [field] in peer['subject'])['commonName'] for peer in self.receiver.peers})

    def test_take_authority_and_certificate_of_the_variables(self):
        self.start_receiver(self.server_context())
        process = self.push(self.endpoint, environment=self.variables())
        self.wait_for(3, process)
        self.expect_all_in_order()
        self.expect_clients()
        self.assertEqual('', process.text())

    def test_take_login_and_files_of_a_configuration_instead(self):
        self.issue('ca', 'named', 'DNS:otlp.example')
        self.start_receiver(self.server_context('named'))
        (self.root / 'token').write_text('of the file\n')
        flag = self.configuration('otlp.yml', 'authorization: {credentials_file: token}\nhttp_headers: {X-Scope: {values: [team-a]}}\n'
                                  'tls_config: {ca_file: ca.pem, cert_file: client.pem, key_file: client.key, server_name: otlp.example}\n')
        process = self.push(self.endpoint, flag, environment={**self.variables(OTEL_EXPORTER_OTLP_CERTIFICATE='other-ca.pem'),
                                                             'OTEL_EXPORTER_OTLP_HEADERS': 'Authorization=of the variable,b=2'})
        self.wait_for(3, process)
        self.expect_all_in_order()
        self.expect_clients()
        _, head = self.receiver.heads[0]
        self.assertEqual(('Bearer of the file', 'team-a', None), (head['Authorization'], head['X-Scope'], head.get('b')))
        self.assertEqual('', process.text())

    def test_wait_until_the_certificates_are_right(self):
        """The receiver has another name or authority first, or the client none."""
        self.issue('ca', 'elsewhere', 'DNS:elsewhere.example')
        self.issue('other-ca', 'forged', 'IP:127.0.0.1')
        for wrong, variables, why in (('elsewhere', self.variables(), 'The name in the certificate does not match the expected.'),
                                      ('forged', self.variables(), 'The certificate issuer is unknown.'),
                                      ('receiver', self.variables(OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE='', OTEL_EXPORTER_OTLP_CLIENT_KEY=''), None)):
            with self.subTest(wrong):
                self.start_receiver(self.server_context(wrong))
                process = self.push(self.endpoint, environment=variables)
                self.eventually(lambda: 'trying again' in process.text(), process.text)
                if why:
                    self.assertIn(f'cannot push to {self.endpoint}/v1/metrics: TLS: ', process.text())
                    self.assertIn(why, process.text())
                time.sleep(1)
                self.assertEqual(([], []), (self.receiver.tries, self.receiver.accepted))
                self.receiver.stop()
                right = self.server_context()
                if not why:
                    right.verify_mode = ssl.CERT_NONE
                self.receiver = Receiver(self.receiver.port, right).start()
                self.wait_for(8, process)
                self.expect_all_in_order()
                self.assertGreater(self.receiver.accepted[-1].value('nccl_otlp_failed_tries_total'), 0)
                process.send_signal(signal.SIGTERM)
                process.wait()
                self.receiver.stop()
                self.receiver.start()

    def test_name_files_that_are_missing(self):
        self.start_receiver(self.server_context())
        process = self.push(self.endpoint, environment=self.variables(OTEL_EXPORTER_OTLP_CERTIFICATE='none.pem'))
        self.eventually(lambda: 'none.pem has no certificate of an authority' in process.text(), process.text)


if __name__ == '__main__':
    report.main()
