#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The contract of /api/v1/findings as plain lines, so that two versions of it can be compared. Usage: contract_lines.py SCHEMA"""
import json
import sys


def lines(schema):
    """Paths of all names with their types, and the values of all enumerations: what a reader may rely on."""
    found = set()

    def follow(part, path):
        if '$ref' in part:
            return follow(schema['$defs'][part['$ref'].rpartition('/')[2]], path)
        types = part.get('type', [])
        found.update(f'{path}: {name}' for name in ([types] if isinstance(types, str) else types))
        found.update(f'{path} = {value}' for option in [part, *part.get('anyOf', [])] for value in option.get('enum', []))
        if 'const' in part:
            found.add(f"{path} = {part['const']}")
        for name, inner in part.get('properties', {}).items():
            if name in part.get('required', []):
                found.add(f'{path}.{name} is required')
            follow(inner, f'{path}.{name}')
        if 'items' in part:
            follow(part['items'], path + '[]')
    follow(schema, '')
    return sorted(found)


def broken(old, new):
    """Losses for readers of `old`: lines that are gone, and types that a name may have now and had not before."""
    def types(of):
        return {line for line in of if ': ' in line}
    names = {line.partition(': ')[0] for line in types(old)}
    return [f'gone: {line}' for line in old if line not in new] + [
        f'a type more: {line}' for line in types(new) - types(old) if line.partition(': ')[0] in names]


if __name__ == '__main__':
    with open(sys.argv[1], encoding='utf-8') as file:
        print('\n'.join(lines(json.load(file))))
