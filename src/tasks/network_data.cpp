#include "src/tasks/network_data.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

DataFacts NetworkData::example(std::int64_t number, const HybridTrainerConfig& config) const {
  throw UsageError(concat("example ", number, " of a ", config.model.family,
                          ": its data have no lines or rows to show"));
}

const NetworkDataKinds& network_data_kinds() {
  static const NetworkDataKinds kinds{
      {"vit", open_pictures}, {"trident", trident_data}, {"series", series_data}};
  return kinds;
}

void refuse_data_file(const std::string& family, const std::filesystem::path& data) {
  if (data.empty()) return;
  throw UsageError(concat("--data: got ", data.string(), ", but a ", family,
                          " learns from examples that it draws itself; leave --data out"));
}

}  // namespace hybrid_trainer
