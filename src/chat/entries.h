#pragma once

#include <string>
#include <unordered_map>
#include <utility>

#include "src/chat/value.h"

namespace hybrid_trainer::jinja {

/// A dict as Python makes it of keys and values: a key keeps its first place and its last value.
class Entries {
 public:
  void put(std::string key, Value value) {
    const auto [place, is_new] = places_.emplace(std::move(key), entries_.size());
    if (is_new) {
      entries_.emplace_back(place->first, std::move(value));
    } else {
      entries_[place->second].second = std::move(value);
    }
  }
  Dict take() { return std::move(entries_); }

 private:
  Dict entries_;
  std::unordered_map<std::string, std::size_t> places_;
};

}  // namespace hybrid_trainer::jinja
