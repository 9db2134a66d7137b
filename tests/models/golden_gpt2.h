#pragma once

#include <memory>
#include <string>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/files/safetensors.h"
#include "tests/support/parameters.h"

namespace hybrid_trainer::testing {

/// A golden file: a GPT-2 with random weights and PyTorch's results.
class GoldenGpt2 {
 public:
  explicit GoldenGpt2(const std::string& name, const Stream& stream)
      : stream_(stream), file_(concat(HT_TEST_DATA_DIR, "/", name, ".safetensors")) {
    const auto number = [&](const char* key) { return std::stoll(file_.metadata().at(key)); };
    config_.layers = number("layers");
    config_.heads = number("heads");
    config_.width = number("width");
    config_.context = number("context");
    config_.vocabulary = number("vocabulary");
    batch_ = token_batch(load("tokens"), load("targets"));
  }

  const ModelConfig& config() const { return config_; }
  const Batch& batch() const { return batch_; }
  Tensor load(const std::string& name) const {
    return file_.load(name, MemoryKind::kData, stream_);
  }

  /// Makes the model with the file's weights.
  std::unique_ptr<LanguageModel> make_model() const {
    auto model = hybrid_trainer::make_model(config_, 1, stream_);
    model->visit_parameters([&](Parameter& parameter) {
      const std::vector<double> values = matching(parameter, "");
      for (std::size_t i = 0; i < values.size(); ++i)
        master_of(parameter).data<float>()[i] = static_cast<float>(values[i]);
    });
    return model;
  }

  /// Loads the file's tensor `prefix` + parameter name in the parameter's layout: transposes
  /// Hugging Face's (in, out) matrices and pads the token table with zero rows.
  std::vector<double> matching(const Parameter& parameter, const std::string& prefix) const {
    const Tensor tensor = load(prefix + parameter.name());
    std::vector<double> values = values_of(tensor);
    if (is_matrix(parameter.role())) {
      const auto inputs = static_cast<std::size_t>(tensor.size(0)),
                 outputs = static_cast<std::size_t>(tensor.size(1));
      std::vector<double> turned(values.size());
      for (std::size_t i = 0; i < values.size(); ++i)
        turned[i % outputs * inputs + i / outputs] = values[i];
      values = turned;
    }
    values.resize(static_cast<std::size_t>(parameter.elements()), 0.0);
    return values;
  }

 private:
  const Stream& stream_;
  SafetensorsFile file_;
  ModelConfig config_;
  Batch batch_;
};

}  // namespace hybrid_trainer::testing
