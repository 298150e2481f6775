#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Series and bytes in the documents are those that `bazel run //exporter/testing:cardinality` prints today."""
import functools
import os
import pathlib
import re
import shlex
import subprocess
import sys
import unittest

HERE = pathlib.Path(os.path.abspath('docs/tests'))
sys.path.insert(0, str(HERE.parent.parent / 'deploy/tests'))
import report

CARDINALITY = pathlib.Path('exporter/testing/cardinality').absolute()
THREE, TWELVE = '--ranks 8 --communicators 3 --p2p 1', '--ranks 8 --communicators 12'

# Rows of docs/scaling.md: what a scrape is, and which of its numbers.
OF_A_NODE = {
    'samples, classic histograms': ('OpenMetrics', 'samples', ''), 'samples, native histograms': ('protobuf', 'samples', ''),
    'OpenMetrics, bytes': ('OpenMetrics', 'bytes', ''), 'protobuf, bytes': ('protobuf', 'bytes', ''), 'with gzip': (None, 'compressed', None),
    'alert series alone (`--collect alerts`), samples': ('OpenMetrics', 'samples', ' --collect alerts'),
}
OF_A_THOUSAND = {
    '3 communicators, classic': (THREE, 'OpenMetrics'),
    '3 communicators, native': (THREE, 'protobuf'),
    '12 communicators, classic': (TWELVE, 'OpenMetrics'),
    '12 communicators, native': (TWELVE, 'protobuf'),
    '12 communicators, `--metrics.disable=histograms`': (TWELVE + ' --metrics.disable=histograms', 'OpenMetrics'),
    '12 communicators, native, `--metrics.drop-label=size`': (TWELVE + ' --metrics.drop-label=size', 'protobuf'),
    '12 communicators, `size` dropped, histograms off': (TWELVE + ' --metrics.drop-label=size --metrics.disable=histograms', 'OpenMetrics'),
    '12 communicators, `rank`, `gpu` and `global_rank` dropped, native': (
        TWELVE + ' --metrics.drop-label=rank --metrics.drop-label=gpu --metrics.drop-label=global_rank', 'protobuf'),
}
KIB_OF_A_SERIES = {'OpenMetrics': 6, 'protobuf': 8}
BYTES_OF_A_SAMPLE = 1.5


def text_of(name):
    return (HERE.parent / name).read_text(encoding='utf-8')


def table(text, first_cell):
    """Cells of the rows below the head that begins so."""
    [rows] = re.findall(rf'^\| {re.escape(first_cell)} \|.*\n\|[-:|]+\n((?:\|.*\n)+)', text, re.MULTILINE)
    return [[cell.strip() for cell in row.strip('|').split('|')] for row in rows.splitlines()]


@functools.cache
def cardinality(arguments):
    """{format: {samples, bytes, compressed}} and what the limit leaves out."""
    printed = subprocess.run([CARDINALITY, *shlex.split(arguments)], check=True, capture_output=True, text=True).stdout
    bodies = re.findall(r'^(OpenMetrics|protobuf)\b.* (\d+) +(\d+) +(\d+)$', printed, re.MULTILINE)
    found = {name: dict(zip(('samples', 'bytes', 'compressed'), map(int, numbers))) for name, *numbers in bodies}
    return found | {'lost': int(re.search(r'detail (\d+), folded', printed)[1])}


class Figures(unittest.TestCase):
    def check(self, shown, value):
        """The value rounded as the figure is: to its decimals, or to its last digit that is no zero. Bytes vary by the machine."""
        number, unit = re.fullmatch(r'([\d,]+(?:\.\d+)?)(?: (\D+))?', shown).groups()
        scale = {'K': 1e3, 'M': 1e6, 'MB/s': 1e6, 'GB': 1e9, 'GiB': 2**30, '%': 0.01}.get(unit, 1)
        digits = number.replace(',', '')
        step = 10.0 ** -len(digits.partition('.')[2]) if '.' in digits else 10.0 ** (len(digits) - len(digits.rstrip('0')))
        self.assertLessEqual(abs(float(digits) * scale - value), 0.75 * step * scale, f'{shown}: {value}')

    def test_of_a_node_are_todays(self):
        rows = table(text_of('scaling.md'), 'a scrape')
        self.assertEqual(9, len(rows))
        for column, shape in (1, THREE), (2, TWELVE):
            collect = body = ''
            for row in rows:
                row_body, number, row_collect = OF_A_NODE[row[0]]
                body = row_body or body
                collect = row_collect or collect
                with self.subTest(f'{row[0]}, {shape}'):
                    self.check(row[column], cardinality(shape + collect)[body][number])

    def test_of_a_thousand_nodes_follow_from_those_of_one(self):
        rows = table(text_of('scaling.md'), '1,000 nodes (8,000 GPUs)')
        self.assertEqual(list(OF_A_THOUSAND), [row[0] for row in rows])
        for name, series, at_15, at_30, memory, disk, network in rows:
            arguments, body = OF_A_THOUSAND[name]
            node = cardinality(arguments)[body]
            with self.subTest(name):
                self.check(series, 1000 * node['samples'])
                self.check(at_15, 1000 * node['samples'] / 15)
                self.check(at_30, 1000 * node['samples'] / 30)
                self.check(memory, 1000 * node['samples'] * KIB_OF_A_SERIES[body] * 1024)
                self.check(disk, 1000 * node['samples'] / 30 * 86400 * BYTES_OF_A_SAMPLE)
                self.check(network, 1000 * node['compressed'] / 30)

    def test_of_settings_are_todays(self):
        text = text_of('tune.md')
        [of] = re.findall(r'^\| setting \| series left, of ([\d,]+) \(classic\) \| of ([\d,]+) \(native\)', text, re.MULTILINE)
        every = cardinality(TWELVE)
        self.assertEqual((f"{every['OpenMetrics']['samples']:,}", f"{every['protobuf']['samples']:,}"), of)
        rows = [row for row in re.findall(r'^\| (.*?) \| (\d+ %)? ?\| (\d+ %) \|', text, re.MULTILINE)]
        self.assertEqual(len(rows), 6)
        for name, classic, native in rows:
            flags = ' '.join(re.findall(r'--metrics\.[\w.,=-]+', name))
            with self.subTest(name):
                left = cardinality(f'{TWELVE} {flags}')
                if classic:
                    self.check(classic, left['OpenMetrics']['samples'] / every['OpenMetrics']['samples'])
                    self.check(native, left['protobuf']['samples'] / every['protobuf']['samples'])
                else:  # native histograms themselves
                    self.check(native, every['protobuf']['samples'] / every['OpenMetrics']['samples'])

    def test_of_durations_by_size_are_todays(self):
        sentence = re.search(r'has ([\d,]+) native series instead of ([\d,]+), and none is above the limit', text_of('metrics.md'))
        by_size = cardinality(TWELVE + ' --metrics.duration-by-size --metrics.classic-buckets=off')
        expected = by_size['protobuf']['samples'], cardinality(TWELVE)['protobuf']['samples']
        self.assertEqual(by_size['lost'], 0)
        self.assertEqual(tuple(f'{number:,}' for number in expected), sentence.groups())


if __name__ == '__main__':
    report.main()
