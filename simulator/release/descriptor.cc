// SPDX-License-Identifier: Apache-2.0
#include "simulator/release/descriptor.h"

#include <cassert>
#include <cstring>

#include "proto/code_table.h"
#include "simulator/release/release.h"

namespace nccl_exporter::sim {
namespace {

constexpr int16_t kNo = -1;  // the version has no such field

struct Row {
  Field id;
  uint8_t bytes;
  std::array<int16_t, kApiVersions> offset;  // by API version less one
};

constexpr std::array<size_t, kApiVersions> kDescriptorBytes{120, 128, 120, 104, 112, 112, 136};

constexpr std::array<Row, kCountOf<Field>> kRows{{
    {Field::kType8, 1, {0, 0, 0, 0, kNo, kNo, kNo}},
    {Field::kType64, 8, {kNo, kNo, kNo, kNo, 0, 0, 0}},
    {Field::kParent, 8, {8, 8, 8, 8, 8, 8, 8}},
    {Field::kRank, 4, {16, 16, 16, 16, 16, 16, 16}},
    {Field::kCollName, 8, {24, 24, 24, kNo, kNo, kNo, kNo}},
    {Field::kCollHash, 8, {32, 32, 32, kNo, kNo, kNo, kNo}},
    {Field::kCollSequence, 8, {40, 40, 40, 24, 24, 24, 24}},
    {Field::kCollFuncEnum, 1, {48, kNo, kNo, kNo, kNo, kNo, kNo}},
    {Field::kCollFunc, 8, {kNo, 48, 48, 32, 32, 32, 32}},
    {Field::kCollSendBuffer, 8, {56, 56, 56, 40, 40, 40, 40}},
    {Field::kCollRecvBuffer, 8, {64, 64, 64, 48, 48, 48, 48}},
    {Field::kCollCount, 8, {72, 72, 72, 56, 56, 56, 56}},
    {Field::kCollRoot, 4, {80, 80, 80, 64, 64, 64, 64}},
    {Field::kCollDatatypeEnum, 1, {84, kNo, kNo, kNo, kNo, kNo, kNo}},
    {Field::kCollDatatype, 8, {kNo, 88, 88, 72, 72, 72, 72}},
    {Field::kCollTrafficBytes, 8, {96, 96, kNo, kNo, kNo, kNo, kNo}},
    {Field::kCollChannels, 1, {104, 104, 96, 80, 80, 80, 80}},
    {Field::kCollWarps, 1, {105, 105, 97, 81, 81, 81, 81}},
    {Field::kCollAlgorithmEnum, 1, {106, kNo, kNo, kNo, kNo, kNo, kNo}},
    {Field::kCollProtocolEnum, 1, {107, kNo, kNo, kNo, kNo, kNo, kNo}},
    {Field::kCollIsCollNet, 4, {108, kNo, kNo, kNo, kNo, kNo, kNo}},
    {Field::kCollAlgorithm, 8, {kNo, 112, 104, 88, 88, 88, 88}},
    {Field::kCollProtocol, 8, {kNo, 120, 112, 96, 96, 96, 96}},
    {Field::kCollParentGroup, 8, {kNo, kNo, kNo, kNo, 104, 104, 104}},
    {Field::kCollIsSymmetric, 1, {kNo, kNo, kNo, kNo, kNo, kNo, 120}},
    {Field::kP2pName, 8, {24, 24, 24, kNo, kNo, kNo, kNo}},
    {Field::kP2pHash, 8, {32, 32, 32, kNo, kNo, kNo, kNo}},
    {Field::kP2pFuncEnum, 1, {40, kNo, kNo, kNo, kNo, kNo, kNo}},
    {Field::kP2pFunc, 8, {kNo, 40, 40, 24, 24, 24, 24}},
    {Field::kP2pBuffer, 8, {48, 48, 48, 32, 32, 32, 32}},
    {Field::kP2pDatatypeEnum, 1, {56, kNo, kNo, kNo, kNo, kNo, kNo}},
    {Field::kP2pDatatype, 8, {kNo, 56, 56, 40, 40, 40, 40}},
    {Field::kP2pCount, 8, {64, 64, 64, 48, 48, 48, 48}},
    {Field::kP2pPeer, 4, {72, 72, 72, 56, 56, 56, 56}},
    {Field::kP2pChannels, 1, {kNo, kNo, kNo, 60, 60, 60, 60}},
    {Field::kP2pParentGroup, 8, {kNo, kNo, kNo, kNo, 64, 64, 64}},
    {Field::kProxyOpPid, 4, {24, 24, 24, 24, 24, 24, 24}},
    {Field::kProxyOpChannel, 1, {28, 28, 28, 28, 28, 28, 28}},
    {Field::kProxyOpPeer, 4, {32, 32, 32, 32, 32, 32, 32}},
    {Field::kProxyOpSteps, 4, {36, 36, 36, 36, 36, 36, 36}},
    {Field::kProxyOpChunk, 4, {40, 40, 40, 40, 40, 40, 40}},
    {Field::kProxyOpIsSend, 4, {44, 44, 44, 44, 44, 44, 44}},
    {Field::kProxyStepStep, 4, {24, 24, 24, 24, 24, 24, 24}},
    {Field::kKernelChChannel, 1, {kNo, kNo, 24, 24, 24, 24, 24}},
    {Field::kKernelChTimer, 8, {kNo, kNo, kNo, 32, 32, 32, 32}},
    {Field::kGroupApiCaptured, 1, {kNo, kNo, kNo, kNo, 24, 24, 24}},
    {Field::kGroupApiDepth, 4, {kNo, kNo, kNo, kNo, 28, 28, 28}},
    {Field::kCollApiFunc, 8, {kNo, kNo, kNo, kNo, 24, 24, 24}},
    {Field::kCollApiCount, 8, {kNo, kNo, kNo, kNo, 32, 32, 32}},
    {Field::kCollApiDatatype, 8, {kNo, kNo, kNo, kNo, 40, 40, 40}},
    {Field::kCollApiRoot, 4, {kNo, kNo, kNo, kNo, 48, 48, 48}},
    {Field::kCollApiStream, 8, {kNo, kNo, kNo, kNo, 56, 56, 56}},
    {Field::kCollApiCaptured, 1, {kNo, kNo, kNo, kNo, 64, 64, 64}},
    {Field::kP2pApiFunc, 8, {kNo, kNo, kNo, kNo, 24, 24, 24}},
    {Field::kP2pApiCount, 8, {kNo, kNo, kNo, kNo, 32, 32, 32}},
    {Field::kP2pApiDatatype, 8, {kNo, kNo, kNo, kNo, 40, 40, 40}},
    {Field::kP2pApiStream, 8, {kNo, kNo, kNo, kNo, 48, 48, 48}},
    {Field::kP2pApiCaptured, 1, {kNo, kNo, kNo, kNo, 56, 56, 56}},
    {Field::kKernelLaunchStream, 8, {kNo, kNo, kNo, kNo, 24, 24, 24}},
}};
static_assert(IsInOrder(kRows));

}  // namespace

Descriptor::Descriptor(int api_version, EventBit type, const void* parent, int rank)
    : api_version_(api_version) {
  // Up to v4 the type is one byte, and what follows it is whatever was there: a plugin that reads
  // more of it must notice.
  constexpr int kPadding = 0x5a;
  if (api_version <= 4) std::memset(bytes_.data(), kPadding, 8);
  Put(Field::kType8, type);
  Put(Field::kType64, type);
  PutPointer(Field::kParent, parent);
  PutSigned(Field::kRank, rank);
}

Descriptor& Descriptor::Put(Field field, uint64_t value) {
  const Row& row = RowIn(kRows, field);
  const int16_t offset = row.offset[static_cast<size_t>(api_version_ - 1)];
  if (offset == kNo) return *this;
  assert(static_cast<size_t>(offset) + row.bytes <= size());
  std::memcpy(bytes_.data() + offset, &value, row.bytes);  // little endian: the low bytes
  return *this;
}

size_t Descriptor::size() const { return kDescriptorBytes[static_cast<size_t>(api_version_ - 1)]; }

}  // namespace nccl_exporter::sim
