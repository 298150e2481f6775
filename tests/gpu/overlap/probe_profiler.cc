// SPDX-License-Identifier: Apache-2.0
// A profiler plugin for experiments, no part of the product. PROBE_MARKS=KIND marks each launch of
// NCCL on its stream. PROBE_RECORDS=PREFIX records what kernel events say and when they come, and
// writes it to PREFIX.PID when the first communicator ends. NCCL 2.28 and later announce launches.
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "plugin/nccl/profiler_abi.h"
#include "tests/gpu/overlap/launch_marks.h"

namespace nccl_exporter {
namespace {

// Begins as the descriptors of all versions from v5 on.
struct Descriptor {
  uint64_t type;
  void* parent;
  int rank;
  union {
    void* launch_stream;
    abi::KernelChV4 kernel;
  };
};

// One channel of one kernel. Times of the CPU are CLOCK_MONOTONIC, in nanoseconds.
struct Record {
  uint64_t launch_ns, gpu_start_ns, start_seen_ns, gpu_stop_ns, stop_seen_ns;
};

struct Task {
  uint64_t launch_ns;
};

uint64_t Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

class Probe {
 public:
  static Probe& Get() {
    static Probe probe;
    return probe;
  }

  int mask() const {
    return static_cast<int>(records_path_.empty()
                                ? abi::kKernelLaunch
                                : abi::kKernelLaunch | abi::kColl | abi::kKernelCh);
  }

  // On the thread that launches: one, in the jobs of the kit.
  void* StartLaunch(cudaStream_t stream) {
    launch_ns_ = Now();
    stream_ = stream;
    marks_.Begin(stream);
    return this;
  }
  void StopLaunch() { marks_.End(stream_); }

  // After the launch, on the thread that launched.
  void* StartTask() {
    Task& task = tasks_[next_task_++ % tasks_.size()];
    task.launch_ns = launch_ns_;
    return &task;
  }

  // On NCCL's progress thread.
  void* StartKernel(const void* task, uint64_t gpu_ns) {
    const size_t place = used_.fetch_add(1, std::memory_order_relaxed);
    if (place >= records_.size()) return nullptr;
    Record& record = records_[place];
    record.launch_ns = static_cast<const Task*>(task)->launch_ns;
    record.gpu_start_ns = gpu_ns;
    record.start_seen_ns = Now();
    return &record;
  }
  static void StopKernel(void* record, uint64_t gpu_ns) {
    static_cast<Record*>(record)->gpu_stop_ns = gpu_ns;
    static_cast<Record*>(record)->stop_seen_ns = Now();
  }

  void Write() {
    if (records_path_.empty() || is_written_.exchange(true)) return;
    FILE* file = fopen((records_path_ + "." + std::to_string(getpid())).c_str(), "w");
    if (file == nullptr) return perror(records_path_.c_str());
    for (const Record& record : records_) {
      if (record.gpu_stop_ns == 0) continue;
      fprintf(file, "[%lu, %lu, %lu, %lu, %lu]\n", record.launch_ns, record.gpu_start_ns,
              record.start_seen_ns, record.gpu_stop_ns, record.stop_seen_ns);
    }
    fclose(file);
  }

 private:
  static std::string Variable(const char* name) {
    const char* value = getenv(name);
    return value != nullptr ? value : "";
  }

  LaunchMarks marks_{Variable("PROBE_MARKS")};
  std::string records_path_ = Variable("PROBE_RECORDS");
  cudaStream_t stream_ = nullptr;
  uint64_t launch_ns_ = 0;
  size_t next_task_ = 0;
  std::array<Task, 1024> tasks_{};  // more than there are operations in flight
  std::atomic<size_t> used_{0};
  std::atomic<bool> is_written_{false};
  std::array<Record, 1 << 16> records_{};
};

abi::Result StartEvent(void*, void** handle, Descriptor* event) {
  *handle = nullptr;
  if (event->type == abi::kColl) *handle = Probe::Get().StartTask();
  if (event->type == abi::kKernelLaunch)
    *handle = Probe::Get().StartLaunch(static_cast<cudaStream_t>(event->launch_stream));
  if (event->type == abi::kKernelCh)
    *handle = Probe::Get().StartKernel(event->parent, event->kernel.pTimer);
  return abi::kSuccess;
}

abi::Result StopEvent(void* handle) {
  if (handle == &Probe::Get()) Probe::Get().StopLaunch();
  return abi::kSuccess;
}

abi::Result RecordEventState(void* handle, int state, abi::StateArgs* arguments) {
  if (state == abi::kStateKernelChStop && arguments != nullptr)
    Probe::StopKernel(handle, arguments->pTimer);
  return abi::kSuccess;
}

abi::Result Init(void** context, uint64_t, int* mask, const char*, int, int, int, abi::Logger) {
  *context = &Probe::Get();
  __atomic_store_n(mask, Probe::Get().mask(), __ATOMIC_RELAXED);
  return abi::kSuccess;
}

abi::Result Finalize(void*) {
  Probe::Get().Write();
  return abi::kSuccess;
}

}  // namespace
}  // namespace nccl_exporter

extern "C" {

#define PROBE(version)                                                                    \
  __attribute__((visibility(                                                              \
      "default"))) extern const nccl_exporter::abi::ProfilerV5<nccl_exporter::Descriptor> \
      ncclProfiler_v##version {                                                           \
    "probe", nccl_exporter::Init, nccl_exporter::StartEvent, nccl_exporter::StopEvent,    \
        nccl_exporter::RecordEventState, nccl_exporter::Finalize                          \
  }

PROBE(5);
PROBE(6);
PROBE(7);

}  // extern "C"
