#include "src/tasks/network_data.h"

#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

DataFacts NetworkData::example(std::int64_t number, const HybridTrainerConfig& config) const {
  throw UsageError(concat("example ", number, " of a ", config.model.family,
                          ": its generated data has no lines or rows to show"));
}

NetworkData::PredictionMaker NetworkData::prediction_maker(const HybridTrainerConfig&) const {
  return [](std::int64_t /*number*/, const std::vector<NamedTensor>& outputs) {
    Prediction found;
    for (const auto& [name, tensor] : outputs) {
      const std::span<const float> values{tensor.data<float>(),
                                          static_cast<std::size_t>(tensor.elements())};
      found.numbers.insert(found.numbers.end(), values.begin(), values.end());
      found.fields[name] = decimals(values);
    }
    return found;
  };
}

const NetworkDataKinds& network_data_kinds() {
  static const NetworkDataKinds kinds{
      {"vit", open_pictures}, {"trident", trident_data}, {"series", series_data}};
  return kinds;
}

}  // namespace hybrid_trainer
