// SPDX-License-Identifier: Apache-2.0
// A replacement of the CUDA driver that shows a test when it is called, and can be held: a callback
// must not call it.
#include <semaphore.h>

#include <atomic>

extern "C" {

std::atomic<int> survival_cuda_calls{0};
std::atomic<int> survival_cuda_device{0};
std::atomic<int> survival_cuda_multicast_device{-1};  // the only one that has multicast
std::atomic<bool> survival_cuda_is_held{false};
sem_t survival_cuda_entered{};
sem_t survival_cuda_release{};

int cuCtxGetDevice(int* device) {
  survival_cuda_calls.fetch_add(1);
  if (survival_cuda_is_held.load()) {
    sem_post(&survival_cuda_entered);
    sem_wait(&survival_cuda_release);
  }
  *device = survival_cuda_device.load();
  return 0;
}

int cuDeviceGetCount(int* count) {
  *count = 2;
  return 0;
}

int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  constexpr int kMulticastSupported = 132;
  *value = attribute == kMulticastSupported && device == survival_cuda_multicast_device.load();
  return 0;
}

}  // extern "C"
