// SPDX-License-Identifier: Apache-2.0
#include "simulator/job/stop_signals.h"

#include <signal.h>
#include <time.h>

namespace nccl_exporter::sim {
namespace {

sigset_t BothSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

}  // namespace

void BlockStopSignals() {
  const sigset_t signals = BothSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

StopSignals::StopSignals() {
  thread_ = std::thread([this] {
    constexpr timespec kSliceToNoticeTheEnd{.tv_sec = 0, .tv_nsec = 20000000};
    const sigset_t signals = BothSignals();
    while (!is_ending_) {
      if (sigtimedwait(&signals, nullptr, &kSliceToNoticeTheEnd) > 0) asked_ = true;
    }
  });
}

StopSignals::~StopSignals() {
  is_ending_ = true;
  thread_.join();
}

}  // namespace nccl_exporter::sim
