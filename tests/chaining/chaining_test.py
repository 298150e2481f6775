#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A chained plugin sees what it sees alone: the simulator plays each job to the recording plugin twice.

CHAINING_ALL=1 plays all layouts, faults, ways to call and masks. Without it there are a few of each.
"""
import os
import pathlib
import re
import shutil
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
# With one version of the API alone.
RECORDERS = {version: pathlib.Path(f"simulator/librecording-plugin-v{version}.so").absolute() for version in (4, 5, 6)}
PLAYS_ALL = os.environ.get("CHAINING_ALL") == "1"

# One for each version of the API.
RELEASES = {22707: 4, 22809: 5, 23007: 6, 23206: 7}
GROUP, COLL, P2P, PROXY_OP, PROXY_STEP, KERNEL, NET = 1, 2, 4, 8, 16, 64, 128
GROUP_API, COLL_API, P2P_API, LAUNCH = 256, 512, 1024, 2048
ALL, ALL_OF_V4 = 4095, 255
SHORT_LAYOUTS = {22707: "pp", 22809: "tp", 23007: "3d", 23206: "mixed"}
# For a plugin of a former version of the API.
FORMER_LAYOUTS, FORMER_FAULTS = ("mixed", "moe", "random"), ("lost-kernel", "aborted-transfer", "stale-transfer")
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
    names = re.findall(r"^ {32}([a-z-]+)(?: \w+=\S+)*:", table, re.MULTILINE)
    assert names and len(names) == table.count("\n" + 32 * " "), table
    return names


def with_all(test):
    return test if PLAYS_ALL else None


def some(cases, few):
    """All cases, or these few of them."""
    assert set(few) <= set(cases) and few, (cases, few)
    return cases if PLAYS_ALL else few


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
        self.assertTrue(list((folder / "segments").iterdir()) or plugin != PLUGIN, run.stderr)
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
            for layout in some(layouts(), [SHORT_LAYOUTS[release]]):
                with self.subTest(release=release, layout=layout):
                    self.assert_same(self.job(release, layout), ALL)

    def test_all_faults(self):
        for release in RELEASES:
            for fault in some(faults(), ["lost-kernel", "aborted-transfer"]):
                graph = ["--graph"] if fault == "drift-graph" else []
                arguments = self.job(release, "mixed" if PLAYS_ALL else "tp", *graph, "--fault", fault)
                if self.is_possible(arguments):
                    with self.subTest(release=release, fault=fault):
                        self.assert_same(arguments, ALL)

    def is_possible(self, arguments):
        run = subprocess.run([SIMULATOR, "--plugin", "none", *map(str, arguments)], capture_output=True, check=False)
        return run.returncode != 2

    @with_all
    def test_all_ways_to_call(self):
        for options in (["--graph"], ["--nonblocking"], ["--pxn"], ["--symmetric"], ["--collnet"], ["--aggregate", 4],
                        ["--recreate-every", 2], ["--ranks-per-process", 2], ["--no-finalize"], ["--elastic", "revoke@1"],
                        ["--split-at-step", 1, "--shrink-at-step", 2]):
            for release in RELEASES:
                arguments = self.job(release, "mixed", *options)
                if self.is_possible(arguments):
                    with self.subTest(release=release, options=options):
                        self.assert_same(arguments, ALL)

    @with_all
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
            for mask in some(MASKS, [PROXY_STEP, COLL_API]):
                with self.subTest(release=release, mask=mask):
                    arguments = self.job(release, "mixed" if PLAYS_ALL else "tp")
                    for alone, beside in self.both(arguments, mask):
                        self.assertEqual(recording.events_of(alone, without_gpu_times=True), recording.events_of(beside, without_gpu_times=True))

    @with_all
    def test_a_plugin_that_refuses(self):
        """Not the groups of calls: alone, the simulator asks again at the next call of the group. Not the Group of 2.27, without which it announces nothing."""
        for release, version in RELEASES.items():
            for bits in (COLL | P2P, PROXY_OP, PROXY_STEP, KERNEL, COLL_API | P2P_API, *([GROUP] if version > 4 else [])):
                with self.subTest(release=release, bits=bits):
                    arguments = self.job(release)
                    pairs = self.both(arguments, ALL, RECORDING_REFUSED_BITS=str(bits), RECORDING_RESULT="3")
                    for alone, beside in pairs:
                        self.assertEqual(recording.events_of(alone, without_gpu_times=True), recording.events_of(beside, without_gpu_times=True))

    def test_a_plugin_of_a_former_api_under_later_releases(self):
        jobs = [["mixed", "--pxn"], *([layout] for layout in FORMER_LAYOUTS), *(["mixed", "--fault", fault] for fault in FORMER_FAULTS)]
        for release, api in RELEASES.items():
            for version in (version for version in RECORDERS if version <= api):
                for job in jobs if PLAYS_ALL else [["tp", "--pxn"]]:
                    with self.subTest(release=release, version=version, job=job):
                        pairs = self.both(self.job(release, *job), ALL_OF_V4 if version == 4 else ALL, RECORDERS[version])
                        self.assertIn(f"nccl-exporter: chained plugin recording, profiler API v{version}", self.log)
                        for alone, beside in pairs:
                            self.assertEqual(recording.events_of(alone, as_version=version), recording.events_of(beside))

    def test_names_of_libraries_are_resolved_as_nccl_resolves_its_own(self):
        folder = self.folder / "libraries"
        folder.mkdir()
        for name in ("libnccl-profiler-named.so", "libnccl-profiler-a.so.so", "libnccl-profiler-a.so.1.so", "libnccl-profiler-libb.so.so", "libnccl-profiler-libc.so",
                     "both", "libd.so"):
            shutil.copy(RECORDER, folder / name)
        (folder / "libnccl-profiler-both.so").write_text("no library")
        environment = {"RECORDING_MASK": str(COLL), "LD_LIBRARY_PATH": str(folder)}
        arguments = [str(argument) for argument in self.job(23007, "single")]
        for value, is_there in {"named": True, "a.so": True, "a.so.1": True, "libb.so": False, "libc": True, "both": True, "libd.so": True,
                                "libnccl-profiler-named.so": True, str(folder / "both"): True, str(folder / "named"): False, "other": False}.items():
            with self.subTest(value=value):
                self.assertEqual(bool(self.play(value, arguments, environment)), is_there, self.log)
                self.assertEqual(bool(self.play(PLUGIN, arguments, {**environment, "NCCL_EXPORTER_CHAIN": value})), is_there, self.log)

    def test_kernel_events_that_the_policy_refuses(self):
        arguments = self.job(23007, "dp")
        for alone, beside in self.both(arguments, COLL | KERNEL, NCCL_EXPORTER_KERNEL_TIMING="off"):
            self.assertIn("+KernelCh", alone.read_text())
            self.assertNotIn("+KernelCh", beside.read_text())
            self.assertIn("+Coll", beside.read_text())
        self.assertIn("gets no kernel events: timing_reason configured", self.log)


if __name__ == "__main__":
    report.main()
