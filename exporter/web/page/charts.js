// SPDX-License-Identifier: Apache-2.0
// A line, a heat map of durations and a heat map of ranks by time.
import { make } from './dom.js';
import { clock, known, seconds, whole } from './format.js';
import { plot } from './plot.js';

const svg = (name, attributes) => {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
};

// The next of 1, 2, 5, 10, 20 ...: what the axis ends with.
const roundTop = (value) => {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((digit) => digit * power >= value * 0.999) * power;
};

const lineHeight = 60;

// Each value takes one step of width, drawn in its middle; a step without one leaves a gap.
const linePaths = (values, top) => {
  let strokes = '', fills = '', last = null, begun = null;
  const close = () => { if (begun !== null) fills += `L${last},${lineHeight}L${begun},${lineHeight}Z`; begun = null; };
  values.forEach((value, i) => {
    if (!known(value)) { close(); return; }
    const at = `${i + 0.5},${(lineHeight - value / top * lineHeight).toFixed(2)}`;
    const joins = begun !== null;
    strokes += (joins ? 'L' : 'M') + at + (joins ? '' : 'h0.01');
    fills += (joins ? 'L' : 'M') + at;
    if (!joins) begun = i + 0.5;
    last = i + 0.5;
  });
  close();
  return { strokes, fills };
};

// values: numbers or null, one for each of `times`.
export const lineChart = (title, format) => {
  const picture = svg('svg', { preserveAspectRatio: 'none', class: 'chart' });
  const grid = svg('path', { class: 'grid' }), area = svg('path', { class: 'area' }), line = svg('path', { class: 'line' });
  picture.append(grid, area, line);
  let values = [], times = [];
  const frame = plot(title, picture, (step) => format(values[step]), () => {
    const last = values.findLastIndex(known);
    if (last < 0) return 'nothing timed';
    return `${last + 1 === values.length ? 'now' : `at ${clock(times[last])}`} ${format(values[last])}`;
  });
  const update = (newValues, newTimes) => {
    values = newValues;
    times = newTimes;
    const top = roundTop(Math.max(...values.filter(known), 0));
    const width = Math.max(times.length, 1);
    picture.setAttribute('viewBox', `0 0 ${width} ${lineHeight}`);
    grid.setAttribute('d', [0, 0.5].map((part) => `M0,${lineHeight * part}H${width}`).join(''));
    const { strokes, fills } = linePaths(values, top);
    line.setAttribute('d', strokes);
    area.setAttribute('d', fills);
    frame.update(times, 1, values.some(known) ? [{ text: format(top) }, { text: format(top / 2) }, { text: '0' }] : []);
  };
  return { element: frame.element, update };
};

const heatCanvas = () => make('canvas', 'chart');
// Asked for once a theme: the browser would compute every style of the page for each chart.
let heatColour = null;
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { heatColour = null; });
// One pixel a cell; CSS makes it large. shares: 0 to 1.
const paint = (canvas, width, height, cells) => {
  canvas.width = Math.max(width, 1);  // clears it
  canvas.height = Math.max(height, 1);
  heatColour ??= getComputedStyle(document.documentElement).getPropertyValue('--heat').split(',').map(Number);
  const context = canvas.getContext('2d');
  const image = context.createImageData(canvas.width, canvas.height);
  const [red, green, blue] = heatColour, { data } = image;
  for (const [x, y, share] of cells) {
    const at = (y * canvas.width + x) * 4;
    data[at] = red;
    data[at + 1] = green;
    data[at + 2] = blue;
    data[at + 3] = share * 255;
  }
  context.putImageData(image, 0, 0);
};

const leastBins = 12;  // of height, so that one bin is not a wall

// cells: [step, bin, operations]; long durations on top, stronger where there are more operations of that step.
export const durationMap = (title, upperBound) => {
  const canvas = heatCanvas();
  let bySteps = new Map();
  const frame = plot(title, canvas, (step) => {
    const cells = bySteps.get(step);
    if (!cells) return 'nothing timed';
    const bins = cells.map(([bin]) => bin), operations = cells.reduce((sum, [, number]) => sum + number, 0);
    const usual = cells.reduce((a, b) => b[1] > a[1] ? b : a)[0];
    return `${whole(operations)} operations, ${seconds(upperBound(Math.min(...bins) - 1))} to ${seconds(upperBound(Math.max(...bins)))}, most up to ${seconds(upperBound(usual))}`;
  }, () => bySteps.size ? 'stronger: more operations' : 'nothing timed');
  const update = (cells, times) => {
    bySteps = new Map();
    let low = Infinity, high = -Infinity;
    for (const [step, bin, operations] of cells) {
      if (!bySteps.has(step)) bySteps.set(step, []);
      bySteps.get(step).push([bin, operations]);
      low = Math.min(low, bin);
      high = Math.max(high, bin);
    }
    const rows = cells.length ? Math.max(high - low + 1, leastBins) : leastBins;
    const bottom = cells.length ? Math.max(0, low - Math.floor((rows - (high - low + 1)) / 2)) : 0;
    // Each step has its own scale, so that a quiet minute is seen as well.
    const most = new Map([...bySteps].map(([step, list]) => [step, Math.max(...list.map(([, number]) => number))]));
    paint(canvas, times.length, rows, cells.map(([step, bin, number]) => [step, rows - 1 - (bin - bottom), 0.12 + 0.88 * Math.sqrt(number / most.get(step))]));
    frame.update(times, 1, cells.length ? [{ text: seconds(upperBound(bottom + rows - 1)) }, { text: seconds(upperBound(Math.max(bottom - 1, 0))) }] : []);
  };
  return { element: frame.element, update };
};

// waiting: {ranks, steps: for each rank its seconds of waiting per second, or null}, newest last. The rank that the others wait for is the row that stays empty.
export const waitingMap = (title, culprits) => {
  const canvas = heatCanvas();
  let ranks = [], steps = [], offset = 0;
  const at = (step, row) => steps[row]?.[step - offset];
  const frame = plot(title, canvas, (step, row) => {
    const value = at(step, row);
    return `rank ${ranks[row]} ${known(value) ? `waits ${Math.round(value * 100)} % of the time` : 'is not known'}`;
  }, () => 'stronger: waits longer. The others wait for the row that stays empty.');
  frame.element.classList.add('ranks');
  const update = (waiting, times) => {
    ({ ranks, steps } = waiting);
    offset = times.length - Math.max(...steps.map((values) => values.length), 0);
    const cells = [];
    steps.forEach((values, y) => values.forEach((value, i) => {
      if (known(value) && i + offset >= 0) cells.push([i + offset, y, Math.min(1, Math.sqrt(Math.max(value, 0)))]);
    }));
    paint(canvas, times.length, ranks.length, cells);
    frame.element.style.setProperty('--rows', String(ranks.length));
    frame.update(times, ranks.length, ranks.map((rank) => ({ text: `rank ${rank}`, className: culprits().has(rank) ? 'culprit' : '' })));
  };
  return { element: frame.element, update };
};
