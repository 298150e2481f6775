#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The kit without a GPU: what its verdict makes of measurements, with and without planted faults; parts that hang or crash; what is sent."""
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

KIT = pathlib.Path('tests/gpu/kit').absolute()
sys.path[:0] = [str(KIT), 'deploy/tests']
import machine
import parts
import report
import results
import verdict
from parts import clocks, cost, hang, overlap, right

LIBRARIES = [pathlib.Path(f'tests/gpu/{name}') for name in
             ('libgpu-kit-programs.so', 'libnccl-profiler-empty.so', 'libnccl-profiler-probe.so')]


def not_met(lines):
    return [entry['limit'] for entry in verdict.failed(lines)]


COMMUNICATORS = [
    {'name': 'timed', 'rank': rank, 'ranks': 2, 'event_ns': [1000000] * 4,
     'functions': {'AllReduce': {'calls': 4, 'sizes': {'65536': {'operations': 4, 'bytes': 400000}}},
                   'Send': {'calls': 2, 'sizes': {'0': {'operations': 1, 'bytes': 8}, '4096': {'operations': 1, 'bytes': 8000}}}}}
    for rank in (0, 1)]


def exposition(operations=4, seconds=0.0038, timed=4):
    """A scrape of these communicators."""
    text = '# HELP nccl_rank_info The rank.\n'
    for rank in (0, 1):
        own = f'comm="7f",comm_name="timed",rank="{rank}"'
        text += (f'nccl_rank_info{{{own},pid="4",timing_source="kernel",timing_reason="default"}} 1\n'
                 f'nccl_api_calls_total{{{own},function="AllReduce"}} 4\nnccl_api_calls_total{{{own},function="Send"}} 2\n'
                 f'nccl_collective_operations_total{{{own},collective="AllReduce",size="65536"}} {operations if rank else 4}\n'
                 f'nccl_collective_operations_total{{{own},collective="AllReduce",size="4096"}} 0\n'
                 f'nccl_collective_bytes_total{{{own},collective="AllReduce",size="65536"}} 400000\n'
                 f'nccl_collective_timed_operations_total{{{own},collective="AllReduce",size="65536"}} {timed}\n'
                 f'nccl_collective_busy_seconds_total{{{own},collective="AllReduce",size="65536"}} {seconds}\n'
                 f'nccl_p2p_send_operations_total{{{own}}} 2\nnccl_p2p_send_bytes_total{{{own}}} 8008\nnccl_p2p_send_timed_operations_total{{{own}}} 2\n')
    return text


class Right(unittest.TestCase):
    def judged(self, text):
        job = dict(right.compare(list(machine.samples(text)), COMMUNICATORS, one_host=True), ranks=2, one_host=False, kernel_timing='on', ended=True)
        return right.judge({'jobs': [job], 'torch': {'skipped': 'no torch'}}), job

    def test_is_met_where_all_is_equal(self):
        lines, job = self.judged(exposition())
        self.assertEqual([entry['met'] for entry in lines], [True, True, True, True, None])
        self.assertEqual(job['compared'], 2 * 6)

    def test_a_lost_count_is_found_and_named(self):
        lines, job = self.judged(exposition(operations=3, timed=3, seconds=0.00285))
        self.assertEqual(not_met(lines), ['counts'])
        self.assertEqual(job['first_differences'], ['nccl_collective_operations_total timed 1 AllReduce 65536: 3 and not 4'])

    def test_a_count_of_a_communicator_that_the_job_does_not_have_is_found(self):
        lines, _ = self.judged(exposition() + 'nccl_api_calls_total{comm="80",comm_name="other",rank="0",function="Reduce"} 1\n')
        self.assertEqual(not_met(lines), ['counts'])

    def test_communicators_without_names_are_one(self):
        lines, _ = self.judged(exposition().replace('comm_name="timed"', 'comm_name=""'))
        self.assertEqual(not_met(lines), [])

    def test_wrong_durations_are_found(self):
        self.assertEqual(not_met(self.judged(exposition(seconds=0.00095))[0]), ['durations'])
        self.assertEqual(not_met(self.judged(exposition(seconds=0.008))[0]), ['durations'])

    def test_untimed_operations_are_found_and_are_no_fault_without_kernel_events(self):
        self.assertEqual(not_met(self.judged(exposition(timed=2, seconds=0.0019))[0]), ['timed'])
        lines, _ = self.judged(exposition(timed=0, seconds=0).replace('"kernel"', '"proxy"').replace('"default"', '"cpus_low"'))
        self.assertEqual((not_met(lines), lines[2]['value']), ([], 'no kernel events: cpus_low'))

    def test_a_job_that_does_not_end_is_found(self):
        lines = right.judge({'jobs': [{'ranks': 2, 'one_host': False, 'kernel_timing': 'on', 'ended': False, 'problem': 'not within 60 s'}]})
        self.assertEqual(not_met(lines), ['jobs end'])

    def test_pytorch_must_agree_if_it_is_there(self):
        data = {'jobs': [], 'torch': {'differences': 1, 'counted': {'AllReduce operations': 5}}}
        self.assertEqual(not_met(right.judge(data)), ['torch counts'])
        self.assertEqual(not_met(right.judge({'jobs': [], 'torch': {'failed': 'the PyTorch job failed'}})), ['torch counts'])


