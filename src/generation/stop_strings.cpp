#include "hybrid_trainer/generation/stop_strings.h"

#include <algorithm>
#include <utility>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

/// Bytes at the end of `text` that begin `string`.
std::size_t begun_at_end(std::string_view text, std::string_view string) {
  for (std::size_t bytes = std::min(text.size(), string.size() - 1); bytes > 0; --bytes)
    if (text.ends_with(string.substr(0, bytes))) return bytes;
  return 0;
}

}  // namespace

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
  if (std::ranges::find(strings_, "") != strings_.end())
    throw UsageError("stop: an empty string would end every text before it begins");
}

std::string StopStrings::add(std::string_view piece) {
  if (reached_) return "";
  held_ += piece;
  std::size_t end = held_.size(), begun = 0;
  for (const std::string& string : strings_) {
    end = std::min(end, held_.find(string));
    begun = std::max(begun, begun_at_end(held_, string));
  }
  reached_ = end < held_.size();
  std::string sure = held_.substr(0, reached_ ? end : held_.size() - begun);
  held_.erase(0, reached_ ? held_.size() : sure.size());
  return sure;
}

std::string StopStrings::rest() { return std::exchange(held_, {}); }

}  // namespace hybrid_trainer
