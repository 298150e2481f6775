// SPDX-License-Identifier: Apache-2.0
// WaitsForAll(), the collectives by which times of different ranks are compared. For any thread.
#pragma once

#include "proto/collective.h"

namespace nccl_exporter {

// Whether no rank can leave the operation before every rank has entered it: each rank's result
// depends on the data of all.
constexpr bool WaitsForAll(Function function) {
  return function == Function::kAllReduce || function == Function::kAllGather ||
         function == Function::kReduceScatter || function == Function::kAlltoAll;
}

}  // namespace nccl_exporter