def costs(ours_call, ours_time=20000):
    """Rows of two sizes, and of one with few operations in a block. Other programs disturb most blocks."""
    def block(time, call, *disturbances):
        times, calls = ([at + more for more in disturbances] for at in (time, call))
        return {'time_ns': times, 'call_ns': calls, 'cpu_ns': calls, 'clock_ns': [20 + more / 100 for more in disturbances]}

    def row(size, operations, call):
        own = {cost.OFF: block(19900, 2000, 500, 3000, 0, 900, 400), cost.EMPTY: block(19950, 2400, 0, 800, 900, 7, 600),
               cost.OURS: block(ours_time, 2400 + call, 900, 0, 100, 3000, 500), cost.UNTIMED: block(19950, 2400, 500, 400, 0, 300, 200)}
        return {'bytes': size, 'operations': operations, 'costs': own}
    rows = [row(8, 400, ours_call), row(1024, 400, ours_call), row(1 << 28, 3, 9000)]
    return {'one_host': True, 'ranks': 2, 'eager': rows, 'graph': rows[:1]}


class Cost(unittest.TestCase):
    def test_twice_the_cost_is_found(self):
        self.assertEqual(not_met(cost.judge(costs(300))), [])
        self.assertEqual(not_met(cost.judge(costs(600))), ['call', 'call'])

    def test_a_slower_all_reduce_is_found_but_not_where_ranks_share_a_gpu(self):
        slow = costs(300, ours_time=22000)
        self.assertEqual(not_met(cost.judge(slow)), ['time', 'time'])
        self.assertEqual([entry['value'] for entry in cost.judge(slow)][1], '+10.6 at 8 B')
        self.assertEqual(not_met(cost.judge(dict(slow, one_host=False))), [])

    def test_the_table_has_a_row_for_each_size(self):
        self.assertIn('| 1024 | 20.40 | 20.55 | 20.50 | 20.25 | 2.50 | 3.00 | 3.20 | 2.70 |', cost.table(costs(300)))
        self.assertEqual(cost.table({'ranks': 2}), '')


def overlaps(step_us):
    runs = [{'connections': '1', 'beside': 'AllReduce', 'marks': marks, 'beside_us': 100, 'compute_us': 120, 'step_us': step}
            for marks, step in step_us.items()]
    return {'runs': runs}


class Overlap(unittest.TestCase):
    def test_lost_overlap_is_found_and_an_experiment_is_no_fault(self):
        lines = overlap.judge(overlaps({'none': 125, 'timing': 220, overlap.KERNEL_EVENTS: 126}))
        self.assertEqual([(entry['limit'], entry['met']) for entry in lines], [('marks', False), ('kernel events', True)])
        self.assertEqual(not_met(lines), [])
        self.assertEqual(not_met(overlap.judge(overlaps({'none': 125, overlap.KERNEL_EVENTS: 190}))), ['kernel events'])

    def test_nothing_is_judged_where_nothing_overlaps_or_times_are_impossible(self):
        for without, step in ((219, 220), (125, 400), (60, 125)):
            line, = overlap.judge(overlaps({'none': without, overlap.KERNEL_EVENTS: step}))
            self.assertIsNone(line['met'], line)


def kernels(seconds, offset_ns, drift_ppm=0, delivery_ns=200000):
    """Records of a kernel each 100 ms, which begins 5 us after its launch and lasts 50 us."""
    for i in range(seconds * 10):
        launch = 10**12 + i * 10**8
        start, stop = (at + offset_ns + int(i * 10**8 * drift_ppm / 10**6) for at in (launch + 5000, launch + 55000))
        yield launch, start, launch + 60000, stop, launch + 55000 + delivery_ns


