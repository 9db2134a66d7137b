#pragma once

#include <ctime>
#include <utility>

#include "src/files/folder_files.h"

namespace hybrid_trainer {

class GgufFile;

struct RenderedChat {
  /// Bytes [begin, end) of the text.
  struct Span {
    std::size_t begin = 0, end = 0;
    bool operator==(const Span&) const = default;
  };
  /// The text that an iteration of a loop writes for one of `messages`. The message is the item of
  /// the iteration, or a message that the iteration looks up.
  struct Part {
    std::size_t message = 0;
    Span span;
  };
  std::string text;
  std::vector<Span> generated;  // contents of `generation` blocks, in order
  /// No part is empty; the parts of an inner loop precede the part of the outer loop.
  std::vector<Part> parts;
};

/// A Hugging Face chat template in the subset of Jinja that docs/FINETUNING_DATA.md describes, with
/// the settings of transformers. The output equals jinja2's byte for byte. Const methods are
/// thread-safe.
class ChatTemplate {
 public:
  /// Parses a template. Throws DataError "name:line: problem", also for unsupported constructs.
  ChatTemplate(const std::string& source, std::string name);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  /// Renders the template with `variables`, such as messages, tools and add_generation_prompt.
  /// `now` is the local time for strftime_now. Throws DataError "name:line: …" if the template
  /// raises an exception, or if an operation would raise one in Python.
  RenderedChat render(const boost::json::object& variables, std::time_t now) const;

  bool marks_generation() const;
  bool reads_date() const;
  /// Returns whether the template's source contains this word as a name, as a key or within a text.
  bool mentions(std::string_view word) const;

 private:
  struct Parsed;
  std::string name_, source_;
  std::unique_ptr<const Parsed> parsed_;
};

struct ChatFiles {
  std::optional<ChatTemplate> chat_template;
  std::optional<ChatTemplate> tool_template;  // template for chats with tools, if it is different
  std::string tool_template_problem;          // error message if tool_template cannot be read
  std::string missing_template{};             // error message for a model without a template
  /// Names and texts of special tokens. As in transformers, special_tokens_map.json takes
  /// precedence if tokenizer_config.json has no added_tokens_decoder.
  std::vector<std::pair<std::string, std::string>> special_tokens;

  /// Returns the template for chats with or without tools. Throws DataError if it is unusable.
  const ChatTemplate& template_for(bool has_tools) const;
  std::string special_token(const std::string& name) const;
};

/// Reads only the special tokens. Throws DataError if they are invalid.
std::vector<std::pair<std::string, std::string>> read_special_tokens(const FolderFiles& folder);
std::vector<std::pair<std::string, std::string>> read_special_tokens(const GgufFile& file);

/// Reads the chat settings of a folder or a GGUF file. A folder's template is chat_template.jinja
/// or, if absent, chat_template of tokenizer_config.json: a text, or a list with "default" and, for
/// chats with tools, "tool_use". As in transformers, additional_chat_templates/NAME.jinja takes
/// precedence over the list. A GGUF file's templates are in tokenizer.chat_template and
/// tokenizer.chat_template.tool_use. Throws MissingInput if the folder does not exist, and
/// DataError.
ChatFiles read_chat_files(const FolderFiles& folder);
ChatFiles read_chat_files(const GgufFile& file);

/// Returns whether the template writes content only as a list [{"type": "text", "text": …}].
bool requires_content_parts(const ChatFiles& chat, std::time_t now);

}  // namespace hybrid_trainer
