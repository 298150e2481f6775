// SPDX-License-Identifier: Apache-2.0
// Answers of /api/v1/node (docs/api.md) in the states that the page must show. The page's test runs this before the page's own scripts:
// the state of the address ("/?state=hang") takes the place of the daemon's answer. Fields are those of a real answer; the test compares them.
{
const taken = 1795390874.25;  // 23:41:14 UTC
const minutes = 60;
const steps = 60;
const times = Array.from({ length: steps }, (_, i) => taken - 5 * (steps - 1 - i));

const processOf = (rank, change = {}) => ({
  pid: 5826 + rank, uid: 1000, alive: true, stopped: false, ended: false, host: 'node-1', executable: '/usr/bin/python3', plugin_version: '0.1.0',
  start: taken - 14 * minutes, global_rank: String(rank), local_rank: String(rank), slurm_job_id: '4712', namespace: '', pod: '', container: '',
  communicators: 2, losses: [], ...change,
});
const rankOf = (rank, gpu, change = {}) => ({
  rank, gpu, gpu_uuid: `GPU-${gpu}`, pid: 5826 + gpu, host: 'node-1', alive: true, stopped: false, global_rank: String(gpu), started_sequence: 533, completed_sequence: 533,
  behind: 0, in_flight_count: 0, in_flight: [], unseen_operations: 0, last_progress: taken - 0.4, timing_source: 'kernel', timing_reason: 'default', drift_cause: null,
  probation_launches: 0, sampling: 'none', arrivals: { late: false, seconds: 120, compared: 1200, last: 150, mean_lateness_seconds: 0.0001 }, ...change,
});
// level(step): how much longer than usual, null for nothing at all.
const collectiveOf = (collective, usedBy, level = () => 1) => ({
  collective, used_by: usedBy, operations: 4264, bytes: 4264e6, timed_operations: 4264, busy_seconds: 12.2,
  recent: { seconds: 30, operations_per_second: 40 * usedBy, bytes_per_second: 40e6 * usedBy, duration_seconds: 0.0012, bus_bytes_per_second: 138e9 },
  history: {
    operations_per_second: times.map(() => 40 * usedBy), bytes_per_second: times.map(() => 40e6 * usedBy),
    duration_seconds: times.map((_, i) => level(i) && 0.0012 * level(i) + 0.0001 * Math.sin(i)),
    bus_bytes_per_second: times.map((_, i) => level(i) && 138e9 / level(i) + 2e9 * Math.sin(i)),
    heat: times.flatMap((_, i) => level(i) === null ? [] : [[i, Math.round(40 + 4 * Math.log2(level(i))), 300], [i, Math.round(42 + 4 * Math.log2(level(i))), 90]]),
  },
});
const communicatorOf = (name, gpus, change = {}) => ({
  comm: [...name].reduce((hash, letter) => (hash * 31n + BigInt(letter.charCodeAt(0))) % (1n << 64n), BigInt(7919 + gpus[0])).toString(16).padStart(16, '7'),
  comm_name: name, uid: 1000, slurm_job_id: '4712', namespace: '', ranks: gpus.length, nodes: 1, missing_ranks: [],
  local_ranks: gpus.map((gpu, rank) => rankOf(rank, gpu)), collectives: [collectiveOf('AllGather', gpus.length)], ...change,
});
const foundRank = (standing, gpu, change = {}) => ({
  standing, rank: gpu, global_rank: String(gpu), gpu, gpu_uuid: `GPU-${gpu}`, pid: 5826 + gpu, host: 'node-1', pod: '', behind: 0, operation: '', since: null, ...change,
});
const findingOf = (kind, severity, comm, change) => ({
  kind, severity, comm: comm && comm.comm, comm_name: comm ? comm.comm_name : '', uid: 1000, job: 'job 4712', since: taken - 45.2, headline: '', cost: '', culprits: [], waiting: [],
  waiting_count: 0, evidence: [], next: '', runbook: '', ...change,
});
const directories = [
  { path: '/run/nccl-exporter', state: 'readable', detail: '' },
  { path: '/dev/shm/nccl-exporter', state: 'missing', detail: 'No such file or directory' },
  { path: '/dev/shm/nccl-exporter-*', state: 'missing', detail: 'no user has one' },
];
const answerOf = (change) => ({
  api: 'v1', exporter: { version: '0.1.0', start: taken - 60 * minutes }, node: 'node-1', taken, links: { metrics: '/metrics', in_flight: '/debug/inflight' }, findings: [],
  looked_at: { seconds: 300, communicators: change.communicators.length, compared_operations: 1204, learning_seconds: 0 }, directories,
  segments: { live: change.processes.length, starting: 0, exited: 0, unusable: 0 }, segment_errors: {}, segment_troubles: [], losses: [], uncompared_operations: {},
  history: { step_seconds: 5, steps: 120, bins: 122, first_bin_seconds: 2 ** -20, bins_per_octave: 4, left_out: 0, times }, ...change,
});

const all = [0, 1, 2, 3, 4, 5, 6, 7];
const allBut = (rank) => all.filter((one) => one !== rank);
const inFlight = (operation = 'AllGather', sequence = 325) => [{ collective: operation, sequence, peer: null, bytes: 1048576, start: taken - 45.2 }];
// Seconds per second that each rank has waited: all but `late` from step `from` on.
const waitingFor = (late, from) => ({ ranks: all, steps: all.map((rank) => times.map((_, i) => i < 3 ? null : i < from ? 0.01 : rank === late ? 0 : 0.11 + 0.01 * ((rank + i) % 3))) });

const hangOf = (standing, word, state) => {
  const comm = communicatorOf('fsdp', all, {
    local_ranks: all.map((rank) => rank === 3
      ? rankOf(3, 3, { started_sequence: 526, completed_sequence: 526, behind: 7, last_progress: taken - 45.3, ...state })
      : rankOf(rank, rank, { completed_sequence: 526, in_flight_count: 7, in_flight: inFlight(), last_progress: taken - 45 })),
    collectives: [collectiveOf('AllGather', 8, (i) => i < 51 ? 1 : null)],
    waiting: { ranks: all, steps: all.map((rank) => times.map((_, i) => i < 51 ? 0.02 : rank === 3 ? 0 : 1)) },
  });
  return {
    comm,
    finding: findingOf('hang_culprit', 'critical', comm, {
      headline: `Job 4712 hangs since 23:40:29 UTC: it waits for global rank 3 (GPU 3, pid 5829, node-1), which ${word}.`, cost: '7 of 8 GPUs wait',
      culprits: [foundRank(standing, 3, { behind: 7, since: taken - 45.3 })],
      waiting: allBut(3).map((rank) => foundRank('waits', rank, { operation: 'AllGather #325', since: taken - 45.2 })), waiting_count: 7,
      evidence: [{ name: 'behind', value: '7 collectives' }, { name: 'nothing has moved for', value: '45 s' }],
      next: 'Look at the stack of pid 5829 on node-1 (py-spy dump --pid 5829) before the job is killed.', runbook: 'NCCLHangCulprit',
    }),
  };
};
const world = () => communicatorOf('world', all);

const states = {
  empty: () => answerOf({ processes: [], communicators: [] }),
  learning: () => answerOf({
    processes: all.map((rank) => processOf(rank)), communicators: [world()],
    looked_at: { seconds: 125, communicators: 1, compared_operations: 3, learning_seconds: 182 },
  }),
  quiet: () => answerOf({
    processes: all.map((rank) => processOf(rank, { losses: [{ kind: 'dropped', reason: 'communicator_drifting', meaning: 'operation not followed: its communicator is permanently untimed', count: 2400 }] })),
    communicators: [world(), ...[[0, 4], [1, 5], [2, 6], [3, 7]].map((gpus) => communicatorOf('pp', gpus)), ...[[0, 1, 2, 3], [4, 5, 6, 7]].map((gpus) => communicatorOf('tp', gpus)),
      ...all.slice(0, 5).map((gpu) => communicatorOf('dp', [gpu]))],
    losses: [{ kind: 'dropped', reason: 'communicator_drifting', meaning: 'operation not followed: its communicator is permanently untimed', count: 19200 }],
  }),
  ended: () => answerOf({ processes: all.map((rank) => processOf(rank, { alive: false, ended: true, communicators: 0 })), communicators: [] }),
  straggler: () => {
    const late = (rank) => ({ arrivals: { late: rank === 5, seconds: 120, compared: 1200, last: rank === 5 ? 1188 : 2, mean_lateness_seconds: rank === 5 ? 0.0112 : 0.00004 } });
    const dp = communicatorOf('dp', all, {
      local_ranks: all.map((rank) => rankOf(rank, rank, late(rank))), collectives: [collectiveOf('AllReduce', 8, (i) => i < 30 ? 1 : 9)], waiting: waitingFor(5, 30),
    });
    Object.assign(dp.collectives[0].recent, { duration_seconds: 0.0124, bus_bytes_per_second: 10.6e9, transfer_seconds: 0.0012, waiting_seconds: 0.0098 });
    return answerOf({
      processes: all.map((rank) => processOf(rank)), communicators: [world(), dp],
      findings: [findingOf('late_rank', 'warning', dp, {
        since: taken - 150, headline: 'Job 4712 waits for global rank 5 (GPU 5, pid 5831, node-1) since 23:38:44 UTC.', cost: '10.6 % of the time of 7 GPUs',
        culprits: [foundRank('late', 5)], waiting: allBut(5).map((rank) => foundRank('waits', rank)), waiting_count: 7,
        evidence: [{ name: 'last to enter', value: '99 % of 1200 operations' }, { name: 'late by', value: '11.2 ms' }],
        next: 'Compare clocks and temperature of GPU 5 on node-1 with the others (nvidia-smi -q -d PERFORMANCE -i 5).', runbook: 'NCCLStragglerRank',
      })],
    });
  },
  hang: () => {
    const { comm, finding } = hangOf('missing_call', 'has not entered AllGather #325', {});
    return answerOf({ processes: all.map((rank) => processOf(rank)), communicators: [world(), comm], findings: [finding] });
  },
  killed: () => {
    const { comm, finding } = hangOf('killed', 'was killed', { alive: false });
    const killed = findingOf('process_killed', 'warning', null, { headline: 'Pid 5829 on node-1 has ended without finalizing.', culprits: [foundRank('killed', 3)], since: taken - 46 });
    return answerOf({ processes: all.map((rank) => processOf(rank, rank === 3 ? { alive: false } : {})), communicators: [world(), comm], findings: [finding, killed] });
  },
  gone: () => {  // as killed, after the retention: the rank is seen nowhere any more
    const { comm, finding } = hangOf('missing', 'is not seen on this node', {});
    comm.local_ranks.splice(3, 1);
    comm.missing_ranks = [3];
    return answerOf({ processes: allBut(3).map((rank) => processOf(rank)), communicators: [comm], findings: [finding] });
  },
  stopped: () => {
    const { comm, finding } = hangOf('stopped', 'is stopped', { stopped: true });
    return answerOf({ processes: all.map((rank) => processOf(rank, rank === 3 ? { stopped: true } : {})), communicators: [world(), comm], findings: [finding] });
  },
  hostile: () => {  // what others write is markup
    const { comm, finding } = hangOf('missing_call', 'has not entered AllGather #325', {});
    const markup = '<img src=x onerror="window.isHostile = true"><script>window.isHostile = true</script>';
    for (const field of ['headline', 'cost', 'next', 'job', 'comm_name', 'runbook']) finding[field] += markup;
    finding.evidence[0] = { name: markup, value: markup };
    comm.comm_name = markup;
    return answerOf({ processes: all.map((rank) => processOf(rank, { executable: markup, host: markup })), communicators: [comm], findings: [finding] });
  },
  many: () => {  // 88 communicators, eight of them of one rank, and eight findings
    const { comm, finding } = hangOf('missing_call', 'has not entered AllGather #325', {});
    const communicators = [comm];
    for (let i = 0; i < 79; ++i) communicators.push(communicatorOf(`ep${i}`, [i % 8, (i + 1 + Math.floor(i / 8) % 7) % 8]));
    for (const gpu of all) communicators.push(communicatorOf('self', [gpu]));
    const findings = [finding];
    for (let i = 0; i < 7; ++i) findings.push(findingOf('bandwidth_degraded', 'info', communicators[i + 1], { headline: `Transfers of ep${i} are slower than before.`, cost: '40 % slower' }));
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
    findings: [findingOf('segments_unusable', 'warning', null, {
      job: '', since: taken - 600, headline: 'The directory /run/nccl-exporter cannot be read: Permission denied.', cost: 'its jobs are not seen', next: 'Run the daemon as the owner of the directory.',
      runbook: 'NCCLExporterSegmentsUnusable',
    })],
  }),
};

const state = new URLSearchParams(location.search).get('state');
window.nodeInState = (name) => states[name]();
if (state) window.fetch = async () => new Response(JSON.stringify(states[state]()), { headers: { 'Content-Type': 'application/json' } });
}
