// SPDX-License-Identifier: Apache-2.0
#include "simulator/nccl/task.h"

#include <algorithm>
#include <array>

#include "simulator/workload/hash_random.h"
#include "simulator/workload/rank_calls.h"

namespace nccl_exporter::sim {
namespace {

constexpr uint64_t kBytesPerChannel = 131072;  // a channel is added for each, up to the most
constexpr uint64_t kLeastCollNetBytes = 4194304;
constexpr uint64_t kP2pPartGranularity = 4096;  // messages are cut into parts at multiples of it
constexpr int kWarps = 16;

struct Algorithm {
  std::string_view name;
  std::string_view protocol;
  uint8_t number;
  uint8_t protocol_number;
};
constexpr Algorithm kTree{"TREE", "LL", 0, 0};
constexpr Algorithm kRingLowLatency{"RING", "LL128", 1, 1};
constexpr Algorithm kRing{"RING", "SIMPLE", 1, 2};
constexpr Algorithm kCollNetDirect{"COLLNET_DIRECT", "SIMPLE", 2, 2};

bool UsesCollNet(const RankCall& call, const LiveCommunicator& communicator,
                 const PlayOptions& options) {
  return options.uses_collnet && communicator.shape.nodes > 1 &&
         call.function == Function::kAllReduce &&
         MessageBytesOf(call, communicator.shape.ranks()) >= kLeastCollNetBytes;
}

const Algorithm& AlgorithmOf(const Task& task) {
  if (task.uses_collnet) return kCollNetDirect;
  if (task.message_bytes <= 65536 && task.call.function == Function::kAllReduce) return kTree;
  return task.message_bytes <= 1048576 ? kRingLowLatency : kRing;
}

// Parts of a message that are not empty, when it is cut into `parts` at the granularity.
int PartsWithData(uint64_t bytes, int parts) {
  const uint64_t share = (bytes + static_cast<uint64_t>(parts) - 1) / static_cast<uint64_t>(parts);
  const uint64_t part =
      std::max((share + kP2pPartGranularity - 1) / kP2pPartGranularity, uint64_t{1}) *
      kP2pPartGranularity;
  return static_cast<int>(std::max((bytes + part - 1) / part, uint64_t{1}));
}

int ChannelsFor(uint64_t bytes, int most) {
  return static_cast<int>(
      std::clamp<uint64_t>(bytes / kBytesPerChannel, 1, static_cast<uint64_t>(most)));
}

Channels ChannelsOf(const RankCall& call, const LiveCommunicator& communicator,
                    const PlayOptions& options) {
  const Release& release = options.release;
  const int ranks = communicator.shape.ranks();
  const uint64_t bytes = MessageBytesOf(call, ranks);
  Channels channels;
  // Consecutive operations are spread over the channels, so that the lowest is not always 0.
  channels.low = static_cast<int>(
      call.peer >= 0 ? HashRandom(communicator.id, DistanceOf(call, communicator.rank, ranks)) % 4
                     : HashRandom(communicator.id, bytes, call.count, call.peer) % 4);
  channels.used = ChannelsFor(bytes, options.most_channels);
  channels.announced = channels.played = channels.used;
  if (call.peer >= 0) {
    const int parts =
        release.TimesEveryPart() ? channels.used : PartsWithData(bytes, channels.used);
    channels.played = call.peer == communicator.rank && !release.TimesEveryPart() ? 0 : parts;
  } else if (UsesCollNet(call, communicator, options) && release.HidesCollNetChannels()) {
    channels.announced = 0;
  } else if (release.AnnouncesMaximumChannels()) {
    channels.announced = options.most_channels;
  }
  return channels;
}

// The text for a datatype: NCCL's own table lacks ncclUint8.
std::string_view DatatypeText(std::string_view datatype) {
  return datatype == "ncclUint8" ? "Unknown" : datatype;
}

// Where v1 has enums; its order of datatypes is that of ncclDataType_t, and Send and Recv follow
// SendRecv, which is 5.
uint64_t FunctionEnum(Function function) {
  if (function == Function::kSend) return 6;
  return function == Function::kRecv ? 7 : static_cast<uint64_t>(function);
}
uint64_t DatatypeEnum(std::string_view name) {
  const auto found = std::find_if(kDatatypes.begin(), kDatatypes.end(),
                                  [&](const auto& d) { return d.name == name; });
  return static_cast<uint64_t>(found - kDatatypes.begin());
}

// NCCL's estimate in v1 and v2; not the size of the message.
uint64_t TrafficBytes(const Task& task, int ranks, const Algorithm& algorithm) {
  uint64_t bytes = task.call.count * ElementBytes(task.call.datatype);
  if (task.call.function == Function::kAllReduce) bytes *= 2;
  if (task.call.function == Function::kAllGather ||
      task.call.function == Function::kReduceScatter) {
    bytes *= static_cast<uint64_t>(ranks);
  }
  return algorithm.protocol == "LL" ? 4 * bytes : bytes;
}

const void* BufferOf(const RankCall& call, uintptr_t place) {
  constexpr uintptr_t kDeviceMemory = 0x7f0000000000;
  return reinterpret_cast<const void*>(kDeviceMemory + (place << 32) +
                                       (static_cast<uintptr_t>(call.communicator) << 24));
}

Descriptor DescribeP2p(const Task& task, const LiveCommunicator& communicator,
                       const Release& release, void* group_handle) {
  Descriptor descriptor(release.api_version(), kP2p,
                        release.HasApiEvents() ? task.parent : group_handle, communicator.rank);
  const std::string_view function = TraitsOf(task.call.function).name;
  descriptor.Put(Field::kP2pHash, communicator.id)
      .Put(Field::kP2pFuncEnum, FunctionEnum(task.call.function))
      .PutText(Field::kP2pFunc, function)
      .PutPointer(Field::kP2pBuffer, BufferOf(task.call, 1))
      .Put(Field::kP2pDatatypeEnum, DatatypeEnum(task.call.datatype))
      .PutText(Field::kP2pDatatype, DatatypeText(task.call.datatype))
      .Put(Field::kP2pCount, task.call.count)
      .PutSigned(Field::kP2pPeer, task.call.peer)
      .PutSigned(Field::kP2pChannels, task.channels.announced)
      .PutPointer(Field::kP2pParentGroup, group_handle);
  return descriptor;
}

Descriptor DescribeColl(const Task& task, const LiveCommunicator& communicator,
                        const Release& release, void* group_handle, uint64_t sequence) {
  // AllGather and Broadcast count bytes here, whatever the user's datatype.
  const bool is_in_bytes =
      task.call.function == Function::kAllGather || task.call.function == Function::kBroadcast;
  const std::string_view datatype = is_in_bytes ? "ncclInt8" : task.call.datatype;
  const uint64_t count =
      is_in_bytes ? task.call.count * ElementBytes(task.call.datatype) : task.call.count;
  const Algorithm& algorithm = AlgorithmOf(task);
  Descriptor descriptor(release.api_version(), kColl,
                        release.HasApiEvents() ? task.parent : group_handle, communicator.rank);
  descriptor.Put(Field::kCollHash, communicator.id)
      .Put(Field::kCollSequence, sequence)
      .Put(Field::kCollFuncEnum, FunctionEnum(task.call.function))
      .PutText(Field::kCollFunc, TraitsOf(task.call.function).name)
      .PutPointer(Field::kCollSendBuffer, BufferOf(task.call, 1))
      .PutPointer(Field::kCollRecvBuffer, BufferOf(task.call, 2))
      .Put(Field::kCollCount, count)
      .PutSigned(Field::kCollRoot, task.call.root)
      .Put(Field::kCollDatatypeEnum, DatatypeEnum(datatype))
      .PutText(Field::kCollDatatype, DatatypeText(datatype))
      .Put(Field::kCollTrafficBytes, TrafficBytes(task, communicator.shape.ranks(), algorithm))
      .PutSigned(Field::kCollChannels, task.channels.announced)
      .PutSigned(Field::kCollWarps, kWarps)
      .Put(Field::kCollAlgorithmEnum, algorithm.number)
      .Put(Field::kCollProtocolEnum, algorithm.protocol_number)
      .Put(Field::kCollIsCollNet, task.uses_collnet ? 1 : 0)
      .PutText(Field::kCollAlgorithm, algorithm.name)
      .PutText(Field::kCollProtocol, algorithm.protocol)
      .PutPointer(Field::kCollParentGroup, group_handle)
      .Put(Field::kCollIsSymmetric, task.is_symmetric ? 1 : 0);
  return descriptor;
}

}  // namespace

Task MakeTask(const RankCall& call, const LiveCommunicator& communicator,
              const PlayOptions& options) {
  const bool tells_ranks = options.release.DescribesCommunicatorAtInit();
  Task task{.call = call,
            .message_bytes = MessageBytesOf(call, tells_ranks ? communicator.shape.ranks() : 0)};
  task.channels = ChannelsOf(call, communicator, options);
  task.uses_collnet = UsesCollNet(call, communicator, options);
  const bool is_to_self = call.peer == communicator.rank;
  task.crosses_network =
      !is_to_self && (options.network == Network::kAll ||
                      (options.network == Network::kBetweenNodes && communicator.shape.nodes > 1));
  return task;
}

bool IsSymmetric(const std::vector<RankCall>& calls, const LiveCommunicator& communicator,
                 const PlayOptions& options) {
  if (!options.uses_symmetric || !options.release.HasSymmetricKernels() ||
      communicator.shape.nodes > 1)
    return false;
  return std::all_of(calls.begin(), calls.end(), [&](const RankCall& call) {
    return call.function == calls.front().function &&
           (call.function == Function::kAllReduce || call.function == Function::kAllGather ||
            call.function == Function::kReduceScatter);
  });
}

void MakeSymmetric(Task& task, size_t place, bool is_captured) {
  task.is_symmetric = true;
  task.crosses_network = false;
  task.channels.low = 0;
  if (place > 0) task.channels.used = task.channels.announced = 0;
  task.channels.played = is_captured ? 0 : task.channels.used;
  task.is_carried = place > 0 && !is_captured;
}

int DistanceOf(const RankCall& call, int rank, int ranks) {
  const int distance = call.function == Function::kSend ? call.peer - rank : rank - call.peer;
  return (distance + ranks) % ranks;
}

bool IsAnnounced(const Task& task, const Release& release, const void* group_handle) {
  uint32_t bits = (task.is_p2p() ? kP2p : kColl) | kProxyOp | kProxyStep | kKernelCh | kNetPlugin;
  if (release.NeedsGroupHandle() && task.is_p2p()) bits = kP2p | kProxyOp | kProxyStep | kKernelCh;
  if (release.ReadsMaskPerPlan())
    bits = kColl | kProxyOp | kProxyStep;  // P2p alone gives nothing there
  return (task.mask & bits) != 0 && (group_handle != nullptr || !release.NeedsGroupHandle());
}

Descriptor DescribeTask(const Task& task, const LiveCommunicator& communicator,
                        const Release& release, void* group_handle, uint64_t sequence) {
  return task.is_p2p() ? DescribeP2p(task, communicator, release, group_handle)
                       : DescribeColl(task, communicator, release, group_handle, sequence);
}

}  // namespace nccl_exporter::sim
