#pragma once

#include <concepts>

#include "hybrid_trainer/core/dtype.h"
#include "hybrid_trainer/data/tokenizer.h"
#include "src/data/chat/chat_template.h"
#include "src/files/folder_files.h"
#include "src/gguf/gguf_file.h"
#include "src/model_files/hugging_face/folder_weights.h"

namespace hybrid_trainer {

/// A model's files: a Hugging Face folder, or a GGUF file in place of one. Each file is opened and read
/// when it is first asked for, and once; copies share what was read. Not for several threads at once.
class ModelFolder {
 public:
  /// No model.
  ModelFolder() : ModelFolder(std::filesystem::path()) {}
  ModelFolder(
      const std::convertible_to<std::filesystem::path> auto& path)  // NOLINT: nothing is read
      : ModelFolder(Unread{path}) {}

  const std::filesystem::path& path() const { return files_.path(); }
  bool empty() const { return path().empty(); }
  std::string string() const { return path().string(); }
  /// Whether it is a GGUF file, see GgufFile::is_one.
  bool is_gguf() const;
  /// Whether it has weights that can be read.
  bool has_weights() const { return is_gguf() || HuggingFaceWeights::are_in(path()); }
  /// Whether it is a model, whose weights may be missing.
  bool is_model() const { return has_weights() || files_.contains("config.json"); }

  /// Files by name, of a Hugging Face folder.
  const FolderFiles& files() const { return files_; }
  /// Throws as GgufFile.
  const GgufFile& gguf() const;
  /// Tensors of a Hugging Face folder. Throws as HuggingFaceWeights.
  const HuggingFaceWeights& weights() const;

  /// Throws as load_tokenizer.
  std::shared_ptr<const Tokenizer> tokenizer() const;
  /// Contents of the tokenizer's files, in a GGUF file those that it stands for. Throws likewise.
  TokenizerFiles tokenizer_files() const;
  /// Throws as read_chat_files.
  const ChatFiles& chat() const;
  /// A special token by its name, such as "eos_token", or "". Throws as read_special_tokens.
  std::string special_token(const std::string& name) const;

 private:
  struct Opened;
  struct Unread {
    std::filesystem::path path;
  };
  explicit ModelFolder(Unread unread);
  FolderFiles files_;
  std::shared_ptr<Opened> opened_;
};

/// Quantization of a folder's products, by the quantization_config of config.json, as a value of
/// lora.base: nf4, fp4 or int8, quantized by bitsandbytes, or mxfp4; empty: not quantized. Throws
/// MissingInput, and DataError for another way to quantize.
std::string quantization_of_hugging_face(const ModelFolder& folder);

}  // namespace hybrid_trainer
