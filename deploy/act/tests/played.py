# SPDX-License-Identifier: Apache-2.0
"""Findings, Slurm's scontrol, the API server of Kubernetes and the socket of NVSentinel, played for the scripts."""
import copy
import http.server
import json
import pathlib
import re
import socket
import struct
import threading

import yaml

CULPRIT = {'standing': 'missing_call', 'rank': 2, 'global_rank': '2', 'gpu': 2, 'gpu_uuid': 'GPU-2', 'pid': 1002, 'host': 'gpu-node-7', 'pod': 'llama-0-x',
           'behind': 1, 'operation': '', 'since': 1700000000.0}
FINDING = {'id': '0123456789abcdef', 'kind': 'hang_culprit', 'severity': 'critical', 'nccl_job': '4711', 'namespace': '', 'uid': 1000,
           'headline': "Job 4711 hangs: 3 ranks wait for global rank 2 (GPU 2, pid 1002, gpu-node-7).", 'next': 'Look at its stack.',
           'culprits': [CULPRIT], 'culprits_count': 1}


def finding(*hosts, **changes):
    """A finding that names a rank of each of these nodes."""
    made = {**copy.deepcopy(FINDING), **changes}
    if hosts:
        made.update(culprits=[{**CULPRIT, 'host': host} for host in hosts], culprits_count=len(hosts))
    return made


SCONTROL = '''#!/bin/sh
echo "$@" >>"{log}"
case "$1 $2" in
  "show hostnames") printf 'gpu-node-6\\ngpu-node-7\\n' ;;
  "requeue 13") echo "Requested operation is not supported" >&2; exit 1 ;;
esac
'''


# As Slurm's: '--noheader --jobs 4711 --format %U|%a|%P|%N'.
SQUEUE = '''#!/bin/sh
[ "$1 $2 $4 $5" = "--noheader --jobs --format %U|%a|%P|%N" ] || exit 2
case "$3" in
  4700) echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1 ;;
  4701) ;;
  *) echo "1000|research|h100|gpu-node-[6-7]" ;;
esac
'''


class Scontrol:
    """A folder for PATH, and the commands that were run."""

    def __init__(self, folder):
        self.log = pathlib.Path(folder, 'scontrol.log')
        for name, text in (('scontrol', SCONTROL.format(log=self.log)), ('squeue', SQUEUE)):
            script = pathlib.Path(folder, name)
            script.write_text(text)
            script.chmod(0o755)

    def changes(self):
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line for line in lines if not line.startswith('show')]


def rules_of(role_text):
    """(namespace or '' for all, resource, verb) of role.yaml, with the rules that --evict needs, which are comments."""
    text = re.sub(r'(?m)^  # (- apiGroups|  resources|  verbs)', r'  \1', role_text)
    return {(thing['metadata'].get('namespace', ''), resource, verb) for thing in yaml.safe_load_all(text) if 'rules' in thing
            for rule in thing['rules'] for resource in rule['resources'] for verb in rule['verbs']}


def right_for(method, path):
    """The right that a call needs: namespace, resource and verb."""
    at = re.fullmatch(r'/api/v1(?:/namespaces/([^/]+))?/([^/]+)(?:/([^/]+))?(?:/([^/]+))?', path)
    namespace, resource, name, part = at.groups()
    verb = {'POST': 'create', 'PATCH': 'patch', 'GET': 'get' if name else 'list'}[method]
    return namespace or '', f'{resource}/{part}' if part else resource, verb


class Kubernetes:
    """Nodes, pods, and what was posted. It answers what role.yaml grants, and nothing else. A patch of a condition replaces that of its type, as the API server's strategic merge does."""

    def __init__(self, *names, pods=()):
        self.nodes = {name: {'metadata': {'name': name, 'uid': 'u-' + name}, 'status': {'conditions': [{'type': 'Ready', 'status': 'True'}]}} for name in names}
        self.pods, self.patches, self.events, self.evictions = dict(pods), [], [], []
        self.listed = 0
        self.rules = rules_of(pathlib.Path('deploy/act/role.yaml').read_text())

    def __call__(self, method, path, body=None, kind='application/json'):
        namespace, *right = right_for(method, path)
        assert {('', *right), (namespace, *right)} & self.rules, f'role.yaml does not grant {method} {path}'
        if method == 'PATCH' and (patched := re.fullmatch(r'/api/v1/nodes/(.+)/status', path)):
            assert kind == 'application/strategic-merge-patch+json', kind
            [condition] = body['status']['conditions']
            self.patches.append(condition)
            status = self.nodes[patched[1]]['status']
            status['conditions'] = [old for old in status['conditions'] if old['type'] != condition['type']] + [condition]
            return {}
        if method == 'POST':
            (self.evictions if path.endswith('/eviction') else self.events).append((path, body))
            return {}
        if path == '/api/v1/nodes':
            self.listed += 1
            return {'items': list(copy.deepcopy(self.nodes).values())}
        named = path.rpartition('/')[2]
        return copy.deepcopy(self.nodes.get(named) or self.pods[named])

    def condition(self, node, name='NCCLCulprit'):
        return next((condition for condition in self.nodes[node]['status']['conditions'] if condition['type'] == name), None)


def serve(answer):
    """A server of HTTP on a free port; `answer(method, path, body, headers)` makes the object of each answer."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def handle_any(self):
            body = self.rfile.read(int(self.headers.get('Content-Length') or 0))
            data = json.dumps(answer(self.command, self.path, json.loads(body) if body else None, self.headers)).encode()
            self.send_response(200)
            self.send_header('Content-Length', str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        do_GET = do_POST = do_PATCH = handle_any

        def log_message(self, *arguments):
            pass
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


class Connector(threading.Thread):
    """Takes one call of gRPC at a Unix socket, as far as HTTP/2 needs it, and answers with a status. `received` is its message."""
    DATA, HEADERS, SETTINGS = 0, 1, 4
    END_STREAM, END_HEADERS, ACK = 1, 4, 1

    def __init__(self, path, status=0):
        super().__init__(daemon=True)
        self.status, self.received = status, b''
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()
        self.start()

    def run(self):
        client, _ = self.listener.accept()
        with client, client.makefile('rb') as stream:
            assert stream.read(24) == b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
            client.sendall(self.frame(self.SETTINGS, 0, 0))
            while True:
                head = stream.read(9)
                size, kind, flags, number = int.from_bytes(head[:3], 'big'), head[3], head[4], struct.unpack('>I', head[5:])[0]
                data = stream.read(size)
                if kind == self.SETTINGS and not flags & self.ACK:
                    client.sendall(self.frame(self.SETTINGS, self.ACK, 0))
                if kind == self.DATA:
                    self.received += data
                    if flags & self.END_STREAM:
                        break
            # Field 8 of HPACK's static table is `:status: 200`; 0 begins a field with its name.
            trailer = b''.join(bytes([0, len(name)]) + name + bytes([len(value)]) + value
                               for name, value in ((b'grpc-status', str(self.status).encode()), (b'grpc-message', b'as played')))
            client.sendall(self.frame(self.HEADERS, self.END_HEADERS, number, b'\x88') + self.frame(self.DATA, 0, number, bytes(5)) +
                           self.frame(self.HEADERS, self.END_HEADERS | self.END_STREAM, number, trailer))
            stream.read()  # until the client has it all

    @staticmethod
    def frame(kind, flags, number, data=b''):
        return len(data).to_bytes(3, 'big') + bytes([kind, flags]) + struct.pack('>I', number) + data
