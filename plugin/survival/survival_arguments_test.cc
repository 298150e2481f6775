// SPDX-License-Identifier: Apache-2.0
// Arguments of callbacks that the plugin survives: items 15 to 25 of what NCCL releases are known
// to do.
#include <sys/mman.h>

#include "plugin/survival/survival_fixture.h"

namespace nccl_exporter::plugin::survival {
namespace {

class ArgumentSurvival : public SurvivalTest {};

TEST_F(ArgumentSurvival, Survives15_NullStateArguments) {
  InEveryVersion([&]<int kVersion>() {
    Caller<kVersion> caller;
    void* group_api = caller.GroupApi();
    void* operation = caller.Announce();
    void* kernel = caller.Kernel(operation, 0, GpuNow());
    for (int state = -1; state <= 32; ++state) {
      caller.Record(group_api, state);
      caller.Record(operation, state);
      caller.Record(kernel, state);
    }
    EXPECT_EQ(Segment().Started(), 1u);
    EXPECT_EQ(Segment().Timed(), 0u);
    // The states of steps, on what is no step.
    constexpr uint64_t kStates = kVersion >= 4 ? 5 : kVersion >= 2 ? 4 : 0;
    uint64_t handles = 0;
    for (const void* handle : {group_api, operation, kernel}) handles += handle != nullptr ? 1 : 0;
    EXPECT_EQ(Segment().Lost(),
              kStates == 0 ? Losses() : Only({{Loss::kUnknownHandle, kStates * handles}}));
  });
}

TEST_F(ArgumentSurvival, Survives15_AKernelChannelWhoseStopTellsNoTime) {
  InEach<4, 5, 6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller;
    void* operation = caller.Announce({.channels = 1});
    void* kernel = caller.Kernel(operation, 0, GpuNow());
    caller.Record(kernel, abi::kStateKernelChStop);
    caller.Stop(kernel);
    EXPECT_EQ(Segment().Completed(), 1u);
    EXPECT_EQ(Segment().Timed(), 0u);
    EXPECT_EQ(Segment().InHistogram(), 0u);
    EXPECT_EQ(Segment().Lost(), Only({{Loss::kMissingTimestamp, 1}}));
  });
}

TEST_F(ArgumentSurvival, Survives16_TypeOfOneByteWithGarbageBehindIt) {
  InEach<1, 2, 3, 4>([&]<int kVersion>() {
    Caller<kVersion> caller;
    auto event = caller.Coll({}, nullptr, nullptr);
    std::memset(reinterpret_cast<char*>(&event) + 1, 0xa5, 7);
    EXPECT_NE(caller.Start(event), nullptr);
    EXPECT_EQ(Segment().Started(), 1u);
  });
}

TEST_F(ArgumentSurvival, Survives16_TypeOfEightBytesThatLooksLikeAnotherInItsLowByte) {
  InEach<5, 6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller;
    auto event = caller.Coll({}, nullptr, nullptr);
    event.type = uint64_t{1} << 40 | abi::kColl;
    EXPECT_EQ(caller.Start(event), nullptr);
    EXPECT_EQ(Segment().Started(), 0u);
    event.type = abi::kCollApi;  // 0x200: nothing in its low byte
    event.collApi = {"AllReduce", 1, "ncclInt8", 0, nullptr, false};
    EXPECT_NE(caller.Start(event), nullptr);
    EXPECT_EQ(Segment().Calls(), 1u);
  });
}

TEST_F(ArgumentSurvival, Survives17_RankOfZeroInEventsThatDoNotTellIt) {
  InEveryVersion([&]<int kVersion>() {
    Caller<kVersion> caller({.id = 7, .rank = 5});
    caller.Group();  // rank 0, as NCCL leaves it
    caller.Run();
    EXPECT_EQ(Segment().Slot(0)->rank, 5u);
    EXPECT_EQ(Segment().Slot(0)->communicator_id, 7u);
    EXPECT_EQ(Segment().Slot(0)->has_identity, 1u);
  });
}

