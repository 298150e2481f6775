// SPDX-License-Identifier: Apache-2.0
// One job of one user on this node: its tiles, and the kinds of parallelism that names of communicators say.
import { make, setText } from './dom.js';
import { bytes, known, percent, perSecond, unknown } from './format.js';
import { ageOf, isAbout, isHang, jobOf } from './words.js';

export const jobKey = (comm) => [comm.nccl_job, comm.namespace, comm.uid].join('/');
const jobTitle = (comm) => jobOf(comm) ? `${jobOf(comm).replace(/^./, (first) => first.toUpperCase())} of user ${comm.uid}` : `The job of user ${comm.uid}`;

// By a word of the name, as those of PyTorch's meshes, Megatron's groups and vLLM have it: "mesh_tp", "TENSOR_MODEL_PARALLEL_GROUP", "dp:0".
const kinds = {
  'tensor parallel': ['tp', 'tensor'], 'pipeline parallel': ['pp', 'pipeline'], 'data parallel': ['dp', 'ddp', 'fsdp', 'hsdp', 'data'],
  'expert parallel': ['ep', 'expert', 'moe'], 'context parallel': ['cp', 'context'], 'whole job': ['world', 'default'],
};
// Empty where the name says none, or two.
export const kindOf = (comm) => {
  const words = comm.comm_name.toLowerCase().match(/[a-z]+/g) ?? [];
  const said = Object.keys(kinds).filter((kind) => kinds[kind].some((word) => words.includes(word)));
  return said.length === 1 ? said[0] : '';
};

// Whatever takes as long is no part of a step.
const stuckSeconds = 30;
const gpuOf = (rank) => [rank.host, rank.pid, rank.gpu].join('/');
// Seconds per second of each rank, over the time of `recent`; what is not known is left out.
const waitingOf = (comm, history) => {
  const latest = Math.ceil(stuckSeconds / history.step_seconds);
  return (comm.waiting?.steps ?? []).map((steps) => {
    const some = steps.slice(-latest).filter(known);
    return some.length ? some.reduce((sum, one) => sum + one, 0) / some.length : 0;
  });
};

const factsOf = (comms, node) => {
  const waits = new Map(), stuck = new Set();  // by GPU
  const hangs = node.findings.some((finding) => isHang(finding) && comms.some((comm) => isAbout(finding, comm)));
  const areCompared = comms.some((comm) => comm.waiting);
  let busy = 0, isKnown = true, bus = 0, operations = 0, timed = 0;
  for (const comm of comms) {
    const waiting = waitingOf(comm, node.history);
    for (const rank of comm.local_ranks) {
      const gpu = gpuOf(rank), share = waiting[comm.waiting?.ranks.indexOf(rank.rank)] ?? 0;
      waits.set(gpu, (waits.get(gpu) ?? 0) + share);
      if (hangs && ageOf(rank, node) >= stuckSeconds) stuck.add(gpu);
    }
    for (const { recent, ...since } of comm.collectives) {
      operations += since.operations;
      timed += since.timed_operations;
      if (recent.operations_per_second > 0 && !known(recent.duration_seconds)) isKnown = false;
      const seconds = recent.operations_per_second * (recent.duration_seconds ?? 0);
      busy += seconds;
      bus += seconds * (recent.bus_bytes_per_second ?? 0);
    }
  }
  let waiting = 0;
  for (const [gpu, share] of waits) waiting += stuck.has(gpu) ? 1 : Math.min(share, 1);
  return {
    // Operations of two communicators of a GPU may overlap.
    share: isKnown ? Math.min(Math.max(busy, stuck.size) / waits.size, 1) : null, bandwidth: busy ? bus / busy : null,
    waiting: timed && areCompared || stuck.size ? `${Number(waiting.toFixed(1))} of ${waits.size}` : unknown, coverage: operations ? timed / operations : null,
  };
};

const titles = ['Time in NCCL', 'Bus bandwidth, waiting included', 'GPUs that wait', 'Operations timed'];
export const createJob = () => {
  const element = make('section', 'job'), title = make('h3'), tiles = make('dl', 'tiles'), list = make('div', 'communicators');
  for (const name of titles) {
    const tile = make('div');
    tile.append(make('dt', '', name), make('dd'));
    tiles.append(tile);
  }
  element.append(title, tiles, list);
  element.show = (comms, node) => {
    setText(title, jobTitle(comms[0]));
    const facts = factsOf(comms, node);
    const texts = [percent(facts.share), perSecond(bytes)(facts.bandwidth), facts.waiting, percent(facts.coverage)];
    texts.forEach((text, i) => setText(tiles.children[i].lastChild, text));
  };
  return element;
};
