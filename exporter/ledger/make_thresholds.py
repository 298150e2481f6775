#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the shipped thresholds (deploy/prometheus/thresholds.json) as a C++ header."""
import json
import sys

SUFFIXES = {'ms': 'ms', 's': 's', 'm': 'min', 'h': 'h', 'd': 'd'}


def name_of(key):
    return 'k' + ''.join(word.capitalize() for word in key.split('-'))


def constant(key, value):
    if isinstance(value, str):
        number = value.rstrip('msdh')
        return f'inline constexpr std::chrono::nanoseconds {name_of(key)} = {number}{SUFFIXES[value[len(number):]]};'
    kind = 'int' if key.endswith(('-evaluations', '-ranks', '-operations', '-hangs', '-faults')) else 'double'
    return f'inline constexpr {kind} {name_of(key)} = {value};'


def main():
    thresholds = json.load(open(sys.argv[1], encoding='utf-8'))
    lines = [constant(key, value) for key, value in thresholds.items()]
    print('#pragma once\n#include <chrono>\n\nnamespace nccl_exporter::exporter::shipped {\nusing namespace std::chrono_literals;')
    print('\n'.join(lines))
    print('}  // namespace nccl_exporter::exporter::shipped')


main()
