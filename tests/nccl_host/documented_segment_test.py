#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A reader that was written from proto/README.md alone agrees with the collector on segments that nccl-sim wrote."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path('deploy/tests').resolve()))
import report
from documented_segment import Document, DocumentedSegment
from recorded_segments import read_segments

READER, PLUGIN, SIMULATOR = (os.path.abspath(path) for path in
    ('tests/nccl_host/segments_as_json', 'plugin/libnccl-profiler-exporter.so', 'simulator/nccl-sim'))
RANKS = 8
DOCUMENT = Document(pathlib.Path('proto/README.md').read_text(encoding='utf-8'))


def by_document(path):
    segment = DocumentedSegment(DOCUMENT, path)
    communicators = {}
    for slot, generation in segment.live_slots():
        here = segment.communicator(slot, generation)
        started = here.started.items()
        communicators[here.id, here.rank] = {
            'name': here.name, 'timing': here.timing, 'calls': here.calls,
            'operations': {key: operations for key, (operations, _) in started}, 'bytes': {key: size for key, (_, size) in started},
            'timed': {function: sums[0] for function, sums in here.timed.items()}}
    losses = segment.losses()
    segment.close()
    return losses, communicators


def by_collector(process):
    communicators = {}
    for here in process.communicators:
        communicators[here.id, here.rank] = {
            'name': here.name, 'timing': (here.timing_source, here.timing_reason), 'calls': dict(+here.calls),
            'operations': dict(here.operations), 'bytes': dict(here.bytes), 'timed': dict(+here.timed)}
    return dict(process.losses), communicators


def play(folder, *options, timing='on'):
    """Plays a job, and returns the answers of both readers for each of its segments."""
    subprocess.run([SIMULATOR, '--plugin', PLUGIN, '--segment-dir', folder, '--ranks-per-node', str(RANKS), '--steps', '30',
                    '--env', f'NCCL_EXPORTER_KERNEL_TIMING={timing}', '--env', 'NCCL_ALLGATHERV_ENABLE=0', *options],
                   check=True, capture_output=True)
    recorded = read_segments(READER, folder)
    return [(by_document(path), by_collector(recorded[path.name])) for path in sorted(pathlib.Path(folder).glob('*.seg'))]


class DocumentedSegments(unittest.TestCase):
    def agreed(self, *options, **settings):
        """Losses and communicators on which both readers agree."""
        with tempfile.TemporaryDirectory() as scratch:
            segments = play(scratch, *options, **settings)
        self.assertEqual(len(segments), RANKS)
        losses, communicators = {}, []
        for documented, collected in segments:
            self.assertEqual(documented, collected)
            losses.update(documented[0])
            communicators += documented[1].values()
        return losses, communicators

    def test_have_the_calls_operations_bytes_and_names_that_the_collector_reads(self):
        _, communicators = self.agreed('--layout', '3d')
        self.assertGreater(len({here['name'] for here in communicators}), 1)
        self.assertIn('Send', {function for here in communicators for function in here['calls']})
        _, communicators = self.agreed('--layout', 'dp')
        self.assertGreater(len({size for here in communicators for _, size in here['bytes']}), 1)

    def test_have_the_timing_source_that_the_collector_reads(self):
        _, communicators = self.agreed('--layout', 'single')
        self.assertEqual({here['timing'] for here in communicators}, {('kernel', 'configured')})
        self.assertTrue(all(here['timed'] for here in communicators))
        _, communicators = self.agreed('--layout', 'single', timing='off')
        self.assertEqual({here['timing'][1] for here in communicators}, {'configured'})
        self.assertFalse(any(here['timed'] for here in communicators))

    def test_have_the_losses_that_the_collector_reads(self):
        losses, communicators = self.agreed('--layout', 'moe')
        self.assertIn('drift', losses)
        self.assertIn('drift', {here['timing'][1] for here in communicators})


if __name__ == '__main__':
    report.main()
