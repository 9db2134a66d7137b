#include "hybrid_trainer/memory/memory_places.h"

#include "hybrid_trainer/core/pools.h"

namespace hybrid_trainer {

const Stream& MemoryPlaces::at(const std::string& placement) {
  if (placement == "device") return device_;
  if (placement == "host") return host_;
  return file_in(folder_, "memory.folder");
}

const Stream& MemoryPlaces::file_in(const std::string& folder, const char* key) {
  const auto found = files_.find(folder);
  if (found != files_.end()) return found->second;
  return files_.emplace(folder, make_file_pool(device_.device(), folder, key)).first->second;
}

MemoryUse MemoryPlaces::file_use() const {
  MemoryUse sum;
  for (const auto& [folder, file] : files_) {
    const MemoryUse use = file.pool()->use();
    for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
      sum.live[kind] += use.live[kind];
      sum.peak[kind] += use.peak[kind];
    }
    sum.live_total += use.live_total;
    sum.peak_total += use.peak_total;
    sum.most_taken += use.most_taken;
  }
  return sum;
}

}  // namespace hybrid_trainer
