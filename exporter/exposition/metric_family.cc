// SPDX-License-Identifier: Apache-2.0
#include "exporter/exposition/metric_family.h"

namespace nccl_exporter {
std::string_view SampleFamilyName(const Family& family) {
  std::string_view name = family.name;
  const std::string_view suffix = family.type == MetricType::kCounter ? "_total"
                                  : family.type == MetricType::kInfo  ? "_info"
                                                                      : "";
  if (name.ends_with(suffix)) name.remove_suffix(suffix.size());
  return name;
}

bool NameEndsInUnit(std::string_view name, std::string_view unit) {
  return !unit.empty() && name.ends_with(unit) && name.size() > unit.size() &&
         name[name.size() - unit.size() - 1] == '_';
}

}  // namespace nccl_exporter
