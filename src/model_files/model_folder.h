#pragma once

#include <concepts>

#include "hybrid_trainer/data/tokenizer.h"
#include "src/data/chat/chat_template.h"
#include "src/gguf/gguf_file.h"
#include "src/model_files/hugging_face/folder_weights.h"

namespace hybrid_trainer {

/// The files of a model: a Hugging Face folder or a GGUF file. Opens and reads each file once, when
/// it is first needed. Copies of this object share the contents. Not thread-safe.
class ModelFolder {
 public:
  ModelFolder() : ModelFolder(fs::path()) {}
  ModelFolder(const std::convertible_to<fs::path> auto& path)  // NOLINT: nothing is read
      : ModelFolder(Unread{path}) {}

  const fs::path& path() const { return files_.path(); }
  bool empty() const { return path().empty(); }
  std::string string() const { return path().string(); }
  /// Returns whether the path is a GGUF file (see GgufFile::is_one).
  bool is_gguf() const;
  bool has_weights() const { return is_gguf() || HuggingFaceWeights::are_in(path()); }
  /// Returns whether the path is a model, which may have no weights.
  bool is_model() const { return has_weights() || files_.contains("config.json"); }

  /// Returns the files of a Hugging Face folder by name.
  const FolderFiles& files() const { return files_; }
  const GgufFile& gguf() const;
  const HuggingFaceWeights& weights() const;

  std::shared_ptr<const Tokenizer> tokenizer() const;
  /// Returns the tokenizer's files, or equivalent ones for a GGUF file. Throws like load_tokenizer.
  TokenizerFiles tokenizer_files() const;
  const ChatFiles& chat() const;
  /// Returns a special token, such as "eos_token", or "". Throws like read_special_tokens.
  std::string special_token(const std::string& name) const;

 private:
  struct Opened;
  struct Unread {
    fs::path path;
  };
  explicit ModelFolder(Unread unread);
  FolderFiles files_;
  std::shared_ptr<Opened> opened_;
};

/// Returns the quantization in config.json as a value of lora.base: nf4, fp4, int8 (bitsandbytes),
/// mxfp4, or "". Throws MissingInput, and DataError for other methods.
std::string quantization_of_hugging_face(const ModelFolder& folder);

}  // namespace hybrid_trainer
