// SPDX-License-Identifier: Apache-2.0
// Prints what the steps of proxy operations cost against their budget, in units of one clock
// reading (T) taken in the same moment. All callbacks of NCCL 2.30 for a step, in the order in
// which its progress thread makes them.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "plugin/bench/callback_script.h"

namespace nccl_exporter::plugin {
namespace {

constexpr int kSteps = 64;
constexpr int kOverlap = 8;
constexpr int kRounds = 5'000;
// States, as NCCL numbers them.
constexpr int kSendGpuWait = 8, kSendWait = 9, kRecvWait = 10, kRecvFlushWait = 11,
              kRecvGpuWait = 12, kSendPeerWait = 20;

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

class Steps {
 public:
  explicit Steps(const CallbackScript::Table& table)
      : script_(table),
        context_(CallbackScript::OpenCommunicator(table, 2)),
        coll_(script_.Call(context_, 0)) {}

  bool is_timed() const { return is_timed_; }

  void Begin(bool is_send) { operation_ = script_.StartProxyOperation(context_, coll_, is_send); }
  void End() { script_.Stop(operation_); }

  // Steps whose time is the network's: only the end of a step is the head's. All that is before was
  // done while older steps were under way.
  void SendOverlapped() {
    for (int step = 0; step < kSteps + kOverlap; ++step) {
      if (step >= kOverlap) script_.Stop(HandleOf(step));
      if (step < kSteps) PostSend(step);
    }
  }
  // Each state of each step is the head's.
  void SendAlone() {
    for (int step = 0; step < kSteps; ++step) {
      PostSend(step);
      script_.Stop(HandleOf(step));
    }
  }
  void ReceiveOverlapped() {
    for (int step = 0; step < kSteps + kOverlap; ++step) {
      if (step >= kOverlap) script_.Stop(HandleOf(step));
      if (step < kSteps) Receive(step);
    }
  }
  void ReceiveAlone() {
    for (int step = 0; step < kSteps; ++step) {
      Receive(step);
      script_.Stop(HandleOf(step));
    }
  }
  void RefusedStarts() {
    for (int step = 0; step < kSteps; ++step) script_.StartStep(context_, nullptr, step);
  }
  void RepeatedStarts() {
    for (int step = 0; step < kSteps; ++step) script_.StartStep(context_, operation_, 0);
  }
  void RepeatedStates() {
    for (int step = 0; step < kSteps; ++step) script_.EnterState(HandleOf(0), kSendPeerWait);
  }
  void OperationsAlone() {
    for (int i = 0; i < kSteps; ++i) {
      Begin(true);
      End();
    }
  }
  void StartOne() { HandleOf(0) = script_.StartStep(context_, operation_, 0); }
  void StopOne() { script_.Stop(HandleOf(0)); }

 private:
  void*& HandleOf(int step) { return handles_[step % kOverlap]; }
  void PostSend(int step) {
    void*& handle = HandleOf(step);
    handle = script_.StartStep(context_, operation_, step);
    is_timed_ = is_timed_ && handle != nullptr;
    script_.EnterState(handle, kSendGpuWait);
    script_.EnterState(handle, kSendPeerWait);
    script_.EnterState(handle, kSendWait);
  }
  void Receive(int step) {
    void*& handle = HandleOf(step);
    handle = script_.StartStep(context_, operation_, step);
    is_timed_ = is_timed_ && handle != nullptr;
    script_.EnterState(handle, kRecvWait);
    script_.EnterState(handle, kRecvFlushWait);
    script_.EnterState(handle, kRecvGpuWait);
  }

  CallbackScript script_;
  void* context_;
  void* coll_;
  void* operation_ = nullptr;
  void* handles_[kOverlap]{};
  bool is_timed_ = true;
};

// Cost of one of kSteps steps, in T.
template <typename Body>
double Measure(Body body) {
  std::vector<double> costs;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t begin = ReadBenchmarkClock();
    for (int i = 0; i < kSteps; ++i) ReadBenchmarkClock();
    const uint64_t read = ReadBenchmarkClock();
    body();
    const uint64_t ended = ReadBenchmarkClock();
    const double t = static_cast<double>(read - begin) / (kSteps + 1);
    costs.push_back((static_cast<double>(ended - read) - t) / kSteps / t);
  }
  return Median(costs);
}

void PrintRow(const char* what, double cost, double budget) {
  std::printf("%-62s %6.2f T   budget %4.1f T   %s\n", what, cost, budget,
              cost <= budget ? "within" : "OVER");
}

void Run() {
  Steps steps(CallbackScript::LoadTable());
  const auto in_operation = [&](bool is_send, auto body) {
    return Measure([&] {
      steps.Begin(is_send);
      body();
      steps.End();
    });
  };
  const double send = in_operation(true, [&] { steps.SendOverlapped(); });
  const double receive = in_operation(false, [&] { steps.ReceiveOverlapped(); });
  const double send_alone = in_operation(true, [&] { steps.SendAlone(); });
  const double receive_alone = in_operation(false, [&] { steps.ReceiveAlone(); });
  const double refused = Measure([&] { steps.RefusedStarts(); });
  steps.Begin(false);
  steps.StartOne();
  const double repeated_start = Measure([&] { steps.RepeatedStarts(); });
  steps.StopOne();
  steps.End();
  steps.Begin(true);
  steps.StartOne();
  const double repeated_state = Measure([&] { steps.RepeatedStates(); });
  steps.StopOne();
  steps.End();
  if (!steps.is_timed()) std::puts("the steps were not timed: these figures mean nothing");
  std::printf(
      "\nBudget: T is one clock_gettime(CLOCK_MONOTONIC) of the same moment; operations of %d "
      "steps; medians of %d\n",
      kSteps, kRounds);
  PrintRow("step of a send, 8 under way (5 callbacks)", send, 2.2);
  PrintRow("step of a receive, 8 under way (5 callbacks)", receive, 2.2);
  PrintRow("step of a send, one under way", send_alone, 3.2);
  PrintRow("step of a receive, one under way", receive_alone, 4.2);
  PrintRow("start of a step that is refused", refused, 0.3);
  PrintRow("start of a receive's step, repeated", repeated_start, 0.3);
  PrintRow("state 20, repeated", repeated_state, 0.3);
  PrintRow("proxy operation without steps (2 callbacks)", Measure([&] { steps.OperationsAlone(); }),
           1.5);
}

}  // namespace
}  // namespace nccl_exporter::plugin

int main() { nccl_exporter::plugin::Run(); }
