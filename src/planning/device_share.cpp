#include "hybrid_trainer/planning/device_share.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

BytesPerParameter BytesPerParameter::parse(const std::string& text) {
  BytesPerParameter bytes;
  int end = 0;
  const int read = std::sscanf(text.c_str(), "%lf+%lf+%lf%n", &bytes.weights, &bytes.gradients,
                               &bytes.optimizer, &end);
  const bool sound = read == 3 && end == static_cast<int>(text.size()) && bytes.weights > 0 &&
                     bytes.gradients >= 0 && bytes.optimizer >= 0 && bytes.sum() < 1000;
  if (sound) return bytes;
  throw UsageError(concat("--bytes-per-parameter ", text,
                          ": want weights+gradients+optimizer, for example 2+2+12"));
}

std::string DeviceSplit::text() const {
  std::string text = concat(devices, devices == 1 ? " device" : " devices");
  if (tensor > 1) text += concat(", ", tensor, " to a layer");
  if (pipeline > 1) text += concat(", ", pipeline, " stages");
  if (zero > 0) text += concat(", ZeRO ", zero);
  return text;
}

double model_state_bytes(double parameters, const BytesPerParameter& bytes,
                         const DeviceSplit& split) {
  const auto ranks = static_cast<double>(split.data_parallel());
  const auto shared = [&](double of_each, int from_stage) {
    return split.zero >= from_stage ? of_each / ranks : of_each;
  };
  const double of_each =
      shared(bytes.weights, 3) + shared(bytes.gradients, 2) + shared(bytes.optimizer, 1);
  return parameters * of_each / static_cast<double>(split.tensor * split.pipeline);
}

std::vector<SplitAdvice> advice_to_fit(double parameters, const BytesPerParameter& bytes,
                                       const DeviceSplit& split, double activation_bytes,
                                       double budget_bytes) {
  std::vector<SplitAdvice> found;
  const auto of = [&](const BytesPerParameter& each, const DeviceSplit& cut) {
    return model_state_bytes(parameters, each, cut) + activation_bytes;
  };
  const auto offer = [&](const std::string& what, double needed) {
    if (needed <= budget_bytes) found.push_back({what, needed});
    return needed <= budget_bytes;
  };
  if (of(bytes, split) <= budget_bytes) return found;
  DeviceSplit deeper = split;
  for (deeper.zero = split.zero + 1; deeper.zero <= 3; ++deeper.zero) {
    if (offer(deeper.text(), of(bytes, deeper))) break;
  }
  deeper.zero = 3;
  BytesPerParameter on_host = bytes;
  on_host.optimizer = 0;
  offer("ZeRO 3 with optimizer state and masters on the host", of(on_host, deeper));
  BytesPerParameter small = bytes;
  small.optimizer = 2;
  offer("ZeRO 3 with 8-bit moments and no f32 masters", of(small, deeper));
  for (DeviceSplit more = deeper; more.devices <= 1 << 16; more.devices *= 2) {
    if (more.devices > split.devices && offer(more.text(), of(bytes, more))) break;
  }
  return found;
}

}  // namespace hybrid_trainer
