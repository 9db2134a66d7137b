#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/hugging_face/folder_weight.h"
#include "hybrid_trainer/hugging_face/hugging_face_weights.h"
#include "hybrid_trainer/models/model_family.h"

namespace hybrid_trainer {

/// A folder with its layout's prefix and the form of its products.
struct OpenFolder {
  HuggingFaceWeights weights;
  std::string prefix;        // of names in the files; may be empty
  std::string quantization;  // see quantization_of_hugging_face

  std::string name_of(const FileTensor& part) const {
    return part.prefixed ? prefix + part.name : part.name;
  }
  /// Whether it may be missing, and is.
  bool lacks(const FileTensor& part) const {
    return part.may_be_missing && !weights.contains(name_of(part));
  }
  /// What the folder has because a part, a matrix of some rows here, is quantized; none where it is not.
  std::vector<std::string> keys_of(const FileTensor& part) const;
  /// All that it has of a part.
  std::vector<std::string> names_of(const FileTensor& part) const;
};

/// A weight of `shape` in a folder, which must outlive it.
class WeightInFiles final : public FolderWeight {
 public:
  WeightInFiles(const OpenFolder& folder, const std::vector<FileTensor>& parts, const Shape& shape)
      : folder_(folder), parts_(parts), shape_(shape) {}
  Tensor values() const override;
  void read(const Tensor& values) const override;
  bool is_quantized() const override;
  std::vector<QuantizedRows> quantized(const Stream& home) const override;

 private:
  void read_unchecked(const Tensor& values, const FileTensor& part) const;
  void read_part(const Tensor& values, const FileTensor& part) const;
  QuantizedRows quantized_part(const FileTensor& part, const Stream& home) const;
  const OpenFolder& folder_;
  const std::vector<FileTensor>& parts_;
  Shape shape_;
};

}  // namespace hybrid_trainer
