// SPDX-License-Identifier: Apache-2.0
// What the real library asks NCCL for and says about it, by NCCL's release and the job's environment; and what it does
// when somebody else changes the event mask.
#include <map>
#include <string>

#include "plugin/survival_fixture.h"

namespace nccl_exporter::survival {
namespace {

int event_mask = 0;  // NCCL's

using Environment = std::map<std::string, std::string>;

// One communicator whose mask lies where ncclGetVersion does.
template <int kVersion>
class Communicator {
 public:
  using Descriptor = typename Api<kVersion>::Descriptor;

  explicit Communicator(uint64_t id = 1) {
    if constexpr (kVersion <= 3) {
      table_->init(&context_, &event_mask);
    } else if constexpr (kVersion == 4) {
      table_->init(&context_, &event_mask, nullptr, id, 1, 2, 0, nullptr);
    } else {
      table_->init(&context_, id, &event_mask, nullptr, 1, 2, 0, nullptr);
    }
  }
  void Finalize() { table_->finalize(context_); }

  void* Start(uint64_t type, void* parent = nullptr, bool is_captured = false, const char* function = "AllReduce") {
    Descriptor event;
    std::memset(static_cast<void*>(&event), 0, sizeof(event));
    event.type = static_cast<decltype(event.type)>(type);
    event.parentObj = parent;
    if constexpr (kVersion >= 5) {
      if (type == abi::kGroupApi) event.groupApi = {is_captured, 1};
      if (type == abi::kCollApi) event.collApi = {function, 64, "ncclFloat32", 0, nullptr, is_captured};
      if (type == abi::kP2pApi) event.p2pApi = {function, 64, "ncclFloat32", nullptr, is_captured};
    }
    void* handle = nullptr;
    table_->startEvent(context_, &handle, &event);
    return handle;
  }
  void Stop(void* handle) {
    if (handle != nullptr) table_->stopEvent(handle);
  }
  // A group with one call.
  void Call(uint64_t type = abi::kCollApi, const char* function = "AllReduce", bool is_captured = false) {
    void* group = Start(abi::kGroupApi, nullptr, is_captured);
    Stop(Start(type, group, is_captured, function));
    Stop(group);
  }

 private:
  const typename Api<kVersion>::Table* table_ = LoadTable<kVersion>();
  void* context_ = nullptr;
};

class EventMask : public SurvivalTest {
 protected:
  // `body` with a communicator of that release, in a process of its own.
  template <int kVersion, typename Body>
  void InJob(int version, const Environment& environment, Body body) const {
    SCOPED_TRACE("NCCL " + std::to_string(version));
    InChild([&] {
      unsetenv("NCCL_EXPORTER_KERNEL_TIMING");
      unsetenv("NCCL_ALLGATHERV_ENABLE");
      for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
      nccl::Report(version);
      event_mask = 0;
      Communicator<kVersion> communicator;
      body(communicator);
    });
  }
  template <int kVersion>
  void ExpectAsked(int version, const Environment& environment, bool is_kernel_timed, TimingReason reason) const {
    InJob<kVersion>(version, environment, [&](auto&) {
      EXPECT_EQ((event_mask & abi::kKernelCh) != 0, is_kernel_timed);
      EXPECT_EQ(Reason(), reason);
      EXPECT_EQ(Source(), is_kernel_timed ? TimingSource::kKernel : TimingSource::kProxy);
    });
  }
  TimingReason Reason(size_t slot = 0) const { return static_cast<TimingReason>(Segment().Slot(slot)->timing_reason); }
  TimingSource Source(size_t slot = 0) const { return static_cast<TimingSource>(Segment().Slot(slot)->timing_source); }
};

TEST_F(EventMask, LeavesKernelEventsOutWhereBroadcastsLackThem) {
  for (const char* kernel_timing : {"auto", "on"}) {
    const Environment environment{{"NCCL_EXPORTER_KERNEL_TIMING", kernel_timing}};
    ExpectAsked<6>(22903, environment, false, TimingReason::kAllgathervEnabled);
    ExpectAsked<6>(23007, environment, false, TimingReason::kAllgathervEnabled);
    ExpectAsked<7>(23103, environment, false, TimingReason::kAllgathervEnabled);
    ExpectAsked<7>(23206, environment, false, TimingReason::kAllgathervEnabled);
  }
}

TEST_F(EventMask, AsksForKernelEventsWhereAllWorkCarriesThem) {
  const TimingReason on = TimingReason::kConfigured;
  ExpectAsked<4>(22707, {{"NCCL_EXPORTER_KERNEL_TIMING", "on"}}, true, on);
  ExpectAsked<5>(22809, {{"NCCL_EXPORTER_KERNEL_TIMING", "on"}}, true, on);
  for (const char* off : {"0", "00", "0x0", "no"}) {  // as strtoll reads them, and so NCCL
    const Environment environment{{"NCCL_EXPORTER_KERNEL_TIMING", "on"}, {"NCCL_ALLGATHERV_ENABLE", off}};
    ExpectAsked<6>(23007, environment, true, on);
    ExpectAsked<7>(23206, environment, true, on);
  }
  for (const char* enabled : {"1", "-1", "", "99999999999999999999"}) {
    const Environment environment{{"NCCL_EXPORTER_KERNEL_TIMING", "on"}, {"NCCL_ALLGATHERV_ENABLE", enabled}};
    ExpectAsked<6>(23007, environment, false, TimingReason::kAllgathervEnabled);
  }
}

TEST_F(EventMask, DoesNotTrustAVariableThatNcclMayReadElsewhere) {
  const Environment trusted{{"NCCL_EXPORTER_KERNEL_TIMING", "on"}, {"NCCL_ALLGATHERV_ENABLE", "0"}};
  for (const auto& [name, value] : Environment{{"NCCL_ENV_PLUGIN", "libsite.so"}, {"NCCL_NO_CACHE", "ALL"}}) {
    Environment environment = trusted;
    environment[name] = value;
    ExpectAsked<6>(23007, environment, false, TimingReason::kAllgathervEnabled);
  }
  Environment environment = trusted;
  environment["NCCL_ENV_PLUGIN"] = "none";
  ExpectAsked<6>(23007, environment, true, TimingReason::kConfigured);
}

TEST_F(EventMask, TimesNothingWithoutSampling) {
  const Environment environment{{"NCCL_EXPORTER_KERNEL_TIMING", "on"}, {"NCCL_EXPORTER_SAMPLING", "off"}};
  ExpectAsked<5>(22809, environment, false, TimingReason::kConfigured);
}

TEST_F(EventMask, IsTheSameAllTheTimeByDefault) {
  const Environment environment{{"NCCL_EXPORTER_KERNEL_TIMING", "on"},
                                {"NCCL_EXPORTER_SAMPLING_LEARNING_SECONDS", "0"},
                                {"NCCL_EXPORTER_SAMPLING_PERIOD_SECONDS", "0.1"}};
  InJob<5>(22809, environment, [&](Communicator<5>& communicator) {
    const int first = event_mask;
    for (int i = 0; i < 30; ++i) {
      communicator.Call();
      usleep(10'000);
      EXPECT_EQ(event_mask, first);
    }
  });
}

}  // namespace
}  // namespace nccl_exporter::survival
