// SPDX-License-Identifier: Apache-2.0
// Compares our declarations with the offsets that NCCL's releases use (measured on the original
// headers, x86-64).
#include "plugin/nccl/profiler_abi.h"

#include <gtest/gtest.h>

namespace nccl_exporter::abi {
namespace {

#pragma GCC diagnostic ignored "-Winvalid-offsetof"  // fields inherited from the version before

#define AT(type, member, offset) \
  static_assert(offsetof(type, member) == (offset), #type "." #member)

AT(DescriptorV1, type, 0);
AT(DescriptorV1, parentObj, 8);
AT(DescriptorV1, rank, 16);
AT(DescriptorV1, coll.name, 24);
AT(DescriptorV1, coll.commHash, 32);
AT(DescriptorV1, coll.seqNumber, 40);
AT(DescriptorV1, coll.func, 48);
AT(DescriptorV1, coll.count, 72);
AT(DescriptorV1, coll.root, 80);
AT(DescriptorV1, coll.datatype, 84);
AT(DescriptorV1, coll.op, 88);
AT(DescriptorV1, coll.trafficBytes, 96);
AT(DescriptorV1, coll.nMaxChannels, 104);
AT(DescriptorV1, coll.proto, 107);
AT(DescriptorV1, coll.isNvls, 112);
AT(DescriptorV1, p2p.commHash, 32);
AT(DescriptorV1, p2p.func, 40);
AT(DescriptorV1, p2p.datatype, 56);
AT(DescriptorV1, p2p.count, 64);
AT(DescriptorV1, p2p.peer, 72);
AT(DescriptorV1, proxyOp.pid, 24);
AT(DescriptorV1, proxyOp.channelId, 28);
AT(DescriptorV1, proxyOp.peer, 32);
AT(DescriptorV1, proxyOp.nSteps, 36);
AT(DescriptorV1, proxyOp.chunkSize, 40);
AT(DescriptorV1, proxyOp.isSend, 44);

AT(DescriptorV2, coll.func, 48);
AT(DescriptorV2, coll.count, 72);
AT(DescriptorV2, coll.datatype, 88);
AT(DescriptorV2, coll.trafficBytes, 96);
AT(DescriptorV2, coll.nMaxChannels, 104);
AT(DescriptorV2, coll.proto, 120);
AT(DescriptorV2, p2p.func, 40);
AT(DescriptorV2, p2p.datatype, 56);
AT(DescriptorV2, p2p.count, 64);

AT(DescriptorV3, coll.datatype, 88);
AT(DescriptorV3, coll.nMaxChannels, 96);
AT(DescriptorV3, coll.algo, 104);
AT(DescriptorV3, coll.proto, 112);
AT(DescriptorV3, kernelCh.channelId, 24);

AT(DescriptorV4, coll.seqNumber, 24);
AT(DescriptorV4, coll.func, 32);
AT(DescriptorV4, coll.count, 56);
AT(DescriptorV4, coll.root, 64);
AT(DescriptorV4, coll.datatype, 72);
AT(DescriptorV4, coll.nChannels, 80);
AT(DescriptorV4, coll.algo, 88);
AT(DescriptorV4, coll.proto, 96);
AT(DescriptorV4, p2p.func, 24);
AT(DescriptorV4, p2p.datatype, 40);
AT(DescriptorV4, p2p.count, 48);
AT(DescriptorV4, p2p.peer, 56);
AT(DescriptorV4, p2p.nChannels, 60);
AT(DescriptorV4, kernelCh.pTimer, 32);

AT(DescriptorV5, type, 0);
AT(DescriptorV5, groupApi.graphCaptured, 24);
AT(DescriptorV5, groupApi.groupDepth, 28);
AT(DescriptorV5, collApi.func, 24);
AT(DescriptorV5, collApi.count, 32);
AT(DescriptorV5, collApi.datatype, 40);
AT(DescriptorV5, collApi.root, 48);
AT(DescriptorV5, collApi.stream, 56);
AT(DescriptorV5, collApi.graphCaptured, 64);
AT(DescriptorV5, p2pApi.func, 24);
AT(DescriptorV5, p2pApi.stream, 48);
AT(DescriptorV5, p2pApi.graphCaptured, 56);
AT(DescriptorV5, coll.seqNumber, 24);
AT(DescriptorV5, coll.nChannels, 80);
AT(DescriptorV5, coll.parentGroup, 104);
AT(DescriptorV5, p2p.nChannels, 60);
AT(DescriptorV5, p2p.parentGroup, 64);
AT(DescriptorV5, proxyOp.pid, 24);

AT(DescriptorV6, ceColl.seqNumber, 24);
AT(DescriptorV6, ceColl.func, 32);
AT(DescriptorV6, ceColl.count, 56);
AT(DescriptorV6, ceColl.root, 64);
AT(DescriptorV6, ceColl.datatype, 72);

AT(DescriptorV7, coll.parentGroup, 104);
AT(DescriptorV7, coll.kernelVariant, 112);
AT(DescriptorV7, coll.isSymColl, 120);
AT(DescriptorV7, coll.userTag, 128);
AT(DescriptorV7, p2p.userTag, 72);
AT(DescriptorV7, kernelCh.channelId, 24);
AT(DescriptorV7, kernelCh.pTimer, 32);

// NCCL's descriptors end in events that we never ask for; ours may be shorter, never longer.
static_assert(sizeof(DescriptorV1) == 120 && sizeof(DescriptorV2) == 128 &&
              sizeof(DescriptorV3) == 120);
static_assert(sizeof(DescriptorV4) == 104 && sizeof(DescriptorV5) == 112 &&
              sizeof(DescriptorV6) == 112);
static_assert(sizeof(DescriptorV7) == 136);

static_assert(offsetof(ProfilerV1<DescriptorV1>, startEvent) == 16);
static_assert(offsetof(ProfilerV4<DescriptorV4>, recordEventState) == 32);
static_assert(offsetof(ProfilerV5<DescriptorV7>, finalize) == 40);

TEST(ProfilerAbi, IsCheckedWhenThisFileIsCompiled) { SUCCEED(); }

}  // namespace
}  // namespace nccl_exporter::abi
