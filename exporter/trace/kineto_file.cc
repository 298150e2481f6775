// SPDX-License-Identifier: Apache-2.0
// Files of the profiler have hundreds of megabytes: they are read event by event, and copied as
// text.
#include "exporter/trace/kineto_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "exporter/trace/trace_section.h"

namespace nccl_exporter::exporter {
namespace {

using nlohmann::json;

// What is looked for in a file: the base at the top, and numbers of processes anywhere.
class FileScan : public nlohmann::json_sax<json> {
 public:
  bool has_events = false;  // the key at the top, with an array
  bool is_ours = false;
  int64_t base_ns = 0;
  int64_t most_pid = 0;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t value) override { return Number(value); }
  bool number_unsigned(number_unsigned_t value) override {
    return Number(static_cast<int64_t>(std::min<uint64_t>(value, INT64_MAX)));
  }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return ++depth_, true; }
  bool key(string_t& key) override {
    key_ = std::move(key);
    is_ours = is_ours || (depth_ == 1 && key_ == kTraceKey);
    return true;
  }
  bool end_object() override { return --depth_, true; }
  bool start_array(size_t) override {
    has_events = has_events || (depth_ == 1 && key_ == "traceEvents");
    return ++depth_, true;
  }
  bool end_array() override { return --depth_, true; }
  bool parse_error(size_t, const std::string&, const json::exception&) override { return false; }

 private:
  bool Number(int64_t value) {
    if (depth_ == 1 && key_ == "baseTimeNanoseconds") base_ns = value;
    if (key_ == "pid") most_pid = std::max(most_pid, value);
    return true;
  }

  int depth_ = 0;
  std::string key_;
};

// Perfetto takes numbers of processes of 32 bits.
constexpr int64_t kMostPid = INT32_MAX / 2;

}  // namespace

KinetoFile::KinetoFile(std::string text, std::string& fault) : text_(std::move(text)) {
  FileScan scan;
  if (!json::sax_parse(text_, &scan)) {
    fault = "it is no JSON";
  } else if (!scan.has_events) {
    fault = "it has no array traceEvents";
  } else if (scan.is_ours) {
    fault = "it is a trace of nccl-exporter already";
  } else if (scan.most_pid > kMostPid) {
    fault = "a process in it has a number above " + std::to_string(kMostPid);
  }
  if (!fault.empty()) return;
  base_ns_ = scan.base_ns;
  first_free_pid_ = scan.most_pid + 1;
  events_at_ = FindEvents();
  const size_t first = text_.find_first_not_of(" \t\r\n", events_at_);
  has_events_ = text_[first] != ']';
}

// The text is valid JSON: only strings and brackets have to be followed.
size_t KinetoFile::FindEvents() const {
  int depth = 0;
  std::string_view latest;  // string at the top
  for (size_t i = 0; i < text_.size(); ++i) {
    const char c = text_[i];
    if (c == '"') {
      const size_t begin = i + 1;
      for (++i; text_[i] != '"'; ++i) {
        if (text_[i] == '\\') ++i;
      }
      if (depth == 1) latest = std::string_view(text_).substr(begin, i - begin);
    } else if (c == '{' || c == '[') {
      if (c == '[' && depth == 1 && latest == "traceEvents") return i + 1;
      ++depth;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return std::string::npos;
}

std::string KinetoFile::With(std::string_view events, std::string_view key,
                             std::string_view value) const {
  const size_t top = text_.find('{') + 1;
  std::string out;
  out.reserve(text_.size() + events.size() + value.size() + key.size() + 16);
  out.append(text_, 0, top).append("\n\"").append(key).append("\":").append(value).append(",");
  out.append(text_, top, events_at_ - top).append("\n").append(events);
  if (has_events_ && !events.empty()) out += ',';
  return out.append(text_, events_at_);
}

}  // namespace nccl_exporter::exporter
