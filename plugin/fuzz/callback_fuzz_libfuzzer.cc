// SPDX-License-Identifier: Apache-2.0
// libFuzzer's way in: one input is one session of callbacks. The plugin's instance outlives the
// input, as it does in a process whose communicators come and go: an input that fails only after
// others is found again by playing them before.
#include <cstddef>
#include <cstdint>

#include "plugin/fuzz/callback_fuzz_clock.h"
#include "plugin/fuzz/callback_fuzz_player.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nccl_exporter::plugin::fuzz;
  constexpr int kMovesBetweenChecks = 256;
  static Session session(true);
  Player player(session, Bytes(std::span(data, size)), Role{});
  for (int move = 1; !player.IsOver(); ++move) {
    player.Step();
    if (move % kMovesBetweenChecks != 0) continue;
    session.Check();
    AdvanceClock(500'000'000);
  }
  session.Clear();
  return 0;
}
