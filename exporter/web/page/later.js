// SPDX-License-Identifier: Apache-2.0
// Work in slices, so that keys and clicks are answered in between. A piece of work must be much shorter than the 50 ms that a person notices.

const sliceMilliseconds = 10;

const pieces = new Map();  // by owner
const channel = new MessageChannel();  // not a timer: browsers delay those
let isUnderWay = false;

const next = () => {
  isUnderWay = pieces.size > 0;
  if (isUnderWay) channel.port2.postMessage(null);
};
channel.port1.onmessage = () => {
  const end = performance.now() + sliceMilliseconds;
  try {
    for (const [owner, work] of pieces) {
      pieces.delete(owner);
      work();
      if (performance.now() >= end) break;
    }
  } finally {
    next();
  }
};

// Newer work of the same owner takes the place of older.
export const later = (owner, work) => {
  pieces.set(owner, work);
  if (!isUnderWay) next();
};
