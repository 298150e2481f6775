#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The delays that tools/demo prints are those from the fault to the finding: its last part, with a daemon and a Prometheus that are played."""
import http.server
import json
import pathlib
import re
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path('deploy/tests').resolve()))
import report

[WATCH] = re.findall(r"\npython3 - [^\n]*<<'EOF'[^\n]*\n(.*?)\nEOF\n", pathlib.Path('tools/demo').read_text(), re.S)
LATE_RANK = 5
LEFT_SECONDS = 5  # of the job, in which it asks some times


class Played(http.server.BaseHTTPRequestHandler):
    """A daemon and a Prometheus which both name `server.named_rank`, from their first answer on."""

    def do_GET(self):
        rank = {'global_rank': self.server.named_rank}
        answer = {'/api/v1/findings': {'findings': [{'culprits': [rank], 'headline': 'A rank is late.'}]},
                  '/api/v1/alerts': {'data': {'alerts': [{'state': 'firing', 'labels': rank | {'alertname': 'NCCLStragglerRank'},
                                                          'annotations': {'summary': 'A rank is late.'}}]}}}[self.path]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_):
        pass


class Demo(unittest.TestCase):
    def watch(self, age, fault, named_rank=LATE_RANK):
        """Exit code and text of the part that watches, for a job that is `age` seconds old, with a fault at `fault`, and ends soon."""
        with http.server.ThreadingHTTPServer(('127.0.0.1', 0), Played) as server:
            server.named_rank = str(named_rank)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            port = str(server.server_address[1])
            done = subprocess.run([sys.executable, '-c', WATCH, str(time.time() - age), str(age + LEFT_SECONDS), str(fault), str(LATE_RANK), port, port],
                                  capture_output=True, text=True)
            server.shutdown()
        self.assertEqual(done.stderr, '')
        return done.returncode, done.stdout

    def test_delays_begin_with_the_fault(self):
        """Regression: they were those since the watching began, so that a slow start of the job made the rules faster."""
        code, text = self.watch(age=1000, fault=400)
        delays = re.findall(r'(page of node-0|alert NCCLStragglerRank) named rank 5 ([\d.]+) s after the fault \(([\d.]+) min', text)
        self.assertEqual((code, len(delays)), (0, 2), text)
        for _, seconds, minutes in delays:
            self.assertAlmostEqual(float(seconds), 600, delta=30)
            self.assertAlmostEqual(float(minutes), float(seconds) * 15 / 60, delta=0.06)
        self.assertIn('the GPU of rank 5 is 25 % slower from now on', text)

    def test_a_rank_that_is_named_before_the_fault_is_named_wrongly(self):
        code, text = self.watch(age=1000, fault=2000)
        self.assertEqual(code, 1)
        self.assertIn('named wrongly: 5 by page of node-0, 5 by alert NCCLStragglerRank', text)
        self.assertNotIn('after the fault', text)

    def test_another_rank_is_named_wrongly(self):
        code, text = self.watch(age=1000, fault=400, named_rank=3)
        self.assertEqual(code, 1)
        self.assertIn('named wrongly: 3 by page of node-0', text)


if __name__ == '__main__':
    report.main()
