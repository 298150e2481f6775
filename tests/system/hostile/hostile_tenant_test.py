#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The attacks of hostile_neighbour_test by a container of the victim's own user: in its mount namespace the segment directory is the subdirectory of its
container. The shared directory is a small file system of its own. The victim's job must end as without the attack, every count of a third user's job must be
in a scrape, and the file systems of the node must not fill. One line per attack. Needs root, to become other users; says so and skips where it is not."""
import contextlib
import ctypes
import os
import pathlib
import shutil
import subprocess
import unittest

import hostile_neighbour_test as neighbour
import report
from attacks import HEADER_BYTES, LIVE, VICTIM, Attack

BYSTANDER = 1003
DURATION = '4'  # seconds
CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 4096, 0x4000, 1 << 18
# As run-nccl\\x2dexporter.mount.
SHARED_FILE_SYSTEM = 'mode=1777,size=1g,nr_inodes=64k,nosuid,nodev,noexec'
# Bytes that the daemon and the jobs may add to the node's file system meanwhile.
MOST_GROWTH_BYTES = 64 << 20


def enter_container(directory, place, hidden):
    """A mount namespace of this process, in which `place` is `directory`, and `hidden` are empty."""
    libc = ctypes.CDLL(None, use_errno=True)

    def mount(source, target, kind, flags):
        if libc.mount(os.fsencode(source), os.fsencode(target), kind, flags, None):
            raise OSError(ctypes.get_errno(), f'mount {target}')

    if libc.unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), 'unshare')
    mount('none', '/', None, MS_REC | MS_PRIVATE)
    mount(directory, place, None, MS_BIND)
    for path in hidden:
        mount('none', path, b'tmpfs', 0)


def calls(truth):
    """Calls of each rank, which do not depend on how long they took."""
    return [[(communicator['rank'], {name: function['calls'] for name, function in communicator['functions'].items()})
             for communicator in rank['communicators']] for rank in truth['ranks']]


def has_communicators(directory):
    """Whether each of the job's four processes has begun its communicator."""
    states = []
    for path in directory.glob('*.seg'):
        with open(path, 'rb') as file:
            file.seek(HEADER_BYTES)
            states.append(file.read(1))
    return states == 4 * [bytes([LIVE])]


class HostileTenant(neighbour.HostileNeighbour):
    attacker = VICTIM

    def setUp(self):
        super().setUp()
        quiet = self.root / 'quiet'
        self.make_directory(quiet)
        self.undisturbed = calls(self.run_job(quiet, [*neighbour.JOB, '--duration', DURATION], neighbour.WITH_NETWORK))

    def make_directories(self, number):
        super().make_directories(number)
        subprocess.run(['mount', '-t', 'tmpfs', '-o', SHARED_FILE_SYSTEM, 'none', self.shared], check=True)
        self.stack.callback(subprocess.run, ['umount', '--lazy', self.shared], stderr=subprocess.DEVNULL)
        os.chown(self.shared, neighbour.DAEMON_USER, neighbour.DAEMON_USER)
        self.tenant, self.victim, self.bystander = (self.shared / name for name in ('tenant', 'victim', 'bystander'))
        for directory in self.tenant, self.victim, self.bystander:
            directory.mkdir()
            directory.chmod(0o1777)
        self.leaked = self.root / f'leaked{number}'  # facts about the victim's segments that the attacker has got
        self.leaked.mkdir()

    def remove_directories(self):
        subprocess.run(['umount', '--lazy', self.shared], check=True)
        super().remove_directories()
        shutil.rmtree(self.leaked)

    def used_bytes(self):
        state = os.statvfs(self.root)
        return (state.f_blocks - state.f_bfree) * state.f_frsize

    def become_attacker(self):
        enter_container(self.tenant, self.shared, [self.other, self.commons])
        neighbour.become(VICTIM)

    def victims_files(self):
        return list(self.leaked.glob('*.seg'))

    def full(self):
        """Writes until the file system of the segments is full."""
        with open(self.shared / 'full', 'wb') as file:
            while True:
                file.write(bytes(1 << 20))

    def attacks(self):
        within = [attack for attack in super().attacks() if not attack.name.startswith('private directories')]
        return within + [Attack('a full file system of the segments', before=self.full, fills=True)]

    def begin(self, attack):
        if not attack.fills:
            return super().begin(attack)

        def fill():
            with contextlib.suppress(OSError):
                attack.before()
        return super().begin(Attack(attack.name, before=fill, during=attack.during))

    def attack_and_jobs(self, attack):
        """The attack begins when the segments of the jobs are there: a job that begins on a full file system has no metrics (SECURITY.md)."""
        jobs = [self.start_job(uid, directory, [*neighbour.JOB, '--duration', DURATION], neighbour.WITH_NETWORK)
                for uid, directory in ((VICTIM, self.victim), (BYSTANDER, self.bystander))]
        self.eventually(lambda: [directory for directory in (self.victim, self.bystander) if not has_communicators(directory)])
        for path in self.victim.glob('*.seg'):
            shutil.copy(path, self.leaked)
        used_before = self.used_bytes()
        problems = self.begin(attack)
        victims, bystanders = (self.end_job(job) for job in jobs)
        problems += self.end(attack)
        if calls(victims) != self.undisturbed:
            problems.append('the job did not end as without the attack')
        if self.used_bytes() - used_before > MOST_GROWTH_BYTES:
            problems.append("the node's file system grew")
        return problems + self.eventually(lambda: neighbour.differences(self.metrics(), bystanders, BYSTANDER))[:3]


if __name__ == '__main__':
    report.main()