// Plays an operation of which `announced` channels are said to come and `given` come.
template <int kVersion>
uint64_t PlayChannels(Caller<kVersion>& caller, uint8_t announced, int given, int peer = -1) {
  const char* function = peer < 0 ? "AllReduce" : "Send";
  return caller.Complete(
      caller.Announce({.function = function, .channels = announced, .peer = peer}), given);
}

TEST_F(ArgumentSurvival, Survives18_NoChannelsAnnouncedAsForCollNet) {
  InEach<3, 4, 5, 6>([&]<int kVersion>() {
    Caller<kVersion> caller;
    uint64_t busy_ns = 0;
    for (int i = 0; i < 100; ++i) busy_ns += PlayChannels(caller, 0, 4);
    EXPECT_EQ(Segment().Timed(), 99u) << "the last may have more channels to come";
    caller.Finalize();
    EXPECT_EQ(Segment().Timed(), 100u);
    if (kVersion > 3) {
      EXPECT_EQ(Segment().BusyNs(), busy_ns);
    }
    EXPECT_EQ(Segment().Lost(), Losses());
  });
}

TEST_F(ArgumentSurvival, Survives18_MoreChannelsAnnouncedForPointToPointThanCome) {
  InEach<4, 5, 6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller;
    uint64_t busy_ns = 0;
    for (int i = 0; i < 100; ++i) busy_ns += PlayChannels(caller, 16, 13, 3);
    EXPECT_EQ(Segment().Timed("Send"), 99u);
    caller.Finalize();
    EXPECT_EQ(Segment().Timed("Send"), 100u);
    EXPECT_EQ(Segment().BusyNs("Send"), busy_ns);
    EXPECT_EQ(Segment().Lost(), Losses());
  });
}

TEST_F(ArgumentSurvival, Survives18_GarbageForTheNumberOfChannels) {
  InEach<4, 5, 6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller;
    uint64_t busy_ns = 0;
    for (const auto garbage : std::initializer_list<uint8_t>{224, 255, 65}) {
      busy_ns += PlayChannels(caller, garbage, 4);
      busy_ns += PlayChannels(caller, garbage, 4, 3);
    }
    caller.Finalize();
    EXPECT_EQ(Segment().Timed() + Segment().Timed("Send"), 6u);
    EXPECT_EQ(Segment().BusyNs() + Segment().BusyNs("Send"), busy_ns);
    EXPECT_EQ(Segment().Lost(), Losses());
  });
}

TEST_F(ArgumentSurvival, Survives18_FewerChannelsAnnouncedThanCome) {
  InEach<4, 5, 6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller;
    void* operation = caller.Announce({.channels = 1});
    caller.Complete(operation, 1);
    EXPECT_EQ(caller.Kernel(operation, 1, GpuNow()), nullptr);
    caller.Finalize();
    EXPECT_EQ(Segment().Completed(), 1u);
    EXPECT_EQ(Segment().Timed(), 1u);
    EXPECT_EQ(Segment().Lost(), Only({{Loss::kAfterCompletion, 1}}));
  });
}

TEST_F(ArgumentSurvival, Survives18_ChannelsOnTheFirstTaskOfAPlanOnly) {
  InEach<7>([&]<int kVersion>() {
    Caller<kVersion> caller;
    void* group = caller.Group();
    void* head = caller.Operation({.channels = 4}, nullptr, group);
    caller.Operation({.channels = 0}, nullptr, group);
    caller.Operation({.channels = 0}, nullptr, group);
    caller.Stop(group);
    const uint64_t busy_ns = caller.Complete(head, 4);
    caller.Finalize();
    EXPECT_EQ(Segment().Started(), 3u);
    EXPECT_EQ(Segment().Timed(), 1u);
    EXPECT_EQ(Segment().BusyNs(), busy_ns);
    EXPECT_EQ(Segment().InFlight(), 0u);
    EXPECT_EQ(Segment().Lost(), Only({{Loss::kIncompleteAtFinalize, 2}}));
  });
}

