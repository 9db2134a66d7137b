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

std::size_t MemoryPlaces::file_bytes() const {
  std::size_t bytes = 0;
  for (const auto& [folder, file] : files_) bytes += file.pool()->use().most_taken;
  return bytes;
}

}  // namespace hybrid_trainer
