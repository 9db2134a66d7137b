#pragma once

#include <boost/json.hpp>

#include "hybrid_trainer/generation/text_generation.h"
#include "src/data/chat/chat_template.h"
#include "src/run/run_files.h"

namespace hybrid_trainer {

/// The tokens that end a text by a model folder's files: eos_token_id of generation_config.json and
/// config.json, eos_token of tokenizer_config.json or special_tokens_map.json. Throws DataError.
std::vector<std::int32_t> end_tokens_in(const ModelFolder& folder, const Tokenizer& tokenizer);

/// A conversation with a model by the chat template of its folder.
class Conversation {
 public:
  /// `folder`: with the template and the tokenizer's files. Throws DataError where there is no
  /// template or no tokenizer. `opened`,
  /// `draft`, which may be null, and `stream` must outlive this.
  Conversation(const TrainedRun& opened, const ModelFolder& folder,
               const GenerationSettings& settings, DType dtype, DraftModel* draft,
               const Stream& stream);

  /// Adds what `role`, such as "system" or "user", says.
  void add(const char* role, const std::string& text);
  /// Adds what the system says first; standard error says so if the template leaves it out.
  void add_system(const std::string& text);
  /// The model's answer to all of it, passed to `write` as it comes, and added. Where what was said
  /// has outgrown the context, the oldest turns are left out until half of it is free, and standard
  /// error says so; the system message stays. Throws DataError where settings.overflow is kError.
  GenerationResult answer(const std::function<void(std::string_view)>& write);

 private:
  boost::json::object message(const char* role, const std::string& text) const;
  std::string rendered(const boost::json::array& messages) const;
  std::vector<std::int32_t> tokens_of(const boost::json::array& messages) const;
  std::size_t messages_of_system() const;
  std::size_t oldest_turn() const;
  std::int64_t pinned_tokens(const std::vector<std::int32_t>& tokens) const;
  void leave_out_turns(std::vector<std::int32_t>& tokens);
  const Tokenizer& tokenizer_;
  ModelFolder folder_;
  const ChatFiles& chat_ = folder_.chat();
  bool takes_parts_;  // of content, as in training
  GenerationSettings settings_;
  CachedDecoder decoder_;
  DraftModel* draft_;
  boost::json::array messages_;
};

}  // namespace hybrid_trainer
