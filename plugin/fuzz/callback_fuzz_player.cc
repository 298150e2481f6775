// SPDX-License-Identifier: Apache-2.0
// The moves of a fuzzed session: those of users (callback_fuzz_reporter.cc has the others).
#include "plugin/fuzz/callback_fuzz_player.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <thread>

#include "plugin/chain/chain.h"
#include "plugin/fuzz/callback_fuzz_clock.h"
#include "plugin/fuzz/callback_fuzz_vocabulary.h"

namespace nccl_exporter::plugin::fuzz {

// --- Callbacks

void* Player::Start(int version, void* context, const Event& event) {
  void* handle = reinterpret_cast<void*>(kUnwritten);
  TableOf(version).Start(context, &handle, &event);
  ++callbacks_;
  if (handle == reinterpret_cast<void*>(kUnwritten))
    Fail("v%d left the handle of an event 0x%zx as it was", version, event.type);
  return handle;
}

void* Player::OursOf(void* handle) {
  const Chain* const chain = Chain::Get();
  return chain != nullptr ? chain->pool()->FindEvent(handle).ours : handle;
}

// An event that counts something on a communicator: whether it must, must not, or may, since it is
// about to go.
void* Player::StartOn(Member& member, int version, const Event& event, bool* is_counted) {
  const bool was_gone = member.is_gone.load();
  void* const handle = Start(version, member.context, event);
  *is_counted = OursOf(handle) != nullptr;
  if (member.is_overflow) {
    if (!*is_counted) Fail("v%d dropped an event 0x%zx of the overflow slot", version, event.type);
    return handle;
  }
  if (was_gone && *is_counted)
    Fail("v%d took an event 0x%zx of a finalized communicator", version, event.type);
  if (!member.is_leaving.load() && !*is_counted)
    Fail("v%d dropped an event 0x%zx", version, event.type);
  return handle;
}

void Player::Stop(int version, void* handle) {
  TableOf(version).Stop(handle);
  ++callbacks_;
}

void Player::Record(int version, void* handle, uint64_t gpu_ns) {
  abi::StateArgs arguments{.pTimer = gpu_ns};
  const bool is_stamp = !bytes_.OneIn(16);
  TableOf(version).Record(handle, is_stamp ? abi::kStateKernelChStop : bytes_.Next(),
                          bytes_.OneIn(32) ? nullptr : &arguments);
  ++callbacks_;
}

void Player::ExpectLoss(uint64_t losses_before, const char* what) const {
  if (role_.IsAlone() && session_.LossesOfAll() <= losses_before)
    Fail("%s had no effect and raised no loss", what);
}

// --- Choices

uint32_t Player::ChooseBerth(bool mine) {
  const uint32_t berth = bytes_.Below(Session::kBerths);
  if (!mine) return berth;
  const uint32_t stride = role_.is_user ? role_.users : role_.reporters;
  const uint32_t own = berth / stride * stride + role_.index;
  return own < Session::kBerths ? own : role_.index;
}

// With a chained plugin handles stand for two, which v1 to v3 do not know.
int Player::AnyVersion() {
  const int first = std::getenv("NCCL_EXPORTER_CHAIN") != nullptr ? 4 : 1;
  return first + static_cast<int>(bytes_.Below(static_cast<uint32_t>(kVersions + 1 - first)));
}

int Player::ChooseVersion(const Member& member) {
  return bytes_.OneIn(32) ? AnyVersion() : member.version;
}

uint64_t Player::ChooseCount() {
  const uint32_t choice = bytes_.Below(32);
  if (choice == 0) return 0;
  if (choice == 1) return bytes_.Word();
  return uint64_t{bytes_.Next()} << choice;
}

// Around the CPU's time, which is as good as any origin; and what drift, wrap and disuse make of
// time stamps.
uint64_t Player::ChooseGpuTime() {
  switch (bytes_.Below(128)) {
    case 1:
      return 0;
    case 2:
      return ~uint64_t{0};
    case 3:
      return bytes_.Word();
    case 4:
      return ClockNs() - (uint64_t{bytes_.Next()} << 20);
    case 5:
      return ClockNs() + (uint64_t{bytes_.Next()} << 24);
    case 6:
      return 1'000'000'000;
    default:
      return ClockNs() - (uint64_t{bytes_.Next()} << 4);
  }
}

void* Player::ChooseGarbage(const Memory& memory) {
  const uintptr_t known = reinterpret_cast<uintptr_t>(memory.Pick(bytes_.Next()));
  switch (bytes_.Below(8)) {
    case 1:
      return nullptr;
    case 2:
      return reinterpret_cast<void*>(bytes_.Word());
    case 3:  // another process's
      return reinterpret_cast<void*>(known ^ uint64_t{1} << 48 << bytes_.Below(16));
    case 4:
      if (role_.IsAlone()) return reinterpret_cast<void*>(known ^ uint64_t{1} << bytes_.Below(48));
      return nullptr;
    default:
      return reinterpret_cast<void*>(known);
  }
}

void Player::ChooseTask(Event& event, bool is_p2p) {
  event.function = FunctionTexts().Pick(bytes_.Next());
  event.function_number = static_cast<uint8_t>(bytes_.Below(12));
  if (is_p2p && !bytes_.OneIn(16)) event.function = bytes_.OneIn(2) ? "Send" : "Recv";
  event.datatype = DatatypeTexts().Pick(bytes_.Next());
  event.datatype_number = static_cast<uint8_t>(bytes_.Below(16));
  event.count = ChooseCount();
  event.sequence = bytes_.OneIn(64) ? bytes_.Word() : ++sequence_;
  event.peer =
      bytes_.OneIn(32) ? static_cast<int>(bytes_.Word()) : static_cast<int>(bytes_.Below(9)) - 1;
  event.channels = static_cast<uint8_t>(bytes_.OneIn(32) ? bytes_.Next() : bytes_.Below(5));
  event.rank = static_cast<int>(bytes_.Below(8));
  event.communicator_id = bytes_.Next();
}

void Player::ChooseTask(const Member& member, Event& event, bool is_p2p) {
  ChooseTask(event, is_p2p);
  if (!member.is_orderly) return;
  event.peer = 8;  // none of the ranks that members have
  event.channels = std::min<uint8_t>(event.channels, is_p2p ? 1 : 4);
}

// --- What users do

void* Player::StartCall(Member& member, void* call_group, bool is_p2p, bool is_captured) {
  Event event;
  ChooseTask(member, event, is_p2p);
  event.type = is_p2p ? abi::kP2pApi : abi::kCollApi;
  event.parent = call_group;
  event.is_captured = is_captured;
  bool is_counted = false;
  void* handle = StartOn(member, member.version, event, &is_counted);
  if (is_counted) session_.AccountOf(member).AddCall(MeaningOf(event.function));
  (is_captured ? captured_calls_ : calls_).Keep(handle);
  return handle;
}

void* Player::StartTask(Member& member, void* call, void* launch, bool is_p2p, bool is_captured) {
  Event event;
  ChooseTask(member, event, is_p2p);
  event.type = is_p2p ? abi::kP2p : abi::kColl;
  event.parent = call;
  event.launch = launch;
  const int version = is_captured ? member.version : ChooseVersion(member);
  bool is_counted = false;
  void* handle = StartOn(member, version, event, &is_counted);
  if (is_counted && !is_captured) {
    const bool by_number = version == 1;
    const Function function =
        by_number ? MeaningOf(event.function_number) : MeaningOf(event.function);
    const uint32_t element_bytes =
        by_number ? BytesOf(event.datatype_number) : BytesOf(event.datatype);
    session_.AccountOf(member).AddOperation(
        function, MessageBytes(function, event.count, element_bytes, member.ranks));
  }
  tasks_.Keep(handle);
  Member::Started& started =
      member.operations[member.started.fetch_add(1) % member.operations.size()];
  started.handle.store(handle);
  started.channels.store(event.channels);
  return handle;
}

void Player::PlayTasks(Member& member, void* call_group, void* launch, bool is_owner) {
  const bool is_p2p = bytes_.OneIn(3);
  const uint32_t tasks =
      bytes_.OneIn(member.is_mute ? 16 : 255) ? bytes_.Below(128) : 1 + bytes_.Below(3);
  for (uint32_t i = 0; i < tasks; ++i) {
    const bool has_call = is_owner && member.version >= 5 && !bytes_.OneIn(8);
    void* call = has_call ? StartCall(member, call_group, is_p2p, false) : ChooseGarbage(calls_);
    void* task = StartTask(member, call, launch, is_p2p, false);
    if (!bytes_.OneIn(16)) Stop(member.version, task);
    if (has_call && !bytes_.OneIn(16)) Stop(member.version, call);
  }
}

void Player::PlayLaunch(Member& member, bool is_owner) {
  Event event;
  bool is_counted = false;
  void* call_group = nullptr;
  if (is_owner && member.version >= 5) {
    event.type = abi::kGroupApi;
    call_group = StartOn(member, member.version, event, &is_counted);
    groups_.Keep(call_group);
  }
  void* launch = nullptr;
  if (!bytes_.OneIn(8)) {
    event.type = abi::kGroup;
    launch = StartOn(member, member.version, event, &is_counted);
  }
  PlayTasks(member, call_group, bytes_.OneIn(16) ? ChooseGarbage(launches_) : launch, is_owner);
  launches_.Keep(launch);
  const bool stays_open = role_.IsAlone() && bytes_.OneIn(16);
  if (!stays_open) Stop(member.version, launch);
  if (!stays_open && bytes_.OneIn(32)) Stop(member.version, launch);
  if (call_group != nullptr) Stop(member.version, call_group);
}

// A graph is captured, its operations perhaps announced already, then replayed.
void Player::PlayCapture(Member& member, bool is_nested) {
  if (member.version < 5 || member.is_orderly) return;
  Event event;
  bool is_counted = false;
  event.type = abi::kGroupApi;
  event.is_captured = true;
  void* call_group = StartOn(member, member.version, event, &is_counted);
  const bool is_p2p = bytes_.OneIn(2);
  void* call = StartCall(member, call_group, is_p2p, true);
  if (role_.IsAlone() && bytes_.OneIn(4)) {  // meanwhile, on another communicator
    Member* other = session_.berth(ChooseBerth(false)).member.load();
    if (other != nullptr && other != &member && !other->is_overflow && !is_nested)
      PlayCapture(*other, true);
  }
  const uint32_t announced = bytes_.Below(3);
  for (uint32_t i = 0; i < announced; ++i) StartTask(member, call, nullptr, is_p2p, true);
  Stop(member.version, call);
  Stop(member.version, call_group);
  const uint32_t replays = bytes_.Below(3);
  if (replays == 0) return;
  std::thread host_functions([&] {
    for (uint32_t i = 0; i < replays; ++i) {
      event.type = abi::kGroup;
      void* launch = StartOn(member, member.version, event, &is_counted);
      void* captured = bytes_.OneIn(4) ? ChooseGarbage(captured_calls_) : call;
      Stop(member.version, StartTask(member, captured, launch, is_p2p, false));
      Stop(member.version, launch);
    }
  });
  host_functions.join();
}

void Player::PlayCopy(Member& member) {
  if (member.version < 6) return;
  Event event;
  ChooseTask(member, event, false);
  event.type = abi::kCeColl;
  bool is_counted = false;
  void* handle = StartOn(member, member.version, event, &is_counted);
  if (is_counted) {
    const Function function = MeaningOf(event.function);
    session_.AccountOf(member).AddOperation(
        function, MessageBytes(function, event.count, BytesOf(event.datatype), member.ranks));
  }
  Stop(member.version, handle);
}

void Player::OpenOrClose(uint32_t index) {
  Slot& berth = session_.berth(index);
  const std::lock_guard users(berth.users);
  if (berth.member.load() != nullptr) {
    if (!bytes_.OneIn(4)) return;
    session_.Close(berth);
    ++callbacks_;
    return;
  }
  static const char* const kNames[] = {
      nullptr, "", "dp", "\xc3\x28\xff",
      "a name of a communicator that is much longer than the field of 128 bytes in which the "
      "plugin keeps it, so that it has to be cut somewhere in "
      "\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac"};
  Introduction introduction;
  introduction.name = kNames[bytes_.Below(5)];
  introduction.nodes = static_cast<int>(bytes_.Below(5)) - 1;
  introduction.ranks = bytes_.OneIn(8) ? -1 : static_cast<int>(bytes_.Next());
  introduction.rank = static_cast<int>(bytes_.Below(8));
  const bool is_mute = bytes_.OneIn(8);
  const bool is_orderly = is_mute || bytes_.OneIn(2);
  session_.Open(berth, AnyVersion(), introduction, is_mute, is_orderly);
  ++callbacks_;
}

void Player::StepAsUser() {
  const uint32_t move = bytes_.Below(64);
  const bool is_owner = role_.IsAlone() || bytes_.OneIn(2);
  const uint32_t index = ChooseBerth(is_owner && !role_.IsAlone());
  if (move == 1) return OpenOrClose(index);
  if (move < 6) return PlayStray();
  if (move == 6) return PlayNull();
  Slot& berth = session_.berth(index);
  const std::shared_lock users(berth.users);
  Member* member = berth.member.load();
  if (member == nullptr) return;
  if (move < 9) return PlayCopy(*member);
  // Communicators in the overflow slot share the state that distinguishes captures.
  if (move < 12 && is_owner && (role_.IsAlone() || !member->is_overflow))
    return PlayCapture(*member, false);
  PlayLaunch(*member, is_owner);
}
void Player::Step() {
  const bool reports = role_.is_reporter && (!role_.is_user || !bytes_.OneIn(4));
  if (reports) {
    StepAsReporter();
  } else {
    StepAsUser();
  }
}

}  // namespace nccl_exporter::plugin::fuzz
