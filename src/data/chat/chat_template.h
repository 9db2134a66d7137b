#pragma once

#include <ctime>
#include <utility>

#include "src/files/folder_files.h"

namespace hybrid_trainer {

class GgufFile;

/// Output of a chat template.
struct RenderedChat {
  /// Bytes [begin, end) of the text.
  struct Span {
    std::size_t begin = 0, end = 0;
    bool operator==(const Span&) const = default;
  };
  /// Text written by a loop's iteration for one of `messages`: its item, or one it looked up.
  struct Part {
    std::size_t message = 0;
    Span span;
  };
  std::string text;
  std::vector<Span> generated;  // contents of `generation` blocks, in order
  std::vector<Part> parts;      // none empty; parts of inner loops come before outer ones
};

/// A Hugging Face chat template: the subset of Jinja in docs/FINETUNING_DATA.md, with the settings
/// of transformers (trim_blocks, lstrip_blocks, loop controls, `generation`, its tojson). The
/// output equals jinja2's byte for byte. All const methods are thread-safe.
class ChatTemplate {
 public:
  /// Parses a template. Throws DataError "name:line: problem", also for unsupported constructs.
  ChatTemplate(const std::string& source, std::string name);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  /// Renders the template with `variables`, such as messages, tools, add_generation_prompt and
  /// bos_token. `now` is the time for strftime_now, in the local time zone. Throws DataError
  /// "name:line: …" if the template raises an exception, or Python would refuse an operation.
  RenderedChat render(const boost::json::object& variables, std::time_t now) const;

  bool marks_generation() const;
  bool reads_date() const;
  /// Returns whether the template's source has this word as a name or key or within a text.
  bool mentions(std::string_view word) const;

 private:
  struct Parsed;
  std::string name_, source_;
  std::unique_ptr<const Parsed> parsed_;
};

/// Chat settings of a model folder.
struct ChatFiles {
  std::optional<ChatTemplate> chat_template;
  std::optional<ChatTemplate> tool_template;  // for chats with tools, if different
  std::string tool_template_problem;          // why tool_template cannot be read
  std::string missing_template{};             // error message for a model without a template
  /// Name and text of each special token of tokenizer_config.json and special_tokens_map.json:
  /// bos_token, eos_token, … As in transformers, special_tokens_map.json takes precedence if
  /// tokenizer_config.json has no added_tokens_decoder.
  std::vector<std::pair<std::string, std::string>> special_tokens;

  /// Returns the template for chats with or without tools. Throws DataError if there is none, or it
  /// cannot be read.
  const ChatTemplate& template_for(bool has_tools) const;
  /// Returns the special token of that name, or "".
  std::string special_token(const std::string& name) const;
};

/// Reads only the special tokens. Throws DataError if they are invalid.
std::vector<std::pair<std::string, std::string>> read_special_tokens(const FolderFiles& folder);
std::vector<std::pair<std::string, std::string>> read_special_tokens(const GgufFile& file);

/// Reads the chat settings of a folder or a GGUF file. A folder's template is chat_template.jinja
/// or, if absent, chat_template of tokenizer_config.json: a text, or a list with "default" and, for
/// chats with tools, "tool_use". As in transformers, additional_chat_templates/NAME.jinja takes
/// precedence over the list. A GGUF file's templates are in tokenizer.chat_template and
/// tokenizer.chat_template.tool_use. Throws MissingInput if there is no folder, DataError.
ChatFiles read_chat_files(const FolderFiles& folder);
ChatFiles read_chat_files(const GgufFile& file);

/// Returns whether the chat template writes a message's content only if it is a list of parts,
/// [{"type": "text", "text": …}], but not if it is a text. Returns false without a template.
bool requires_content_parts(const ChatFiles& chat, std::time_t now);

}  // namespace hybrid_trainer
