# SPDX-License-Identifier: Apache-2.0
"""Results as they are sent and shown: nothing in them names a host, a user or a folder of a user."""
import getpass
import ipaddress
import os
import re
import socket

from verdict import limit_text

IDENTIFIER = re.compile(r'\b[0-9a-f]{2}(?::[0-9a-f]{2}){5}\b|\b(?:GPU|MIG)-[0-9a-f-]{36}\b', re.IGNORECASE)
ADDRESS = re.compile(r'(?<![\w:.])(?:\d{1,3}(?:\.\d{1,3}){3}(?!\.?\w)|[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,7}(?![\w:]))', re.IGNORECASE)
PATH = re.compile(r'(?<![\w./])/(?:[^\s/:;,\'"()]+/)+')
SYSTEM = ('usr', 'lib', 'lib64', 'bin', 'opt', 'dev', 'proc', 'sys')
INSTALLED = ('site-packages', 'dist-packages', 'nvidia')


def private_words():
    """(text, its replacement), the longest first. The domain of a host goes with its name."""
    words = {os.path.expanduser('~'): 'HOME', os.getcwd(): 'FOLDER', socket.gethostname().split('.')[0]: 'HOST', os.environ.get('SUDO_USER', ''): 'USER'}
    try:
        words[getpass.getuser()] = 'USER'
    except (KeyError, OSError):  # a user without a name
        pass
    return sorted(((word, name) for word, name in words.items() if len(word) > 1 and word != '/root'), key=lambda pair: -len(pair[0]))


def without_address(found):
    try:
        ipaddress.ip_address(found.group())
    except ValueError:
        return found.group()
    return 'ADDRESS'


def without_folder(found):
    """Folders of the system stay, and in other places those of Python's packages."""
    names = found.group().split('/')
    if names[1] in SYSTEM:
        return found.group()
    first = min((names.index(name) for name in INSTALLED if name in names), default=len(names) - 1)
    return '/'.join(['FOLDER', *names[first:]])


def without_names(value, words=None):
    """A copy of the value; hosts, users, their folders and addresses are replaced."""
    words = private_words() if words is None else words
    if isinstance(value, dict):
        return {key: without_names(entry, words) for key, entry in value.items()}
    if isinstance(value, list):
        return [without_names(entry, words) for entry in value]
    if isinstance(value, str):
        value = PATH.sub(without_folder, value)
        for word, name in words:
            domain = r'(?:\.[A-Za-z][\w-]*)*' if name == 'HOST' else ''
            value = re.sub(rf'(?<![A-Za-z0-9]){re.escape(word)}{domain}(?![A-Za-z0-9])', name, value)
        return ADDRESS.sub(without_address, IDENTIFIER.sub('ADDRESS', value))
    return value


def lines_of(parts, results):
    """The verdict: lines of each part, and one for a part that did not end by itself."""
    lines = []
    for part in parts:
        found = results.get(part.NAME)
        if found is None or found['state'] == 'skipped':
            continue
        own = part.judge(found['data'])
        if found['state'] == 'failed':
            own.insert(0, {'limit': 'jobs end', 'about': 'the part itself', 'value': found['reason'], 'met': False})
        lines += [dict(entry, part=part.NAME) for entry in own]
    return lines


def facts_text(data):
    if not data:
        return ''
    gpus = data.get('gpus', [])
    machine = [f'{gpus.count(name)} x {name}' for name in sorted(set(gpus))] or ['no GPU']
    software = [f'NCCL {data["nccl"]}', f'CUDA {data["runtime_cuda"]}, driver for {data["driver_cuda"]}'] if 'nccl' in data else []
    system = [f'{data.get("cpus")} CPUs', f'{data.get("dev_shm_free_mib")} MiB free in /dev/shm', f'{data.get("libc")}', f'Python {data.get("python")}',
              f'torch: {data.get("torch", "not asked for")}']
    text = [', '.join(machine + software + system)]
    text += [f'- library: {path}' for path in data.get('libraries', [])]
    text += [f'- kernel events by default: {"on" if source.startswith("kernel") else "off"} (`{reason}`)' for source, reason in data.get('decisions', [])]
    return '\n'.join(text) + '\n'


def markdown(parts, content):
    """Text that can be pasted into docs/measurements.md."""
    results = content['parts']
    text = [f'### {content["day"]}, kit {content["kit"]}\n', facts_text(results.get('facts', {}).get('data'))]
    text += [f'- {name}: {found["state"]}{": " + found["reason"] if found["reason"] else ""} ({found["seconds"]:.0f} s)' for name, found in results.items()]
    text += ['', '| part | limit | of | measured | |', '|---|---|---|---|---|']
    for entry in content['verdict']:
        met = {True: 'met', False: '**not met**', None: 'not judged'}[entry['met']]
        text.append(f'| {entry["part"]} | {entry["limit"]}: {limit_text(entry["limit"])[0]} | {entry["about"]} | {entry["value"]} | {met} |')
    text.append('')
    text += [part.table(results[part.NAME]['data']) for part in parts if hasattr(part, 'table') and results.get(part.NAME, {}).get('state') in ('done', 'failed')]
    return '\n'.join(text)
