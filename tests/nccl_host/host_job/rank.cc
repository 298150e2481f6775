// SPDX-License-Identifier: Apache-2.0
#include "tests/nccl_host/host_job/rank.h"

namespace nccl_exporter::host_job {
namespace {

constexpr size_t kElementBytes = 4;
constexpr unsigned kNonBlocking = 1;        // cudaStreamNonBlocking
constexpr int kCaptureOfThisThread = 1;     // cudaStreamCaptureModeThreadLocal
constexpr size_t kBroadcastAlignment = 16;  // of the parts of a buffer that roots broadcast

}  // namespace

void Rank::BeginGroup() {
  Require(NcclLibrary().GroupStart(), "ncclGroupStart");
  account_->BeginGroup();
}

void Rank::EndGroup() {
  Require(NcclLibrary().GroupEnd(), "ncclGroupEnd");
  account_->EndGroup();
}

Rank::Rank(int device, size_t largest_bytes, Account* account)
    : device_(device), account_(account) {
  const Cuda& cuda = CudaLibrary();
  UseDevice();
  Require(cuda.StreamCreateWithFlags(&stream_, kNonBlocking), "cudaStreamCreateWithFlags");
  Require(cuda.Malloc(&send_, 2 * largest_bytes), "cudaMalloc");
  Require(cuda.Malloc(&receive_, 2 * largest_bytes), "cudaMalloc");
}

void Rank::UseDevice() const { Require(CudaLibrary().SetDevice(device_), "cudaSetDevice"); }

void Rank::Make(const Operation& operation, const Membership& in) {
  if (operation.kind == "sendrecv") return MakeSendAndReceive(operation.bytes, in);
  if (operation.kind == "alltoall") return MakeAlltoAll(operation.bytes, in);
  if (operation.kind == "allgatherv") return MakeBroadcasts(operation.bytes, in);
  const Nccl& nccl = NcclLibrary();
  const Communicator to = in.communicator;
  const size_t count = operation.bytes / kElementBytes, share = count / in.ranks;
  const int root = operation.root;
  if (operation.kind == "allreduce") {
    Require(nccl.AllReduce(send_, receive_, count, kFloat, kSum, to, stream_), "ncclAllReduce");
    Announce("AllReduce", count, in);
  } else if (operation.kind == "allgather") {
    Require(nccl.AllGather(send_, receive_, share, kFloat, to, stream_), "ncclAllGather");
    Announce("AllGather", share * in.ranks, in);
  } else if (operation.kind == "reducescatter") {
    Require(nccl.ReduceScatter(send_, receive_, share, kFloat, kSum, to, stream_),
            "ncclReduceScatter");
    Announce("ReduceScatter", share * in.ranks, in);
  } else if (operation.kind == "reduce") {
    Require(nccl.Reduce(send_, receive_, count, kFloat, kSum, root, to, stream_), "ncclReduce");
    Announce("Reduce", count, in);
  } else {
    Require(operation.kind == "broadcast" ? 0 : -1, operation.kind.c_str());
    Broadcast(receive_, count, root, in);
  }
}

void Rank::Announce(const char* function, size_t count, const Membership& in) {
  // NCCL announces no collective of one rank, which is a copy, and none without data.
  if (in.ranks > 1 && count > 0) account_->Add({in.communicator, function, count * kElementBytes});
}

void Rank::Broadcast(void* to, size_t count, int root, const Membership& in) {
  Require(NcclLibrary().Broadcast(send_, to, count, kFloat, root, in.communicator, stream_),
          "ncclBroadcast");
  Announce("Broadcast", count, in);
  if (in.ranks > 1 && count > 0) account_->AddRoot(in.communicator, root);
}

void Rank::MakeAlltoAll(size_t bytes, const Membership& in) {
  const size_t share = bytes / kElementBytes / in.ranks;
  Require(NcclLibrary().AlltoAll(send_, receive_, share, kFloat, in.communicator, stream_),
          "ncclAlltoAll");
  for (int peer = 0; peer < in.ranks; ++peer) {
    Announce("Send", share, in);
    Announce("Recv", share, in);
  }
}

void Rank::MakeSendAndReceive(size_t bytes, const Membership& in) {
  const Nccl& nccl = NcclLibrary();
  const size_t count = bytes / kElementBytes;
  const int next = (in.rank + 1) % in.ranks, previous = (in.rank + in.ranks - 1) % in.ranks;
  BeginGroup();
  Require(nccl.Send(send_, count, kFloat, next, in.communicator, stream_), "ncclSend");
  Require(nccl.Recv(receive_, count, kFloat, previous, in.communicator, stream_), "ncclRecv");
  Announce("Send", count, in);
  Announce("Recv", count, in);
  EndGroup();
}

void Rank::MakeBroadcasts(size_t bytes, const Membership& in) {
  const size_t part = bytes / in.ranks / kBroadcastAlignment * kBroadcastAlignment;
  BeginGroup();
  for (int root = 0; root < in.ranks; ++root)
    Broadcast(static_cast<char*>(receive_) + root * part, bytes / kElementBytes / in.ranks, root,
              in);
  EndGroup();
}

void Rank::Compute(double us) const {
  if (CudaLibrary().ComputeUs != nullptr) CudaLibrary().ComputeUs(stream_, us);
}

void Rank::Synchronize() {
  Require(CudaLibrary().StreamSynchronize(stream_), "cudaStreamSynchronize");
  account_->Synchronize();
}

CapturedGraph Rank::Capture(const std::function<void()>& calls) {
  const Cuda& cuda = CudaLibrary();
  CapturedGraph captured;
  Graph graph = nullptr;
  Require(cuda.StreamBeginCapture(stream_, kCaptureOfThisThread), "cudaStreamBeginCapture");
  account_->BeginCapture();
  calls();
  captured.calls = account_->EndCapture();
  Require(cuda.StreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
  Require(cuda.GraphInstantiate(&captured.executable, graph, 0), "cudaGraphInstantiate");
  Require(cuda.GraphDestroy(graph), "cudaGraphDestroy");
  return captured;
}

void Rank::Replay(const CapturedGraph& graph) {
  Require(CudaLibrary().GraphLaunch(graph.executable, stream_), "cudaGraphLaunch");
  account_->AddReplay(graph.calls);
}

}  // namespace nccl_exporter::host_job
