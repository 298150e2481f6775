// SPDX-License-Identifier: Apache-2.0
// An event descriptor as raw bytes: fields are put at their offsets, which one table gives for
// every API version.
//
// The simulator has no structs of NCCL's profiler interface on purpose: those of the plugin are
// checked by being read here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "simulator/release/profiler_event.h"

namespace nccl_exporter::sim {

// A field of some event. Fields whose type changed between versions have a row for each type.
enum class Field : uint8_t {
  kType8,
  kType64,
  kParent,
  kRank,
  kCollName,
  kCollHash,
  kCollSequence,
  kCollFuncEnum,
  kCollFunc,
  kCollSendBuffer,
  kCollRecvBuffer,
  kCollCount,
  kCollRoot,
  kCollDatatypeEnum,
  kCollDatatype,
  kCollTrafficBytes,
  kCollChannels,
  kCollWarps,
  kCollAlgorithmEnum,
  kCollProtocolEnum,
  kCollIsCollNet,
  kCollAlgorithm,
  kCollProtocol,
  kCollParentGroup,
  kCollIsSymmetric,
  kP2pName,
  kP2pHash,
  kP2pFuncEnum,
  kP2pFunc,
  kP2pBuffer,
  kP2pDatatypeEnum,
  kP2pDatatype,
  kP2pCount,
  kP2pPeer,
  kP2pChannels,
  kP2pParentGroup,
  kProxyOpPid,
  kProxyOpChannel,
  kProxyOpPeer,
  kProxyOpSteps,
  kProxyOpChunk,
  kProxyOpIsSend,
  kProxyStepStep,
  kKernelChChannel,
  kKernelChTimer,
  kGroupApiCaptured,
  kGroupApiDepth,
  kCollApiFunc,
  kCollApiCount,
  kCollApiDatatype,
  kCollApiRoot,
  kCollApiStream,
  kCollApiCaptured,
  kP2pApiFunc,
  kP2pApiCount,
  kP2pApiDatatype,
  kP2pApiStream,
  kP2pApiCaptured,
  kKernelLaunchStream,
  kCount
};

class Descriptor {
 public:
  Descriptor(int api_version, EventBit type, const void* parent, int rank);

  // Fields that the version lacks are left out.
  Descriptor& Put(Field field, uint64_t value);
  Descriptor& PutSigned(Field field, int64_t value) {
    return Put(field, static_cast<uint64_t>(value));
  }
  Descriptor& PutPointer(Field field, const void* value) {
    return Put(field, reinterpret_cast<uintptr_t>(value));
  }
  // `value` must be a literal: a plugin may keep the pointer.
  Descriptor& PutText(Field field, std::string_view value) {
    return PutPointer(field, value.data());
  }

  void* data() { return bytes_.data(); }
  size_t size() const;

  static constexpr size_t kMostBytes = 136;

 private:
  int api_version_;
  alignas(8) std::array<std::byte, kMostBytes> bytes_{};
};

// State arguments: one word, whatever it means.
class StateArguments {
 public:
  explicit StateArguments(uint64_t first, uint64_t second = 0) : words_{first, second} {}
  void* data() { return words_.data(); }

 private:
  std::array<uint64_t, 2> words_;
};

}  // namespace nccl_exporter::sim
