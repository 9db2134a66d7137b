#pragma once

#include <boost/json.hpp>

#include "hybrid_trainer/models/language_model.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/model_files/hugging_face/folder_weights.h"
#include "src/model_files/model_folder.h"

namespace hybrid_trainer {

/// Whether a tensor is one of the vectors of mixers that folders in bf16 may have in f32.
bool is_mixer_vector_in_f32(const SafetensorsEntry& entry);

/// The folder that a model's weights began with: what export takes over from it as it is.
class OriginFolder {
 public:
  /// Of an empty path nothing is taken over. Warns where the folder is gone and the layout would
  /// take over some of it. Throws MissingInput, DataError.
  OriginFolder(const ModelFolder& folder, const HuggingFaceLayout& layout);

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
  ModelFolder folder_;
  const HuggingFaceWeights* weights_ = nullptr;  // of the folder, where it has what is taken over
  std::optional<boost::json::object> outer_;     // config.json, where the text model is a part
};

/// A copy of f32 values.
Tensor rounded_to_bf16(const Tensor& values);
/// Form of the first quantized weight, as lora.base names it; empty where there is none.
std::string quantization_of(Network& model);
/// Dtype of what is not quantized in such a model: all in one, as transformers computes in one; bf16
/// where that rounds nothing, the vectors being the only ones that are held in f32.
DType dtype_beside_codes(Network& model, const Stream& stream);
/// The model's own tensors of a folder's model.safetensors: rounded to `dtype`, quantized ones as they
/// are held, without adapters.
std::vector<NamedTensor> exported_tensors(Network& model, const OriginFolder& origin, DType dtype,
                                          const Stream& stream);

}  // namespace hybrid_trainer
