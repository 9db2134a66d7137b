#include "hybrid_trainer/memory/memory_places.h"

#include "hybrid_trainer/core/pools.h"

namespace hybrid_trainer {

const Stream& MemoryPlaces::at(const std::string& placement) {
  if (placement == "device") return device_;
  if (placement == "host") return host_;
  if (!file_) file_.emplace(make_file_pool(device_.device(), folder_, "memory.folder"));
  return *file_;
}

}  // namespace hybrid_trainer
