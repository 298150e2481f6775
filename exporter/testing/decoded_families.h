// SPDX-License-Identifier: Apache-2.0
// Delimited MetricFamily messages decoded by protoc's code, for tests of the encoder.
#pragma once

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/delimited_message_util.h>
#include <gtest/gtest.h>
#include <metric_family.pb.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace nccl_exporter::exporter {

namespace decoded = io::prometheus::client;

// All messages of a scrape body. The test fails if one is truncated, or has fields that the schema
// does not know.
inline std::vector<decoded::MetricFamily> DecodedFamilies(std::string_view body) {
  google::protobuf::io::ArrayInputStream input(body.data(), static_cast<int>(body.size()));
  std::vector<decoded::MetricFamily> families;
  bool is_end = false;
  while (!is_end) {
    decoded::MetricFamily family;
    if (google::protobuf::util::ParseDelimitedFromZeroCopyStream(&family, &input, &is_end)) {
      EXPECT_EQ(family.unknown_fields().field_count(), 0);
      families.push_back(std::move(family));
    } else {
      EXPECT_TRUE(is_end) << "after " << families.size() << " messages";
      return families;
    }
  }
  return families;
}

// Counts of the native buckets by index, without those of 0.
inline std::map<int, uint64_t> NativeBuckets(const decoded::Histogram& histogram) {
  std::map<int, uint64_t> buckets;
  int index = 0;
  int next = 0;
  int64_t count = 0;
  for (const decoded::BucketSpan& span : histogram.positive_span()) {
    index += span.offset();
    for (uint32_t i = 0; i < span.length(); ++i, ++index) {
      count += histogram.positive_delta(next++);
      if (count != 0) buckets[index] = static_cast<uint64_t>(count);
    }
  }
  EXPECT_EQ(next, histogram.positive_delta_size());
  return buckets;
}

}  // namespace nccl_exporter::exporter
