#pragma once

#include <boost/json.hpp>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/hugging_face/hugging_face_weights.h"
#include "hybrid_trainer/models/model_family.h"

namespace hybrid_trainer {

/// Whether a tensor is one of the vectors of mixers that folders in bf16 may have in f32.
bool is_mixer_vector_in_f32(const SafetensorsEntry& entry);

/// The folder that a model's weights began with: what export takes over from it as it is.
class OriginFolder {
 public:
  /// Of an empty path nothing is taken over. Warns where the folder is gone and the layout would
  /// take over some of it. Throws MissingInput, DataError.
  OriginFolder(const std::filesystem::path& folder, const HuggingFaceLayout& layout);

  /// The layout of a folder with the same model inside another one, or as it was.
  const HuggingFaceLayout& layout() const { return layout_; }
  /// Whether the model is a part of the folder's.
  bool is_part() const { return outer_.has_value(); }
  /// The whole config.json around that of the text model.
  boost::json::object config_around(boost::json::object text_config) const;
  /// Tensors of no part of the model.
  std::vector<CarriedTensor> carried() const;
  /// Whether it has such a vector by this name, which export then leaves so.
  bool holds_in_f32(const std::string& name) const;
  /// Copies the files that say how images and sound become numbers.
  void copy_processors(const std::filesystem::path& to) const;

 private:
  HuggingFaceLayout layout_;
  std::filesystem::path folder_;
  std::optional<HuggingFaceWeights> weights_;
  std::optional<boost::json::object> outer_;  // config.json, where the text model is a part
};

}  // namespace hybrid_trainer
