#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""NCCL's own plugins on NCCL's own host code, alone and chained: their files show the same operations.

NCCL_HOST_RIG is the folder of a rig, or of one per release (tests/nccl_host/README.md). Where a rig has NCCL's source in `src`, its example plugin and its Inspector are
built from there, with the headers of CUDA_HOME. CHAINING_MIXES is the number of random jobs that are played for each.
"""
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.abspath("deploy/tests"))
import report

PLUGIN = pathlib.Path("plugin/libnccl-profiler-exporter.so").absolute()
DRIVER = pathlib.Path("tests/nccl_host/host_job/host_job").absolute()
CUDA = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
MIXES = int(os.environ.get("CHAINING_MIXES", "5"))
SECONDS = 180
# Two ranks on two nodes, so that there are network operations.
JOB = ["-n", "2", "-N", "1", "-i", "20", "-c", "2000", "-b", "1048576", "-o", "allreduce,sendrecv,allgather"]
HOST = {
    "NCCL_CUMEM_ENABLE": "0", "NCCL_CUMEM_HOST_ENABLE": "0", "NCCL_NVLS_ENABLE": "0", "NCCL_P2P_DISABLE": "1", "NCCL_IB_DISABLE": "1",
    "NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "lo", "NCCL_MNNVL_ENABLE": "0", "NCCL_GIN_ENABLE": "0", "NCCL_RAS_ENABLE": "0",
    "NCCL_ALLGATHERV_ENABLE": "0", "NCCL_EXPORTER_KERNEL_TIMING": "on",
    # The example's collectives have 755 MB each on 2.28.9.
    "NCCL_PROFILE_EVENT_MASK": "4095", "NCCL_PROFILE_COLL_POOL_SIZE": "6", "NCCL_PROFILE_P2P_POOL_SIZE": "32",
    "NCCL_PROFILE_PROXY_DETACH_POOL_SIZE": "64",
    "NCCL_INSPECTOR_ENABLE": "1", "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS": "500", "NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES": "0",
}


def example_events(folder):
    """Events of the calls by category. Those of the network are as many as there were polls."""
    text = "".join(path.read_text() for path in folder.rglob("trace*.json"))
    events = collections.Counter(re.findall(r'"cat": "(\w+)", "ph": "b"', text))
    return collections.Counter({name: count for name, count in events.items() if name not in ("PROXY", "NET")})


def inspector_records(folder):
    records = collections.Counter()
    for path in folder.rglob("*.log"):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            for kind in ("coll_perf", "p2p_perf"):
                fields = {key: value for key, value in record.get(kind, {}).items() if not re.search("_us|gbs|timestamp|trace", key)}
                if fields:
                    records[(record["header"]["rank"], kind, json.dumps(fields, sort_keys=True))] += 1
    return records


READERS = {"example": example_events, "inspector": inspector_records}


class HostPluginsTest(unittest.TestCase):
    def setUp(self):
        rigs = os.environ.get("NCCL_HOST_RIG")
        if not rigs:
            self.skipTest("NCCL_HOST_RIG is not set: no rig")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        places = [pathlib.Path(rigs), *sorted(pathlib.Path(rigs).iterdir())]
        self.rigs = [path for path in places if (path / "lib" / "libnccl.so.2").exists()]
        self.assertTrue(self.rigs, f"no rig in {rigs}")
        self.runs = 0

    def build(self, rig, name):
        """The plugin, or None where its source is not to be had."""
        sources = [rig / "src" / place / name for place in ("ext-profiler", "plugins/profiler")]
        source = next((path for path in sources if path.is_dir()), None)
        if source is None or not (CUDA / "include" / "cuda_runtime.h").exists():
            return None
        version = self.folder / "version.cc"
        version.write_text('extern "C" const char* get_git_version_info() { return ""; }\n')
        library = self.folder / rig.name / f"libnccl-profiler-{name}.so"
        library.parent.mkdir(exist_ok=True)
        files = [*source.glob("*.cc"), *([version] if name == "inspector" else [])]
        subprocess.run(["g++", "-std=c++17", "-O1", "-w", "-fPIC", "-shared", f"-I{source}", f"-I{source}/nccl", f"-I{CUDA}/include", "-o", library,
                        *files, f"-L{rig}/lib", "-l:libcudart.so.13", "-ldl", "-lpthread"], check=True)
        return library

    def play(self, rig, library, is_chained, job):
        """Folder of what the plugin has written."""
        self.runs += 1
        folder = self.folder / str(self.runs)
        (folder / "segments").mkdir(parents=True)
        (folder / "dump").mkdir()
        plugin = {"NCCL_PROFILER_PLUGIN": str(library)}
        if is_chained:
            plugin = {"NCCL_PROFILER_PLUGIN": str(PLUGIN), "NCCL_EXPORTER_CHAIN": re.sub("libnccl-profiler-(.*).so", r"\1", library.name)}
        environment = {**os.environ, **HOST, **plugin, "LD_LIBRARY_PATH": f"{rig}/lib:{library.parent}", "FAKECUDA_SHM": f"/chaining{os.getpid()}",
                       "NCCL_EXPORTER_DIR": str(folder / "segments"), "NCCL_PROFILE_DUMP_FILE": str(folder / "dump" / "trace"),
                       "NCCL_INSPECTOR_DUMP_DIR": str(folder / "dump"), "NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": str(folder / "log")}
        subprocess.run([DRIVER, *job], env=environment, check=True, timeout=SECONDS, stdout=subprocess.DEVNULL, cwd=folder)
        if is_chained:
            self.assertIn("nccl-exporter: chained plugin", (folder / "log").read_text(errors="replace"))
        return folder / "dump"

    def test_files_are_those_of_a_run_alone(self):
        for rig in self.rigs:
            for name, read in READERS.items():
                with self.subTest(rig=rig.name, plugin=name):
                    library = self.build(rig, name)
                    if library is None:
                        self.skipTest(f"no source of {name} in {rig}, or no CUDA headers in {CUDA}")
                    alone = [read(self.play(rig, library, False, JOB)) for _ in range(2)]
                    beside = read(self.play(rig, library, True, JOB))
                    self.assertTrue(beside)
                    if alone[0] == alone[1]:
                        self.assertEqual(beside, alone[0])
                    else:  # it drops records at random
                        sums = [sum(each.values()) for each in alone]
                        self.assertGreaterEqual(2 * sum(beside.values()), min(sums))
                        self.assertLessEqual(sum(beside.values()), 2 * max(sums))

    def test_random_jobs_end(self):
        for rig in self.rigs:
            library = self.build(rig, "inspector")
            if library is None:
                self.skipTest(f"no source of the Inspector in {rig}")
            for seed in range(MIXES):
                with self.subTest(rig=rig.name, seed=seed):
                    self.play(rig, library, True, ["-n", "2", "-R", str(seed)])


if __name__ == "__main__":
    report.main()
