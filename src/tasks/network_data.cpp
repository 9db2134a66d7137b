#include "src/tasks/network_data.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

DataFacts NetworkData::example(std::int64_t number, const HybridTrainerConfig& config) const {
  throw UsageError(concat("example ", number, " of a ", config.model.family,
                          ": its generated data has no lines or rows to show"));
}

const NetworkDataKinds& network_data_kinds() {
  static const NetworkDataKinds kinds{
      {"vit", open_pictures}, {"trident", trident_data}, {"series", series_data}};
  return kinds;
}

}  // namespace hybrid_trainer
