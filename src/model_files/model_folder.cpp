#include "src/model_files/model_folder.h"

#include "src/data/text/tokenizer_files.h"

namespace hybrid_trainer {

struct ModelFolder::Opened {
  std::optional<bool> is_gguf;
  std::optional<GgufFile> gguf;
  std::optional<HuggingFaceWeights> weights;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::optional<ChatFiles> chat;
};

ModelFolder::ModelFolder(Unread unread)
    : files_(std::move(unread.path)), opened_(std::make_shared<Opened>()) {}

bool ModelFolder::is_gguf() const {
  if (!opened_->is_gguf) opened_->is_gguf = GgufFile::is_one(path());
  return *opened_->is_gguf;
}

const GgufFile& ModelFolder::gguf() const {
  if (!opened_->gguf) opened_->gguf.emplace(path());
  return *opened_->gguf;
}

const HuggingFaceWeights& ModelFolder::weights() const {
  if (!opened_->weights) opened_->weights.emplace(path());
  return *opened_->weights;
}

std::shared_ptr<const Tokenizer> ModelFolder::tokenizer() const {
  if (!opened_->tokenizer)
    opened_->tokenizer = is_gguf()                  ? load_tokenizer(gguf())
                         : fs::is_directory(path()) ? load_tokenizer(files_)
                                                    : load_tokenizer(path());
  return opened_->tokenizer;
}

TokenizerFiles ModelFolder::tokenizer_files() const {
  return is_gguf() ? tokenizer()->files() : read_tokenizer_files(files_);
}

const ChatFiles& ModelFolder::chat() const {
  if (!opened_->chat) opened_->chat = is_gguf() ? read_chat_files(gguf()) : read_chat_files(files_);
  return *opened_->chat;
}

std::string ModelFolder::special_token(const std::string& name) const {
  for (const auto& [key, text] :
       is_gguf() ? read_special_tokens(gguf()) : read_special_tokens(files_))
    if (key == name) return text;
  return "";
}

}  // namespace hybrid_trainer
