// SPDX-License-Identifier: Apache-2.0
// The moves of a fuzzed session that are steps of proxy operations: sound ones, and all that could
// go wrong with them.
#include <unistd.h>

#include <iterator>

#include "plugin/fuzz/callback_fuzz_clock.h"
#include "plugin/fuzz/callback_fuzz_player.h"

namespace nccl_exporter::plugin::fuzz {
namespace {

constexpr int kStates[] = {8, 20, 9, 10, 11, 12, 0, 1, 2, 5};

}  // namespace

// A step from its start to its stop; one that is not sound has any of its events missing, doubled
// or of something else.
void Player::PlayStep(Member& member, void* proxy, int step, bool is_send, bool is_sound) {
  Event event;
  event.type = abi::kProxyStep;
  event.parent = is_sound || !bytes_.OneIn(16) ? proxy : ChooseGarbage(network_);
  event.step = is_sound || !bytes_.OneIn(16) ? step : static_cast<int>(bytes_.Word());
  void* handle = Start(member.version, member.context, event);
  for (uint32_t poll = bytes_.Below(3); !is_send && poll > 0; --poll)
    handle = Start(member.version, member.context, event);
  network_.Keep(handle);
  const auto enter = [&](void* named, int state) {
    struct {
      uint64_t bytes;
      int steps;
    } arguments{bytes_.Next(), static_cast<int>(bytes_.Below(12))};
    session_.network_bytes.fetch_add(arguments.bytes);
    AdvanceClock(bytes_.Next());
    const bool has_arguments = member.version >= 4 || named == proxy;
    TableOf(member.version)
        .Record(named, state,
                has_arguments ? reinterpret_cast<abi::StateArgs*>(&arguments.bytes) : nullptr);
    ++callbacks_;
  };
  if (is_sound) {
    for (int i = is_send ? 0 : 3; i < (is_send ? 3 : 6); ++i) enter(handle, kStates[i]);
    return Stop(member.version, handle);
  }
  for (uint32_t records = bytes_.Below(5); records > 0; --records) {
    void* named = bytes_.OneIn(8) ? ChooseGarbage(network_) : handle;
    enter(member.version < 4 && bytes_.OneIn(4) ? proxy : named,
          kStates[bytes_.Below(std::size(kStates))]);
  }
  session_.network_stops.fetch_add(1);  // a stray handle may be an operation's
  if (!bytes_.OneIn(8)) Stop(member.version, bytes_.OneIn(8) ? ChooseGarbage(network_) : handle);
}

void Player::PlayNetwork(Member& member) {
  if (member.is_mute || (member.is_orderly && member.reports_proxy) || member.started.load() == 0)
    return;
  const uint32_t index = bytes_.Below(static_cast<uint32_t>(member.operations.size()));
  Event event;
  event.type = abi::kProxyOp;
  event.parent = member.operations[index].handle.load();
  event.pid = bytes_.OneIn(32) ? getpid() + 1 : getpid();
  event.is_send = bytes_.OneIn(2);
  event.peer =
      bytes_.OneIn(32) ? static_cast<int>(bytes_.Word()) : static_cast<int>(bytes_.Below(6));
  const bool is_sound = bytes_.OneIn(2);
  void* proxy = Start(member.version, member.context, event);
  network_.Keep(proxy);
  if (!bytes_.OneIn(8)) Begin(member.version, proxy);
  if (OursOf(proxy) == nullptr) return;
  const uint64_t losses = session_.LossesOfAll();
  const uint64_t counted = session_.NetworkOperationsOf(member);
  const int steps = 1 + static_cast<int>(bytes_.Below(20));
  for (int step = 0; step < steps; ++step) PlayStep(member, proxy, step, event.is_send, is_sound);
  if (bytes_.OneIn(16)) return;  // aborted
  session_.network_stops.fetch_add(1);
  Stop(member.version, proxy);
  const bool is_timed = is_sound && member.version >= 2 && !member.is_leaving.load();
  if (is_timed && session_.AsksForSteps(member) && session_.NetworkOperationsOf(member) == counted)
    ExpectLoss(losses, "a network operation");
  if (bytes_.OneIn(16)) Stop(member.version, proxy);
}

}  // namespace nccl_exporter::plugin::fuzz
