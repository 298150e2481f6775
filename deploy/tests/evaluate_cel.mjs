// SPDX-License-Identifier: Apache-2.0
// Usage: node evaluate_cel.mjs MODULES <INPUT: prints what each of the CEL expressions says with each of the bindings, a JSON list for each of these.
// INPUT: a JSON list of the expressions and the bindings. MODULES: what tools/fetch-kubernetes-schemas has fetched.
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const { run } = await import(pathToFileURL(path.join(process.argv[2], '@bufbuild/cel/dist/esm/index.js')).href);

function plain(value) {
  if (typeof value === 'bigint') return Number(value);
  if (value === null || typeof value !== 'object') return value;
  if (typeof value.entries === 'function' && typeof value.has === 'function') {
    return Object.fromEntries([...value.entries()].map(([key, item]) => [key, plain(item)]));
  }
  return Symbol.iterator in value ? [...value].map(plain) : Object.fromEntries(Object.entries(value).map(([key, item]) => [key, plain(item)]));
}

const [expressions, bindings] = JSON.parse(fs.readFileSync(0, 'utf8'));
console.log(JSON.stringify(bindings.map((binding) => expressions.map((expression) => plain(run(expression, binding))))));
