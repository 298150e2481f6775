// SPDX-License-Identifier: Apache-2.0
// Numbers for people, a line and a heat map: what the page is drawn with.

const scaled = (value, units, step) => {
  let unit = 0;
  while (Math.abs(value) >= step && unit + 1 < units.length) { value /= step; ++unit; }
  const digits = value >= 100 || unit === 0 && Number.isInteger(value) ? 0 : value >= 10 ? 1 : 2;
  return value.toFixed(digits) + ' ' + units[unit];
};

export const unknown = '–';
const known = (value) => value !== null && value !== undefined && Number.isFinite(value);
export const count = (value) => known(value) ? scaled(value, ['', 'k', 'M', 'G', 'T'], 1000).trim() : unknown;
export const bytes = (value) => known(value) ? scaled(value, ['B', 'kB', 'MB', 'GB', 'TB', 'PB'], 1000) : unknown;
export const percent = (value) => known(value) ? Math.round(value * 100) + ' %' : unknown;
export const seconds = (value) => {
  if (!known(value)) return unknown;
  if (value >= 7200) return (value / 3600).toFixed(1) + ' h';
  if (value >= 120) return (value / 60).toFixed(1) + ' min';
  if (value >= 1) return scaled(value, ['s'], 1000);
  return scaled(value * 1e6, ['µs', 'ms'], 1000);
};

const svg = (name, attributes) => {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
};

// A figure with a caption, the greatest value on the right, and room for a chart of fixed height.
const figure = (title, chart) => {
  const element = document.createElement('figure');
  const caption = document.createElement('figcaption');
  const name = document.createElement('span');
  const range = document.createElement('span');
  name.textContent = title;
  caption.append(name, range);
  element.append(caption, chart);
  return { element, range };
};

// values: numbers or null, newest last; `slots` of them fill the width, so that the right edge is always now.
export const lineChart = (title, slots, format) => {
  const height = 40;
  const chart = svg('svg', { viewBox: `0 0 ${slots - 1} ${height}`, preserveAspectRatio: 'none', class: 'chart', role: 'img' });
  const area = svg('path', { class: 'area' });
  const line = svg('path', { class: 'line' });
  chart.append(area, line);
  const { element, range } = figure(title, chart);
  const update = (values) => {
    const present = values.filter(known);
    const top = Math.max(...present, 0);
    const first = slots - values.length;
    let strokes = '', fills = '', last = null, begun = null;
    const close = () => { if (begun !== null) fills += `L${last},${height}L${begun},${height}Z`; begun = null; };
    values.forEach((value, i) => {
      if (!known(value)) { close(); return; }
      const at = `${first + i},${top > 0 ? (height - value / top * (height - 3)).toFixed(2) : height}`;
      const joins = begun !== null;
      strokes += (joins ? 'L' : 'M') + at + (joins ? '' : 'h0.01');
      fills += (joins ? 'L' : 'M') + at;
      if (!joins) begun = first + i;
      last = first + i;
    });
    close();
    line.setAttribute('d', strokes);
    area.setAttribute('d', fills);
    const newest = present.length ? format(present[present.length - 1]) : unknown;
    range.textContent = present.length ? 'up to ' + format(top) : 'nothing timed';
    chart.setAttribute('aria-label', `${title}: now ${newest}, between ${present.length ? format(Math.min(...present)) : unknown} and ${format(top)}`);
  };
  return { element, update };
};

// cells: [step, bin, operations]; rows are bins, long durations on top, darker where there are more operations.
export const heatMap = (title, slots, upperBound) => {
  const canvas = document.createElement('canvas');
  canvas.className = 'chart';
  canvas.setAttribute('role', 'img');
  canvas.width = slots;
  const { element, range } = figure(title, canvas);
  const update = (cells, steps) => {
    const bins = cells.map((cell) => cell[1]);
    const low = Math.min(...bins), high = Math.max(...bins);
    const rows = Math.max(high - low + 1, 12);
    const bottom = Math.max(0, low - Math.floor((rows - (high - low + 1)) / 2));
    canvas.height = cells.length ? rows : 12;  // clears it
    if (!cells.length) {
      range.textContent = 'nothing timed';
      canvas.setAttribute('aria-label', title + ': nothing timed');
      return;
    }
    const most = new Map();  // of a step: each column has its own scale, so that a quiet minute is seen as well
    for (const [step, , operations] of cells) most.set(step, Math.max(most.get(step) ?? 0, operations));
    const colour = getComputedStyle(document.documentElement).getPropertyValue('--heat');
    const context = canvas.getContext('2d');
    for (const [step, bin, operations] of cells) {
      context.fillStyle = `rgba(${colour}, ${0.12 + 0.88 * Math.sqrt(operations / most.get(step))})`;
      context.fillRect(slots - steps + step, rows - 1 - (bin - bottom), 1, 1);
    }
    range.textContent = `${seconds(upperBound(low - 1))} to ${seconds(upperBound(high))}`;
    canvas.setAttribute('aria-label', `${title}: from ${range.textContent}`);
  };
  return { element, update };
};
