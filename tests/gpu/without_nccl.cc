// SPDX-License-Identifier: Apache-2.0
// Takes the place of the programs on the real NCCL where they were built on a machine without it.
#include <cstdio>

int main() {
  puts(
      "built without NCCL: nccl.h, cuda_runtime.h, libnccl.so or libcudart.so was not found under "
      "NCCL_HOME or CUDA_HOME");
  return 77;
}
