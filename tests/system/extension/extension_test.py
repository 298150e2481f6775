#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`nccl-exporter extension run` beside the real daemon: what it gives is there, and whatever becomes of it, the scrapes of this daemon equal
those of a daemon without extensions, are as fast, and the faults are counted."""
import contextlib
import csv
import os
import pathlib
import signal
import socket
import statistics
import sys
import threading
import time

sys.path[:0] = [str(pathlib.Path(folder).resolve()) for folder in ('deploy/tests', 'tests/system/newcomer', 'tests/system/otlp')]
import report
from processes import ProcessTest, free_port
from pushing import PushTest

BROKEN = pathlib.Path('exporter/extension/testing').resolve()
SHIPPED = pathlib.Path('extension').resolve()
OWN = 'nccl_ext_example_processes'
FAULTS = 'nccl_exporter_extension_faults_total'
# Values of the daemon itself differ from one scrape to the next.
OF_RANKS = ('nccl_collective_', 'nccl_api_', 'nccl_rank_', 'nccl_communicator_')
HEAD = b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n'
ENDLESS = b'x' * (1 << 16)


def families(body):
    return HEAD % len(body) + body


def of_length(data):
    """Data after its length."""
    length, size = b'', len(data)
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return length + bytes([size]) + data


def fill_memory(field):
    """An answer of 1 MB that is as large as it can be in memory: empty messages of this field, in a metric."""
    return families(of_length(b'\x22' + of_length(field * (5 * 10 ** 5))))


class Extension(PushTest):
    def setUp(self):
        super().setUp()
        self.socket, self.labels, self.other = self.root / 'run/extensions.sock', self.root / 'labels', free_port()
        self.socket.parent.mkdir()
        self.labels.mkdir()
        self.with_extensions = self.start_daemon(f'--extension.socket={self.socket}', f'--labels.dir={self.labels}', port=self.other)

    def host(self, name, *flags):
        return self.start([self.root / 'nccl-exporter', 'extension', 'run', name, f'--path={SHIPPED}', f'--daemon=http://127.0.0.1:{self.other}',
                           f'--socket={self.socket}', '--interval=1s', *flags])

    def served(self, name=OWN, **labels):
        return self.scraped(port=self.other).get((name, frozenset(labels.items())))

    def expect_equal(self, scraped, expected):
        """Series of ranks are those of the daemon without extensions. Labels of the example are left out."""
        pairs = [((name, frozenset(pair for pair in labels if pair[0] != 'parity')), value) for (name, labels), value in scraped.items()
                 if name.startswith(OF_RANKS)]
        self.assertEqual(len(pairs), len(dict(pairs)))
        self.assertGreater(len(pairs), 100)
        self.assertEqual({key: value for key, value in expected.items() if key[0].startswith(OF_RANKS)}, dict(pairs))

    def timed(self, port):
        """A scrape, and the seconds that it took."""
        began = time.monotonic()
        scraped = self.scraped(port=port)
        return scraped, time.monotonic() - began

    def scrapes(self, seconds):
        """Scrapes of both daemons in turn for this time: the last one, and the median seconds of each. The daemon without extensions is the
        measure, since this machine may have other work."""
        end, times = time.monotonic() + seconds, []
        while time.monotonic() < end:
            (scraped, took), (expected, usual) = self.timed(self.other), self.timed(self.port)
            times.append((took, usual))
            self.expect_equal(scraped, expected)
        return scraped, *map(statistics.median, zip(*times))

    def expect_unaffected(self, seconds, faults):
        before = self.served(FAULTS)
        scraped, median, usual = self.scrapes(seconds)
        self.assertLess(median, 2 * usual + 0.01, 's')
        self.assertGreaterEqual(scraped[FAULTS, frozenset()] - before, faults)
        return scraped

    def holds(self):
        """Descriptors and threads of the daemon."""
        return [len(os.listdir(f'/proc/{self.with_extensions.pid}/{what}')) for what in ('fd', 'task')]

    def expect_nothing_left(self, before):
        self.eventually(lambda: all(now <= then for now, then in zip(self.holds(), before)), lambda: f'{self.holds()} after {before}')

    def peak_mib(self):
        status = pathlib.Path(f'/proc/{self.with_extensions.pid}/status').read_text()
        return int(status.split('VmHWM:')[1].split()[0]) >> 10

    def test_gifts_are_beside_what_is_served(self):
        host = self.host('example', f'--labels.dir={self.labels}')
        self.eventually(lambda: self.served() == 2, host.text)

        def parities():
            return {dict(labels).get('parity') for name, labels in self.scraped(port=self.other) if name == 'nccl_rank_info'}
        self.eventually(lambda: parities() and parities() <= {'even', 'odd'}, host.text)
        self.expect_equal(self.scraped(port=self.other), self.scraped())
        host.send_signal(signal.SIGTERM)
        self.assertEqual(0, host.wait())
        gifts = 'nccl-exporter: extension example: labels of 2 processes, 1 families, 0 files\n'
        self.assertEqual((gifts, []), (host.text(), os.listdir(self.socket.parent)))
        self.assertEqual(['extension-example.json'], os.listdir(self.labels))

    def test_what_goes_nowhere_is_said(self):
        host = self.host('site-labels', f'--set=site-labels.file={self.root}/none.csv')
        self.eventually(lambda: 'labels of 0 processes' in host.text(), host.text)
        for text in 'its labels go nowhere without --labels.dir', f'{self.root}/none.csv: No such file or directory; there is no table':
            self.assertEqual(1, host.text().count(f'nccl-exporter: extension site-labels: {text}\n'), host.text())
        host = self.host('csv', '--set=cvs.families=nccl_')
        self.assertEqual((2, 'nccl-exporter: --set cvs.families=nccl_: no such extension here\n'), (host.wait(), host.text()))

    def test_files_are_written_and_the_oldest_go(self):
        old = self.root / 'files/csv/nccl-2020-01-01-00.csv'
        old.parent.mkdir(parents=True)
        old.touch()
        host = self.host('csv', f'--output.dir={self.root}/files', '--output.files=1', '--set=csv.families=nccl_collective_operations_total')
        self.eventually(lambda: 'labels of 0 processes, 0 families, 1 files' in host.text(), host.text)
        self.eventually(lambda: not old.exists(), host.text)
        host.send_signal(signal.SIGTERM)
        self.assertEqual(0, host.wait())
        [file] = old.parent.iterdir()
        self.assertRegex(file.name, r'nccl-\d{4}-\d\d-\d\d-\d\d\.csv')
        with file.open(newline='') as lines:
            rows = list(csv.reader(lines))
        first = [row for row in rows if row[0] == rows[0][0]]
        written = {(name, frozenset(tuple(pair.split('=')) for pair in labels.split(';'))): float(value) for _, name, value, labels in first}
        self.assertEqual({key: value for key, value in self.scraped(port=self.other).items() if key[0] == 'nccl_collective_operations_total'}, written)
        self.assertLess(abs(int(rows[0][0]) / 1000 - time.time()), 600)

    def test_hosts_that_stop_or_die_are_counted(self):
        host = self.host('example')
        self.eventually(lambda: self.served() == 2, host.text)
        before = self.holds()
        host.send_signal(signal.SIGSTOP)
        self.assertEqual(2, self.expect_unaffected(12, faults=2)[OWN, frozenset()], 'the newest answer')
        host.send_signal(signal.SIGCONT)
        time.sleep(6)  # an answer
        host.kill()
        host.wait()
        self.assertEqual(2, self.expect_unaffected(11, faults=2)[OWN, frozenset()], 'the newest answer')
        self.eventually(lambda: self.served() is None, self.with_extensions.text, seconds=70)
        for reason in 'No such file or directory', 'no answer in time', 'Connection refused':
            self.assertEqual(1, self.with_extensions.text().count(f'no families of extensions from {self.socket}: {reason}'), reason)
        self.expect_nothing_left(before)
        host = self.host('example')
        self.eventually(lambda: self.served() == 2, host.text)
        self.assertEqual(['extensions.sock'], os.listdir(self.socket.parent))

    def test_broken_extensions_break_their_host_alone(self):
        host = self.host(BROKEN / 'broken1.so')
        self.assertEqual(1, host.wait())
        self.assertIn('is of ABI major 2, this host of 1', host.text())
        self.expect_unaffected(6, faults=1)
        host = self.host(BROKEN / 'broken6.so')
        refused = 'extension broken: family "own": more than 2,000 samples of all families'
        self.eventually(lambda: refused in host.text(), host.text)
        self.eventually(lambda: self.served('nccl_ext_broken_own', i='aaaa') == 0, host.text)
        scraped = self.scrapes(2)[0]
        self.assertEqual(2000, sum(name == 'nccl_ext_broken_own' for name, _ in scraped))

    @contextlib.contextmanager
    def played(self, behavior):
        """A socket in place of the host's."""
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.socket))
            listener.listen()
            listener.settimeout(0.1)
            ends, peers = threading.Event(), []

            def serve():
                while not ends.is_set():
                    with contextlib.suppress(OSError):
                        peer, _ = listener.accept()
                        peer.settimeout(2)
                        peers.append(peer)
                        with peer:
                            behavior(peer)
            thread = threading.Thread(target=serve)
            thread.start()
            try:
                yield peers
            finally:
                ends.set()
                thread.join()
                self.socket.unlink()

    def test_hostile_sockets_are_counted(self):
        def flood(peer):
            while True:
                peer.sendall(ENDLESS)

        def late(peer):
            time.sleep(0.2)
            peer.sendall(families(b''))
        before = self.holds()
        behaviors = [flood, late, *(lambda peer, answer=answer: peer.sendall(answer) for answer in (
            b'\x16\x03\x01\xffgarbage', families(b'\x05hallo'), families(of_length(b'\x0a\x0enccl_rank_info')),
            fill_memory(b'\x0a\x00'), families(bytes(10 ** 6))))]
        for i, behavior in enumerate(behaviors):
            with self.subTest(i), self.played(behavior) as peers:
                self.expect_unaffected(6, faults=1)
                self.assertGreaterEqual(len(peers), 1)
        self.assertIsNone(self.with_extensions.poll())
        self.expect_nothing_left(before)
        self.assertLess(self.peak_mib(), 100)
        print(f'the daemon needed {self.peak_mib()} MiB')


