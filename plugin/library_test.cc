// SPDX-License-Identifier: Apache-2.0
// Counts of the real shared library for events that NCCL announces.
#include "plugin/testing/library_fixture.h"

namespace nccl_exporter::plugin {
namespace {

TEST_F(LibraryTest, TurnsAnAllReduceIntoIncrements) {
  InChild([&] {
    Job job(Load());
    EXPECT_EQ(job.mask, 2 | 4 | 64 | 4096);
    for (int i = 0; i < 10; ++i) job.AllReduce(2000);
    const layout::SegmentHeader* header = Map();
    const layout::CommunicatorSlot* slot = Slot(header, 0);
    EXPECT_EQ(layout::StateOf(Read(slot->state)), layout::SlotState::kLive);
    EXPECT_EQ(slot->communicator_id, 0xabcu);
    EXPECT_EQ(slot->ranks, 16u);
    EXPECT_EQ(slot->rank, 1u);
    EXPECT_EQ(slot->nodes, 2u);
    EXPECT_EQ(slot->api_version, 6u);
    EXPECT_STREQ(slot->name, "dp");
    const layout::FunctionBlock& counters =
        slot->functions[static_cast<size_t>(Function::kAllReduce)];
    EXPECT_EQ(Read(counters.calls), 10u);
    EXPECT_EQ(Read(counters.started.operations[3]), 10u);
    EXPECT_EQ(Read(counters.started.bytes[3]), 10u << 20);
    EXPECT_EQ(Read(counters.completed), 10u);
    EXPECT_EQ(Read(counters.timed.timed_operations[3]), 10u);
    EXPECT_EQ(Read(counters.timed.busy_ns[3]), 20'000u);
    EXPECT_EQ(Read(counters.duration[DurationBuckets::IndexOf(2000)]), 10u);
    job.table->finalize(job.context);
    EXPECT_EQ(layout::StateOf(Read(slot->state)), layout::SlotState::kClosed);
    for (const layout::AtomicU64& loss : header->losses) EXPECT_EQ(Read(loss), 0u);
  });
}

TEST_F(LibraryTest, CountsAReplayButNotTheCaptureItself) {
  InChild([&] {
    Job job(Load());
    void* group_api = job.Start(abi::kGroupApi, nullptr,
                                [](abi::DescriptorV6* d) { d->groupApi.graphCaptured = true; });
    void* call = job.Start(abi::kCollApi, group_api, [](abi::DescriptorV6* d) {
      d->collApi.func = "AllReduce";
      d->collApi.graphCaptured = true;
    });
    job.table->stopEvent(call);
    job.Launch(call);  // announced at capture, where NCCL needs no host node
    job.table->stopEvent(group_api);
    const layout::FunctionBlock& counters =
        Slot(Map(), 0)->functions[static_cast<size_t>(Function::kAllReduce)];
    EXPECT_EQ(Read(counters.calls), 1u);
    EXPECT_EQ(Read(counters.started.operations[3]), 0u);
    std::thread host_functions([&] {
      for (int replay = 0; replay < 3; ++replay) job.Launch(call);
    });
    host_functions.join();
    EXPECT_EQ(Read(counters.started.operations[3]), 3u);
    EXPECT_EQ(Read(counters.timed.timed_operations[3]), 3u);
    EXPECT_EQ(Read(counters.calls), 1u);
  });
}

// NCCL stops the GroupApi event with a group within, and announces what was captured at the end of
// the outer one.
TEST_F(LibraryTest, DoesNotCountACaptureThatIsAnnouncedAfterItsGroupEvent) {
  InChild([&] {
    Job job(Load());
    const auto start = [&](uint64_t type, void* parent) {
      return job.Start(type, parent, [](abi::DescriptorV6* d) {
        if (d->type == abi::kGroupApi) {
          d->groupApi = {true, 2};
        } else {
          d->collApi.func = "AllReduce";
          d->collApi.graphCaptured = true;
        }
      });
    };
    void* of_inner_group = start(abi::kGroupApi, nullptr);
    void* first = start(abi::kCollApi, of_inner_group);
    job.table->stopEvent(first);
    job.table->stopEvent(of_inner_group);
    void* of_outer_group = start(abi::kGroupApi, nullptr);
    void* second = start(abi::kCollApi, of_outer_group);
    job.table->stopEvent(second);
    job.Launch(first);
    job.Launch(second);
    job.table->stopEvent(of_outer_group);
    const layout::FunctionBlock& counters =
        Slot(Map(), 0)->functions[static_cast<size_t>(Function::kAllReduce)];
    EXPECT_EQ(Read(counters.calls), 2u);
    EXPECT_EQ(Read(counters.started.operations[3]), 0u);
    std::thread host_functions([&] { job.Launch(first); });
    host_functions.join();
    EXPECT_EQ(Read(counters.started.operations[3]), 1u);
  });
}

TEST_F(LibraryTest, WritesNothingIntoItsParentsSegmentAfterAFork) {
  InChild([&] {
    Job job(Load());
    job.AllReduce();
    const layout::FunctionBlock& counters =
        Slot(Map(), 0)->functions[static_cast<size_t>(Function::kAllReduce)];
    InChild([&] { job.AllReduce(); });
    EXPECT_EQ(Read(counters.started.operations[3]), 1u);
    InChild([&] {
      Job anew(job.table, 0xdef);
      anew.AllReduce();
      EXPECT_EQ(Segments().size(), 2u);
    });
    EXPECT_EQ(Read(counters.started.operations[3]), 1u);
    job.AllReduce();
    EXPECT_EQ(Read(counters.started.operations[3]), 2u);
  });
}

TEST_F(LibraryTest, SharesTheOverflowSlotWhenThereAreMoreCommunicatorsThanSlots) {
  setenv("NCCL_EXPORTER_COMMUNICATORS", "1", 1);
  InChild([&] {
    const V6* table = Load();
    Job own(table, 1), shared(table, 2), also_shared(table, 3);
    own.AllReduce();
    shared.AllReduce();
    also_shared.AllReduce();
    const layout::SegmentHeader* header = Map();
    const size_t function = static_cast<size_t>(Function::kAllReduce);
    EXPECT_EQ(header->slot_count, 2u);
    EXPECT_EQ(Read(Slot(header, 0)->functions[function].completed), 1u);
    EXPECT_EQ(Read(Slot(header, 1)->functions[function].started.operations[3]), 2u);
    EXPECT_EQ(Read(Slot(header, 1)->functions[function].calls), 2u);
    EXPECT_EQ(Read(header->losses[static_cast<size_t>(Loss::kNoFreeCommunicatorSlot)]), 2u);
    shared.table->finalize(shared.context);
  });
}

TEST_F(LibraryTest, TakesANegativeNumberOfRanksForUnknownInTheOverflowSlotToo) {
  setenv("NCCL_EXPORTER_COMMUNICATORS", "1", 1);
  InChild([&] {
    const V6* table = Load();
    Job own(table, 1);
    void* shared = nullptr;
    int mask = 0;
    table->init(&shared, 2, &mask, "dp", 1, -1, 0, Log);
    abi::DescriptorV6 descriptor{};
    descriptor.type = abi::kColl;
    descriptor.coll.func = "AllGather";
    descriptor.coll.count = 100;
    descriptor.coll.datatype = "ncclInt8";
    void* handle = nullptr;
    table->startEvent(shared, &handle, &descriptor);
    const auto& started =
        Slot(Map(), 1)->functions[static_cast<size_t>(Function::kAllGather)].started;
    EXPECT_EQ(Read(started.operations[0]), 1u);
    EXPECT_EQ(Read(started.bytes[0]), 100u);
  });
  unsetenv("NCCL_EXPORTER_COMMUNICATORS");
}

TEST_F(LibraryTest, GivesUpAtFinalizeAlsoWhatIsOlderThanTheRingIsLong) {
  InChild([&] {
    Job job(Load());
    constexpr uint64_t kOperations = layout::kInFlightEntries + 100;
    for (uint64_t i = 0; i < kOperations;
         ++i) {  // none is ever seen to run: the first 512 keep their places
      job.Start(abi::kColl, nullptr, [](abi::DescriptorV6* d) { d->coll.func = "AllReduce"; });
    }
    job.table->finalize(job.context);
    const layout::SegmentHeader* header = Map();
    const auto loss = [&](Loss cause) { return Read(header->losses[static_cast<size_t>(cause)]); };
    EXPECT_EQ(loss(Loss::kInFlightFull), 100u);
    EXPECT_EQ(loss(Loss::kIncompleteAtFinalize), uint64_t{layout::kInFlightEntries});
    for (const layout::InFlightEntry& entry : Slot(header, 0)->in_flight)
      EXPECT_EQ(Read(entry.ticket), 0u);
  });
}

TEST_F(LibraryTest, TellsCapturesOnTwoCommunicatorsApart) {
  InChild([&] {
    const V6* table = Load();
    Job first(table, 1), second(table, 2);
    const auto capture = [](Job& job) {
      void* group_api = job.Start(abi::kGroupApi, nullptr,
                                  [](abi::DescriptorV6* d) { d->groupApi.graphCaptured = true; });
      return job.Start(abi::kCollApi, group_api, [](abi::DescriptorV6* d) {
        d->collApi.func = "AllReduce";
        d->collApi.graphCaptured = true;
      });
    };
    void* of_first = capture(first);
    // The first capture is still open, as with one thread for each GPU.
    void* of_second = capture(second);
    first.Launch(of_first);
    second.Launch(of_second);
    for (size_t slot = 0; slot < 2; ++slot) {
      const auto& counters =
          Slot(Map(), slot)->functions[static_cast<size_t>(Function::kAllReduce)];
      EXPECT_EQ(Read(counters.calls), 1u);
      EXPECT_EQ(Read(counters.started.operations[3]), 0u) << slot;
    }
  });
}

}  // namespace
}  // namespace nccl_exporter::plugin
