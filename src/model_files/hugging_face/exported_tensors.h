#pragma once

#include <boost/json.hpp>

#include "src/model_files/model_folder.h"

namespace hybrid_trainer {

/// Returns whether a tensor is a vector of a mixer that bf16 folders may store in f32.
bool is_mixer_vector_in_f32(const SafetensorsEntry& entry);

/// The model's original folder, from which export copies parts unchanged.
class OriginFolder {
 public:
  /// If the path is empty, copies nothing. Prints a warning if the folder does not exist and the
  /// layout would copy parts of it. Throws MissingInput, DataError.
  OriginFolder(const ModelFolder& folder, const HuggingFaceLayout& layout);

  /// Returns the layout, with the outer model's prefix if the original folder contains an outer
  /// model.
  const HuggingFaceLayout& layout() const { return layout_; }
  bool is_part() const { return outer_.has_value(); }
  /// Returns the whole config.json: the original with `text_config` in it, or `text_config` alone.
  json::object config_around(json::object text_config) const;
  /// Returns the tensors of the original folder that do not belong to the model.
  std::vector<CopiedTensor> carried() const;
  /// Returns whether the original folder has a vector of this name for which is_mixer_vector_in_f32
  /// is true. Export then keeps it in f32.
  bool holds_in_f32(const std::string& name) const;
  /// Returns the tensors with which the original folder stores `tensor`. `experts`: number of
  /// experts of its layer.
  std::vector<FileTensor> as_stored(const FileTensor& tensor, std::int64_t experts) const;
  /// Copies the files that configure the conversion of images and audio.
  void copy_processors(const fs::path& to) const;

 private:
  HuggingFaceLayout layout_;
  ModelFolder folder_;
  const HuggingFaceWeights* weights_ = nullptr;  // null if no tensors are copied
  std::optional<json::object> outer_;            // config.json, if the text model is a part
};

Tensor rounded_to_bf16(const Tensor& values);
/// Returns the form of the first quantized weight, as a name of lora.base, or "".
std::string quantization_of(Network& model);
/// Returns the dtype of the unquantized tensors of a quantized model. It is bf16 if this does not
/// round any f32 vector, otherwise f32. All these tensors have the same dtype, because transformers
/// computes in a single dtype.
DType unquantized_dtype(Network& model, const Stream& stream);
/// Returns the tensors for model.safetensors, rounded to `dtype` or quantized, without adapters.
/// `experts`: number of experts per layer. Experts are stored as in the original folder.
std::vector<NamedTensor> exported_tensors(Network& model, std::int64_t experts,
                                          const OriginFolder& origin, DType dtype,
                                          const Stream& stream);

}  // namespace hybrid_trainer
