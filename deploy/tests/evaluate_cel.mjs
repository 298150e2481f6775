// SPDX-License-Identifier: Apache-2.0
// Usage: node evaluate_cel.mjs MODULES <INPUT: prints what each of the CEL expressions says of each object, a JSON list for each object.
// INPUT: a JSON list of the expressions and the objects. MODULES: what tools/fetch-kubernetes-schemas has fetched.
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const { run } = await import(pathToFileURL(path.join(process.argv[2], '@bufbuild/cel/dist/esm/index.js')).href);

function plain(value) {
  if (typeof value === 'bigint') return Number(value);
  return value !== null && typeof value === 'object' && Symbol.iterator in value ? [...value].map(plain) : value;
}

const [expressions, objects] = JSON.parse(fs.readFileSync(0, 'utf8'));
console.log(JSON.stringify(objects.map((object) => expressions.map((expression) => plain(run(expression, { object }))))));
