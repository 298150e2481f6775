#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The kit where it can run: on a GPU, or on a rig of NCCL's host code (NCCL_HOST_RIG), where planted faults are played, too."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, 'deploy/tests')
import report

SLOW = 4  # a machine that does other things, too, needs more time
FAULTY = pathlib.Path('tests/gpu/libnccl-profiler-faulty.so').absolute()
PLUGIN = pathlib.Path('plugin/libnccl-profiler-exporter.so').absolute()
# Where each file of the kit is, beside the scripts.
PLACES = {'lib/nccl-exporter/libnccl-profiler-exporter.so': PLUGIN, 'lib/nccl-exporter/bin/nccl-exporter': pathlib.Path('exporter/nccl-exporter').absolute()}
PLACES.update((f'lib/{name}', pathlib.Path(f'tests/gpu/{name}').absolute()) for name in (
    'libgpu-kit-programs.so', 'libnccl-profiler-empty.so', 'libnccl-profiler-probe.so'))


def rigs():
    """Folders with libraries: the folder is a rig, or holds one for each release. What a rig was built from may lie beside its libraries."""
    folder = os.environ.get('NCCL_HOST_RIG')
    return [file.parent for pattern in ('lib', '*/lib') for file in sorted(pathlib.Path(folder).glob(f'{pattern}/libnccl.so.2'))
            if (file.parent / 'libcuda.so.1').exists()] if folder else []


class Kit(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for place, file in PLACES.items():
            (self.folder / 'kit' / place).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / 'kit' / place).symlink_to(file)

    def measure(self, *arguments, **variables):
        output = self.folder / 'results'
        subprocess.run([sys.executable, 'tests/gpu/kit/measure', '--kit', self.folder / 'kit', '--output', output, *arguments],
                       env=dict(os.environ, **variables), stdout=subprocess.DEVNULL)
        for log in output.glob('*.log'):
            print(f'{log.name}: {log.read_text(errors="replace")[-2000:]}')
        print((output / 'results.md').read_text())
        return json.loads((output / 'results.json').read_text())

    def measure_on_rig(self, rig, gpus, slow, *arguments, **variables):
        """With a GPU for each of two ranks, or with one that they share."""
        name = f'/gpu-kit-{os.getpid()}'
        try:
            return self.measure('--slow', str(slow), *arguments, LD_LIBRARY_PATH=str(rig), FAKECUDA_NDEV=str(gpus), FAKECUDA_SHM=name, NCCL_ALGO='Ring',
                                NCCL_PROTO='Simple', NCCL_P2P_LL_THRESHOLD='0', **variables)
        finally:
            pathlib.Path(f'/dev/shm{name}').unlink(missing_ok=True)

    def not_met(self, found, *limits):
        return sorted({entry['limit'] for entry in found['verdict'] if entry['met'] is False and (not limits or entry['limit'] in limits)})

    def test_all_parts_run_on_nccls_host_code(self):
        for rig in rigs() or self.skipTest('no rig: NCCL_HOST_RIG'):
            for gpus in (2, 1):
                with self.subTest(rig=rig.parent.name, gpus=gpus):
                    found = self.measure_on_rig(rig, gpus, SLOW)
                    self.assertEqual({part['state'] for part in found['parts'].values()}, {'done'})
                    self.assertEqual(self.not_met(found, 'counts', 'durations', 'timed', 'jobs end', 'clocks', 'absent named', 'killed named', 'destroy'), [])

    def test_planted_faults_are_found_at_their_lines(self):
        for rig in rigs() or self.skipTest('no rig: NCCL_HOST_RIG'):
            for fault, part, limit in (('durations', 'right', 'durations'), ('counts', 'right', 'counts'), ('destroy', 'right', 'jobs end'),
                                       ('cost', 'cost', 'call')):
                with self.subTest(rig=rig.parent.name, fault=fault):
                    slow = 1 if fault == 'destroy' else SLOW  # its jobs end at their limits
                    found = self.measure_on_rig(rig, 2, slow, '--only', part, '--plugin', FAULTY, FAULTY_PROFILER=fault, FAULTY_PROFILER_OF=str(PLUGIN))
                    self.assertEqual(self.not_met(found, 'counts', 'durations', 'timed', 'jobs end', 'call'), [limit])

    def test_is_right_on_a_gpu(self):
        found = self.measure('--only', 'right')
        if found['parts']['right']['state'] == 'skipped':
            self.skipTest(found['parts']['right']['reason'])
        self.assertEqual((found['parts']['right']['state'], self.not_met(found)), ('done', []))


if __name__ == '__main__':
    report.main()
