// SPDX-License-Identifier: Apache-2.0
// Functions of NCCL and CUDA, found at run time: what calls them builds without either, and runs
// with the libraries of the machine.
#pragma once

#include <string>

namespace nccl_exporter {

enum class Library { kNccl, kCudart, kCuda, kCublas };

// The function's address; null if the library or the function is missing. Any thread.
void* FindFunction(Library library, const char* name);

// Path of the loaded library, or why it cannot be loaded.
std::string PathOf(Library library);

// Prints what is missing, and ends the process: 77.
[[noreturn]] void EndWithoutFunction(Library library, const char* name);

template <typename Signature>
class DynamicFunction;

// Looked up at the first call. A call of a function that is missing ends the process.
template <typename Result, typename... Parameters>
class DynamicFunction<Result(Parameters...)> {
 public:
  constexpr DynamicFunction(Library library, const char* name) : library_(library), name_(name) {}

  bool Exists() const { return FindFunction(library_, name_) != nullptr; }

  Result operator()(Parameters... parameters) const {
    void* address = __atomic_load_n(&address_, __ATOMIC_RELAXED);
    if (address == nullptr) {
      address = FindFunction(library_, name_);
      if (address == nullptr) EndWithoutFunction(library_, name_);
      __atomic_store_n(&address_, address, __ATOMIC_RELAXED);
    }
    return reinterpret_cast<Result (*)(Parameters...)>(address)(parameters...);
  }

 private:
  Library library_;
  const char* name_;
  mutable void* address_ = nullptr;
};

}  // namespace nccl_exporter
