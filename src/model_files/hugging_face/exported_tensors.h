#pragma once

#include <boost/json.hpp>

#include "hybrid_trainer/models/language_model.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/model_files/hugging_face/folder_weights.h"
#include "src/model_files/model_folder.h"

namespace hybrid_trainer {

/// Returns whether a tensor is one of the mixers' vectors that folders in bf16 may store in f32.
bool is_mixer_vector_in_f32(const SafetensorsEntry& entry);

/// The model's original folder, from which export copies parts unchanged.
class OriginFolder {
 public:
  /// An empty path copies nothing. Warns if the folder is missing and the layout would copy parts
  /// of it. Throws MissingInput, DataError.
  OriginFolder(const ModelFolder& folder, const HuggingFaceLayout& layout);

  /// Returns the layout, with the prefix of the outer model if the original folder has one.
  const HuggingFaceLayout& layout() const { return layout_; }
  /// Returns whether the model is a part of the folder's model.
  bool is_part() const { return outer_.has_value(); }
  /// Returns the whole config.json: the original with `text_config` in it, or `text_config` alone.
  boost::json::object config_around(boost::json::object text_config) const;
  /// Returns the tensors of the original folder that belong to no part of the model.
  std::vector<CopiedTensor> carried() const;
  /// Returns whether the original folder has a vector of this name for which is_mixer_vector_in_f32
  /// is true. Export then keeps it in f32.
  bool holds_in_f32(const std::string& name) const;
  /// Copies the files that configure the conversion of images and audio.
  void copy_processors(const std::filesystem::path& to) const;

 private:
  HuggingFaceLayout layout_;
  ModelFolder folder_;
  const HuggingFaceWeights* weights_ = nullptr;  // null if nothing is copied from it
  std::optional<boost::json::object> outer_;     // config.json, if the text model is a part
};

/// Returns a rounded copy of f32 values.
Tensor rounded_to_bf16(const Tensor& values);
/// Returns the form of the first quantized weight, a name of lora.base; empty if there is none.
std::string quantization_of(Network& model);
/// Returns the dtype of unquantized tensors in a quantized model: bf16 if that rounds none of the
/// f32 vectors, else f32. All have one dtype, because transformers computes in one.
DType unquantized_dtype(Network& model, const Stream& stream);
/// Returns the tensors for model.safetensors, rounded to `dtype` or quantized, without adapters.
std::vector<NamedTensor> exported_tensors(Network& model, const OriginFolder& origin, DType dtype,
                                          const Stream& stream);

}  // namespace hybrid_trainer
