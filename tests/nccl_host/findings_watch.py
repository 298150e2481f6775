# SPDX-License-Identifier: Apache-2.0
"""A daemon beside a job, and the findings that it had of the job."""
import collections
import json
import socket
import subprocess
import threading
import urllib.request

# Durations of the judge are divided by it: a hang is critical after 23 s.
TIME_SCALE = 6
ASK_SECONDS = 0.3


def free_port():
    with socket.socket() as listener:
        listener.bind(('127.0.0.1', 0))
        return listener.getsockname()[1]


class FindingsWatch:
    """`findings`: (severity, kind, headline) -> answers that had it. `answers`: how many there were."""

    def __init__(self, program, segments, log):
        self.findings, self.answers = collections.Counter(), 0
        self.url = f'http://127.0.0.1:{free_port()}/api/v1/findings'
        self.is_over = threading.Event()
        with open(log, 'w', encoding='utf-8') as output:
            self.daemon = subprocess.Popen(
                [program, f'--web.listen-address={self.url.split("/")[2]}', f'--segment.dir={segments}', '--findings.socket=',
                 f'--findings.time-scale={TIME_SCALE}'], stdout=output, stderr=output)
        self.thread = threading.Thread(target=self.ask_until_over, daemon=True)
        self.thread.start()

    def ask_until_over(self):
        while not self.is_over.wait(ASK_SECONDS):
            self.ask()

    def ask(self):
        try:
            with urllib.request.urlopen(self.url, timeout=10) as answer:
                findings = json.load(answer)['findings']
        except OSError:
            return  # starting; a daemon that never answers is a fault of the job's verdict
        self.answers += 1
        self.findings.update({(finding['severity'], finding['kind'], finding['headline']) for finding in findings})

    def stop(self):
        self.is_over.set()
        self.thread.join()
        self.daemon.kill()
        self.daemon.wait()
