#include "hybrid_trainer/memory/memory_places.h"

#include <algorithm>

namespace hybrid_trainer {

namespace {

std::pair<std::string, std::string> entry_of(const std::string& part,
                                             std::vector<std::string>& problems) {
  const std::size_t equals = part.rfind('=');
  if (equals == std::string::npos || equals == 0) {
    problems.push_back(concat(
        "memory.device_map: got \"", part,
        "\", want auto, or PATTERN=PLACE pairs separated by commas, such as h.0.*=device,*=host"));
    return {"*", "device"};
  }
  std::string place = part.substr(equals + 1);
  if (std::ranges::count(placement_names(), place) == 0)
    problems.push_back(choice_problem("memory.device_map", place, placement_names()));
  return {part.substr(0, equals), std::move(place)};
}

std::vector<std::pair<std::string, std::string>> entries_of(const std::string& text,
                                                            std::vector<std::string>& problems) {
  std::vector<std::pair<std::string, std::string>> entries;
  if (text == "auto" || text.empty()) return entries;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    entries.push_back(entry_of(text.substr(begin, end - begin), problems));
    begin = end + 1;
  }
  return entries;
}

}  // namespace

DeviceMap::DeviceMap(const MemoryConfig& config) {
  std::vector<std::string> problems;
  places_ = entries_of(config.device_map, problems);
  if (!problems.empty()) throw ConfigError(std::move(problems));
  places_.emplace_back("*", config.weights);
}

const std::string& DeviceMap::place_of(const std::string& name) const {
  return std::ranges::find_if(places_,
                              [&](const auto& entry) { return matches_pattern(name, entry.first); })
      ->second;
}

std::vector<std::string> DeviceMap::unmatched(const std::vector<std::string>& names) const {
  std::vector<std::string> patterns;
  for (std::size_t i = 0; i + 1 < places_.size(); ++i) {
    const std::string& pattern = places_[i].first;
    if (std::ranges::none_of(names, [&](auto& name) { return matches_pattern(name, pattern); }))
      patterns.push_back(pattern);
  }
  return patterns;
}

bool DeviceMap::uses(const std::string& place) const {
  for (const auto& [pattern, there] : places_) {
    if (there == place) return true;
    if (pattern == "*") return false;
  }
  return false;
}

const std::string& DeviceMap::farthest() const {
  const auto& names = placement_names();
  return *std::find_if(names.rbegin(), names.rend() - 1,
                       [&](const std::string& place) { return uses(place); });
}

void collect_device_map_problems(const MemoryConfig& config, std::vector<std::string>& problems) {
  entries_of(config.device_map, problems);
}

const Stream& MemoryPlaces::at(const std::string& placement) {
  if (placement == "device") return device_;
  if (placement == "host") return host_;
  if (!file_) file_.emplace(make_file_pool(device_.device(), folder_, "memory.folder"));
  return *file_;
}

MemoryUse MemoryPlaces::file_use() const { return file_ ? file_->pool()->use() : MemoryUse{}; }

}  // namespace hybrid_trainer
