#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "hybrid_trainer/models/language_model.h"
#include "hybrid_trainer/models/model_family.h"
#include "memory/quantized_weight.h"
#include "src/files/safetensors.h"

namespace hybrid_trainer {

/// One weight as a Hugging Face folder holds it; nothing is read before it is asked for.
class FolderWeight {
 public:
  virtual ~FolderWeight() = default;
  /// f32 in its shape on the host, padding rows 0; of quantized modules what their codes stand for.
  /// Throws DataError, IoError, as do the others.
  virtual Tensor values() const = 0;
  /// Fills f32 values on the host with them.
  virtual void read(const Tensor& values) const = 0;
  /// Whether a module of it is quantized; of a GGUF file whether all are.
  virtual bool is_quantized() const = 0;
  /// Its modules' codes as the folder has them, in the pool of `home`; a module without is quantized
  /// in the folder's form. Of a GGUF file the blocks, where all modules have some; on a simulated home
  /// nothing of them is read.
  virtual std::vector<QuantizedRows> quantized(const Stream& home) const = 0;
};

/// The tensors of a Hugging Face folder: those of model.safetensors or, if there is none, of the
/// shards that model.safetensors.index.json names. Only headers are kept, so a model is read tensor
/// by tensor, however many files it is in.
class HuggingFaceWeights {
 public:
  /// Throws MissingInput if there is neither file or a shard is missing, and DataError for an index
  /// that is damaged, names a file outside the folder, or disagrees with the shards.
  explicit HuggingFaceWeights(const std::filesystem::path& folder);

  /// Whether the folder has either file.
  static bool are_in(const std::filesystem::path& folder);

  const std::vector<SafetensorsFile>& files() const { return files_; }
  /// The single file, or the index.
  const std::string& path() const { return path_; }
  bool contains(const std::string& name) const { return file_of_.count(name) > 0; }
  /// The file that holds the tensor. Throws DataError with the nearest name.
  const SafetensorsFile& file_of(const std::string& name) const;

 private:
  void add_file(const std::string& path);
  void add_shards(const std::filesystem::path& folder);
  std::string path_;  // of the single file or the index
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t> file_of_;  // index into files_, by the tensor's name
};

/// Where a folder has a tensor that it does not have under its usual name: as transformers 5 holds
/// mixtures itself, which it writes with save_original_format=False. There gates and ups of all experts
/// of a layer are one tensor (experts, 2·inner, width), and so are the last maps. Returns the tensor as
/// it was where that is not so. `contains`: whether the folder has a tensor, by its name without
/// prefix.
FileTensor as_held_by_version_5(const FileTensor& tensor, std::int64_t experts,
                                const std::function<bool(const std::string& name)>& contains);

/// A folder with its layout's prefix and the form of its products.
struct OpenFolder {
  const HuggingFaceWeights& weights;
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
