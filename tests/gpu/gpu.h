// SPDX-License-Identifier: Apache-2.0
// GPU of a rank: a stream, and buffers to send from and to receive into.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/gpu/cuda_api.h"

namespace nccl_exporter {

// Freed with the process.
class Gpu {
 public:
  // Ranks take the GPUs in turn; where there are fewer GPUs than ranks they share them.
  Gpu(int rank, size_t buffer_bytes);

  cudaStream_t stream() const { return stream_; }
  void* send() const { return send_; }
  void* receive() const { return receive_; }
  size_t buffer_bytes() const { return buffer_bytes_; }

  // Waits until everything on the stream is done.
  void Synchronize() const;

 private:
  cudaStream_t stream_ = nullptr;
  void* send_ = nullptr;
  void* receive_ = nullptr;
  size_t buffer_bytes_;
};

// GPUs of this machine that the process may use; 0, with the reason, where there is none or no
// driver.
int CountGpus(std::string* reason);
// Releases and paths of the libraries, and the names of the GPUs.
nlohmann::json DescribeMachine(int gpus);

}  // namespace nccl_exporter
