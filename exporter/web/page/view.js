// SPDX-License-Identifier: Apache-2.0
// What the reader has chosen: filter, order and opened details. It is kept in the address after "#", so that a link shows the same view.

export const sortings = ['trouble', 'name', 'age', 'rate'];

const read = () => {
  const parameters = new URLSearchParams(location.hash.slice(1));
  const sort = parameters.get('sort');
  return { filter: parameters.get('filter') ?? '', sort: sortings.includes(sort) ? sort : sortings[0], open: new Set(parameters.getAll('open')) };
};

const hashOf = ({ filter, sort, open }) => {
  const parameters = new URLSearchParams();
  if (filter) parameters.set('filter', filter);
  if (sort !== sortings[0]) parameters.set('sort', sort);
  for (const name of open) parameters.append('open', name);
  return '#' + parameters.toString();
};

let current = read();
const listeners = [];
const tell = () => { for (const listener of listeners) listener(current); };

export const view = () => current;
export const onView = (listener) => listeners.push(listener);
// The address of this view with one more thing open.
export const hashWithOpen = (name) => hashOf({ ...current, filter: '', open: new Set([...current.open, name]) });

// `change` has some of filter, sort and open. No entry in the browser's history for each letter that is typed.
export const changeView = (change) => {
  current = { ...current, ...change };
  const hash = hashOf(current);
  history.replaceState(null, '', hash === '#' ? location.pathname + location.search : hash);
  tell();
};
export const setOpen = (name, isOpen) => {
  if (current.open.has(name) === isOpen) return;
  const open = new Set(current.open);
  if (isOpen) open.add(name);
  else open.delete(name);
  changeView({ open });
};

addEventListener('hashchange', () => {
  current = read();
  tell();
});
