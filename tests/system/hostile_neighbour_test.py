#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A user of the node attacks the segment directories while another user's job runs: after each attack, every count of the
victim's ranks must be in a scrape and equal the job's own account, and errors must name the attacker. One line per attack.
Needs root, to become other users; says so and skips where it is not."""
import contextlib
import ctypes
import errno
import fcntl
import json
import mmap
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path('deploy/tests').resolve()))
import report

DAEMON, SIMULATOR, NCCL, CUDA, PLUGIN = (os.path.abspath(path) for path in
    ('exporter/nccl-exporter', 'simulator/nccl-sim', 'simulator/libnccl-sim.so', 'simulator/libcuda-sim.so',
     'plugin/libnccl-profiler-exporter.so'))
DAEMON_USER, ATTACKER, VICTIM = 65532, 1001, 1002
WAIT_SECONDS = 60
# The layout of a segment, proto/README.md: version, magic, header_bytes, slot_bytes, slot_count, file_bytes.
HEADER_BYTES, SLOT_BYTES = 8192, 110592
HEADER_BYTES_AT, SLOT_BYTES_AT, SLOT_COUNT_AT, FILE_BYTES_AT, START_AT, IDENTITIES_AT = 16, 24, 32, 40, 64, 80
IDENTITY_AT, IDENTITY_KEY_BYTES, IDENTITY_VALUE_BYTES, IDENTITY_PAIRS = 4096, 32, 96, 32
LIVE, CLOSED = 2, 3  # low byte of a slot's state; above it is the generation
COMMUNICATOR_AT, RANK_AT, TIMING_SOURCE_AT, KERNEL, COMPLETIONS_AT = 8, 24, 64, 1, 76096  # in a slot


def become(uid):
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def what_is_missing():
    """Why this machine cannot play two users, or None."""
    if os.geteuid() != 0:
        return 'needs root, to become other users'
    child = os.fork()
    if child == 0:
        try:
            become(ATTACKER)
            os._exit(0)
        except OSError:
            os._exit(1)
    return 'no other users here' if os.waitpid(child, 0)[1] else None


class Attacker:
    """A process of the attacker that runs `act`, and then, if `stays`, lives on with what it holds until it is ended."""

    def __init__(self, act, stays=False):
        ready, self.done = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 0
            try:
                ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
                limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
                become(ATTACKER)
                act()
            except BaseException as problem:  # noqa: the child must not go on as the test
                print(f'the attack failed: {problem!r}', file=sys.stderr, flush=True)
                code = 1
            os.write(self.done, b'.')
            while stays and code == 0:
                signal.pause()
            os._exit(code)
        os.close(self.done)
        os.read(ready, 1)
        os.close(ready)

    def end(self, is_loop=False):
        if is_loop:
            os.kill(self.pid, signal.SIGKILL)
        return os.waitpid(self.pid, 0)[1]


def loop(act):
    """A process of the attacker that repeats `act` until it is killed."""
    pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        become(ATTACKER)
        while True:
            with contextlib.suppress(OSError, ValueError):
                act()
    return pid


def samples(text):
    found = {}
    for line in text.splitlines():
        match = re.fullmatch(r'([a-z0-9_]+)(?:\{(.*)\})? (\S+)', line)
        if line.startswith('#') or not match:
            continue
        labels = dict(re.findall(r'([a-z0-9_]+)="((?:[^"\\]|\\.)*)"', match[2] or ''))
        found.setdefault(match[1], []).append((labels, float(match[3])))
    return found


def differences(scrape, truth):
    """What is missing or wrong of the victim's job in a scrape. Series with another `uid` are of another user who claims its labels."""
    wrong = []

    def value(name, **wanted):
        found = [v for labels, v in scrape.get(name, [])
                 if labels.get('uid') == str(VICTIM) and all(labels.get(k) == x for k, x in wanted.items())]
        return found[0] if len(found) == 1 else f'{len(found)} series'

    def expect(expected, name, **wanted):
        got = value(name, **wanted)
        if (0 if got == '0 series' else got) != expected:
            wrong.append(f'{name}{wanted} is {got}, not {expected}')

    for rank in truth['ranks']:
        for communicator in rank['communicators']:
            for function, account in communicator['functions'].items():
                where = {'comm': communicator['id'], 'rank': str(communicator['rank'])}
                expect(account['calls'], 'nccl_api_calls_total', function=function, **where)
                expect(sum(account['duration'].values()), 'nccl_collective_duration_seconds_count', collective=function, **where)
                for size, counts in account['sizes'].items():
                    expect(counts['operations'], 'nccl_collective_operations_total', collective=function, size=size, **where)
                    expect(counts['bytes'], 'nccl_collective_bytes_total', collective=function, size=size, **where)
                expect(1, 'nccl_communicator_info', **where)
    return wrong


