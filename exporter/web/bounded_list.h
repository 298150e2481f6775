// SPDX-License-Identifier: Apache-2.0
// BoundedList, a list of a JSON answer that is written element by element, within a limit. Used by
// one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace nccl_exporter::exporter {

// Texts are valid UTF-8 where this is used. If one were not, `replace` keeps the answer; the
// default throws.
inline std::string Dump(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// The tree of one element is in memory at a time: that of a whole answer takes ten times the memory
// of its text. Users share the limit: the next element is of the user that has the fewest bytes. At
// the first one that does not fit, its user gets no more.
class BoundedList {
 public:
  using MakeElement = std::function<nlohmann::ordered_json()>;

  // `comes_first`: before the others of this user if there is no room for all.
  void Add(uint64_t uid, bool comes_first, MakeElement make) {
    waiting_[uid][comes_first ? 0 : 1].push_back({texts_.size(), std::move(make)});
    texts_.emplace_back();
  }

  // Appends the list of those that fit into `room`, in the order in which they were added. Once.
  void Write(size_t room, std::string& answer) {
    const std::string all = MakeTexts(room);
    char before = '[';
    for (const auto& [begin, size] : texts_) {
      if (size == 0) continue;
      answer += std::exchange(before, ',');
      answer.append(all, begin, size);
    }
    answer += before == '[' ? "[]" : "]";
  }

  // Elements that did not fit.
  size_t left_out() const {
    size_t count = 0;
    for (const auto& [uid, of_user] : waiting_) count += of_user[0].size() + of_user[1].size();
    return count;
  }

 private:
  struct Element {
    size_t place;
    MakeElement make;
  };
  struct Text {
    size_t begin = 0;
    size_t size = 0;  // 0: it does not fit
  };

  // In the order in which they were made. They are one block: thousands of blocks would leave the
  // heap with holes.
  std::string MakeTexts(size_t room) {
    std::string all;
    all.reserve(room);
    std::set<std::pair<size_t, uint64_t>> users;  // with the bytes that each has
    for (const auto& [uid, of_user] : waiting_) users.emplace(size_t{0}, uid);
    while (!users.empty()) {
      const auto [bytes, uid] = *users.begin();
      users.erase(users.begin());
      auto& [first, others] = waiting_[uid];
      std::deque<Element>& next = first.empty() ? others : first;
      if (next.empty()) continue;
      const std::string text = Dump(next.front().make());
      // With the commas of the list.
      if (all.size() + text.size() + texts_.size() > room) continue;
      texts_[next.front().place] = {all.size(), text.size()};
      all += text;
      users.emplace(bytes + text.size(), uid);
      next.pop_front();
    }
    return all;
  }

  std::map<uint64_t, std::array<std::deque<Element>, 2>> waiting_;  // by user
  std::vector<Text> texts_;                                         // by place
};

}  // namespace nccl_exporter::exporter
