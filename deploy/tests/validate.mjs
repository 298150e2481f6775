// SPDX-License-Identifier: Apache-2.0
// Usage: node validate.mjs MODULES <OBJECTS: reads a JSON list of Kubernetes objects, and prints the faults that the schemas find, as a JSON list.
// MODULES: what tools/fetch-kubernetes-schemas has fetched.
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

function moduleOf({ apiVersion, kind }) {
  const owner = apiVersion.startsWith('monitoring.coreos.com/') ? '@kubernetes-models/prometheus-operator' : 'kubernetes-models';
  return pathToFileURL(path.join(process.argv[2], owner, apiVersion, `${kind}.js`)).href;
}

const faults = [];
for (const object of JSON.parse(fs.readFileSync(0, 'utf8'))) {
  const name = `${object.kind} ${object.metadata.name}`;
  try {
    const model = await import(moduleOf(object));
    new model[object.kind](object).validate();
  } catch (error) {
    faults.push(`${name}: ${error.message}`);
  }
}
console.log(JSON.stringify(faults));
