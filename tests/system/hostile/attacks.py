# SPDX-License-Identifier: Apache-2.0
"""Attacks of one user of a node on another user's metrics. Each runs in a process of the attacker."""
import contextlib
import errno
import fcntl
import mmap
import os
import random
import socket
import stat
import struct
import time

ATTACKER, VICTIM = 1001, 1002
# The layout of a segment, proto/README.md: version, magic, header_bytes, slot_bytes, slot_count, file_bytes.
HEADER_BYTES, SLOT_BYTES = 8192, 131072
HEADER_BYTES_AT, SLOT_BYTES_AT, SLOT_COUNT_AT, FILE_BYTES_AT, START_AT, IDENTITIES_AT = 16, 24, 32, 40, 64, 80
TABLE_BYTES_AT = 776  # of tables behind the slots, which plugins with layout 1.5 to 1.7 could have
IDENTITY_AT, IDENTITY_KEY_BYTES, IDENTITY_VALUE_BYTES, IDENTITY_PAIRS = 4096, 32, 96, 32
LIVE, CLOSED = 2, 3  # low byte of a slot's state; above it is the generation
COMMUNICATOR_AT, RANK_AT, TIMING_SOURCE_AT, KERNEL, COMPLETIONS_AT = 8, 24, 64, 1, 76096  # in a slot
TABLE_BYTES = 4096


class Attack:
    """One attack: `before` runs in a process of the attacker before the job begins and may go on holding what it has; `during`
    is repeated by another one while the job runs; `after` runs when the job has ended and its segments are still served. The daemon
    must count `error` for the attacker, and serve a series of the family `family` with the labels `seen` that is not 0; otherwise it did not see the attack. `fills`: it needs more files than a file system of the segments may have."""

    def __init__(self, name, before=None, during=None, after=None, error=None, seen=None, family='nccl_rank_info', holds=False, fills=False):
        self.name, self.before, self.during, self.after, self.error, self.holds = name, before, during, after, error, holds
        self.seen, self.family, self.fills = seen, family, fills


def put(path, data=b'', size=None):
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
    os.write(descriptor, data)
    if size is not None:
        os.ftruncate(descriptor, size)
    return descriptor


def lock(descriptor):
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


class Attacks:
    """The table of attacks. A subclass has `attacker`, a user id, `template`, the bytes of a segment, and the directories that the daemon watches: `shared`,
    `other`, and `commons`, where users make private ones."""

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
        """Copies of the victims' segments, first in time, alive, and with the name of a pod: the rules group without it."""
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
            struct.pack_into('<QQ', first, 0, 1 << 8 | LIVE, slot + 1)  # of the first generation; its id
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

    def claimed_again(self):
        """Two ranks of a communicator that has just begun to work, again and again: each time the daemon looks for its other ranks."""
        if not hasattr(self, 'maps'):
            self.maps, self.generation = [], 1
            for rank in range(2):
                data = self.edited(*((HEADER_BYTES + at, value) for at, value in (
                    (0, 1 << 8 | LIVE), (COMMUNICATOR_AT, 4711), (RANK_AT, rank), (TIMING_SOURCE_AT, KERNEL), (COMPLETIONS_AT, 1))))
                self.maps.append(mmap.mmap(self.segment(f'again{rank}.seg', data), len(data)))
        self.generation += 1
        for segment in self.maps:
            struct.pack_into('<Q', segment, HEADER_BYTES, self.generation << 8 | LIVE)
        time.sleep(0.005)

    def touched_without_end(self):
        """A segment of 1,499 communicators, of no live process, that looks changed each time the daemon looks."""
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
                    if problem.errno not in (errno.EPERM, errno.EACCES, errno.ENOENT, errno.EXDEV):
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

    def with_tables(self, size=TABLE_BYTES):
        """A segment with a table of random bytes behind each slot, as layout 1.5 to 1.7 allowed; its header claims that size."""
        slots, = struct.unpack_from('<Q', self.template, SLOT_COUNT_AT)
        data = bytearray(self.template)
        struct.pack_into('<Q', data, TABLE_BYTES_AT, size)
        return bytes(data) + random.randbytes(TABLE_BYTES * slots)

    def tables(self):
        """Tables that are larger than the file, too small, or that lie behind its end."""
        for number, size in enumerate((TABLE_BYTES, 2 ** 64 - 1, 2 ** 63, 1, 65536 + 4096, 2 ** 32)):
            self.segment(f'tables{number}.seg', self.with_tables(size))
        self.segment('short.seg', self.with_tables()[:-1])

    def vanishing_tables(self):
        """Tables that are cut off, and filled at random, while they are read."""
        whole = self.with_tables()
        first, = struct.unpack_from('<Q', whole, FILE_BYTES_AT)
        if not (self.shared / 'vanishing.seg').exists():
            self.held = self.segment('vanishing.seg', whole)
        for _ in range(20):
            os.ftruncate(self.held, random.choice((first, first + 100, len(whole) - 1, 0)))
            os.ftruncate(self.held, len(whole))
            os.pwrite(self.held, whole[:HEADER_BYTES + SLOT_BYTES], 0)
            os.pwrite(self.held, random.randbytes(TABLE_BYTES), first)

    def attacks(self):
        return [
            Attack('1,100 empty files', before=self.empty_files),
            Attack('3,000 files of another kind', before=self.wrong_magic, error='bad_magic'),
            Attack('1,500 copies of a segment, of no live process', before=self.valid_and_dead, error='too_many_segments'),
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
            Attack('100,000 files of one byte', before=self.tiny, error='bad_magic', fills=True),
            Attack("removal and change of the victim's files", during=self.destroy, after=self.destroy),
            Attack('another directory in the place of the watched one', before=self.replace_directory),
            Attack("locks on the victim's files", during=self.lock_first),
            Attack('files that come and go without end', during=self.churn),
            Attack("private directories that are named after other users", before=self.private_directories, seen={'uid': str(self.attacker)}),
            Attack("copies of the victim's segments, alive, in another pod", during=self.copies_in_another_pod, after=self.copies_in_another_pod,
                   seen={'uid': str(self.attacker), 'pod': 'x'}),
            Attack('6,000 communicators of processes that end one by one', before=self.dying_communicators, seen={'state': 'ended'},
                   family='nccl_exporter_unread_communicators'),
            Attack('200,000 names of no segments', before=self.flood_of_names, fills=True),
            Attack('200,000 names of segments, and more come and go', before=self.flood_of_segment_names, during=self.churn, error='bad_magic', fills=True),
            Attack('12 segments of 4,095 slots that were all used', before=self.used_slots, error='too_many_segments', holds=True),
            Attack('communicators that are claimed again without end', during=self.claimed_again, seen={'uid': str(self.attacker)}),
            Attack('a large segment of no live process that is touched without end', during=self.touched_without_end, seen={'uid': str(self.attacker)}),
            Attack('tables behind the slots, of any claimed size', before=self.tables, seen={'uid': str(self.attacker)}, holds=True),
            Attack('tables behind the slots that are cut off while they are read', during=self.vanishing_tables),
        ]
