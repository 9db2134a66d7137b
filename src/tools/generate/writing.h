#pragma once

#include <boost/json.hpp>

#include "hybrid_trainer/generation/text_generation.h"
#include "src/data/chat/chat_template.h"
#include "src/generation/text_batch.h"
#include "src/tools/open_model.h"

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

/// A file of prompts, one a line, and how they are continued.
struct PromptFile {
  std::string path;
  ControlText control = ControlText::kAsTokens;
  GenerationSettings generation{};
  /// Texts written at a time; with 1 what a prompt has in common with the one before is computed
  /// once.
  std::int64_t batch = 1;
};

/// The lines of a file of prompts. Throws MissingInput, DataError where it has none.
std::vector<std::string> prompt_lines(const std::string& file);

/// Prints a JSON object for each prompt, in order; all are checked before the first. `draft` may be
/// null. Throws DataError where a prompt is refused.
void continue_prompts(const PromptFile& file, const WritingModel& model, DraftModel* draft,
                      const Stream& stream);

/// Prints the piece at once. Throws IoError.
void print_now(std::string_view piece);

/// Throws UsageError where a command's --beam is not from 1 to 64.
void check_beams(const std::string& command, std::int64_t beams);

/// What `hybrid sample` is asked of an encoder-decoder.
struct SourceSampling {
  std::vector<std::string> sources;
  std::optional<std::int64_t> beams{};   // else as the folder says
  std::optional<std::int64_t> tokens{};  // most to write; else as the folder says
  ControlText control = ControlText::kAsTokens;
  ContextOverflow overflow = ContextOverflow::kTruncate;
  bool json = false;
};

/// Prints what the model makes of each source. Throws DataError where a source is longer than the
/// encoder's context and may not be cut.
void write_of_sources(const WritingModel& model, const SourceSampling& asked, const Stream& stream);

/// Prints each prompt and the likeliest text behind it that a decoder's beam search finds by the keys of its
/// folder.
void continue_by_beams(const WritingModel& model, const SourceSampling& asked,
                       const GenerationSettings& settings, const GenerationKeys& keys,
                       const Stream& stream);

}  // namespace hybrid_trainer