class Clocks(unittest.TestCase):
    def test_offset_is_bounded_from_both_sides_and_drift_is_seen(self):
        found = clocks.summary(list(kernels(60, -7 * 10**9, drift_ppm=2)))
        self.assertEqual((found['windows'], found['contradicting_windows']), (12, 0))
        self.assertAlmostEqual(found['drift_ppm'], 2, places=2)
        self.assertLess(found['narrowest_us'], 206)

    def test_contradictions_and_late_delivery_are_found(self):
        data = {'ranks': [clocks.summary(list(kernels(10, 0, delivery_ns=20000)))]}
        self.assertEqual(not_met(clocks.judge(data)), [])
        wrong = list(kernels(10, 0, delivery_ns=20000))
        wrong[3] = wrong[3][:3] + (wrong[3][3] + 10**6, wrong[3][4])
        self.assertEqual(not_met(clocks.judge({'ranks': [clocks.summary(wrong)]})), ['clocks'])
        self.assertEqual(not_met(clocks.judge({'ranks': [clocks.summary(list(kernels(10, 0, delivery_ns=30 * 10**6)))]})), ['placed', 'delivered'])


class Hang(unittest.TestCase):
    def test_the_culprit_alone_must_be_named(self):
        finding = {'headline': 'waits for rank 1', 'culprits': [{'pid': 5}]}
        self.assertEqual(hang.names_rank([finding], 5), 'waits for rank 1')
        self.assertIsNone(hang.names_rank([finding], 6))
        self.assertIsNone(hang.names_rank([dict(finding, culprits=[{'pid': 5}, {'pid': 6}])], 5))

    def test_late_names_slow_destroys_and_jobs_that_stay_are_found(self):
        good = {'headline': 'x', 'named_after_seconds': 31, 'ranks': [{'destroy_seconds': 0.2}]}
        self.assertEqual(not_met(hang.judge({'absent': good, 'killed': good})), [])
        self.assertEqual(not_met(hang.judge({'absent': dict(good, named_after_seconds=50), 'killed': good})), ['absent named'])
        slow = dict(good, ranks=[{'destroy_seconds': 11}])
        self.assertEqual(not_met(hang.judge({'absent': slow, 'killed': good})), ['destroy'])
        self.assertEqual([(entry['limit'], entry['about']) for entry in verdict.failed(hang.judge({'absent': good, 'killed': slow}))], [('destroy', 'killed')])
        stuck = {'headline': 'x', 'named_after_seconds': 31, 'problem': 'the job did not end within 30 s'}
        self.assertEqual(not_met(hang.judge({'absent': stuck, 'killed': dict(stuck, headline=None)})), ['jobs end', 'killed named', 'jobs end'])


ENDLESS = '''
import subprocess, time
def measure(machine, data, save):
    data['child'] = subprocess.Popen(['sleep', '1000']).pid
    with machine.folder() as folder:
        data['folder'] = folder
        save()
        time.sleep(1000)
LIMIT_SECONDS = 10
'''
CRASH = '''
import os
def measure(machine, data, save):
    data['half'] = 1
    save()
    os.kill(os.getpid(), 11)
'''
SKIPPED = '''
from machine import Skip
def measure(machine, data, save):
    raise Skip('no GPU')
'''


def is_alive(process):
    try:
        return ' Z ' not in pathlib.Path(f'/proc/{process}/stat').read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


