// SPDX-License-Identifier: Apache-2.0
// Jobs in which ncclCommDestroy never returns because of kernel events, as seen with NCCL's own
// host code, and similar jobs that were seen to end.
#include <gtest/gtest.h>

#include "simulator/release/profiler_event.h"
#include "simulator/testing/recorded_job.h"

namespace nccl_exporter::sim {
namespace {

constexpr uint32_t kTimedMask = kColl | kP2p | kKernelCh;
constexpr uint32_t kHostMask = kColl | kP2p;

struct Calls {
  const char* list;
  int64_t steps;
  bool hangs;  // on 2.30.7, with kernel events
};

const Calls kJobs[] = {
    {"allreduce,broadcast,alltoall", 40, true},
    {"allgatherv,allreduce", 40, true},
    {"allgatherv,allreduce", 60, true},
    {"allgatherv,allreduce", 200, false},
    {"alltoall@0,allreduce,broadcast", 100, true},
    {"alltoall@0,allreduce,broadcast", 2000, true},
    {"alltoall@0,broadcast,allgather,reducescatter", 100, true},
    {"allgatherv@1990,allreduce", 2000, true},
    {"allreduce,alltoall", 100, false},
    {"broadcast,alltoall", 100, false},
    {"sendrecv,alltoall", 100, false},
    {"broadcast,allreduce", 100, false},
    {"allgatherv@0,allreduce", 2000, false},
    {"allreduce,allgather,reducescatter,reduce,broadcast,sendrecv", 60, false},
};

void PrintTo(const Calls& calls, std::ostream* out) { *out << calls.list << " x " << calls.steps; }

JobOptions JobOf(const Calls& calls, int nccl_version, const NcclSettings& settings = {}) {
  JobOptions options = OneAllReduce(nccl_version);
  options.play.release = Release(nccl_version, settings);
  options.workload.calls = calls.list;
  options.steps = calls.steps;
  options.steps_per_second = 1000;
  options.play.most_channels = 8;  // calls of different kinds share some, whatever their lowest
  return options;
}

const nlohmann::json& HangOf(const RecordedJob& job) {
  return job.ranks[0]["communicators"][0]["destroy_hang"];
}

class DestroyHang : public testing::TestWithParam<Calls> {};

TEST_P(DestroyHang, ComesOnlyWithKernelEventsOn229And230AndItsScheduler) {
  const Calls& calls = GetParam();
  const RecordedJob job = Record(JobOf(calls, 23007), {kTimedMask, 0});
  EXPECT_EQ(HangOf(job).is_object(), calls.hangs) << HangOf(job);
  EXPECT_EQ(job.Starting("finalize").empty(), calls.hangs);
  EXPECT_TRUE(HangOf(Record(JobOf(calls, 23007), {kHostMask, 0})).is_null());
  EXPECT_TRUE(
      HangOf(Record(JobOf(calls, 23007, {.uses_allgatherv = false}), {kTimedMask, 0})).is_null());
  for (const int release : {22606, 22707, 22809, 23103, 23206}) {
    EXPECT_TRUE(HangOf(Record(JobOf(calls, release), {kTimedMask, 0})).is_null()) << release;
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, DestroyHang, testing::ValuesIn(kJobs));

// NCCL joins a Send and a Receive to one work item, of which the device looks at the Receive's mask
// (2.30.7 src/enqueue.cc :1025). The host waits for each of the two that has the bit.
class ChangedMask : public testing::TestWithParam<int> {
 protected:
  static RecordedJob Play(uint32_t of_send, uint32_t of_receive) {
    const RecordingSettings settings{
        .mask = of_send, .mask_after_send = of_receive, .mask_after_receive = of_send};
    return Record(JobOf({"sendrecv", 3, false}, GetParam()), settings);
  }
  static size_t Timed(const RecordedJob& job) { return job.Starting("T +KernelCh").size(); }
};

TEST_P(ChangedMask, HangsATimedSendThatIsJoinedToAnUntimedReceive) {
  const RecordedJob job = Play(kTimedMask, kHostMask);
  const bool waits_at_destroy = Release(GetParam()).WaitsForEventsAtDestroy();
  EXPECT_EQ(HangOf(job).is_object(), waits_at_destroy) << HangOf(job);
  if (waits_at_destroy) {
    EXPECT_EQ(HangOf(job)["function"], "Send");
  }
  EXPECT_GT(job.ranks[0]["communicators"][0]["mask_faults"].get<uint64_t>(), 0u);
}

TEST_P(ChangedMask, LeavesAnUntimedSendThatIsJoinedToATimedReceive) {
  const RecordedJob job = Play(kHostMask, kTimedMask);
  EXPECT_TRUE(HangOf(job).is_null()) << HangOf(job);
  EXPECT_GT(Timed(job), 0u);
}

TEST_P(ChangedMask, LeavesPairsOfOneMask) {
  const RecordedJob job = Play(kTimedMask, kTimedMask);
  EXPECT_TRUE(HangOf(job).is_null()) << HangOf(job);
  EXPECT_EQ(job.ranks[0]["communicators"][0]["mask_faults"], 0);
}

INSTANTIATE_TEST_SUITE_P(Releases, ChangedMask, testing::Values(22809, 23007, 23103, 23206));

TEST(DestroyHangReport, NamesTheWait) {
  const RecordedJob job =
      Record(JobOf({"alltoall@0,allreduce,broadcast", 3, true}, 23007), {kTimedMask, 0});
  const nlohmann::json& hang = HangOf(job);
  ASSERT_TRUE(hang.is_object());
  EXPECT_EQ(hang["function"], "AllReduce");
  EXPECT_EQ(hang["awaited"].get<uint64_t>() % 64, hang["entry"].get<uint64_t>());
  EXPECT_LT(hang["shown"], hang["awaited"]);
}

}  // namespace
}  // namespace nccl_exporter::sim