class Attack:
    """One attack: `before` runs in a process of the attacker before the job begins and may go on holding what it has; `during`
    is repeated by another one while the job runs; `after` runs when the job has ended and its segments are still served. The daemon
    must count `error` for the attacker, and serve ranks with the labels `seen`: else it did not see the attack."""

    def __init__(self, name, before=None, during=None, after=None, error=None, seen=None, holds=False):
        self.name, self.before, self.during, self.after, self.error, self.seen, self.holds = name, before, during, after, error, seen, holds


def put(path, data=b'', size=None):
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
    os.write(descriptor, data)
    if size is not None:
        os.ftruncate(descriptor, size)
    return descriptor


def lock(descriptor):
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


@unittest.skipIf(what_is_missing(), what_is_missing())
class HostileNeighbour(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.root = pathlib.Path(tempfile.mkdtemp(dir='/dev/shm'))
        self.stack.callback(shutil.rmtree, self.root, ignore_errors=True)
        self.root.chmod(0o755)
        self.programs = self.root / 'programs'
        self.programs.mkdir()
        for program in DAEMON, SIMULATOR, NCCL, CUDA, PLUGIN:
            shutil.copy(program, self.programs)
        self.results = self.root / 'results'
        self.results.mkdir()
        os.chown(self.results, VICTIM, VICTIM)
        # A segment with counts, as the attacker may copy it.
        template = self.root / 'template'
        self.make_directory(template)
        self.run_job(template)
        self.template = next(template.glob('*.seg')).read_bytes()

    def make_directory(self, path):
        path.mkdir()
        os.chown(path, DAEMON_USER, DAEMON_USER)
        path.chmod(0o1777)

    def start(self, uid, command):
        log = self.stack.enter_context(tempfile.TemporaryFile('w+'))
        process = subprocess.Popen(['setpriv', f'--reuid={uid}', f'--regid={uid}', '--clear-groups', '--', *map(str, command)],
                                   stdout=log, stderr=log)
        process.log = log
        return process

    def run_job(self, directory, extra=()):
        truth = self.results / 'truth.json'
        with contextlib.suppress(FileNotFoundError):
            truth.unlink()
        job = self.start(VICTIM, [self.programs / 'nccl-sim', '--plugin', self.programs / 'libnccl-profiler-exporter.so', '--segment-dir', directory,
                                  '--truth', truth, '--layout', 'dp', '--ranks-per-node', '2', *extra])
        code = job.wait(WAIT_SECONDS)
        job.log.seek(0)
        self.assertEqual(code, 0, job.log.read())
        return json.loads(truth.read_text())

    def metrics(self):
        with urllib.request.urlopen(f'http://127.0.0.1:{self.port}/metrics', timeout=30) as answer:
            return samples(answer.read().decode())

    def eventually(self, holds):
        """The last answer of `holds`, which is empty where all is well."""
        until = time.monotonic() + WAIT_SECONDS
        while (answer := holds()) and time.monotonic() < until:
            time.sleep(0.2)
        return answer

    def start_daemon(self):
        with socket.socket() as probe:
            probe.bind(('127.0.0.1', 0))
            self.port = probe.getsockname()[1]
        daemon = self.start(DAEMON_USER, [self.programs / 'nccl-exporter', f'--web.listen-address=127.0.0.1:{self.port}',
                                          f'--segment.dir={self.shared}', f'--segment.dir={self.other}',
                                          f'--segment.dir={self.commons}/private-*'])

        def is_silent():
            with contextlib.suppress(OSError):
                return not self.metrics()
            return daemon.poll() is None
        self.eventually(is_silent)
        self.assertIsNone(daemon.poll(), 'the daemon did not start')
        return daemon

    # What the attacker does. Each runs as the attacker, in a process of his.

    def segment(self, name, data=None, directory=None, holds=True):
        descriptor = put((directory or self.shared) / name, data or self.template)
        if holds:
            lock(descriptor)
        return descriptor

    def edited(self, *edits):
        data = bytearray(self.template)
        for at, value in edits:
            struct.pack_into('<Q', data, at, value)
        return bytes(data)

    def victims_files(self):
        return [path for path in self.shared.glob('*.seg') if path.lstat().st_uid == VICTIM]

    def empty_files(self):
        for i in range(1100):
            os.close(put(self.shared / f'junk{i}.seg'))

    def wrong_magic(self):
        for i in range(3000):
            os.close(put(self.shared / f'junk{i}.seg', b'certainly no segment of ours'))

    def valid_and_dead(self):
        for i in range(1500):
            os.close(put(self.shared / f'copy{i}.seg', self.template[:HEADER_BYTES], len(self.template)))

    def valid_and_live(self):
        for i in range(1500):
            lock(put(self.shared / f'copy{i}.seg', self.template[:HEADER_BYTES], len(self.template)))

    def same_names(self):
        for path in self.victims_files():
            with contextlib.suppress(FileExistsError, OSError):
                data = bytearray(path.read_bytes())
                struct.pack_into('<Q', data, START_AT, 1)  # comes first
                os.close(put(self.other / path.name, bytes(data)))

    def copies_of_the_victims(self):
        for path in self.victims_files():
            with contextlib.suppress(FileExistsError, OSError):
                os.close(put(self.shared / f'copy-{path.name}', path.read_bytes()))

    def copies_in_another_pod(self):
        """As above, first in time, alive, and with the name of a pod: the rules group without it."""
        for path in self.victims_files():
            with contextlib.suppress(FileExistsError, OSError):
                data = bytearray(path.read_bytes())
                struct.pack_into('<Q', data, START_AT, 1)
                identities, = struct.unpack_from('<Q', data, IDENTITIES_AT)
                if data[HEADER_BYTES] != LIVE or identities == IDENTITY_PAIRS:
                    continue
                at = IDENTITY_AT + identities * (IDENTITY_KEY_BYTES + IDENTITY_VALUE_BYTES)
                data[at:at + 9] = b'POD_NAME\0'
                data[at + IDENTITY_KEY_BYTES:at + IDENTITY_KEY_BYTES + 2] = b'x\0'
                struct.pack_into('<Q', data, IDENTITIES_AT, identities + 1)
                self.kept = getattr(self, 'kept', []) + [self.segment(f'pod-{path.name}', bytes(data))]

    def sparse(self):
        for i in range(20):
            lock(put(self.shared / f'sparse{i}.seg', self.edited((SLOT_COUNT_AT, 37)), 4 << 40))

    def links(self):
        (self.shared / 'passwd.seg').symlink_to('/etc/passwd')
        (self.shared / 'loop.seg').symlink_to('loop.seg')
        (self.shared / 'directory.seg').symlink_to(self.other)

    def hard_links(self):
        for path in self.victims_files():
            with contextlib.suppress(OSError):
                os.link(path, self.shared / f'link-{path.name}')
            with contextlib.suppress(OSError):
                os.link(path, self.other / path.name)

    def special_files(self):
        os.mkfifo(self.shared / 'pipe.seg')
        (self.shared / 'folder.seg').mkdir()
        socket.socket(socket.AF_UNIX).bind(str(self.shared / 'socket.seg'))
        with contextlib.suppress(PermissionError):
            os.mknod(self.shared / 'device.seg', stat.S_IFCHR | 0o644, os.makedev(1, 9))

    def names(self):
        for name in (b'a\nb\rc\x1b[31m.seg', '名前\u202e.seg'.encode(), b'\xff\xfe.seg', b'n' * 250 + b'.seg', b'"} 1\n# x.seg', b'.seg'):
            os.close(put(os.fsencode(self.shared) + b'/' + name, b'certainly no segment of ours'))

    def truncation(self):
        path = self.shared / 'changing.seg'
        if not path.exists():
            self.held = self.segment('changing.seg')
        for size in (len(self.template), 9000, 0, 100, len(self.template)):
            os.ftruncate(self.held, size)
            os.pwrite(self.held, self.template[:HEADER_BYTES], 0)

    def rewriting(self):
        path = self.shared / 'rewritten.seg'
        if not path.exists():
            self.map = mmap.mmap(self.segment('rewritten.seg'), len(self.template))
        for _ in range(100):
            at = random.randrange(HEADER_BYTES, len(self.template) - 64)
            self.map[at:at + 64] = random.randbytes(64)
        self.map[:HEADER_BYTES] = self.template[:HEADER_BYTES]

    def times(self):
        far = 2 ** 64 - 1
        for number, (modified, value) in enumerate([(0, far), (2 ** 40, 2 ** 63), (-2 ** 31, 1), (1, 0)]):
            data = bytearray(self.edited((START_AT, value), (START_AT + 8, value)))
            for at in range(HEADER_BYTES + 8, HEADER_BYTES + 400, 8):
                struct.pack_into('<Q', data, at, value)
            os.close(self.segment(f'time{number}.seg', bytes(data)))
            os.utime(self.shared / f'time{number}.seg', (modified, modified))

    def geometry(self):
        edits = [((SLOT_COUNT_AT, 2 ** 32),), ((SLOT_COUNT_AT, 0),), ((SLOT_BYTES_AT, 2 ** 63),), ((FILE_BYTES_AT, 2 ** 64 - 1),),
                 ((IDENTITIES_AT, 2 ** 40),), ((HEADER_BYTES_AT, 7),)]
        for number, edit in enumerate(edits):
            self.segment(f'geometry{number}.seg', self.edited(*edit))

    def segment_of_many(self, name, slots):
        """A locked segment of slots - 1 live communicators."""
        data = self.edited((SLOT_COUNT_AT, slots), (FILE_BYTES_AT, HEADER_BYTES + slots * SLOT_BYTES))
        descriptor = self.segment(name, data[:HEADER_BYTES])
        os.ftruncate(descriptor, HEADER_BYTES + slots * SLOT_BYTES)
        for slot in range(slots - 1):
            first = bytearray(self.template[HEADER_BYTES:HEADER_BYTES + 4096])
            struct.pack_into('<Q', first, 8 * 1, slot + 1)
            os.pwrite(descriptor, bytes(first), HEADER_BYTES + slot * SLOT_BYTES)
        return descriptor

    def communicators(self):
        for number in range(3):
            self.segment_of_many(f'many{number}.seg', 2000)

    def dying_communicators(self):
        """Six segments of 1,000 communicators, whose lock is let go one after the other."""
        for number in range(6):
            descriptor = self.segment_of_many(f'dying{number}.seg', 1001)
            time.sleep(1.5)  # in which the daemon sees it alive
            os.close(descriptor)

    def flood_of_names(self):
        for i in range(200_000):
            os.close(put(self.shared / f'{i}.x'))

    def flood_of_segment_names(self):
        os.close(put(self.shared / 'junk.seg', b'certainly no segment of ours'))
        for i in range(200_000):
            try:
                os.link(self.shared / 'junk.seg', self.shared / f'{i}.seg')
            except OSError:  # a file system may allow fewer links to one file
                os.close(put(self.shared / f'{i}.seg'))

    def used_slots(self):
        """Segments of a live process in which every slot was used and finalized."""
        slots = 4096
        for number in range(12):
            header = self.edited((SLOT_COUNT_AT, slots), (FILE_BYTES_AT, HEADER_BYTES + slots * SLOT_BYTES))[:HEADER_BYTES]
            descriptor = self.segment(f'used{number}.seg', header)
            os.ftruncate(descriptor, HEADER_BYTES + slots * SLOT_BYTES)
            for slot in range(slots - 1):
                os.pwrite(descriptor, struct.pack('<Q', 1 << 8 | CLOSED), HEADER_BYTES + slot * SLOT_BYTES)

    def claimed_anew(self):
        """Two ranks of a communicator that has just begun to work, again and again: each time the daemon looks for its other ranks."""
        if not hasattr(self, 'maps'):
            self.maps, self.generation = [], 1
            for rank in range(2):
                data = self.edited(*((HEADER_BYTES + at, value) for at, value in (
                    (0, 1 << 8 | LIVE), (COMMUNICATOR_AT, 4711), (RANK_AT, rank), (TIMING_SOURCE_AT, KERNEL), (COMPLETIONS_AT, 1))))
                self.maps.append(mmap.mmap(self.segment(f'anew{rank}.seg', data), len(data)))
        self.generation += 1
        for segment in self.maps:
            struct.pack_into('<Q', segment, HEADER_BYTES, self.generation << 8 | LIVE)
        time.sleep(0.005)

    def touched_without_end(self):
        """A segment of 1,499 communicators, of nobody alive, that looks changed each time the daemon looks."""
        path = self.shared / 'touched.seg'
        if not path.exists():
            os.close(self.segment_of_many('touched.seg', 1500))
        os.utime(path)
        time.sleep(0.002)

    def tiny(self):
        for i in range(100_000):
            os.close(put(self.shared / f'{i}.seg', b'x'))

    def destroy(self):
        for path in self.victims_files():
            for attempt in (path.unlink, lambda p=path: p.rename(self.shared / 'gone.seg'), lambda p=path: os.truncate(p, 0),
                            lambda p=path: p.chmod(0), lambda p=path: os.open(p, os.O_RDWR), lambda p=path: p.write_bytes(b'')):
                try:
                    attempt()
                    raise AssertionError(f'the attacker may change {path}')
                except OSError as problem:
                    if problem.errno not in (errno.EPERM, errno.EACCES, errno.ENOENT):
                        raise

    def replace_directory(self):
        for attempt in (lambda: self.shared.rename(self.root / 'gone'), lambda: self.shared.chmod(0o777), self.shared.rmdir):
            try:
                attempt()
                raise AssertionError('the attacker may replace the directory')
            except OSError:
                pass

    def lock_first(self):
        """Holds a read lock on each file of the victim as soon as it can be opened: its writer could not lock it then."""
        for path in self.victims_files():
            descriptor = os.open(path, os.O_RDONLY)
            fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            self.kept = getattr(self, 'kept', []) + [descriptor]

    def churn(self):
        for i in range(50):
            os.close(put(self.shared / f'churn{i}.seg', b'x'))
        for i in range(50):
            (self.shared / f'churn{i}.seg').unlink()

    def private_directories(self):
        for name in (f'private-{VICTIM}', 'private-0', f'private-{ATTACKER}', 'private-x', 'private-00'):
            directory = self.commons / name
            directory.mkdir()
            os.close(put(directory / 'x.seg', self.template))

    def attacks(self):
        return [
            Attack('1,100 empty files', before=self.empty_files),
            Attack('3,000 files of another kind', before=self.wrong_magic, error='bad_magic'),
            Attack('1,500 copies of a segment, of nobody alive', before=self.valid_and_dead, error='too_many_segments'),
            Attack('1,500 copies of a segment, each locked', before=self.valid_and_live, error='too_many_segments', holds=True),
            Attack("the names of the victim's files in another directory", during=self.same_names, after=self.same_names),
            Attack("copies of the victim's segments, with its communicators", during=self.copies_of_the_victims, after=self.copies_of_the_victims),
            Attack('20 sparse files of 4 TiB', before=self.sparse, error='bad_geometry', holds=True),
            Attack('symbolic links', before=self.links, error='not_a_regular_file'),
            Attack("hard links to the victim's files", during=self.hard_links, after=self.hard_links),
            Attack('a FIFO, a socket, a folder and a device', before=self.special_files, error='not_a_regular_file'),
            Attack('names with line feeds, colours, no UTF-8', before=self.names, error='bad_magic'),
            Attack('a segment that is truncated while it is read', during=self.truncation),
            Attack('a segment that is rewritten while it is read', during=self.rewriting),
            Attack('absurd time stamps', before=self.times),
            Attack('absurd numbers and sizes of slots', before=self.geometry, error='bad_geometry', holds=True),
            Attack('6,000 communicators', before=self.communicators, error='too_many_segments', holds=True),
            Attack('100,000 files of one byte', before=self.tiny, error='bad_magic'),
            Attack("removal and change of the victim's files", during=self.destroy, after=self.destroy),
            Attack('another directory in the place of the watched one', before=self.replace_directory),
            Attack("locks on the victim's files", during=self.lock_first),
            Attack('files that come and go without end', during=self.churn),
            Attack("private directories that are named after other users", before=self.private_directories, seen={'uid': str(ATTACKER)}),
            Attack("copies of the victim's segments, alive, in another pod", during=self.copies_in_another_pod, after=self.copies_in_another_pod,
                   seen={'uid': str(ATTACKER), 'pod': 'x'}),
            Attack('6,000 communicators of processes that end one by one', before=self.dying_communicators, error='too_many_segments'),
            Attack('200,000 names of no segments', before=self.flood_of_names),
            Attack('200,000 names of segments, and more come and go', before=self.flood_of_segment_names, during=self.churn, error='bad_magic'),
            Attack('12 segments of 4,095 slots that were all used', before=self.used_slots, error='too_many_segments', holds=True),
            Attack('communicators that are claimed anew without end', during=self.claimed_anew, seen={'uid': str(ATTACKER)}),
            Attack('a large segment of nobody alive that is touched without end', during=self.touched_without_end, seen={'uid': str(ATTACKER)}),
        ]

    def play(self, number, attack):
        self.shared, self.other = self.root / f'shared{number}', self.root / f'other{number}'
        self.commons = self.root / f'commons{number}'  # as /dev/shm, where users make private directories
        for directory in self.shared, self.other, self.commons:
            self.make_directory(directory)
        daemon = self.start_daemon()
        holder, attacking, problems = None, None, []
        try:
            if attack.before:
                holder = Attacker(attack.before, stays=attack.holds)
                if not attack.holds and holder.end():
                    problems.append('the attack failed')
            if attack.during:
                attacking = loop(attack.during)
            truth = self.run_job(self.shared, ['--pace', 'real', '--duration', '2', '--rate', '20'])
            if attack.after and Attacker(attack.after).end():
                problems.append('the attack failed')
            problems += self.eventually(lambda: differences(self.metrics(), truth))[:3]
            scrape = self.metrics()
            errors = {(labels['uid'], labels['reason']) for labels, _ in scrape.get('nccl_exporter_user_segment_errors_total', [])}
            if attack.error and (str(ATTACKER), attack.error) not in errors:
                problems.append(f'no error {attack.error} of uid {ATTACKER}, but {errors}')
            if attack.seen and not any(attack.seen.items() <= labels.items() for labels, _ in scrape.get('nccl_rank_info', [])):
                problems.append(f'the daemon has not seen the attack: no rank with {attack.seen}')
            if named := [error for error in errors if error[0] != str(ATTACKER)]:
                problems.append(f'errors of others: {named}')
            if daemon.poll() is not None:
                problems.append('the daemon ended')
        finally:
            for pid in [attacking] + ([holder.pid] if holder and attack.holds else []):
                if pid:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
            daemon.terminate()
            daemon.wait()
            for directory in self.shared, self.other, self.commons:
                shutil.rmtree(directory, ignore_errors=True)
        return problems

    def test_the_victims_series_are_complete_and_right_in_each_attack(self):
        chosen = [int(number) for number in os.environ.get('HOSTILE_ATTACKS', '').split(',') if number]
        failed = []
        for number, attack in enumerate(self.attacks(), 1):
            if chosen and number not in chosen:
                continue
            begun = time.monotonic()
            problems = self.play(number, attack)
            print(f'{number:2} {attack.name}: {"ok" if not problems else "; ".join(problems)} ({time.monotonic() - begun:.1f} s)', flush=True)
            failed += [attack.name] if problems else []
        self.assertEqual(failed, [])


if __name__ == '__main__':
    report.main()
