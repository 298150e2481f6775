// SPDX-License-Identifier: Apache-2.0
// Handle that the plugin gives NCCL in place of a pointer: a number that is decoded and checked
// before any memory is touched. Any thread.
//
// NCCL hands back handles after their stop, handles of finalized communicators, contexts and
// parents of other processes (PXN), and now and then uninitialised bits. A handle is
//
//   63        48 47  44 43          32 31                6 5       0
//   +-----------+------+--------------+-------------------+---------+
//   | salt      | kind | slot         | ticket            | channel |
//   +-----------+------+--------------+-------------------+---------+
//
// salt: random per process, never 0, so that no handle is NULL or another process's. slot: place of
// the communicator. ticket: low bits of the number of the operation or launch, so that a handle
// dies with what it names. A call's handle holds its time (kCall) or the number of the thread that
// made it (kCapturedCall) in place of the rest; the highest bit there says whether NCCL reports the
// steps of its network operations. In place of the channel the handle of a task (kOperation,
// kUnfollowed) says whether its network operations are timed.
#pragma once

#include <cstdint>

namespace nccl_exporter::plugin {

enum class HandleKind : uint8_t {
  kInvalid = 0,
  kContext,         // a communicator; slot and generation (in place of the ticket)
  kGroupApi,        // one user-level group of calls
  kCall,            // one API call; 43 bits of time
  kCapturedCall,    // one API call under graph capture; number of its thread
  kGroup,           // one launch
  kOperation,       // one collective or point-to-point task
  kKernelChannel,   // one channel of an operation
  kProxyOperation,  // one proxy operation of an operation
  kUnfollowed,      // something that was counted and is not followed further
  // 32 bits of NetworkTimer in place of ticket and channel.
  kTimedProxyOperation,  // as kProxyOperation, and its steps are timed
  kNetworkOperation,     // a proxy operation whose steps are timed, and no more
  kNetworkStep,          // one of its steps
};

struct Handle {
  static constexpr int kTicketBits = 26;
  static constexpr uint64_t kTicketMask = (uint64_t{1} << kTicketBits) - 1;
  static constexpr uint32_t kMaxSlots = 1 << 12;
  static constexpr uint32_t kMaxChannels = 1 << 6;  // NCCL's MAXCHANNELS
  static constexpr uint64_t kPayloadMask = (uint64_t{1} << 44) - 1;
  // Flag of a task: its network operations are timed.
  static constexpr uint64_t kNetworkFlag = 1;
  // Flag of a call: NCCL had the bit of network steps in its mask.
  static constexpr uint64_t kHasStepsFlag = uint64_t{1} << 43;

  uint64_t bits = 0;

  static Handle From(const void* pointer) { return {reinterpret_cast<uintptr_t>(pointer)}; }
  static Handle Of(uint16_t salt, HandleKind kind, uint64_t payload) {
    return {uint64_t{salt} << 48 | uint64_t{static_cast<uint8_t>(kind)} << 44 |
            (payload & kPayloadMask)};
  }
  static Handle Of(uint16_t salt, HandleKind kind, uint32_t slot, uint64_t ticket,
                   uint32_t channel = 0) {
    return Of(salt, kind, uint64_t{slot} << 32 | (ticket & kTicketMask) << 6 | channel);
  }

  void* Pointer() const { return reinterpret_cast<void*>(bits); }
  uint16_t Salt() const { return static_cast<uint16_t>(bits >> 48); }
  HandleKind Kind() const { return static_cast<HandleKind>(bits >> 44 & 0xf); }
  uint32_t Slot() const { return static_cast<uint32_t>(bits >> 32 & (kMaxSlots - 1)); }
  uint64_t Ticket() const { return bits >> 6 & kTicketMask; }
  uint32_t Channel() const { return static_cast<uint32_t>(bits & (kMaxChannels - 1)); }
  uint64_t Payload() const { return bits & kPayloadMask; }

  // For handles of calls.
  Handle WithSteps(bool has_steps) const { return {bits | uint64_t{has_steps} * kHasStepsFlag}; }
  bool HasSteps() const { return (bits & kHasStepsFlag) != 0; }
  uint64_t CallPayload() const { return bits & (kHasStepsFlag - 1); }

  // Another kind of the same slot.
  Handle With(HandleKind kind, uint64_t ticket) const {
    constexpr uint64_t kSaltAndSlot = ~uint64_t{0} << 48 | uint64_t{kMaxSlots - 1} << 32;
    return {(bits & kSaltAndSlot) | uint64_t{static_cast<uint8_t>(kind)} << 44 |
            (ticket & kTicketMask) << 6};
  }
  // For handles of tasks.
  Handle WithNetworkFlag(bool times_network) const {
    return {bits | uint64_t{times_network} * kNetworkFlag};
  }
  bool NetworkFlag() const { return (bits & kNetworkFlag) != 0; }
  // One channel of an operation, whose handle this is.
  Handle OfChannel(uint32_t channel) const {
    constexpr uint64_t kChange = static_cast<uint64_t>(HandleKind::kOperation) ^
                                 static_cast<uint64_t>(HandleKind::kKernelChannel);
    return {((bits ^ kChange << 44) & ~uint64_t{kMaxChannels - 1}) | channel};
  }
  // Another kind of the same slot, with 32 bits in place of ticket and channel.
  Handle WithNetworkBits(HandleKind kind, uint32_t network_bits) const {
    return {With(kind, 0).bits | network_bits};
  }
  uint32_t NetworkBits() const { return static_cast<uint32_t>(bits); }
  // Another kind of the same slot, ticket and channel.
  Handle As(HandleKind kind) const { return Of(Salt(), kind, Payload()); }
};

}  // namespace nccl_exporter::plugin
