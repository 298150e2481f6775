#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the files on a node: Slurm's prolog and epilog, the systemd unit, and the script that places the plugin."""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

DEPLOY = pathlib.Path(os.path.abspath('deploy'))
sys.path.insert(0, str(DEPLOY / 'tests'))
import report

MOST_EXPOSURE = 15  # tenths of what `systemd-analyze security` gives; 100 is no protection at all
PLUGIN = '/usr/lib/nccl-exporter/libnccl-profiler-exporter.so'

PLACE = [DEPLOY / 'image/place-plugin']
if os.getuid() == 0:  # without the right to mount, which the script would use
    PLACE = ['setpriv', '--bounding-set=-sys_admin', *PLACE]


def run(script, *arguments, **environment):
    return subprocess.run([script, *map(str, arguments)], capture_output=True, text=True, env={'PATH': '/usr/sbin:/usr/bin:/sbin:/bin', **environment})


class Node(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def script_with(self, name, **replacements):
        """A copy of a script in which paths of the node are those of this test."""
        text = (DEPLOY / 'slurm' / name).read_text()
        for old, new in replacements.values():
            self.assertIn(old, text)
            text = text.replace(old, str(new))
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def prolog(self):
        (self.folder / 'plugin.so').write_text('')
        (self.folder / 'run').mkdir()
        return self.script_with('task-prolog', plugin=(PLUGIN, self.folder / 'plugin.so'), run=('/run/nccl-exporter', self.folder / 'run'))

    def test_the_prolog_exports_plugin_and_directory(self):
        self.assertEqual(run(self.prolog()).stdout, f'export NCCL_PROFILER_PLUGIN={self.folder}/plugin.so\nexport NCCL_EXPORTER_DIR={self.folder}/run\n')

    def test_the_prolog_leaves_the_users_choice_alone(self):
        prolog = self.prolog()
        for choice in {'NCCL_EXPORTER_ENABLE': '0'}, {'NCCL_PROFILER_PLUGIN': 'mine'}:
            done = run(prolog, **choice)
            self.assertEqual((done.returncode, done.stdout), (0, ''), choice)
        self.assertNotIn('NCCL_EXPORTER_DIR', run(prolog, NCCL_EXPORTER_DIR='/elsewhere').stdout)

    def test_the_prolog_has_a_switch_for_durations_that_is_off(self):
        prolog = self.prolog()
        self.assertNotIn('ALLGATHERV', run(prolog).stdout)
        switched_on = prolog.read_text().replace('\ndurations=no\n', '\ndurations=yes\n')
        self.assertNotEqual(switched_on, prolog.read_text())
        prolog.write_text(switched_on)
        for name in 'NCCL_ALLGATHERV_ENABLE', 'NCCL_LOCAL_REGISTER', 'NCCL_GRAPH_REGISTER':
            self.assertIn(f'export {name}=0\n', run(prolog).stdout)
            self.assertNotIn(name, run(prolog, **{name: '1'}).stdout)
        self.assertNotIn('ALLGATHERV', run(prolog, NCCL_ALLGATHERV_ENABLE='1').stdout)

    def test_the_prolog_says_nothing_where_nothing_is_installed(self):
        prolog = self.prolog()
        (self.folder / 'plugin.so').unlink()
        self.assertEqual((run(prolog).returncode, run(prolog).stdout), (0, ''))

    def in_container(self, *, image='', **job):
        """Mounts and environment that the hook adds to a container, for an image with environment `image` and a job with environment `job`."""
        (self.folder / 'plugins').mkdir(exist_ok=True)
        (self.folder / 'plugins/libnccl-profiler-exporter.so').write_text('')
        (self.folder / 'segments').mkdir(exist_ok=True)
        hook = self.script_with('enroot-hook', plugins=('plugins=/usr/lib/nccl-exporter', f'plugins={self.folder}/plugins'),
                                segments=('segments=/run/nccl-exporter', f'segments={self.folder}/segments'))
        return self.run_hook(hook, image, job)

    def run_hook(self, hook, image, job):
        environ, mounts = self.folder / 'environ', self.folder / 'mounts'
        environ.write_text(image)
        mounts.write_text('')
        done = run(hook, ENROOT_ENVIRON=str(environ), ENROOT_MOUNTS=str(mounts), **job)
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        return [line.split() for line in mounts.read_text().splitlines()], environ.read_text().removeprefix(image).splitlines()

    def test_the_hook_brings_plugin_and_directory_into_a_container(self):
        mounts, environ = self.in_container(image='PATH=/bin\n')
        plugins, segments = f'{self.folder}/plugins', f'{self.folder}/segments'
        self.assertEqual([mount[:3] for mount in mounts], [[plugins, plugins, 'none'], [segments, segments, 'none']])
        self.assertEqual([('ro' in mount[3].split(','), 'nofail' in mount[3].split(','), 'x-create=dir' in mount[3]) for mount in mounts],
                         [(True, True, True), (False, True, True)])
        self.assertNotIn('noexec', mounts[0][3], 'the plugin is mapped to be executed')
        self.assertEqual(environ, [f'NCCL_PROFILER_PLUGIN={plugins}/libnccl-profiler-exporter.so', f'NCCL_EXPORTER_DIR={segments}'])

    def test_the_hook_gives_a_job_the_directory_that_the_prolog_made_for_it(self):
        prolog = DEPLOY / 'slurm/prolog'
        segments = self.folder / 'segments'
        shared = [f'{segments}', f'{segments}']
        self.assertEqual(self.in_container(SLURM_JOB_ID='4711')[0][1][:2], shared, 'there is none')
        self.assertEqual(run(prolog, NCCL_EXPORTER_DIR=str(segments), SLURM_JOB_ID='4711').returncode, 0)
        own = segments / '4711'
        self.assertEqual((own.stat().st_mode & 0o7777, own.stat().st_uid), (0o1777, segments.stat().st_uid))
        mounts, environ = self.in_container(SLURM_JOB_ID='4711')
        self.assertEqual(mounts[1][:2], [str(own), str(segments)])
        self.assertIn(f'NCCL_EXPORTER_DIR={segments}', environ)
        self.assertEqual(self.in_container(SLURM_JOB_ID='4712')[0][1][:2], shared, 'of another job')
        self.assertEqual(self.in_container()[0][1][:2], shared)
        (segments / '4713').symlink_to(own)
        self.assertEqual(self.in_container(SLURM_JOB_ID='4713')[0][1][:2], shared, 'a link')

    def test_the_prolog_makes_nothing_where_nothing_is_installed_and_changes_nothing_that_is_there(self):
        prolog, missing = DEPLOY / 'slurm/prolog', self.folder / 'missing'
        self.assertEqual(run(prolog, NCCL_EXPORTER_DIR=str(missing), SLURM_JOB_ID='4711').returncode, 0)
        self.assertFalse(missing.exists())
        (self.folder / '4711').mkdir(mode=0o700)
        self.assertEqual(run(prolog, NCCL_EXPORTER_DIR=str(self.folder), SLURM_JOB_ID='4711').returncode, 0)
        self.assertEqual((self.folder / '4711').stat().st_mode & 0o7777, 0o700)
        self.assertEqual(run(prolog, NCCL_EXPORTER_DIR=str(self.folder)).returncode, 0)

    @unittest.skipUnless(os.getuid() == 0, 'another user owns nothing that root does not')
    def test_the_hook_takes_no_directory_of_a_user(self):
        self.in_container()
        own = self.folder / 'segments/4711'
        own.mkdir()
        try:
            os.chown(own, 1001, 1001)
        except OSError as error:  # a user namespace without this user
            self.skipTest(str(error))
        self.assertEqual(self.in_container(SLURM_JOB_ID='4711')[0][1][:2], [f'{self.folder}/segments'] * 2)

    def test_the_epilog_removes_the_jobs_directory_with_the_segments(self):
        own = self.folder / '4711'
        own.mkdir()
        (own / 'a.seg').write_text('')
        epilog = self.script_with('epilog', daemon=('pidof nccl-exporter', 'test -e /nothing'), processes=('pgrep --uid "$SLURM_JOB_UID"', 'test -e /nothing'))
        run(epilog, SLURM_JOB_UID=str(os.getuid()), NCCL_EXPORTER_DIR=str(self.folder), SLURM_JOB_ID='4711')
        self.assertFalse(own.exists())

    def test_the_hook_leaves_the_choice_of_user_and_image_alone(self):
        for choice in {'NCCL_EXPORTER_ENABLE': '0'}, {'NCCL_PROFILER_PLUGIN': 'mine'}:
            self.assertEqual(self.in_container(**choice), ([], []), choice)
            self.assertEqual(self.in_container(image='\n'.join(f'{name}={value}' for name, value in choice.items()) + '\n'), ([], []), choice)
        mounts, environ = self.in_container(NCCL_EXPORTER_DIR='/elsewhere')
        self.assertEqual((len(mounts), len(environ)), (1, 1))

    def test_the_hook_has_the_prologs_switch_for_durations(self):
        self.assertNotIn('NCCL_ALLGATHERV_ENABLE=0', self.in_container()[1])
        hook = self.folder / 'enroot-hook'
        hook.write_text(hook.read_text().replace('\ndurations=no\n', '\ndurations=yes\n'))
        for name in 'NCCL_ALLGATHERV_ENABLE', 'NCCL_LOCAL_REGISTER', 'NCCL_GRAPH_REGISTER':
            self.assertIn(f'{name}=0', self.run_hook(hook, '', {})[1])
            self.assertNotIn(f'{name}=0', self.run_hook(hook, f'{name}=1\n', {})[1])
        self.assertNotIn('NCCL_ALLGATHERV_ENABLE=0', self.run_hook(hook, '', {'NCCL_ALLGATHERV_ENABLE': '1'})[1])

    def test_the_hook_does_nothing_where_something_is_missing(self):
        """A failure would keep the container from starting."""
        self.in_container()
        hook = self.folder / 'enroot-hook'
        (self.folder / 'segments').rmdir()
        self.assertEqual(self.run_hook(hook, '', {}), ([], []))
        (self.folder / 'plugins/libnccl-profiler-exporter.so').unlink()
        self.assertEqual(self.run_hook(hook, '', {}), ([], []))

    def test_the_epilog_removes_the_users_segments_only_when_no_daemon_will(self):
        for name in 'a.seg', 'b.seg', 'other':
            (self.folder / name).write_text('')
        epilog = self.script_with('epilog', daemon=('pidof nccl-exporter', 'test -e ' + str(self.folder / 'daemon')),
                                  processes=('pgrep --uid "$SLURM_JOB_UID"', 'test -e ' + str(self.folder / 'process')))
        job = {'SLURM_JOB_UID': str(os.getuid()), 'NCCL_EXPORTER_DIR': str(self.folder)}
        for reason_to_wait in 'daemon', 'process':
            (self.folder / reason_to_wait).write_text('')
            run(epilog, **job)
            self.assertEqual(len(list(self.folder.glob('*.seg'))), 2, reason_to_wait)
            (self.folder / reason_to_wait).unlink()
        run(epilog, **{**job, 'SLURM_JOB_UID': str(os.getuid() + 1)})
        self.assertEqual(len(list(self.folder.glob('*.seg'))), 2)
        self.assertEqual(run(epilog, **job).returncode, 0)
        self.assertEqual({path.name for path in self.folder.iterdir()}, {'epilog', 'other'})

    def test_the_epilog_removes_nothing_where_it_cannot_see_processes(self):
        (self.folder / 'a.seg').write_text('')
        tools = self.folder / 'tools'
        tools.mkdir()
        for name in 'sh', 'find':
            (tools / name).symlink_to(shutil.which(name))
        job = {'SLURM_JOB_UID': str(os.getuid()), 'NCCL_EXPORTER_DIR': str(self.folder), 'PATH': str(tools)}
        for name in None, 'pidof':  # the one that is missing at last is pgrep
            if name:
                (tools / name).write_text('#!/bin/sh\nexit 1\n')
                (tools / name).chmod(0o755)
            self.assertEqual(run(DEPLOY / 'slurm/epilog', **job).returncode, 0)
            self.assertTrue((self.folder / 'a.seg').exists(), name)

    def test_the_unit_leaves_what_the_daemon_needs(self):
        unit = (DEPLOY / 'systemd/nccl-exporter.service').read_text()
        self.assertNotRegex(unit, '(?m)^(ProtectProc=(?!default)|PrivatePIDs=yes)', 'the state of other users\' processes')
        self.assertNotRegex(unit, '(?m)^RemoveIPC=yes', 'it removes the empty directory in /dev/shm when the daemon stops')

    def test_the_segments_have_a_file_system_of_their_own(self):
        """Regression: any user could fill /run, on which systemd, containerd and sshd keep their state."""
        unit = (DEPLOY / 'systemd/run-nccl-exporter.mount').read_text()
        self.assertRegex(unit, '(?m)^Where=/run/nccl-exporter$')
        [options] = re.findall('(?m)^Options=(.*)$', unit)
        self.assertLessEqual({'mode=1777', 'size=5%', 'nr_inodes=64k', 'nosuid', 'nodev', 'noexec'}, set(options.split(',')))
        self.assertRegex(unit, '(?m)^ConditionDirectoryNotEmpty=!/run/nccl-exporter$', 'a mount would hide the segments of running jobs')
        self.assertRegex((DEPLOY / 'systemd/nccl-exporter.service').read_text(), '(?m)^RequiresMountsFor=/run/nccl-exporter$')

    @unittest.skipUnless(os.getuid() == 0 and shutil.which('unshare'), 'needs the right to mount')
    def test_a_full_file_system_of_segments_leaves_run_alone(self):
        [options] = re.findall('(?m)^Options=(.*)$', (DEPLOY / 'systemd/run-nccl-exporter.mount').read_text())
        done = run('unshare', '--mount', 'sh', '-c', """
            mount -t tmpfs -o mode=755,size=64m tmpfs "$1" && mkdir "$1/nccl-exporter" && mount -t tmpfs -o "$2,size=1m" tmpfs "$1/nccl-exporter" || exit 77
            ! dd if=/dev/zero of="$1/nccl-exporter/fill" bs=1M count=70 2>/dev/null || exit 1
            dd if=/dev/zero of="$1/state" bs=1M count=32 2>/dev/null""", 'sh', self.folder, options)
        if done.returncode == 77:
            self.skipTest('no right to mount: ' + done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_unit_has_a_daemon_that_hangs_restarted(self):
        """The daemon reports to systemd that it lives, if systemd asks; //exporter:main_test tests that."""
        unit = (DEPLOY / 'systemd/nccl-exporter.service').read_text()
        self.assertRegex(unit, '(?m)^Type=notify$')
        self.assertRegex(unit, '(?m)^WatchdogSec=2min$')
        self.assertRegex(unit, '(?m)^Restart=always$')

    def test_the_unit_reloads_by_the_signal_that_the_daemon_knows(self):
        """docs/daemon.md has systemctl reload."""
        [command] = re.findall('(?m)^ExecReload=(.*)$', (DEPLOY / 'systemd/nccl-exporter.service').read_text())
        with subprocess.Popen(['sh', '-c', 'trap "exit 7" HUP; echo ready; while :; do sleep 0.05; done'], stdout=subprocess.PIPE) as daemon:
            daemon.stdout.readline()
            self.assertEqual(run(*shlex.split(command), MAINPID=str(daemon.pid)).returncode, 0)
            self.assertEqual(daemon.wait(), 7)

    def test_a_new_plugin_takes_the_name_and_leaves_the_mapped_file_alone(self):
        (self.folder / 'library').write_text('old')
        place = [*PLACE, self.folder / 'segments', self.folder / 'plugin']
        self.assertEqual(run(*place, NCCL_EXPORTER_LIBRARY=str(self.folder / 'library')).returncode, 0)
        with open(self.folder / 'plugin/libnccl-profiler-exporter.so') as mapped:
            (self.folder / 'library').write_text('new')
            self.assertEqual(run(*place, NCCL_EXPORTER_LIBRARY=str(self.folder / 'library')).returncode, 0)
            self.assertEqual(mapped.read(), 'old')
        self.assertEqual((self.folder / 'plugin/libnccl-profiler-exporter.so').read_text(), 'new')
        self.assertEqual(len(list((self.folder / 'plugin').iterdir())), 1)
        self.assertEqual((self.folder / 'segments').stat().st_mode & 0o7777, 0o1777)

    def test_the_directory_for_those_of_pods_has_no_sticky_bit(self):
        """The kubelet gives a pod's directory this mode and root as its owner: with the bit the daemon could remove no file there."""
        (self.folder / 'library').write_text('')
        place = [*PLACE, '--pods', self.folder / 'segments', self.folder / 'plugin']
        self.assertEqual(run(*place, NCCL_EXPORTER_LIBRARY=str(self.folder / 'library')).returncode, 0)
        self.assertEqual((self.folder / 'segments').stat().st_mode & 0o7777, 0o777)

    # A node whose /run is "$1/run", and a container in which "$1/run/segments" is mounted at "$1/seen", by propagation $2.
    IN_A_CONTAINER = """
        mount -t tmpfs -o mode=755 tmpfs "$1/run" && mount --make-shared "$1/run" && mkdir -p "$1/run/segments" || exit 77
        folder=$1 propagation=$2 script=$3; shift 3
        unshare --mount --propagation unchanged sh -euc 'folder=$1 propagation=$2 script=$3; shift 3
            mount --bind "$folder/run/segments" "$folder/seen"; mount "--make-$propagation" "$folder/seen"
            "$@" "$script" --pods --owner=0:0 "$folder/seen" "$folder/plugin"
            "$@" "$script" --pods --owner=0:0 "$folder/seen" "$folder/plugin"' sh "$folder" "$propagation" "$script" "$@" || exit
        grep " $folder/run" /proc/self/mountinfo; stat --format "%a %u" "$folder/run/segments" """

    def placed_in_a_container(self, *command, propagation='shared', before=''):
        """The output of the script, run twice in a container by `command`, and the mounts of the node's directory."""
        for name in 'run', 'seen', 'plugin':
            (self.folder / name).mkdir(exist_ok=True)
        (self.folder / 'library').write_text('x')
        done = run('unshare', '--mount', 'sh', '-c', self.IN_A_CONTAINER.replace('|| exit 77', '|| exit 77\n' + before), 'sh', self.folder, propagation,
                   DEPLOY / 'image/place-plugin', *(command or ['env']), NCCL_EXPORTER_LIBRARY=str(self.folder / 'library'))
        if done.returncode == 77:
            self.skipTest('no right to mount: ' + done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((self.folder / 'plugin/libnccl-profiler-exporter.so').exists(), 'it goes on')
        *mounts, status = done.stdout.splitlines()
        self.assertEqual(status, '777 0')
        return done.stderr, mounts[1:]

    CAN_MOUNT = unittest.skipUnless(os.getuid() == 0 and shutil.which('unshare'), 'needs the right to mount')

    @CAN_MOUNT
    def test_the_script_makes_a_file_system_of_the_nodes_directory_once(self):
        """Regression: on nodes of Kubernetes any user could fill /run."""
        said, mounts = self.placed_in_a_container()
        self.assertEqual((said, len(mounts)), ('', 1))
        words = mounts[0].split()
        self.assertEqual(words[words.index('-') + 1], 'tmpfs')
        self.assertLessEqual({'nosuid', 'nodev', 'noexec'}, set(words[5].split(',')))
        memory_kb = int(re.search(r'MemTotal: +(\d+)', pathlib.Path('/proc/meminfo').read_text())[1])
        size_kb = int(re.search(r'size=(\d+)k', words[-1])[1])
        self.assertAlmostEqual(size_kb, memory_kb / 20, delta=64)
        self.assertRegex(words[-1], r'nr_inodes=65536\b')

    def test_the_script_mounts_with_the_options_of_the_unit(self):
        [of_unit] = re.findall('(?m)^Options=(.*)$', (DEPLOY / 'systemd/run-nccl-exporter.mount').read_text())
        [of_script] = re.findall(r'options=(\S+)', (DEPLOY / 'image/place-plugin').read_text())
        self.assertEqual(of_script.split(',')[1:], of_unit.split(',')[1:])
        self.assertTrue(of_script.startswith('mode=$mode,') and of_unit.startswith('mode=1777,'))

    @CAN_MOUNT
    def test_the_script_hides_no_segments_of_running_jobs(self):
        said, mounts = self.placed_in_a_container(before='mkdir -p "$1/run/segments/pod"')
        self.assertEqual(mounts, [])
        self.assertEqual(len(said.splitlines()), 2, 'a line each time')
        self.assertRegex(said, '^place-plugin: .* any user can fill .* is not empty, and running jobs would lose their segments: boot the node again, or mount')

    @CAN_MOUNT
    def test_the_script_mounts_nothing_that_only_its_container_sees(self):
        """It would give that to the daemon's user, and not the node's directory."""
        for propagation in 'private', 'slave':
            said, mounts = self.placed_in_a_container(propagation=propagation)
            self.assertEqual(mounts, [], propagation)
            self.assertRegex(said, '^place-plugin: .* any user can fill .* mounted here alone: set segmentFileSystem in the chart, or mount')

    @CAN_MOUNT
    def test_the_script_goes_on_where_it_may_not_mount(self):
        said, mounts = self.placed_in_a_container('setpriv', '--bounding-set=-all,+chown,+fowner', '--no-new-privs')
        self.assertEqual(mounts, [])
        self.assertRegex(said, r'^place-plugin: .* any user can fill .* cannot be mounted \(.+\): set segmentFileSystem in the chart, or mount')

    @CAN_MOUNT
    def test_the_script_leaves_a_file_system_of_the_administrator_alone(self):
        said, mounts = self.placed_in_a_container(before='mount -t tmpfs -o size=1m tmpfs "$1/run/segments"')
        self.assertEqual((said, len(mounts)), ('', 1))
        self.assertIn('size=1024k', mounts[0])

    def test_the_units_of_extensions_and_otlp_are_restarted_limited_and_kept_from_segments(self):
        for name in 'extension', 'otlp':
            unit = (DEPLOY / f'systemd/nccl-exporter-{name}.service').read_text()
            for line in 'Restart=always', 'MemoryMax=256M', 'InaccessiblePaths=-/run/nccl-exporter -/dev/shm':
                self.assertIn(f'\n{line}\n', unit, name)
            self.assertIn(f'\nEnvironmentFile=/etc/default/nccl-exporter-{name}\n', unit, 'without flags of the site it does not start')
            for script in 'postinst', 'prerm', 'postrm':
                self.assertNotRegex((DEPLOY / 'debian' / script).read_text(), f'(enable|invoke (re)?start) nccl-exporter-{name}')

    @unittest.skipUnless(shutil.which('systemd-analyze'), 'systemd-analyze is not installed')
    def test_systemd_takes_the_units_and_finds_them_protected(self):
        units = [self.folder / file.name for file in sorted((DEPLOY / 'systemd').glob('*.service'))]
        self.assertEqual(len(units), 3)
        for unit in units:
            unit.write_text((DEPLOY / 'systemd' / unit.name).read_text().replace('/usr/bin/nccl-exporter', '/bin/true'))
        mount = self.folder / r'run-nccl\x2dexporter.mount'
        mount.write_text((DEPLOY / 'systemd/run-nccl-exporter.mount').read_text())
        verified = run('systemd-analyze', 'verify', *units, mount)
        if 'Failed to initialize manager' in verified.stderr:
            self.skipTest('systemd-analyze does not run here: ' + verified.stderr.strip())
        self.assertEqual((verified.returncode, verified.stderr), (0, ''))
        for unit in units:
            security = run('systemd-analyze', 'security', '--offline=true', f'--threshold={MOST_EXPOSURE}', unit)
            self.assertEqual(security.returncode, 0, security.stdout + security.stderr)


if __name__ == '__main__':
    report.main()
