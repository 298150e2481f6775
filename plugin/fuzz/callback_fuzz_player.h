// SPDX-License-Identifier: Apache-2.0
// Turns bytes into callbacks: one thread of a fuzzed process, or all of them in one.
//
// With several threads each keeps to what NCCL promises: a launch is announced by one thread, the
// parts of a communicator are reported by one thread, init and finalize of a communicator come when
// no user's call is under way on it. All else may happen at once. A player that is alone also
// forges handles, leaves launches open, and checks after each callback that what had no effect was
// counted as a loss.
#pragma once

#include <array>
#include <cstdint>

#include "plugin/fuzz/callback_fuzz_bytes.h"
#include "plugin/fuzz/callback_fuzz_session.h"

namespace nccl_exporter::plugin::fuzz {

// Value of a handle's place before the callback: the plugin never stores it.
inline constexpr uintptr_t kUnwritten = 0x5a5a5a5a5a5a5a5a;

struct Role {
  uint32_t users = 1;      // threads that call
  uint32_t reporters = 1;  // threads that report parts
  bool is_user = true;
  bool is_reporter = true;
  uint32_t index = 0;  // among those of its kind

  bool IsAlone() const { return is_user && is_reporter; }
};

class Player {
 public:
  Player(Session& session, const Bytes& bytes, const Role& role)
      : session_(session), bytes_(bytes), role_(role) {}

  bool IsOver() const { return bytes_.IsOver(); }
  // One move: from one callback to some dozens.
  void Step();
  uint64_t callbacks() const { return callbacks_; }

 private:
  // Handles of one kind that this player was given, the latest first to be overwritten.
  struct Memory {
    std::array<void*, 32> handles{};
    uint32_t count = 0;

    void Keep(void* handle) { handles[count++ % handles.size()] = handle; }
    void* Pick(uint32_t choice) const { return handles[choice % handles.size()]; }
  };

  void StepAsUser();
  void StepAsReporter();
  void OpenOrClose(uint32_t berth);
  void PlayLaunch(Member& member, bool is_owner);
  void PlayCapture(Member& member, bool is_nested);
  void PlayCopy(Member& member);
  void PlayStray();
  void PlayNull();
  void StrayEvent(void* context, uint64_t type);
  Member::Started& ChooseOperation(Member& member);
  void Begin(int version, void* proxy);
  void ReportInOrder(Member& member);
  void StartParts(Member& member);
  void PlayNetwork(Member& member);
  void PlayStep(Member& member, void* proxy, int step, bool is_send, bool is_sound);
  void StopPart();

  void PlayTasks(Member& member, void* call_group, void* launch, bool is_owner);
  void* StartCall(Member& member, void* call_group, bool is_p2p, bool is_captured);
  void* StartTask(Member& member, void* call, void* launch, bool is_p2p, bool is_captured);
  void* Start(int version, void* context, const Event& event);
  // This plugin's part of a handle, which is that of a pair if there is a chained plugin.
  static void* OursOf(void* handle);
  void* StartOn(Member& member, int version, const Event& event, bool* is_counted);
  void Stop(int version, void* handle);
  void Record(int version, void* handle, uint64_t gpu_ns);

  uint32_t ChooseBerth(bool mine);
  int AnyVersion();
  int ChooseVersion(const Member& member);
  uint64_t ChooseCount();
  uint64_t ChooseGpuTime();
  void* ChooseGarbage(const Memory& memory);
  void ChooseTask(Event& event, bool is_p2p);
  void ChooseTask(const Member& member, Event& event, bool is_p2p);
  void ExpectLoss(uint64_t losses_before, const char* what) const;

  Session& session_;
  Bytes bytes_;
  const Role role_;
  uint64_t callbacks_ = 0;
  uint64_t sequence_ = 0;
  Memory groups_, calls_, captured_calls_, launches_, tasks_, parts_, network_;
  // Ids of the members that channels in parts_ belong to. 0: a proxy operation, of which nothing is
  // lost if it had no steps.
  std::array<uint64_t, 32> owners_{};
};

}  // namespace nccl_exporter::plugin::fuzz
