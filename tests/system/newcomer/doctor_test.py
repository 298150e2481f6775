#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Plants each fault that keeps a job from being seen, for real, and reads what `nccl-exporter doctor` says to change. The ranks are
the simulator's. As root they are another user's. What a machine or user does not allow is skipped with the reason."""
import http.server
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading

sys.path[:0] = [str(pathlib.Path(folder).resolve()) for folder in ('deploy/tests', 'tests/system/newcomer')]
import report
from processes import NCCL, PLUGIN, WAIT_SECONDS, ProcessTest, free_port

IS_ROOT = os.geteuid() == 0
JOB_USER = 1000 if IS_ROOT else os.geteuid()
AS_JOB_USER = f'setpriv --reuid={JOB_USER} --regid={JOB_USER} --clear-groups --no-new-privs --' if IS_ROOT else ''
# Without root, a namespace of users lets a process mount for itself.
UNSHARE = ['unshare', *([] if IS_ROOT else ['--user', '--map-root-user']), '--kill-child']
EM_AARCH64 = 183
MACHINE_AT = 18  # e_machine in an ELF header
LIBRARY = 'libnccl-profiler-exporter.so'


def what_is_missing(command):
    """Why this user cannot run it here, or None."""
    probe = subprocess.run(command, capture_output=True, text=True)
    return probe.stderr.strip() or f'{command} ends with {probe.returncode}' if probe.returncode else None


class Doctor(ProcessTest):
    def setUp(self):
        super().setUp()
        self.plugin = self.root / LIBRARY
        self.segments = self.directory('segments')

    def directory(self, name, mode=0o1777):
        path = self.root / name
        path.mkdir()
        path.chmod(mode)
        return path

    def mount(self, options, path):
        if not IS_ROOT:
            self.skipTest('needs root, to mount where the daemon sees it')
        subprocess.run(['mount', '-t', 'tmpfs', '-o', options, 'tmpfs', path], check=True)
        self.stack.callback(subprocess.run, ['umount', '--lazy', path], check=True)

    def start_daemon(self):
        daemon = self.start([self.root / 'nccl-exporter', f'--web.listen-address=127.0.0.1:{self.port}', f'--segment.dir={self.segments}'])
        self.eventually(lambda: 'listens at' in daemon.text(), daemon.text)
        return daemon

    def start_rank(self, environment=(), namespaces=(), setup='', **changes):
        """The PID here of a rank of JOB_USER that has tried to load the plugin, and its log. `setup` runs in its mount namespace."""
        if namespaces and (missing := what_is_missing([*UNSHARE, *namespaces, 'true'])):
            self.skipTest(f'no namespaces here: {missing}')
        variables = {'NCCL_PROFILER_PLUGIN': str(self.plugin), 'NCCL_EXPORTER_DIR': str(self.segments), 'NCCL_ALLGATHERV_ENABLE': '0',
                     'NCCL_EXPORTER_KERNEL_TIMING': 'on', 'RANK': '0', 'LOCAL_RANK': '0', 'WORLD_SIZE': '1', **dict(environment)}
        variables = {name: value for name, value in variables.items() if value is not None}
        options = {'nccl-version': '22809', 'api-version': '5', **changes}
        script = f'set -e; {setup}\nexec {AS_JOB_USER} "$@"'
        job = self.start([*([*UNSHARE, *namespaces] if namespaces else []), 'sh', '-c', script, 'sh', 'env', '-i', 'PATH=/usr/bin:/bin',
                          *(f'{name}={value}' for name, value in variables.items()),
                          self.root / 'nccl-sim', '--ranks-per-node', '1', '--layout', 'single', '--pace', 'real', '--duration', '600',
                          '--nccl-debug', 'info', *(part for name, value in options.items() for part in (f'--{name}', value))])
        self.eventually(lambda: re.search(r'plugin (INFO: nccl-exporter|WARN)', job.text()), job.text)
        [pid] = [int(path.parent.name) for path in pathlib.Path('/proc').glob('[0-9]*/cmdline')
                 if str(self.root / 'nccl-sim').encode() in self.bytes_of(path).split(b'\0')[:1] and b'--child-process=0' in self.bytes_of(path)]
        return pid, job.text()

    @staticmethod
    def bytes_of(path):
        try:
            return path.read_bytes()
        except OSError:  # it has ended meanwhile
            return b''

    def doctor(self, pid=None, code=1):
        """Its lines, once its exit code is as it should be."""
        command = [self.root / 'nccl-exporter', 'doctor', f'--segment.dir={self.segments}', f'--web.listen-address=127.0.0.1:{self.port}']
        run = subprocess.run([*command, *(() if pid is None else ('--pid', str(pid)))], capture_output=True, text=True)
        self.assertEqual((code, ''), (run.returncode, run.stderr), run.stdout)
        return run.stdout.splitlines()

    def expect(self, lines, *parts):
        """One line that is not `ok` and has these parts in this order: what is wrong, and what to change."""
        pattern = re.compile('.*'.join(map(re.escape, parts)))
        self.assertTrue([line for line in lines if not line.startswith('ok') and pattern.search(line)], '\n'.join([pattern.pattern, *lines]))

    def expect_only(self, lines, *parts):
        self.expect(lines, *parts)
        self.assertEqual(1, sum(not line.startswith('ok') for line in lines), '\n'.join(lines))

    def test_a_sound_job_has_nothing_to_change(self):
        self.start_daemon()
        pid, _ = self.start_rank()
        lines = self.doctor(pid, code=0)
        self.assertEqual([], [line for line in lines if not line.startswith('ok')], '\n'.join(lines))

    def test_a_job_without_durations(self):
        self.start_daemon()
        pid, _ = self.start_rank({'NCCL_ALLGATHERV_ENABLE': None}, **{'nccl-version': '23007', 'api-version': '6'})
        self.expect_only(self.doctor(pid, code=0), 'warn times of operations', 'allgatherv_enabled', 'change: NCCL_ALLGATHERV_ENABLE=0 on all ranks')

    # 1. The directory is a wrong one.

    def test_another_directory_than_the_daemons(self):
        self.start_daemon()
        other = self.directory('other')
        pid, _ = self.start_rank({'NCCL_EXPORTER_DIR': str(other)})
        self.assertEqual(1, len(list(other.iterdir())))
        self.expect(self.doctor(pid), 'FAIL', str(other), 'change: mount the same directory in both places', '--segment.dir')

    def test_a_directory_that_is_not_there(self):
        self.start_daemon()
        pid, log = self.start_rank({'NCCL_EXPORTER_DIR': '/nowhere'})
        self.assertIn('cannot open segment directory /nowhere', log)
        self.expect(self.doctor(pid), 'FAIL', '/nowhere: No such file or directory', 'change: install -d -m 1777')

    def test_a_sound_container_has_nothing_to_change(self):
        self.start_daemon()
        pid, log = self.start_rank({'NCCL_EXPORTER_DIR': None}, ['--pid', '--mount', '--fork'],
                                   f'mount --make-rprivate /; mount -t proc proc /proc; mount -t tmpfs tmpfs /run; mkdir /run/nccl-exporter; '
                                   f'mount --bind {self.segments} /run/nccl-exporter')
        self.assertIn('segment /run/nccl-exporter/', log)
        lines = self.doctor(pid, code=0)
        self.assertEqual([], [line for line in lines if not line.startswith('ok')], '\n'.join(lines))

    def test_a_container_without_the_nodes_directory(self):
        self.start_daemon()
        pid, log = self.start_rank({'NCCL_EXPORTER_DIR': None}, ['--mount'],
                                   f'mount --make-rprivate /; mount --bind {self.root} /mnt; mount -t tmpfs tmpfs /run; mount -t tmpfs tmpfs /dev/shm; '
                                   f'mkdir {self.root}; mount --bind /mnt {self.root}')
        self.assertIn('segment /dev/shm/nccl-exporter-', log)
        self.expect(self.doctor(pid), 'FAIL', '/dev/shm/nccl-exporter', 'change: mount the same directory in both places')

    # 2. Permission.

    def test_a_directory_that_the_job_may_not_write(self):
        self.start_daemon()
        self.segments.chmod(0o555)
        pid, log = self.start_rank()
        self.assertRegex(log, 'cannot create a segment in .*: Permission denied')
        self.expect(self.doctor(pid), 'FAIL', f'user {JOB_USER} cannot make files', 'change: chmod 1777')

    def test_a_library_that_the_job_may_not_read(self):
        self.start_daemon()
        self.plugin.chmod(0)
        pid, _ = self.start_rank()
        self.expect(self.doctor(pid), 'FAIL', LIBRARY, f'user {JOB_USER} cannot read it', 'change: chmod a+r')

    # 3. glibc.

    def test_a_library_for_a_newer_glibc(self):
        self.start_daemon()
        bytes_of_library, count = re.subn(rb'GLIBC_2\.\d\d\0', b'GLIBC_9.99\0', self.plugin.read_bytes())
        self.assertGreater(count, 0)
        self.plugin.write_bytes(bytes_of_library)
        pid, log = self.start_rank()
        self.assertIn("version `GLIBC_9.99' not found", log)
        self.expect(self.doctor(pid), 'FAIL', 'it needs glibc 9.99, the process has 2.', 'change: use an image with a newer glibc')

    # 4. Architecture.

    def test_a_library_for_another_machine(self):
        self.start_daemon()
        library = bytearray(self.plugin.read_bytes())
        library[MACHINE_AT] = EM_AARCH64
        self.plugin.write_bytes(library)
        pid, _ = self.start_rank()
        self.expect(self.doctor(pid), 'FAIL', 'it is for arm64, the process for x86-64', 'change: install the library of the process')

    # 5. The plugin is missing.

    def test_no_library(self):
        self.start_daemon()
        self.plugin.unlink()
        pid, _ = self.start_rank()
        self.expect(self.doctor(pid), 'FAIL', f'{LIBRARY}: No such file or directory', 'change: install the package')

    def test_no_library_in_the_container(self):
        self.start_daemon()
        hidden = self.directory('hidden')
        shutil.copy(self.plugin, hidden)
        pid, _ = self.start_rank({'NCCL_PROFILER_PLUGIN': str(hidden / LIBRARY)}, ['--mount'],
                                 f'mount --make-rprivate /; mount -t tmpfs tmpfs {hidden}')
        self.expect(self.doctor(pid), 'FAIL', f'{LIBRARY}: No such file or directory', 'mount the library into the container')

    # 6. A variable is misspelt.

    def test_without_a_pid_the_process_is_named(self):
        self.start_daemon()
        device = shutil.copy(NCCL, self.root / 'nvidia0')  # a mapped file of that name, as of a GPU
        nccl = self.preload_nccl('2.28.9')['LD_PRELOAD']
        pid, _ = self.start_rank({'NCCL_PROFILER_PLUGIN': '/none', 'LD_PRELOAD': f'{nccl}:{device}'})
        self.expect(self.doctor(), 'warn processes with NCCL and a GPU', f'--pid {pid}')

    def test_a_misspelt_variable_of_nccl(self):
        self.start_daemon()
        pid, _ = self.start_rank({'NCCL_PROFILER_PLUGIN': None, 'NCCL_PROFILE_PLUGIN': str(self.plugin)})
        self.expect(self.doctor(pid), 'FAIL NCCL_PROFILER_PLUGIN', 'change: rename NCCL_PROFILE_PLUGIN')

    def test_misspelt_variables_of_the_plugin(self):
        self.start_daemon()
        pid, _ = self.start_rank({'NCCL_EXPORTER_KERNL_TIMING': 'off', 'NCCL_EXPORTR_KERNEL_TIMING': 'off'})
        lines = self.doctor(pid, code=0)
        self.expect(lines, 'warn NCCL_EXPORTER_KERNL_TIMING', 'did you mean NCCL_EXPORTER_KERNEL_TIMING?')
        self.expect(lines, 'warn NCCL_EXPORTR_KERNEL_TIMING', 'did you mean NCCL_EXPORTER_KERNEL_TIMING?')

    # 7. The daemon is down.

    def test_no_daemon(self):
        pid, _ = self.start_rank()
        self.expect_only(self.doctor(pid), 'FAIL daemon at', 'Connection refused', 'change: start it')

    # 8. The port is taken.

    def test_a_port_that_another_program_has(self):
        class Other(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b'Prometheus Server is Ready.\n')

            def log_message(self, *_):
                pass
        server = http.server.HTTPServer(('127.0.0.1', self.port), Other)
        self.stack.callback(server.server_close)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.stack.callback(server.shutdown)
        daemon = self.start([self.root / 'nccl-exporter', f'--web.listen-address=127.0.0.1:{self.port}', f'--segment.dir={self.segments}'])
        self.assertEqual(1, daemon.wait(WAIT_SECONDS))
        self.assertIn('Address already in use', daemon.text())
        pid, _ = self.start_rank()
        self.expect_only(self.doctor(pid), 'FAIL daemon at', 'another program', f"change: ss -ltnp 'sport = :{self.port}'", '--web.listen-address')

    # 9. Read-only.

    def test_a_directory_that_is_mounted_read_only(self):
        self.start_daemon()
        pid, log = self.start_rank((), ['--mount'],
                                   f'mount --make-rprivate /; mount --bind {self.segments} {self.segments}; mount -o remount,bind,ro {self.segments}')
        self.assertRegex(log, 'cannot create a segment in .*: Read-only file system')
        self.expect(self.doctor(pid), 'FAIL', 'mounted read-only', 'change: mount it writable')

    def test_a_default_directory_that_is_read_only_in_the_container(self):
        pid, log = self.start_rank({'NCCL_EXPORTER_DIR': None}, ['--mount'],
                                   'mount --make-rprivate /; mount -t tmpfs tmpfs /run; mkdir -m 1777 /run/nccl-exporter; '
                                   'mount --bind /dev/shm /dev/shm; mount -o remount,bind,ro /dev/shm; mount -o remount,bind,ro /run')
        self.assertIn('no metrics from this process', log)
        self.expect(self.doctor(pid), 'FAIL', '/run/nccl-exporter', 'mounted read-only', 'change: mount it writable')

    # 10. Full.

    def test_a_full_file_system(self):
        self.mount('size=64k,mode=1777', self.segments)
        self.start_daemon()
        pid, log = self.start_rank()
        self.assertRegex(log, 'no room for segment .*: No space left on device')
        self.expect(self.doctor(pid), 'FAIL', str(self.segments), '0 MiB free', 'change: make 16 MiB of room')

    def test_a_file_system_without_free_inodes(self):
        self.mount('nr_inodes=1,mode=1777', self.segments)
        self.start_daemon()
        pid, log = self.start_rank()
        self.assertRegex(log, 'cannot create a segment in .*: No space left on device')
        self.expect(self.doctor(pid), 'FAIL', str(self.segments), 'no free inode', 'change: remove files')

    # 11. Of a file system that the system needs.

    def test_a_folder_of_the_systems_run(self):
        """Daemon and doctor say it: users who fill the directory fill /run."""
        run = self.directory('run', 0o755)
        self.mount('size=64m,mode=755', run)
        self.segments = self.directory('run/nccl-exporter')
        daemon = self.start_daemon()
        self.eventually(lambda: f'{self.segments} is on a tmpfs that the system needs: any user can fill it' in daemon.text(), daemon.text)
        pid, _ = self.start_rank()
        lines = self.doctor(pid, code=0)
        self.assertEqual(sum(not line.startswith('ok') for line in lines), 2, 'the daemon\'s, and the same as the rank sees it')
        for seen in f'{self.segments}', f'/proc/{pid}/root{self.segments}':
            self.expect(lines, f'warn directory {seen}: ', 'which the system needs: a user who fills it stops the node',
                        r"change: mount a tmpfs there: systemctl start 'run-nccl\x2dexporter.mount' while no job runs")

    def test_a_file_system_of_its_own_in_run_is_sound(self):
        run = self.directory('run', 0o755)
        self.mount('size=64m,mode=755', run)
        self.segments = self.directory('run/nccl-exporter')
        self.mount('size=32m,mode=1777', self.segments)
        daemon = self.start_daemon()
        self.eventually(lambda: f'watching {self.segments}' in daemon.text(), daemon.text)
        self.assertNotIn('any user can fill it', daemon.text())
        pid, _ = self.start_rank()
        self.assertEqual([line for line in self.doctor(pid, code=0) if not line.startswith('ok')], [])

    # 12. Another PID namespace.

    def test_the_pid_of_a_rank_in_its_own_namespace(self):
        self.start_daemon()
        pid, _ = self.start_rank((), ['--pid', '--mount', '--fork'], 'mount --make-rprivate /; mount -t proc proc /proc')
        lines = self.doctor(pid, code=0)
        [inner] = [int(match[1]) for line in lines if (match := re.match(r'ok   PID namespace: the process is (\d+) in its own', line))]
        self.assertNotEqual(pid, inner)
        self.expect(self.doctor(inner), f'process {inner}', f'change: --pid {pid}')

    # 13. Old NCCL.

    def preload_nccl(self, version):
        """A variable that maps a libnccl.so.2 of that release into a process."""
        library = self.root / 'libnccl.so.2'
        library.write_bytes(pathlib.Path(NCCL).read_bytes() + b'NCCL version %s+cuda12.8\0' % version.encode())
        library.chmod(0o755)
        return {'LD_PRELOAD': str(library)}

    def test_nccl_before_there_were_profilers(self):
        self.start_daemon()
        pid, _ = self.start_rank({'NCCL_PROFILER_PLUGIN': '/none', **self.preload_nccl('2.21.5')})
        self.expect(self.doctor(pid), 'FAIL NCCL 2.21.5', 'has no profiler interface', 'change: NCCL 2.23 or later')

    def test_nccl_that_loads_no_plugin_by_its_path(self):
        self.start_daemon()
        pid, _ = self.start_rank(self.preload_nccl('2.27.3'), **{'nccl-version': '22703', 'api-version': '4'})
        self.expect(self.doctor(pid), 'FAIL NCCL 2.27.3', 'cannot load a plugin by its path', f'change: NCCL_PROFILER_PLUGIN={LIBRARY}', 'LD_LIBRARY_PATH')

    def test_nccl_that_has_no_short_names(self):
        self.start_daemon()
        pid, _ = self.start_rank({'NCCL_PROFILER_PLUGIN': 'exporter', 'LD_LIBRARY_PATH': str(self.root), **self.preload_nccl('2.25.1')},
                                 **{'nccl-version': '22501', 'api-version': '2'})
        self.expect(self.doctor(pid), 'FAIL NCCL 2.25.1', 'only by its path or file name', f'change: NCCL_PROFILER_PLUGIN={LIBRARY}')


if __name__ == '__main__':
    report.main()