TEST_F(ArgumentSurvival, Survives19_CountConvertedToBytesBetweenCallAndOperation) {
  InEach<5, 6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller({.ranks = 8});
    void* call = caller.Call(caller.GroupApi(), {.function = "AllGather", .count = 1000});
    caller.Launch({.function = "AllGather", .count = 4000, .datatype = "ncclInt8"}, call);
    call = caller.Call(caller.GroupApi(), {.function = "Broadcast", .count = 1000});
    caller.Launch({.function = "Broadcast", .count = 4000, .datatype = "ncclInt8"}, call);
    EXPECT_EQ(Segment().Bytes("AllGather"), 8 * 4000u);
    EXPECT_EQ(Segment().Bytes("Broadcast"), 4000u);
    EXPECT_EQ(Segment().Calls("AllGather"), 1u);
  });
}

TEST_F(ArgumentSurvival, Survives20_UnknownDatatypeWhichIsOneByte) {
  InEach<2, 3, 4, 5, 6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller;
    for (const char* datatype : {"Unknown", "", static_cast<const char*>(nullptr)}) {
      caller.Announce({.count = 1000, .datatype = datatype});
    }
    EXPECT_EQ(Segment().Bytes(), 3000u);
    for (const char* function :
         {"", "Invalid", "AllReduceOfALaterRelease", static_cast<const char*>(nullptr)}) {
      caller.Announce({.function = function, .count = 10, .datatype = "ncclInt8"});
    }
    EXPECT_EQ(Segment().Started("Other"), 4u);
    EXPECT_EQ(Segment().Bytes("Other"), 40u);
  });
}

TEST_F(ArgumentSurvival, Survives20_NumbersOutsideTheEnumerationsOfTheFirstVersion) {
  InEach<1>([&]<int kVersion>() {
    Caller<kVersion> caller;
    auto event = caller.Coll({.count = 100}, nullptr, nullptr);
    for (const auto number : std::initializer_list<uint8_t>{8, 100, 255}) {
      event.coll.func = number;
      event.coll.datatype = number;
      caller.Start(event);
    }
    EXPECT_EQ(Segment().Started("Other"), 3u);
    // 8 is a double in NCCL's datatypes; the others count one byte an element.
    EXPECT_EQ(Segment().Bytes("Other"), (8u + 1 + 1) * 100);
  });
}

TEST_F(ArgumentSurvival, Survives21_DescriptorOfVersionThreeUnderVersionTwo) {
  InEach<2>([&]<int kVersion>() {
    Caller<kVersion> caller;
    auto third = Caller<3>::Event(abi::kColl);
    third.coll.func = "AllReduce";
    third.coll.count = 1000;
    third.coll.datatype = "ncclFloat32";
    third.coll.nMaxChannels = 0xff;
    third.coll.nWarps = 0xff;
    third.coll.algo = "RING";
    third.coll.proto = "LL";
    Caller<2>::Descriptor shifted;
    static_assert(sizeof(third) <= sizeof(shifted));
    // The bytes behind it are wild.
    std::memset(static_cast<void*>(&shifted), 0xa5, sizeof(shifted));
    std::memcpy(static_cast<void*>(&shifted), &third, sizeof(third));
    void* operation = caller.Start(shifted);
    EXPECT_NE(operation, nullptr);
    caller.Complete(operation);
    caller.Finalize();
    EXPECT_EQ(Segment().Bytes(), 4000u);
    EXPECT_EQ(Segment().Ended(), 1u);
    EXPECT_EQ(Segment().Lost(), Losses());
  });
}

TEST_F(ArgumentSurvival, Survives22_NameOfNullAndHashOfZero) {
  InEach<1, 2, 3>([&]<int kVersion>() {
    Caller<kVersion> caller({.id = 0, .rank = 3}), other({.id = 0, .rank = 4});
    caller.Run();
    other.Run();
    caller.Run();
    EXPECT_EQ(Segment().Started("AllReduce", 0), 2u);
    EXPECT_EQ(Segment().Started("AllReduce", 1), 1u);
    EXPECT_EQ(Segment().Slot(0)->rank, 3u);
    EXPECT_EQ(Segment().Slot(1)->rank, 4u);
    EXPECT_STREQ(Segment().Slot(0)->name, "");
  });
}

