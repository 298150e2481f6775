#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A chained plugin sees what it sees alone: the simulator plays each job to the recording plugin twice."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path[:0] = [os.path.abspath(folder) for folder in ("tests/chaining", "deploy/tests")]
import recording
import report

SIMULATOR = pathlib.Path("simulator/nccl-sim").absolute()
PLUGIN = pathlib.Path("plugin/libnccl-profiler-exporter.so").absolute()
RECORDER = pathlib.Path("simulator/librecording-plugin.so").absolute()
RECORDER_V4 = pathlib.Path("simulator/librecording-plugin-v4.so").absolute()

# One for each version of the API.
RELEASES = {22707: 4, 22809: 5, 23007: 6, 23206: 7}
GROUP, COLL, P2P, PROXY_OP, PROXY_STEP, KERNEL, NET = 1, 2, 4, 8, 16, 64, 128
GROUP_API, COLL_API, P2P_API, LAUNCH = 256, 512, 1024, 2048
ALL, ALL_OF_V4 = 4095, 255
# Each implies others, by a table of the release.
MASKS = [GROUP, COLL, P2P, PROXY_OP, PROXY_STEP, KERNEL, NET, GROUP_API, COLL_API, P2P_API, LAUNCH, COLL | P2P, COLL | KERNEL]
# With these this plugin asks for kernel events itself, so that the other one may have them.
TIMED = {"NCCL_ALLGATHERV_ENABLE": "0", "NCCL_EXPORTER_KERNEL_TIMING": "on"}


def layouts():
    text = subprocess.run([SIMULATOR, "--help"], check=True, capture_output=True, text=True).stdout
    return re.search(r"--layout TEXT:{([^}]*)}", text)[1].split(",")


def faults():
    text = subprocess.run([SIMULATOR, "--help"], check=True, capture_output=True, text=True).stdout
    table = text[text.index("--fault TEXT"):text.index("\n\n", text.index("--fault TEXT"))]
    return re.findall(r"^ {32}([a-z-]+)(?: \w+=\S+)*:", table, re.MULTILINE)


class ChainingTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.runs = 0
        self.log = ""

    def play(self, plugin, arguments, environment):
        """Recordings of a job by process: the first communicator of each, and its rank there."""
        self.runs += 1
        folder = self.folder / str(self.runs)
        (folder / "segments").mkdir(parents=True)
        run = subprocess.run(
            # GPU times are then whole nanoseconds from the start of the job.
            [SIMULATOR, "--plugin", plugin, "--nccl-debug", "info", "--gpu-granularity", "1", *arguments],
            env={**os.environ, **TIMED, "NCCL_EXPORTER_DIR": str(folder / "segments"), "RECORDING_FILE": str(folder / "rank"), **environment},
            capture_output=True, text=True, check=False)
        self.assertIn(run.returncode, (0, 3), run.stderr)
        self.log = run.stderr
        return {path.suffix: path for path in sorted(folder.glob("rank.*"))}

    def both(self, arguments, mask, chained=RECORDER, **environment):
        arguments = [str(argument) for argument in arguments]
        environment["RECORDING_MASK"] = str(mask)
        alone = self.play(RECORDER, arguments, environment)
        beside = self.play(PLUGIN, arguments, {**environment, "NCCL_EXPORTER_CHAIN": str(chained)})
        self.assertEqual(alone.keys(), beside.keys(), self.log)
        self.assertTrue(alone)
        return [(alone[rank], beside[rank]) for rank in alone]

    def assert_same(self, arguments, mask, **environment):
        """The threads of a process are not in step with each other, also alone."""
        for alone, beside in self.both(arguments, mask, **environment):
            self.assertEqual(recording.calls_of(alone), recording.calls_of(beside))
            self.assertEqual(recording.events_of(alone), recording.events_of(beside))

    @staticmethod
    def job(release, layout="mixed", *options, repeats=0):
        version = ["--api-version", RELEASES[release], "--nccl-version", release]
        network = ["--nodes", 2, "--ranks-per-node", 2, "--network-repeats", repeats]
        return [*network, "--steps", 3, *version, "--layout", layout, *options]

    def test_all_layouts_and_releases(self):
        for release in RELEASES:
            for layout in layouts():
                with self.subTest(release=release, layout=layout):
                    self.assert_same(self.job(release, layout), ALL)

    def test_all_faults(self):
        for release in RELEASES:
            for fault in faults():
                graph = ["--graph"] if fault == "drift-graph" else []
                arguments = self.job(release, "mixed", *graph, "--fault", fault)
                if self.is_possible(arguments):
                    with self.subTest(release=release, fault=fault):
                        self.assert_same(arguments, ALL)

    def is_possible(self, arguments):
        run = subprocess.run([SIMULATOR, "--plugin", "none", *map(str, arguments)], capture_output=True, check=False)
        return run.returncode != 2

    def test_all_ways_to_call(self):
        for options in (["--graph"], ["--nonblocking"], ["--pxn"], ["--symmetric"], ["--collnet"], ["--aggregate", 4],
                        ["--recreate-every", 2], ["--ranks-per-process", 2], ["--no-finalize"], ["--elastic", "revoke@1"],
                        ["--split-at-step", 1, "--shrink-at-step", 2]):
            for release in RELEASES:
                arguments = self.job(release, "mixed", *options)
                if self.is_possible(arguments):
                    with self.subTest(release=release, options=options):
                        self.assert_same(arguments, ALL)

    def test_repeated_starts(self):
        for release in RELEASES:
            with self.subTest(release=release):
                for alone, beside in self.both(self.job(release, "ladder", repeats=1000), ALL):
                    self.assertGreater(alone.read_text().count("+ProxyStep"), alone.read_text().count("-ProxyStep"))
                    self.assertGreater(beside.read_text().count("+ProxyStep"), beside.read_text().count("-ProxyStep"))
                    self.assertEqual(recording.events_of(alone), recording.events_of(beside))

    def test_each_mask_alone(self):
        """This plugin asks for more, which takes NCCL's time: the same events, in another order and with other times."""
        for release in RELEASES:
            for mask in MASKS:
                with self.subTest(release=release, mask=mask):
                    arguments = self.job(release)
                    for alone, beside in self.both(arguments, mask):
                        self.assertEqual(recording.events_of(alone, without_gpu_times=True), recording.events_of(beside, without_gpu_times=True))

    def test_a_plugin_that_refuses(self):
        """Not the groups of calls: alone, the simulator asks again at the next call of the group. Not the Group of 2.27, without which it announces nothing."""
        for release, version in RELEASES.items():
            for bits in (COLL | P2P, PROXY_OP, PROXY_STEP, KERNEL, COLL_API | P2P_API, *([GROUP] if version > 4 else [])):
                with self.subTest(release=release, bits=bits):
                    arguments = self.job(release)
                    pairs = self.both(arguments, ALL, RECORDING_REFUSED_BITS=str(bits), RECORDING_RESULT="3")
                    for alone, beside in pairs:
                        self.assertEqual(recording.events_of(alone, without_gpu_times=True), recording.events_of(beside, without_gpu_times=True))

    def test_a_plugin_of_api_v4_under_later_releases(self):
        for release in RELEASES:
            with self.subTest(release=release):
                arguments = self.job(release, "mixed", "--pxn")
                for alone, beside in self.both(arguments, ALL_OF_V4, RECORDER_V4):
                    self.assertEqual(recording.events_of(alone, as_v4=True), recording.events_of(beside))

    def test_kernel_events_that_the_policy_refuses(self):
        arguments = self.job(23007, "dp")
        for alone, beside in self.both(arguments, COLL | KERNEL, NCCL_EXPORTER_KERNEL_TIMING="off"):
            self.assertIn("+KernelCh", alone.read_text())
            self.assertNotIn("+KernelCh", beside.read_text())
            self.assertIn("+Coll", beside.read_text())
        self.assertIn("gets no kernel events: timing_reason configured", self.log)


if __name__ == "__main__":
    report.main()
