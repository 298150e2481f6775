// SPDX-License-Identifier: Apache-2.0
// The judgement on operations that the plugin has not seen to complete.
#include "collector/reader/operation_progress.h"

namespace nccl_exporter {

OperationProgress JudgeOperation(TimingSource source, const OperationParts& parts) {
  if (source == TimingSource::kNone) return OperationProgress::kUnobservable;
  const bool is_told_by_proxies = source == TimingSource::kProxy || parts.is_untimed;
  if (is_told_by_proxies && parts.announced == 0) return OperationProgress::kUnobservable;
  if (CompletesByQuiet(parts) && parts.quiet_ns > kQuietNs) return OperationProgress::kComplete;
  return OperationProgress::kInFlight;
}

bool CompletionIsKnown(TimingSource source, bool any_seen) {
  switch (source) {
    case TimingSource::kKernel:
    case TimingSource::kKernelCpu:
      return true;
    case TimingSource::kProxy:
      return any_seen;
    case TimingSource::kNone:
    case TimingSource::kCount:
      break;
  }
  return false;
}

}  // namespace nccl_exporter
