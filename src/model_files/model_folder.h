#pragma once

#include <concepts>

#include "hybrid_trainer/core/dtype.h"
#include "hybrid_trainer/data/tokenizer.h"
#include "src/data/chat/chat_template.h"
#include "src/files/folder_files.h"
#include "src/gguf/gguf_file.h"
#include "src/model_files/hugging_face/folder_weights.h"

namespace hybrid_trainer {

/// A model's files: a Hugging Face folder, or a GGUF file in place of one. Opens and reads each
/// file once, on demand; copies share the contents. Not thread-safe.
class ModelFolder {
 public:
  /// Constructs without a model.
  ModelFolder() : ModelFolder(std::filesystem::path()) {}
  ModelFolder(
      const std::convertible_to<std::filesystem::path> auto& path)  // NOLINT: nothing is read
      : ModelFolder(Unread{path}) {}

  const std::filesystem::path& path() const { return files_.path(); }
  bool empty() const { return path().empty(); }
  std::string string() const { return path().string(); }
  /// Returns whether it is a GGUF file, see GgufFile::is_one.
  bool is_gguf() const;
  /// Returns whether it has readable weights.
  bool has_weights() const { return is_gguf() || HuggingFaceWeights::are_in(path()); }
  /// Returns whether it is a model, possibly without weights.
  bool is_model() const { return has_weights() || files_.contains("config.json"); }

  /// Returns the files of a Hugging Face folder by name.
  const FolderFiles& files() const { return files_; }
  /// Returns the open GGUF file. Throws as GgufFile.
  const GgufFile& gguf() const;
  /// Returns the tensors of a Hugging Face folder. Throws as HuggingFaceWeights.
  const HuggingFaceWeights& weights() const;

  /// Throws as load_tokenizer.
  std::shared_ptr<const Tokenizer> tokenizer() const;
  /// Returns the tokenizer's files, or equivalents from a GGUF file. Throws as load_tokenizer.
  TokenizerFiles tokenizer_files() const;
  /// Throws as read_chat_files.
  const ChatFiles& chat() const;
  /// Returns a special token by name, such as "eos_token", or "". Throws as read_special_tokens.
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

/// Returns the quantization of a folder's products from the quantization_config of config.json, as
/// a value of lora.base: nf4, fp4 or int8, quantized by bitsandbytes, or mxfp4. Returns "" if they
/// are not quantized. Throws MissingInput, and DataError for other quantization methods.
std::string quantization_of_hugging_face(const ModelFolder& folder);

}  // namespace hybrid_trainer
