// SPDX-License-Identifier: Apache-2.0
// Answers of /api/v1/node (docs/api.md) in the states that the page must show. The page's tests run this before the page's own scripts:
// the state of the address ("/?state=hang") takes the place of the daemon's answer. Fields are those of a real answer, which a test
// compares. Sentences are those that exporter/findings writes.
{
const taken = 1795390874.25;  // 23:41:14 UTC
const minutes = 60;
const state = new URLSearchParams(location.search).get('state');
const steps = state === 'history' ? 120 : 60;  // as many as the daemon keeps
const bins = state === 'history' ? 8 : 2;      // in which the durations of one step are
const times = Array.from({ length: steps }, (_, i) => taken - 5 * (steps - 1 - i));
// Trouble began that long ago. Where a living rank has not called, the daemon makes it critical after ten minutes; the page shows what it is given.
const age = 150.2, begun = taken - age, stepBegun = steps - 30;

const processOf = (rank, change = {}) => ({
  pid: 5826 + rank, uid: 1000, alive: true, stopped: false, ended: false, host: 'node-1', executable: '/usr/bin/python3', plugin_version: '0.1.0',
  start: taken - 14 * minutes, global_rank: String(rank), local_rank: String(rank), nccl_job: '4712', namespace: '', pod: '', container: '',
  communicators: 2, losses: [], ...change,
});
const rankOf = (rank, gpu, change = {}) => ({
  rank, gpu, gpu_uuid: `GPU-${gpu}`, pid: 5826 + gpu, host: 'node-1', alive: true, stopped: false, global_rank: String(gpu), started_sequence: 533, completed_sequence: 533,
  behind: 0, in_flight_count: 0, in_flight: [], unseen_operations: 0, last_progress: taken - 0.4, timing_source: 'kernel', timing_reason: 'default', drift_cause: null,
  probation_launches: 0, arrivals: { late: false, seconds: 120, compared: 1200, last: 150, mean_lateness_seconds: 0.0001 }, network: null, ...change,
});
const networkOf = (network) => ({
  timed_share: 0.1, seconds: 120, send: { operations: 960, bytes: 4026531840, wait_seconds: { gpu: 0.97 - network, peer: 0.03, network } },
  recv: { operations: 480, bytes: 2013265920, wait_seconds: { gpu: 0.25, network: 0.7, flush: 0.05 } },
});
// level(step): how much longer than usual, null for nothing at all.
const collectiveOf = (collective, usedBy, level = () => 1) => ({
  collective, used_by: usedBy, operations: 4264, bytes: 4264e6, timed_operations: 4264, busy_seconds: 12.2,
  recent: level(steps - 1) === null ? { seconds: 30, operations_per_second: 0, bytes_per_second: 0, duration_seconds: null, bus_bytes_per_second: null }
    : { seconds: 30, operations_per_second: 40 * usedBy, bytes_per_second: 40e6 * usedBy, duration_seconds: 0.0012, bus_bytes_per_second: 138e9 },
  history: {
    operations_per_second: times.map((_, i) => level(i) === null ? 0 : 40 * usedBy), bytes_per_second: times.map((_, i) => level(i) === null ? 0 : 40e6 * usedBy),
    duration_seconds: times.map((_, i) => level(i) && 0.0012 * level(i) + 0.0001 * Math.sin(i)),
    bus_bytes_per_second: times.map((_, i) => level(i) && 138e9 / level(i) + 2e9 * Math.sin(i)),
    heat: times.flatMap((_, i) => level(i) === null ? [] : Array.from({ length: bins }, (_, bin) => [i, Math.round(40 + 2 * bin + 4 * Math.log2(level(i))), Math.round(300 * 0.3 ** bin)])),
  },
});
const communicatorOf = (name, gpus, change = {}) => ({
  comm: [...name].reduce((hash, letter) => (hash * 31n + BigInt(letter.charCodeAt(0))) % (1n << 64n), BigInt(7919 + gpus[0])).toString(16).padStart(16, '7'),
  comm_name: name, uid: 1000, nccl_job: '4712', namespace: '', ranks: gpus.length, nodes: 1, missing_ranks: [], no_room_ranks: [],
  local_ranks: gpus.map((gpu, rank) => rankOf(rank, gpu)), collectives: [collectiveOf('AllGather', gpus.length)], ...change,
});
const foundRank = (standing, gpu, change = {}) => ({
  standing, rank: gpu, global_rank: String(gpu), gpu, gpu_uuid: `GPU-${gpu}`, pid: 5826 + gpu, host: 'node-1', pod: '', behind: 0, operation: '', since: null, ...change,
});
const findingOf = (kind, severity, comm, change) => ({
  kind, severity, comm: comm && comm.comm, comm_name: comm ? comm.comm_name : '', uid: 1000, job: 'job 4712', since: begun, headline: '', cost: '', culprits: [], waiting: [],
  waiting_count: 0, evidence: [], next: '', collect: [], runbook: '', ...change,
});
const directories = [
  { path: '/run/nccl-exporter', state: 'readable', detail: '' },
  { path: '/dev/shm/nccl-exporter', state: 'missing', detail: 'No such file or directory' },
  { path: '/dev/shm/nccl-exporter-*', state: 'missing', detail: 'no user has one' },
];
const answerOf = (change) => ({
  api: 'v1', exporter: { version: '0.1.0', start: taken - 60 * minutes }, node: 'node-1', taken, links: { metrics: '/metrics', in_flight: '/debug/inflight' }, findings: [],
  looked_at: { seconds: 300, communicators: change.communicators.length, communicators_across_nodes: change.communicators.filter((comm) => comm.nodes > 1).length, compared_operations: 1204, learning_seconds: 0 }, directories,
  segments: { live: change.processes.length, starting: 0, exited: 0, unusable: 0 }, segment_errors: {}, segment_troubles: [], losses: [], uncompared_operations: {},
  history: { step_seconds: 5, steps: 120, bins: 122, first_bin_seconds: 2 ** -20, bins_per_octave: 4, left_out: 0, times }, ...change,
});

const all = [0, 1, 2, 3, 4, 5, 6, 7];
const allBut = (rank) => all.filter((one) => one !== rank);
const inFlight = (operation = 'AllGather', sequence = 325) => [{ collective: operation, sequence, peer: null, bytes: 1048576, start: begun }];
// Seconds per second that each rank has waited: all but `late` from step `from` on.
const waitingFor = (late, from) => ({ ranks: all, steps: all.map((rank) => times.map((_, i) => i < 3 ? null : i < from ? 0.01 : rank === late ? 0 : 0.11 + 0.01 * ((rank + i) % 3))) });

const untilBegun = (i) => i < stepBegun ? 1 : null;
const stackOf = 'Look at its stack before the job is killed: py-spy dump --pid 5829 or gdb -p 5829 on node-1.';
const whyEnded = "Look in the job's log and in dmesg (out of memory, XID) why pid 5829 on node-1 has ended; then end the job.";
const hangOf = (standing, words, next, state = {}) => {
  const comm = communicatorOf('fsdp', all, {
    local_ranks: all.map((rank) => rank === 3
      ? rankOf(3, 3, { started_sequence: 526, completed_sequence: 526, behind: 7, last_progress: begun - 0.1, ...state })
      : rankOf(rank, rank, { completed_sequence: 526, in_flight_count: 7, in_flight: inFlight(), last_progress: begun })),
    collectives: [collectiveOf('AllGather', 8, untilBegun)],
    waiting: { ranks: all, steps: all.map((rank) => times.map((_, i) => i < stepBegun ? 0.02 : rank === 3 ? 0 : 1)) },
  });
  return {
    comm,
    finding: findingOf('hang_culprit', 'critical', comm, {
      headline: `Job 4712 hangs since 23:38:44 UTC: 7 ranks wait for global rank 3 (GPU 3, pid 5829, node-1), ${words}.`, cost: '7 of 8 GPUs of this node wait',
      culprits: [foundRank(standing, 3, { behind: 7, since: begun - 0.1 })],
      waiting: allBut(3).map((rank) => foundRank('waits', rank, { operation: 'AllGather #325', since: begun })), waiting_count: 7,
      evidence: [
        { name: 'waiting for', value: '2 min' }, { name: 'operation', value: 'AllGather #325 of fsdp, 1.0 MiB' },
        { name: 'collectives started', value: '533 by global rank 0, 1, 2, 4, 5, 6, 7; 526 by global rank 3' },
        { name: 'behind', value: 'global rank 3 (GPU 3, pid 5829, node-1) by 7 collectives' }, { name: 'last activity of global rank 3', value: '23:38:44 UTC, 2 min ago' },
      ],
      next, collect: [{ what: 'stack of global rank 3 (GPU 3, pid 5829, node-1)', command: 'py-spy dump --pid 5829' }], runbook: 'NCCLHangCulprit',
    }),
  };
};
const missingCall = () => hangOf('missing_call', 'which has not entered AllGather #325 of fsdp', stackOf);
const world = (level) => communicatorOf('world', all, { collectives: [collectiveOf('AllGather', all.length, level)] });

// The second node of two: the ranks of tp are 0 to 3, and 4 to 7 in the job. Rank 1 of tp has not called.
const gridOf = (globalRank) => {
  const four = [0, 1, 2, 3], waiting = [0, 2, 3];
  const tp = communicatorOf('tp', four, { local_ranks: four.map((rank) => rankOf(rank, rank, {
    global_rank: globalRank(rank), ...rank === 1 ? { behind: 7 } : { in_flight_count: 7, in_flight: inFlight(), last_progress: begun },
  })) });
  const found = (standing, rank, change) => foundRank(standing, rank, { global_rank: globalRank(rank), ...change });
  return answerOf({
    processes: four.map((rank) => processOf(rank, { global_rank: globalRank(rank) })), communicators: [tp],
    findings: [findingOf('hang_culprit', 'critical', tp, {
      headline: 'Job 4712 hangs since 23:38:44 UTC: 3 ranks wait.', culprits: [found('missing_call', 1, { behind: 7 })],
      waiting: waiting.map((rank) => found('waits', rank, { operation: 'AllGather #325', since: begun })), waiting_count: 3, runbook: 'NCCLHangCulprit',
    })],
  });
};

const states = {
  empty: () => answerOf({ processes: [], communicators: [] }),
  learning: () => answerOf({
    processes: all.map((rank) => processOf(rank)), communicators: [world()],
    looked_at: { seconds: 125, communicators: 1, communicators_across_nodes: 0, compared_operations: 3, learning_seconds: 182 },
  }),
  quiet: () => answerOf({
    processes: all.map((rank) => processOf(rank, { losses: [{ kind: 'dropped', reason: 'communicator_drifting', meaning: 'operation not followed: its communicator is permanently untimed', count: 2400 }] })),
    communicators: [world(), ...[[0, 4], [1, 5], [2, 6], [3, 7]].map((gpus) => communicatorOf('pp', gpus, {
      nodes: 2, local_ranks: gpus.map((gpu, rank) => rankOf(rank, gpu, { network: rank === 1 ? networkOf(0.85) : null })),
    })), ...[[0, 1, 2, 3], [4, 5, 6, 7]].map((gpus) => communicatorOf('tp', gpus)),
      ...all.slice(0, 5).map((gpu) => communicatorOf('dp', [gpu]))],
    losses: [{ kind: 'dropped', reason: 'communicator_drifting', meaning: 'operation not followed: its communicator is permanently untimed', count: 19200 }],
  }),
  adapter: () => answerOf({  // of GPU 3
    processes: [0, 1, 2, 3].map((rank) => processOf(rank)), communicators: [communicatorOf('dp', [0, 1, 2, 3], {
      ranks: 16, nodes: 4, local_ranks: [0, 1, 2, 3].map((rank) => rankOf(rank, rank, { network: networkOf(rank === 3 ? 0.8 : 0.2) })),
    })],
  }),
  ended: () => answerOf({ processes: all.map((rank) => processOf(rank, { alive: false, ended: true, communicators: 0 })), communicators: [] }),
  straggler: () => {
    const late = (rank) => ({ arrivals: { late: rank === 5, seconds: 120, compared: 1200, last: rank === 5 ? 1188 : 2, mean_lateness_seconds: rank === 5 ? 0.0112 : 0.00004 } });
    const dp = communicatorOf('dp', all, {
      local_ranks: all.map((rank) => rankOf(rank, rank, late(rank))), collectives: [collectiveOf('AllReduce', 8, (i) => i < stepBegun ? 1 : 9)], waiting: waitingFor(5, stepBegun),
    });
    Object.assign(dp.collectives[0].recent, { duration_seconds: 0.011, bus_bytes_per_second: 10.6e9, transfer_seconds: 0.0012, waiting_seconds: 0.0098 });
    return answerOf({
      processes: all.map((rank) => processOf(rank)), communicators: [world(), dp],
      findings: [findingOf('late_rank', 'warning', dp, {
        headline: 'Job 4712 waits for global rank 5 (GPU 5, pid 5831, node-1) since 23:38:44 UTC: it makes the other ranks of dp wait 10.6 % of the time.',
        cost: 'waiting costs 0.7 GPUs of 8 on this node', culprits: [foundRank('late', 5)], waiting: allBut(5).map((rank) => foundRank('waits', rank)), waiting_count: 7,
        evidence: [{ name: 'last to enter', value: '99 % of 1,200 operations' }, { name: 'late by', value: '11.2 ms on average' }, { name: 'arrivals of the last', value: '2 min' }],
        next: 'Compare clocks, throttling and errors of GPU 5 with its peers, and look for other work on its CPUs. If all are equal, look at its own work by py-spy.', runbook: 'NCCLStragglerRank',
      })],
    });
  },
  untimed: () => {
    const comm = communicatorOf('dp', all, { local_ranks: all.map((rank) => rankOf(rank, rank, { timing_source: 'none', timing_reason: 'allgatherv_enabled', arrivals: null })) });
    return answerOf({
      processes: all.map((rank) => processOf(rank)), communicators: [comm],
      findings: [findingOf('not_judged', 'info', comm, {
        since: null, headline: 'Late ranks of job 4712 cannot be seen: no GPU times (allgatherv_enabled).', cost: 'not known: waiting cannot be measured without GPU times',
        evidence: [{ name: 'communicators without GPU times', value: '1 of 1: dp' }], next: 'Set NCCL_ALLGATHERV_ENABLE=0 in the job.', runbook: 'NCCLJobNotJudged',
      })],
    });
  },
  grid: () => gridOf((gpu) => String(4 + gpu)),
  gridWithoutGlobalRanks: () => gridOf(() => ''),
  hang: () => {
    const { comm, finding } = missingCall();
    return answerOf({ processes: all.map((rank) => processOf(rank)), communicators: [world(untilBegun), comm], findings: [finding] });
  },
  elsewhere: () => {  // the job of user 1000 waits for another node; that of user 1001 goes on
    const four = [0, 1, 2, 3], others = [4, 5, 6, 7];
    const dp = communicatorOf('mesh_dp', four, { ranks: 8, nodes: 2, collectives: [collectiveOf('AllReduce', 4, untilBegun)],
      local_ranks: four.map((rank) => rankOf(rank, rank, { completed_sequence: 526, in_flight_count: 7, in_flight: inFlight('AllReduce', 802), last_progress: begun })) });
    const ofOther = { uid: 1001, nccl_job: '4713' };
    return answerOf({
      processes: all.map((rank) => processOf(rank, rank < 4 ? {} : ofOther)),
      communicators: [dp, communicatorOf('mesh_tp', four, { collectives: [collectiveOf('AllGather', 4, untilBegun)] }),
        communicatorOf('world', others, ofOther), ...[[4, 5], [6, 7]].map((gpus) => communicatorOf('tp', gpus, ofOther))],
      findings: [findingOf('hang_elsewhere', 'warning', dp, {
        headline: 'Job 4712 hangs since 23:38:44 UTC: all 4 ranks here wait for another node, in AllReduce #802 of mesh_dp; this node is probably not the cause.', cost: '4 of 4 GPUs of this node wait',
        waiting: four.map((rank) => foundRank('waits', rank, { operation: 'AllReduce #802', since: begun })), waiting_count: 4, evidence: [{ name: 'waiting for', value: '2 min' }],
        next: 'Ask Prometheus which node it is: nccl-exporter report --job 4712. Without Prometheus, run nccl-exporter inflight on the other nodes of the job: that of the cause names it.',
        runbook: 'NCCLCollectiveHang',
      })],
    });
  },
  killed: () => {
    const { comm, finding } = hangOf('killed', 'whose process has ended', whyEnded, { alive: false });
    return answerOf({ processes: all.map((rank) => processOf(rank, rank === 3 ? { alive: false } : {})), communicators: [world(untilBegun), comm], findings: [finding] });
  },
  gone: () => {  // as killed, after the retention: the rank is seen nowhere any more
    const { comm, finding } = hangOf('missing', 'which is not seen on this node any more', whyEnded);
    comm.local_ranks.splice(3, 1);
    comm.missing_ranks = [3];
    return answerOf({ processes: allBut(3).map((rank) => processOf(rank)), communicators: [comm], findings: [finding] });
  },
  noRoom: () => answerOf({
    processes: all.map((rank) => processOf(rank)),
    communicators: [communicatorOf('dp', all, { local_ranks: allBut(3).map((rank) => rankOf(rank, rank)), no_room_ranks: [3] })],
  }),
  stopped: () => {
    const { comm, finding } = hangOf('stopped', 'whose process is stopped',
      'Find the signal or the debugger that stopped pid 5829 on node-1: kill -CONT 5829 resumes it.', { stopped: true });
    return answerOf({ processes: all.map((rank) => processOf(rank, rank === 3 ? { stopped: true } : {})), communicators: [world(untilBegun), comm], findings: [finding] });
  },
  hostile: () => {  // what others write is markup
    const { comm, finding } = missingCall();
    const markup = '<img src=x onerror="window.isHostile = true"><script>window.isHostile = true</script>';
    for (const field of ['headline', 'cost', 'next', 'job', 'comm_name', 'runbook']) finding[field] += markup;
    finding.evidence[0] = { name: markup, value: markup };
    comm.comm_name = markup;
    return answerOf({ processes: all.map((rank) => processOf(rank, { executable: markup, host: markup })), communicators: [comm], findings: [finding] });
  },
  many: () => {  // 88 communicators, eight of them of one rank, and eight findings
    const { comm, finding } = missingCall();
    const communicators = [comm];
    for (let i = 0; i < 79; ++i) communicators.push(communicatorOf(`ep${i}`, [i % 8, (i + 1 + Math.floor(i / 8) % 7) % 8]));
    for (const gpu of all) communicators.push(communicatorOf('self', [gpu]));
    const findings = [finding];
    for (let i = 0; i < 7; ++i) findings.push(findingOf('late_rank', 'warning', communicators[i + 1], {
      headline: `Job 4712 waits for rank ${i} of ep${i} since 23:38:44 UTC: it makes the other ranks of ep${i} wait 6.0 % of the time.`,
      cost: 'waiting costs 0.5 GPUs of 8 on this node', runbook: 'NCCLStragglerRank',
    }));
    return answerOf({ processes: all.map((rank) => processOf(rank)), communicators, findings });
  },
  unreadable: () => answerOf({
    processes: [], communicators: [],
    directories: [{ path: '/run/nccl-exporter', state: 'unreadable', detail: 'Permission denied' }, ...directories.slice(1)],
    segment_troubles: [
      { reason: 'directory_unreadable', count: 1, present: 1, uid: 0, file: '/run/nccl-exporter', detail: 'Permission denied', time: taken - 600 },
      { reason: 'bad_magic', count: 3, present: 2, uid: 1001, file: '/dev/shm/nccl-exporter-1001/junk.seg', detail: 'not a segment', time: taken - 500 },
      { reason: 'truncated', count: 1, present: 0, uid: 1002, file: '/dev/shm/nccl-exporter-1002/past.seg', detail: '', time: taken - 5000 },
    ],
    findings: [
      findingOf('segments_unusable', 'warning', null, {
        job: '', since: taken - 600, cost: 'processes of this user may not be monitored', next: 'Give the daemon the right to read the directory.', runbook: 'NCCLExporterSegmentsUnusable',
        headline: '/run/nccl-exporter of user 0 cannot be used since 23:31:14 UTC: the directory could not be listed (Permission denied).',
        evidence: [{ name: 'reason', value: 'directory_unreadable' }, { name: 'files and directories with this fault now', value: '1' }],
      }),
      findingOf('segments_unusable', 'warning', null, {
        job: '', uid: 1001, since: taken - 500, cost: 'processes of this user may not be monitored', next: 'Remove the file: another program made it.', runbook: 'NCCLExporterSegmentsUnusable',
        headline: '/dev/shm/nccl-exporter-1001/junk.seg of user 1001 cannot be used since 23:32:54 UTC: the file is no segment.',
        evidence: [{ name: 'reason', value: 'bad_magic' }, { name: 'files and directories with this fault now', value: '2' }],
      }),
    ],
  }),
  // 88 collectives of 120 steps are 10,560 rows of history. Two answers in turn, of which every number differs.
  history: (turn) => answerOf({
    processes: all.map((rank) => processOf(rank)), communicators: Array.from({ length: 88 }, (_, i) => communicatorOf(`ep${i}`, all, {
      local_ranks: all.map((gpu) => rankOf(gpu, gpu, { started_sequence: 533 + turn, completed_sequence: 532 + turn, in_flight_count: 1, in_flight: inFlight('AllGather', 325 + turn) })),
      collectives: [collectiveOf('AllGather', 8, (step) => 1 + (step + i + turn) % 7)], waiting: waitingFor((i + turn) % 8, stepBegun + turn),
    })),
  }),
};

window.nodeInState = (name) => states[name](0);
if (state) {
  const answers = [0, 1].map((turn) => JSON.stringify(states[state](turn)));
  let asked = 0;
  window.fetch = async () => new Response(answers[asked++ % answers.length], { headers: { 'Content-Type': 'application/json' } });
}
}