class Commands(ProcessTest):
    """`extension check` and `extension list`, which need no daemon."""
    def say(self, *arguments):
        """The exit code and the lines."""
        command = self.start([self.root / 'nccl-exporter', 'extension', *arguments])
        command.wait()
        return command.returncode, command.text().splitlines()

    def test_check_passes_what_is_shipped(self):
        code, lines = self.say('check', 'csv', 'example', f'--path={SHIPPED}')
        self.assertEqual((0, 20), (code, len(lines)), lines)
        self.assertTrue(all(line.startswith(('ok   csv: ', 'ok   example: ')) for line in lines), lines)
        self.assertIn('ok   example: an answer of 8 ranks', lines)

    def test_check_fails_what_is_broken_and_says_why(self):
        first = BROKEN / 'broken1.so'
        code, lines = self.say('check', first)
        self.assertEqual((1, [f'FAIL {first}: is loaded: file, object, major, size, name: {first} is of ABI major 2, this host of 1']), (code, lines))
        code, lines = self.say('check', BROKEN / 'broken6.so', 'example', f'--path={SHIPPED}')
        failed = [line for line in lines if line.startswith('FAIL')]
        self.assertEqual((1, 20), (code, len(lines)), 'the broken one comes first, and all tests of both are done')
        self.assertIn(f'FAIL {BROKEN}/broken6.so: an answer of 8 ranks: family "own": more than 2,000 samples of all families', failed)
        self.assertEqual([], [line for line in failed if 'example' in line])

    def test_check_says_a_wrong_setting_once(self):
        for flags, text in ((), 'set site-labels.file=PATH'), (['--set=site-labels.file=none.csv'], 'none.csv: No such file or directory'):
            code, lines = self.say('check', 'site-labels', f'--path={SHIPPED}', *flags)
            self.assertEqual(1, '\n'.join(lines).count(text), lines)
            self.assertEqual(0 if flags else 1, code, lines)

    def test_list_has_what_each_claims(self):
        table = self.root / 'jobs.csv'
        table.write_text('nccl_job,team,queue\n4711,speech,long\n')
        place, claims = f'{SHIPPED}/libnccl-exporter-extension-', 'claims of a test answer:'
        expected = [f'csv 1.0: sink ({place}csv.so); {claims} nothing',
                    f'example 1.0: labels, families ({place}example.so); {claims} family nccl_ext_example_processes, label parity',
                    f'site-labels 1.0: labels ({place}site-labels.so); {claims} label queue, label team']
        self.assertEqual((0, expected), self.say('list', f'--path={SHIPPED}', f'--set=site-labels.file={table}'))
        code, lines = self.say('list', 'site-labels', f'--path={SHIPPED}')
        self.assertEqual((0, f'site-labels 1.0: labels ({place}site-labels.so); {claims} not known, create() refuses its configuration'),
                         (code, lines[-1]))
        code, lines = self.say('list', 'example', 'none', f'--path={SHIPPED}', '--set=example.label=team')
        self.assertEqual(1, code)
        self.assertIn(f'example 1.0: labels, families ({place}example.so); {claims} family nccl_ext_example_processes, label team', lines)
        self.assertIn(f'nccl-exporter: none: no libnccl-exporter-extension-none.so in {SHIPPED}', lines)


if __name__ == '__main__':
    report.main()
