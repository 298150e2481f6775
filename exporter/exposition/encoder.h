// SPDX-License-Identifier: Apache-2.0
// What every exposition format is to the rest of the daemon.
#pragma once

#include <string>

#include "exporter/exposition/metric_family.h"

namespace nccl_exporter {

// Stateless: one instance serves all threads.
class Encoder {
 public:
  virtual ~Encoder() = default;

  // Appends the whole answer to `out`.
  virtual void Encode(const Exposition& exposition, std::string& out) const = 0;
};

}  // namespace nccl_exporter
