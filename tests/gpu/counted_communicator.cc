// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/counted_communicator.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tests/gpu/id_file.h"
#include "tests/gpu/require.h"

namespace nccl_exporter {
namespace {

Announcements OwnAnnouncements() {
  int version = 0;
  Require(ncclGetVersion(&version), "ncclGetVersion");
  const char* batches_broadcasts = getenv("NCCL_ALLGATHERV_ENABLE");
  return AnnouncementsOf(version,
                         batches_broadcasts != nullptr && strcmp(batches_broadcasts, "0") == 0);
}

ncclConfig_t Named(const std::string& name) {
  ncclConfig_t config;
  config.commName = name.c_str();
  return config;
}

uint32_t BytesOf(ncclDataType_t datatype) {
  return kDatatypes[static_cast<size_t>(datatype)].bytes;
}

}  // namespace

CountedCommunicator::CountedCommunicator(Gpu* gpu, ncclComm_t communicator, std::string name,
                                         int rank, int ranks)
    : gpu_(gpu),
      name_(std::move(name)),
      rank_(rank),
      ranks_(ranks),
      truth_(OwnAnnouncements(), static_cast<uint32_t>(ranks)),
      communicator_(communicator) {}

CountedCommunicator::CountedCommunicator(Gpu* gpu, const Bootstrap& bootstrap)
    : CountedCommunicator(gpu, nullptr, bootstrap.name, bootstrap.rank, bootstrap.ranks) {
  const ncclUniqueId id = MeetBy(bootstrap.id_path, rank_);
  ncclConfig_t config = Named(name_);
  Require(ncclCommInitRankConfig(&communicator_, ranks_, id, rank_, &config),
          "ncclCommInitRankConfig");
}

CountedCommunicator::~CountedCommunicator() {
  gpu_->Synchronize();
  Require(ncclCommDestroy(communicator_), "ncclCommDestroy");
}

std::unique_ptr<CountedCommunicator> CountedCommunicator::Split(int color, int key,
                                                                const std::string& name) {
  std::unique_ptr<CountedCommunicator> part(new CountedCommunicator(gpu_, nullptr, name, 0, 1));
  ncclConfig_t config = Named(part->name_);
  Require(ncclCommSplit(communicator_, color, key, &part->communicator_, &config), "ncclCommSplit");
  Require(ncclCommCount(part->communicator_, &part->ranks_), "ncclCommCount");
  Require(ncclCommUserRank(part->communicator_, &part->rank_), "ncclCommUserRank");
  part->truth_ = GroundTruth(OwnAnnouncements(), static_cast<uint32_t>(part->ranks_));
  return part;
}

void CountedCommunicator::Collective(Function function, ncclDataType_t datatype,
                                     size_t message_bytes) {
  const size_t shares = TraitsOf(function).size_counts_ranks ? static_cast<size_t>(ranks_) : 1;
  const size_t count = std::max<size_t>(message_bytes / BytesOf(datatype) / shares, 1);
  void* const send = gpu_->send();
  void* const receive = gpu_->receive();
  ncclResult_t result = ncclInvalidUsage;
  switch (function) {
    case Function::kBroadcast:
      result = ncclBroadcast(send, receive, count, datatype, 0, communicator_, gpu_->stream());
      break;
    case Function::kReduce:
      result =
          ncclReduce(send, receive, count, datatype, ncclSum, 0, communicator_, gpu_->stream());
      break;
    case Function::kAllGather:
      result = ncclAllGather(send, receive, count, datatype, communicator_, gpu_->stream());
      break;
    case Function::kReduceScatter:
      result =
          ncclReduceScatter(send, receive, count, datatype, ncclSum, communicator_, gpu_->stream());
      break;
    case Function::kAllReduce:
      result =
          ncclAllReduce(send, receive, count, datatype, ncclSum, communicator_, gpu_->stream());
      break;
    default:
      break;
  }
  Require(result, TraitsOf(function).name.data());
  truth_.Call(function, count, BytesOf(datatype));
}

void CountedCommunicator::Exchange(ncclDataType_t datatype, size_t message_bytes) {
  const size_t count = message_bytes / BytesOf(datatype);
  const int next = (rank_ + 1) % ranks_, previous = (rank_ + ranks_ - 1) % ranks_;
  Require(ncclGroupStart(), "ncclGroupStart");
  Require(ncclSend(gpu_->send(), count, datatype, next, communicator_, gpu_->stream()), "ncclSend");
  Require(ncclRecv(gpu_->receive(), count, datatype, previous, communicator_, gpu_->stream()),
          "ncclRecv");
  Require(ncclGroupEnd(), "ncclGroupEnd");
  truth_.Call(Function::kSend, count, BytesOf(datatype));
  truth_.Call(Function::kRecv, count, BytesOf(datatype));
}

bool CountedCommunicator::Spread(Function function, ncclDataType_t datatype, size_t count) {
  if (!ncclAlltoAll.Exists()) return false;
  void* const send = gpu_->send();
  void* const receive = gpu_->receive();
  int sends = 1, receives = 1;
  if (function == Function::kAlltoAll) {
    Require(ncclAlltoAll(send, receive, count, datatype, communicator_, gpu_->stream()),
            "ncclAlltoAll");
    sends = receives = ranks_;
  } else if (function == Function::kGather) {
    Require(ncclGather(send, receive, count, datatype, 0, communicator_, gpu_->stream()),
            "ncclGather");
    receives = rank_ == 0 ? ranks_ : 0;
  } else {
    Require(ncclScatter(send, receive, count, datatype, 0, communicator_, gpu_->stream()),
            "ncclScatter");
    sends = rank_ == 0 ? ranks_ : 0;
  }
  for (int i = 0; i < sends; ++i) truth_.Call(Function::kSend, count, BytesOf(datatype));
  for (int i = 0; i < receives; ++i) truth_.Call(Function::kRecv, count, BytesOf(datatype));
  return true;
}

void CountedCommunicator::CaptureAndReplay(const std::function<void()>& calls, int replays) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  Require(cudaStreamBeginCapture(gpu_->stream(), cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
  truth_.BeginCapture();
  calls();
  truth_.EndCapture();
  Require(cudaStreamEndCapture(gpu_->stream(), &graph), "cudaStreamEndCapture");
  Require(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  for (int replay = 0; replay < replays; ++replay) {
    Require(cudaGraphLaunch(executable, gpu_->stream()), "cudaGraphLaunch");
    truth_.Replay();
  }
  gpu_->Synchronize();
  Require(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
  Require(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

void CountedCommunicator::TimedCollective(Function function, ncclDataType_t datatype,
                                          size_t message_bytes) {
  cudaEvent_t before = nullptr, after = nullptr;
  float milliseconds = 0;
  Require(cudaEventCreateWithFlags(&before, 0), "cudaEventCreate");
  Require(cudaEventCreateWithFlags(&after, 0), "cudaEventCreate");
  Require(cudaEventRecord(before, gpu_->stream()), "cudaEventRecord");
  Collective(function, datatype, message_bytes);
  Require(cudaEventRecord(after, gpu_->stream()), "cudaEventRecord");
  gpu_->Synchronize();
  Require(cudaEventElapsedTime(&milliseconds, before, after), "cudaEventElapsedTime");
  event_ns_.push_back(static_cast<uint64_t>(milliseconds * 1e6F));
  Require(cudaEventDestroy(before), "cudaEventDestroy");
  Require(cudaEventDestroy(after), "cudaEventDestroy");
}

nlohmann::json CountedCommunicator::ToJson() const {
  return {{"id", ""},        {"name", name_},         {"rank", rank_},
          {"ranks", ranks_}, {"event_ns", event_ns_}, {"functions", truth_.ToJson()}};
}

}  // namespace nccl_exporter
