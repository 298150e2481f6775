// SPDX-License-Identifier: Apache-2.0
// Overlap of computation and communication: how long a step takes that has matrix products on one
// stream, and AllReduces or copies on another.
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>

#include "tests/gpu/gpu.h"
#include "tests/gpu/id_file.h"
#include "tests/gpu/overlap/launch_marks.h"
#include "tests/gpu/programs.h"
#include "tests/gpu/rank_processes.h"
#include "tests/gpu/require.h"

namespace nccl_exporter {
namespace {

constexpr int kCannotRun = 77;
constexpr int kMatrix = 2048;      // rows and columns
constexpr int kLaunches = 8;       // in a step, on the stream of communication
constexpr int kMostProducts = 64;  // for each of them
constexpr double kReplacedProductUs = 200;

// A runtime without a GPU may have it in place of cuBLAS: occupies a stream for some time.
const DynamicFunction<void(cudaStream_t, double)> fakecudaComputeUs{Library::kCudart,
                                                                    "fakecudaComputeUs"};

double Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

class MatrixProduct {
 public:
  MatrixProduct() {
    Require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    if (fakecudaComputeUs.Exists()) return;
    Require(cublasCreate_v2(&cublas_) == 0 && cublasSetStream_v2(cublas_, stream_) == 0, "cuBLAS");
    for (float*& matrix : matrices_) {
      void* memory = nullptr;
      constexpr size_t kBytes = sizeof(float) * kMatrix * kMatrix;
      Require(cudaMalloc(&memory, kBytes), "cudaMalloc");
      Require(cudaMemset(memory, 0, kBytes), "cudaMemset");
      matrix = static_cast<float*>(memory);
    }
    Require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

  void Launch() {
    if (cublas_ == nullptr) return fakecudaComputeUs(stream_, kReplacedProductUs);
    constexpr float kOne = 1, kZero = 0;
    Require(cublasSgemm_v2(cublas_, cublasNoTranspose, cublasNoTranspose, kMatrix, kMatrix, kMatrix,
                           &kOne, matrices_[0], kMatrix, matrices_[1], kMatrix, &kZero,
                           matrices_[2], kMatrix) == 0,
            "cublasSgemm");
  }
  void Synchronize() const { Require(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  cudaStream_t stream_ = nullptr;
  cublasHandle_t cublas_ = nullptr;
  std::array<float*, 3> matrices_{};
};

class OverlapRank {
 public:
  OverlapRank(const nlohmann::json& options, int rank)
      : bytes_(options["bytes"]),
        repetitions_(options["repetitions"]),
        gpu_(rank, bytes_),
        marks_(options["marks"].get<std::string>()) {
    const int ranks = options["ranks"];
    if (ranks == 1) return;  // it copies
    const ncclUniqueId id = MeetBy(options["directory"].get<std::string>() + "/overlap.id", rank);
    Require(ncclCommInitRank(&communicator_, ranks, id, rank), "ncclCommInitRank");
  }
  ~OverlapRank() {
    if (communicator_ != nullptr) ncclCommDestroy(communicator_);
  }

  // Microseconds of the steps: both streams, and each alone.
  nlohmann::json Run() {
    const auto beside = [this] { Communicate(); };
    const auto product = [this] { product_.Launch(); };
    Time([&] { beside(), product(); });  // connections and code are made
    // The fastest of each: whatever else runs on the machine only adds to them.
    const auto fastest = [this](const std::function<void()>& launch) {
      double least = Time(launch);
      for (int i = 1; i < repetitions_; ++i) least = std::min(least, Time(launch));
      return least;
    };
    const double ratio = fastest(beside) / fastest(product);
    const int products = std::clamp(static_cast<int>(ratio), 1, kMostProducts);
    const auto all_products = [&] {
      for (int i = 0; i < products; ++i) product();
    };
    double beside_us = Time(beside), compute_us = Time(all_products),
           step_us = beside_us + compute_us;
    for (int i = 0; i < repetitions_; ++i) {
      beside_us = std::min(beside_us, Time(beside));
      compute_us = std::min(compute_us, Time(all_products));
      step_us = std::min(step_us, Time([&] { beside(), all_products(); }));
    }
    return {{"products", products},
            {"beside_us", beside_us},
            {"compute_us", compute_us},
            {"step_us", step_us}};
  }

 private:
  void Communicate() {
    if (communicator_ != nullptr) {  // the plugin marks the launch
      Require(ncclAllReduce(gpu_.send(), gpu_.receive(), bytes_ / sizeof(float), ncclFloat32,
                            ncclSum, communicator_, gpu_.stream()),
              "ncclAllReduce");
      return;
    }
    marks_.Begin(gpu_.stream());
    Require(cudaMemcpyAsync(gpu_.receive(), gpu_.send(), bytes_, cudaMemcpyDeviceToDevice,
                            gpu_.stream()),
            "cudaMemcpyAsync");
    marks_.End(gpu_.stream());
  }

  double Time(const std::function<void()>& launch) {
    const double start = Now();
    for (int i = 0; i < kLaunches; ++i) launch();
    gpu_.Synchronize();
    product_.Synchronize();
    return Now() - start;
  }

  size_t bytes_;
  int repetitions_;
  Gpu gpu_;
  MatrixProduct product_;
  LaunchMarks marks_;
  ncclComm_t communicator_ = nullptr;
};

}  // namespace

int RunOverlap(const nlohmann::json& options) {
  if (!fakecudaComputeUs.Exists() && !cublasCreate_v2.Exists()) {
    printf("no matrix product: %s\n", PathOf(Library::kCublas).c_str());
    return kCannotRun;
  }
  const int ranks = options["ranks"];
  RankProcesses processes;
  for (int rank = 0; rank < ranks; ++rank) {
    processes.Start({.rank = rank, .ranks = ranks, .separate_hosts = !options["one_host"]}, {},
                    [&options, rank] {
                      NameRequirements(rank);
                      Print(OverlapRank(options, rank).Run());
                      return 0;
                    });
  }
  return processes.Wait(options["limit_seconds"]);
}

}  // namespace nccl_exporter