TEST_F(ArgumentSurvival, Survives23_NameThatIsGoneAfterInitAndNameWithoutAnEndInSight) {
  InEach<4, 5, 6, 7>([&]<int kVersion>() {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    char* memory = static_cast<char*>(
        mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(memory + page, page, PROT_NONE);
    char* name = memory + page - 5;
    std::strcpy(name, "pipe");  // ends with the last byte that may be read
    Caller<kVersion> caller({.name = name});
    const std::string longest(500, 'x');
    Caller<kVersion> second({.name = longest.c_str()});
    munmap(memory, 2 * page);
    Caller<kVersion> split(
        {.name = name});  // the pointer of its parent's, as without a configuration
    caller.Run();
    second.Run();
    caller.Finalize();
    EXPECT_STREQ(Segment().Slot(2)->name, "");
    EXPECT_STREQ(Segment().Slot(0)->name, "pipe");
    EXPECT_EQ(std::string(Segment().Slot(1)->name), std::string(127, 'x'));
    EXPECT_EQ(Segment().Timed(), 1u);
  });
}

TEST_F(ArgumentSurvival, Survives24_AllToAllThatComesAsSendsAndReceives) {
  InEach<4, 5, 6, 7>([&]<int kVersion>() {
    constexpr int kRanks = 4;
    Caller<kVersion> caller({.rank = 1, .ranks = kRanks});
    void* group_api = caller.GroupApi();
    void* group = nullptr;
    std::vector<void*> calls, operations;
    for (int i = 0; i < 2 * kRanks; ++i) {
      const Task task{.function = i % 2 == 0 ? "Send" : "Recv", .channels = 2, .peer = i / 2};
      calls.push_back(caller.Call(group_api, task));
      caller.Stop(calls.back());
    }
    group = caller.Group();
    for (int i = 0; i < 2 * kRanks; ++i) {
      const Task task{.function = i % 2 == 0 ? "Send" : "Recv", .channels = 2, .peer = i / 2};
      operations.push_back(caller.Operation(task, calls[static_cast<size_t>(i)], group));
    }
    caller.Stop(group);
    caller.Stop(group_api);
    for (int i = 0; i < 2 * kRanks; ++i) {
      const bool is_to_self = i / 2 == 1;
      if (!is_to_self || kVersion == 7) caller.Complete(operations[static_cast<size_t>(i)]);
    }
    const View view = Segment();
    for (const char* function : {"Send", "Recv"}) {
      EXPECT_EQ(view.Calls(function), kVersion >= 5 ? kRanks : 0u);
      EXPECT_EQ(view.Started(function), 4u);
      EXPECT_EQ(view.Completed(function), kVersion == 7 ? 4u : 1u)
          << "from the message to self on it is not followed";
      EXPECT_EQ(view.Timed(function), kVersion == 7 ? 4u : 0u);
    }
    EXPECT_EQ(view.Started("AlltoAll"), 0u);
    EXPECT_EQ(view.InFlight(), 0u);
    EXPECT_EQ(view.Lost(), kVersion == 7
                               ? Losses()
                               : Only({{Loss::kDrift, 2}, {Loss::kCommunicatorDrifting, 6}}));
  });
}

TEST_F(ArgumentSurvival, Survives25_BroadcastThatIsCalledAndNeverAnnounced) {
  InEach<6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller;
    for (int i = 0; i < 1000; ++i) {
      void* group_api = caller.GroupApi();
      caller.Stop(caller.Call(group_api, {.function = "Broadcast"}));
      caller.Stop(group_api);
    }
    caller.Run();
    caller.Finalize();
    EXPECT_EQ(Segment().Calls("Broadcast"), 1000u);
    EXPECT_EQ(Segment().Started("Broadcast"), 0u);
    EXPECT_EQ(Segment().Timed(), 1u);
    EXPECT_EQ(Segment().InFlight(), 0u);
    EXPECT_EQ(Segment().Lost(), Losses());
  });
}

}  // namespace
}  // namespace nccl_exporter::plugin::survival
