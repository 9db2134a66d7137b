#pragma once

#include <boost/json.hpp>

#include "hybrid_trainer/generation/text_generation.h"
#include "src/data/chat/chat_template.h"
#include "src/generation/text_batch.h"
#include "src/tools/open_model.h"

namespace hybrid_trainer {

/// Returns the end tokens of a model folder. They are in eos_token_id of generation_config.json and
/// config.json, and in eos_token of tokenizer_config.json or special_tokens_map.json. Throws
/// DataError.
std::vector<std::int32_t> end_tokens_in(const ModelFolder& folder, const Tokenizer& tokenizer);

/// A conversation with a model, formatted by the chat template of its folder.
class Conversation {
 public:
  /// `folder` has the template and the tokenizer's files. `opened`, `draft` (may be null) and
  /// `stream` must outlive this object. Throws DataError if there is no template or tokenizer.
  Conversation(const TrainedRun& opened, const ModelFolder& folder,
               const GenerationSettings& settings, DType dtype, DraftModel* draft,
               const Stream& stream);

  void add(const char* role, const std::string& text);
  /// Adds a system message at the beginning. Prints a warning if the template ignores it.
  void add_system(const std::string& text);
  /// Generates the model's answer, passes it to `write` as it is generated, and adds it to the
  /// conversation. If the conversation exceeds the context, drops the oldest turns until half of
  /// the context is free, and reports this on standard error. Keeps the system message. If
  /// settings.overflow is kError, throws DataError instead.
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
  bool takes_parts_;  // whether message content is a list of parts, as in training
  GenerationSettings settings_;
  CachedDecoder decoder_;
  DraftModel* draft_;
  boost::json::array messages_;
};

/// A file with one prompt per line, and the settings for their continuation.
struct PromptFile {
  std::string path;
  ControlText control = ControlText::kAsTokens;
  GenerationSettings generation{};
  /// Number of texts generated at a time. If it is 1, a prompt reuses the cached prefix of the
  /// previous prompt.
  std::int64_t batch = 1;
};

/// Returns the lines of a prompt file. Throws MissingInput, or DataError if the file has no lines.
std::vector<std::string> prompt_lines(const std::string& file);

/// Checks all prompts, then prints a JSON object for each. `draft` may be null. Throws DataError.
void continue_prompts(const PromptFile& file, const WritingModel& model, DraftModel* draft,
                      const Stream& stream);

void print_now(std::string_view piece);

/// Throws UsageError if a command's --beam is not between 1 and 64.
void check_beams(const std::string& command, std::int64_t beams);

/// Arguments of `hybrid sample` for an encoder-decoder.
struct SourceSampling {
  std::vector<std::string> sources;
  std::optional<std::int64_t> beams{};  // if not set, the folder's setting
  /// Maximum tokens to generate; if not set, the folder's setting.
  std::optional<std::int64_t> tokens{};
  ControlText control = ControlText::kAsTokens;
  ContextOverflow overflow = ContextOverflow::kTruncate;
  bool json = false;
};

/// Prints the output for each source. Throws DataError for a long source if truncation is off.
void write_of_sources(const WritingModel& model, const SourceSampling& requested,
                      const Stream& stream);

/// Prints each prompt and its continuation by beam search, with the settings of the folder.
void continue_by_beams(const WritingModel& model, const SourceSampling& requested,
                       const GenerationSettings& settings, const GenerationKeys& keys,
                       const Stream& stream);

}  // namespace hybrid_trainer