class Parts(unittest.TestCase):
    """The whole program, with parts that misbehave."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        kit = pathlib.Path(cls.folder.name) / 'kit'
        shutil.copytree(KIT, kit, ignore=shutil.ignore_patterns('*_test*', 'BUILD*'))
        planted = {'facts': 'def measure(machine, data, save):\n    data["gpus"] = []\n', 'right': ENDLESS, 'cost': CRASH, 'overlap': SKIPPED,
                   'clocks': 'def measure(machine, data, save):\n    raise ValueError("a bug")\n'}
        for name, text in planted.items():
            text += f'\nNAME = "{name}"\ndef judge(data):\n    return []\n'
            (kit / f'parts/{name}.py').write_text(text if 'LIMIT_SECONDS' in text else 'LIMIT_SECONDS = 20\n' + text)
        (kit / 'parts/__init__.py').write_text('from parts import facts, right, cost, overlap, clocks\nALL = facts, right, cost, overlap, clocks\n')
        cls.output = pathlib.Path(cls.folder.name) / 'out'
        cls.ended = subprocess.run([sys.executable, kit / 'measure', '--json', '--output', cls.output], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 universal_newlines=True)
        cls.found = json.loads(cls.ended.stdout)['parts']

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_one_that_never_ends_is_killed_with_its_children_and_its_data_stays(self):
        self.assertEqual((self.found['right']['state'], self.found['right']['reason']), ('failed', 'it did not end within 10 s, and was killed'))
        while is_alive(self.found['right']['data']['child']):  # the kernel ends it soon
            time.sleep(0.01)
        self.assertFalse(pathlib.Path(self.found['right']['data']['folder']).exists())

    def test_one_that_crashes_leaves_what_it_had_and_the_results_of_the_others(self):
        self.assertEqual((self.found['cost']['reason'], self.found['cost']['data']), ('it ended with status -11', {'half': 1}))
        self.assertEqual(self.found['facts']['state'], 'done')
        self.assertEqual(self.found['clocks']['reason'], 'ValueError: a bug')

    def test_one_that_is_skipped_says_why_and_is_no_fault(self):
        self.assertEqual((self.found['overlap']['state'], self.found['overlap']['reason']), ('skipped', 'no GPU'))
        kept = json.loads((self.output / 'results.json').read_text())
        self.assertEqual([entry['part'] for entry in kept['verdict'] if entry['met'] is False], ['right', 'cost', 'clocks'])
        self.assertEqual(self.ended.returncode, 1)

    def test_the_table_has_all_lines(self):
        self.assertEqual((self.output / 'results.md').read_text().count('**not met**'), 3)


class Limits(unittest.TestCase):
    def test_each_part_that_never_ends_is_killed_at_its_own_limit(self):
        with tempfile.TemporaryDirectory() as folder:
            kit = pathlib.Path(folder) / 'kit'
            shutil.copytree(KIT, kit, ignore=shutil.ignore_patterns('*_test*', 'BUILD*'))
            for part in parts.ALL:
                with open(kit / f'parts/{part.NAME}.py', 'a') as source:
                    source.write('\n\ndef measure(machine, data, save):\n    __import__("time").sleep(1000)\n')
            subprocess.run([sys.executable, kit / 'measure', '--slow', '0.02', '--output', f'{folder}/out'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            found = json.loads((pathlib.Path(folder) / 'out/results.json').read_text())
        self.assertEqual({name: (part['state'], part['reason']) for name, part in found['parts'].items()}, {
            part.NAME: ('failed', f'it did not end within {int(0.02 * part.LIMIT_SECONDS)} s, and was killed') for part in parts.ALL})
        self.assertEqual({entry['part'] for entry in found['verdict'] if entry['met'] is False} & {part.NAME for part in parts.ALL},
                         {part.NAME for part in parts.ALL})

    def test_all_of_them_are_ten_minutes_at_most(self):
        self.assertLessEqual(sum(part.LIMIT_SECONDS for part in parts.ALL), 600)


class Sent(unittest.TestCase):
    WORDS = [('/home/alice', 'HOME'), ('node-17', 'HOST'), ('alice', 'USER')]

    def sent(self, text):
        return results.without_names({'a': [text]}, self.WORDS)['a'][0]

    def test_names_of_hosts_and_users_are_replaced(self):
        self.assertEqual(self.sent('node-17:41 of alice at node-17.cluster.example.com. malice'), 'HOST:41 of USER at HOST. malice')

    def test_folders_that_are_not_the_system_s_are_replaced_whoever_owns_them(self):
        self.assertEqual(self.sent("FileNotFoundError: '/home/bob/kit/lib.so', not in /home/alice"), "FileNotFoundError: 'FOLDER/lib.so', not in FOLDER/USER")
        self.assertEqual(self.sent('/scratch/acme/venv/lib/python3.10/site-packages/nvidia/nccl/lib/libnccl.so.2'),
                         'FOLDER/site-packages/nvidia/nccl/lib/libnccl.so.2')
        self.assertEqual(self.sent('/usr/lib/x86_64-linux-gnu/libnccl.so.2.28.9'), '/usr/lib/x86_64-linux-gnu/libnccl.so.2.28.9')

    def test_addresses_are_replaced_and_times_and_releases_are_not(self):
        self.assertEqual(self.sent('10.1.2.3:80, fe80:0:0:0:1:2:3:4, [fe80::1]:80, 00:1A:2b:3c:4d:5e, GPU-5b6d8f0a-1c2d-3e4f-5a6b-7c8d9e0f1a2b'),
                         'ADDRESS:80, ADDRESS, [ADDRESS]:80, ADDRESS, ADDRESS')
        self.assertEqual(self.sent('12:30:45 with 2.28.9'), '12:30:45 with 2.28.9')

    def test_those_of_this_machine_are_among_them(self):
        self.assertEqual(results.without_names(f'{socket.gethostname()}: x'), 'HOST: x')


class Python(unittest.TestCase):
    def test_without_its_whole_standard_library_is_refused_with_the_package_that_has_it(self):
        for missing in ('json', 'ctypes'):
            with tempfile.TemporaryDirectory() as folder:
                (pathlib.Path(folder) / f'{missing}.py').write_text(f'raise ModuleNotFoundError("No module named {missing!r}")')
                ended = subprocess.run([sys.executable, KIT / 'measure', '--output', folder], env=dict(os.environ, PYTHONPATH=folder), stderr=subprocess.PIPE,
                                       universal_newlines=True)
                self.assertEqual((ended.returncode, ended.stderr), (
                    1, f'This Python has no whole standard library: No module named {missing!r}. '
                    'Debian and Ubuntu have it in the package python3, but not in python3-minimal.\n'))


class Libraries(unittest.TestCase):
    def test_need_nothing_newer_than_glibc_2_17(self):
        for library in LIBRARIES:
            with self.subTest(library.name):
                text = subprocess.run(['readelf', '--version-info', '--dynamic', '--wide', library], stdout=subprocess.PIPE, check=True, universal_newlines=True).stdout
                versions = {tuple(map(int, found.split('.'))) for found in re.findall(r'GLIBC_([\d.]+)', text)}
                self.assertTrue(versions)
                self.assertLessEqual(max(versions), (2, 17))
                self.assertLessEqual(set(re.findall(r'\(NEEDED\).*\[(.*)\]', text)), {
                    'libc.so.6', 'libm.so.6', 'libdl.so.2', 'libpthread.so.0', 'libgcc_s.so.1', 'ld-linux-x86-64.so.2', 'ld-linux-aarch64.so.1'})

    def test_are_looked_for_where_the_user_says_and_then_in_python_s_environment(self):
        with tempfile.TemporaryDirectory() as folder:
            for place in ('nvidia/cuda_runtime/lib/libcudart.so.12', 'nvidia/cu13/lib/libcudart.so.13', 'own/libcudart.so.12'):
                (pathlib.Path(folder) / place).parent.mkdir(parents=True)
                (pathlib.Path(folder) / place).touch()
            old = os.environ.pop('LD_LIBRARY_PATH', None)
            self.assertEqual(machine.library_path(machine.LIBRARIES['CUDART'], [folder]), f'{folder}/nvidia/cu13/lib/libcudart.so.13')
            os.environ['LD_LIBRARY_PATH'] = f'{folder}/own'
            self.assertEqual(machine.library_path(machine.LIBRARIES['CUDART'], [folder]), f'{folder}/own/libcudart.so.12')
            os.environ.pop('LD_LIBRARY_PATH')
            if old is not None:
                os.environ['LD_LIBRARY_PATH'] = old
            self.assertEqual(machine.library_path(['libnone.so'], [folder]), '')

    def test_a_library_that_cannot_be_loaded_is_the_reason_for_skipping(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / 'lib').mkdir()
            (pathlib.Path(folder) / 'lib/libgpu-kit-programs.so').symlink_to(LIBRARIES[0].absolute())
            here = machine.Machine(folder)
            here.libraries['CUDART'] = f'{folder}/libcudart.so.12'
            with self.assertRaisesRegex(machine.Skip, f'{folder}/libcudart.so.12: cannot open shared object file'):
                here.facts()


class Documents(unittest.TestCase):
    def test_limits_are_those_that_were_written_down(self):
        text = pathlib.Path('docs/measurements.md').read_text(encoding='utf-8')
        rows = re.findall(r'^\| ([a-z]+(?: [a-z]+)*) \| ((?:at (?:most|least) )?[\d. to]+) \| (.*) \|$', text, re.MULTILINE)
        self.assertEqual(rows, [(limit, *verdict.limit_text(limit)) for limit in verdict.LIMITS])

    def test_say_what_follows_from_each_limit_that_is_not_met(self):
        text = pathlib.Path('docs/gpu-kit.md').read_text(encoding='utf-8').partition('## What follows from which result')[2].partition('###')[0]
        rows = [row.split('|')[1] for row in text.splitlines() if row.startswith('| `')]
        self.assertEqual(set(verdict.LIMITS) - {name for row in rows for name in re.findall('`([^`]*)`', row)}, set())


if __name__ == '__main__':
    report.main()
