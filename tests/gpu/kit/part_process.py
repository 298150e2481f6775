# SPDX-License-Identifier: Apache-2.0
"""A part as a process of its own in a process group of its own: when its time is over, or it crashes, the others' results stay."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

SKIPPED = 77
SCRATCH = 'GPU_KIT_SCRATCH'  # the folder of a part


class Skip(Exception):
    """This machine does not have what a part needs."""


def write(path, content):
    """The file has the old content or the new one at any time."""
    unfinished = pathlib.Path(f'{path}.part')
    unfinished.write_text(json.dumps(content, indent=1) + '\n')
    os.replace(unfinished, path)


def run_here(part, machine, path):
    """In the part's process. What it has measured is in the file after each step."""
    data = {}

    def save():
        write(path, data)
    try:
        part.measure(machine, data, save)
    except Skip as reason:
        data['skipped'] = str(reason)
        save()
        return SKIPPED
    except Exception:
        traceback.print_exc()
        data['failed'] = traceback.format_exc().strip().splitlines()[-1]
        save()
        return 1
    save()
    return 0


def end_group(group):
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run(name, arguments, path, log, limit_seconds):
    """Starts this program once more for one part. Returns {state, reason, seconds, data}."""
    if path.exists():
        path.unlink()
    began = time.monotonic()
    memory = '/dev/shm' if os.access('/dev/shm', os.W_OK) else None
    scratch = tempfile.mkdtemp(prefix='nccl-exporter-gpu-kit-', dir=memory)
    with open(log, 'wb') as output:
        process = subprocess.Popen([sys.executable, *arguments, '--run-part', name, '--data', str(path)], stdout=output, stderr=output,
                                   stdin=subprocess.DEVNULL, start_new_session=True, env=dict(os.environ, **{SCRATCH: scratch}))
        state, reason = 'done', ''
        try:
            process.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            state, reason = 'failed', f'it did not end within {limit_seconds} s, and was killed'
        finally:
            end_group(process.pid)
            process.wait()
            shutil.rmtree(scratch, ignore_errors=True)
    data = json.loads(path.read_text()) if path.exists() else {}
    if not reason and process.returncode == SKIPPED:
        state, reason = 'skipped', data.get('skipped', '')
    elif not reason and process.returncode != 0:
        state, reason = 'failed', data.get('failed') or f'it ended with status {process.returncode}'
    return {'state': state, 'reason': reason, 'seconds': round(time.monotonic() - began, 1), 'data': data}
