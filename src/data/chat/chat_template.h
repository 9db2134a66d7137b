#pragma once

#include <ctime>
#include <utility>

#include "src/files/folder_files.h"

namespace hybrid_trainer {

class GgufFile;

/// A text that a chat template made.
struct RenderedChat {
  /// Bytes [begin, end) of the text.
  struct Span {
    std::size_t begin = 0, end = 0;
    bool operator==(const Span&) const = default;
  };
  /// Text that one round of a loop wrote for one of `messages`: the round's item, or what it looks
  /// up by its number.
  struct Part {
    std::size_t message = 0;
    Span span;
  };
  std::string text;
  std::vector<Span> generated;  // what stood in `generation` blocks, in order
  std::vector<Part> parts;      // none empty; those of an inner loop come before the one around it
};

/// A chat template of Hugging Face: the subset of Jinja that such templates use, with the settings
/// of transformers (trim_blocks, lstrip_blocks, loop controls, `generation`, its tojson). What it
/// makes is byte for byte what jinja2 makes; docs/FINETUNING_DATA.md lists the subset.
/// All const calls may come from several threads at once.
class ChatTemplate {
 public:
  /// Throws DataError "name:line: what is wrong", also for each construct outside the subset.
  ChatTemplate(const std::string& source, std::string name);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  /// `variables` are the template's names, such as messages, tools, add_generation_prompt and
  /// bos_token; `now` is what strftime_now takes for the time, in the local zone. Throws DataError
  /// "name:line: …" where the template raises an exception, or computes what Python would refuse.
  RenderedChat render(const boost::json::object& variables, std::time_t now) const;

  /// Whether it has a `generation` block.
  bool marks_generation() const;
  /// Whether it asks for the date.
  bool reads_date() const;
  /// Whether the word stands in it, as a name, an attribute, a key or in a text.
  bool mentions(std::string_view word) const;

 private:
  struct Parsed;
  std::string name_, source_;
  std::unique_ptr<const Parsed> parsed_;
};

/// Chat settings of a model folder.
struct ChatFiles {
  std::optional<ChatTemplate> chat_template;
  std::optional<ChatTemplate> tool_template;  // for chats with tools, where it is another one
  std::string tool_template_problem;          // why that cannot be read
  std::string missing_template{};             // error message for a model without a template
  /// Name and text of each special token of tokenizer_config.json and special_tokens_map.json:
  /// bos_token, eos_token, … As in transformers, the latter has precedence where the former has no
  /// added_tokens_decoder.
  std::vector<std::pair<std::string, std::string>> special_tokens;

  /// Throws DataError where there is none, or it cannot be read.
  const ChatTemplate& template_for(bool has_tools) const;
  /// The special token of that name, or "".
  std::string special_token(const std::string& name) const;
};

/// The special tokens alone. Throws DataError.
std::vector<std::pair<std::string, std::string>> read_special_tokens(const FolderFiles& folder);
std::vector<std::pair<std::string, std::string>> read_special_tokens(const GgufFile& file);

/// Reads chat_template.jinja, or else chat_template of tokenizer_config.json: a text, or a list of
/// {name, template}, of which the one named "default" is taken, and "tool_use" for chats with
/// tools, as in transformers. Files additional_chat_templates/NAME.jinja come before such a list. Of a
/// GGUF file: its tokenizer.chat_template and tokenizer.chat_template.tool_use. Throws MissingInput
/// if there is no folder, DataError.
ChatFiles read_chat_files(const FolderFiles& folder);
ChatFiles read_chat_files(const GgufFile& file);

/// Whether the chat template writes a message's content only where it is a list of parts,
/// [{"type": "text", "text": …}], and not where it is a text. False without a template.
bool takes_parts_alone(const ChatFiles& chat, std::time_t now);

}  // namespace hybrid_trainer
