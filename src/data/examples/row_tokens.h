#pragma once

#include <boost/json.hpp>

#include "hybrid_trainer/data/tokenizer.h"
#include "src/data/examples/example_rows.h"
#include "src/data/examples/normal_row.h"

namespace hybrid_trainer {

/// Tokens of a text for an encoder-decoder, with the end-of-text token and the tokens that the
/// tokenizer adds to a document. Truncation to `longest` keeps the tokens after the text.
struct EnclosedText {
  std::vector<std::int32_t> tokens;
  std::int64_t left_out = 0;
};
EnclosedText enclosed_text(std::string_view text, const Tokenizer& tokenizer, ControlText control,
                           std::int64_t longest);

/// Throws DataError naming a token outside the model's vocabulary. Its size 0 is unknown.
void check_vocabulary(std::span<const std::int32_t> tokens, const Tokenizer& tokenizer,
                      std::int64_t vocabulary);

class TokenOffsets {
 public:
  /// `tokens` encode `text` with special tokens enabled; both must outlive this.
  TokenOffsets(std::string_view text, std::span<const std::int32_t> tokens,
               const Tokenizer& tokenizer);

  /// Returns the tokens [first, last) that exactly cover the bytes [begin, end), or nullopt.
  std::optional<std::pair<std::size_t, std::size_t>> within(std::size_t begin, std::size_t end);

 private:
  bool walk();
  std::optional<std::size_t> tokens_before(std::size_t byte);

  std::string_view text_;
  std::span<const std::int32_t> tokens_;
  const Tokenizer& tokenizer_;
  std::vector<std::pair<std::size_t, std::size_t>> bytes_;  // bytes of each token; empty if unknown
  std::size_t known_byte_ = 0, known_tokens_ = 0;           // tokens before the last queried byte
};

const ChatTemplate& template_of(const ExampleFormat& format, const boost::json::object& variables);
RenderedChat rendered(const ExampleFormat& format, const boost::json::object& variables,
                      boost::json::array messages, bool add_generation_prompt);
boost::json::array first_messages(const NormalRow& row, std::size_t count);

/// Finds generation prompts: text that the template writes to request a message of a row.
class GenerationPrompts {
 public:
  GenerationPrompts(const ExampleFormat& format, const NormalRow& row)
      : format_(format), row_(row) {}
  /// Returns the generation prompt of message i, or nullopt if it cannot be determined. Assumes
  /// that the prompt depends only on the role of the previous message.
  std::optional<std::string> before(std::size_t i);

 private:
  std::optional<std::string> prompt_after(const boost::json::array& messages) const;
  bool has_parts() const;

  const ExampleFormat& format_;
  const NormalRow& row_;
  std::map<std::string, std::optional<std::string>> prompts_;
};

struct RenderedRow {
  using Span = RenderedChat::Span;
  std::string text{};
  std::vector<Span> targets{};          // in ascending order, without overlap
  std::int64_t left_out = 0;            // answers not found in the text
  std::optional<Span> last_answer{};    // set if the chat ends with a target
  std::optional<std::string> ending{};  // text after the last answer's content, if known
  std::vector<std::string> omitted{};   // keys of texts that the template omits
};

struct FoundAnswers {
  RenderedRow row;
  bool writes_calls = false;  // whether each answer names the tools that it calls
};
FoundAnswers find_answers(const ExampleFormat& format, const NormalRow& row, RenderedChat chat);

/// Renders chats and finds the assistant's messages in the text of the whole chat, in linear time.
/// An answer is the template's output for its message, without the prefix that it shares with the
/// generation prompt, or the contents of `generation` blocks. It is not trained on if the template
/// does not write it or its tool calls, or writes it in several places.
class ChatRows {
 public:
  explicit ChatRows(const ExampleFormat& format);

  const MessageForm& form() const { return form_; }

  /// Renders `row`, which is `example` in the form form(). If the template refuses the row or omits
  /// its tool calls, tries the other forms. Throws DataError if the template refuses all forms.
  RenderedRow render(const boost::json::object& example, const NormalRow& row) const;

 private:
  const ExampleFormat& format_;
  MessageForm form_;
};

/// An example as tokens, without its line.
struct ConvertedRow {
  RowShape shape = RowShape::kText;
  ExampleRow row;                        // for a preference, with the chosen answer
  std::optional<ExampleRow> rejected{};  // for a preference
  std::string chosen_columns{};          // see ShapedRow
};

class RowMaker {
 public:
  /// `format` must outlive this.
  explicit RowMaker(const ExampleFormat& format) : format_(format), chats_(format) {}

  /// Returns tokens and targets. `wide` has the line's wide integers. Throws DataError if the
  /// example is unusable.
  ConvertedRow make(const boost::json::object& example, const WideIntegers& wide);

  const ExampleFindings& findings() const { return findings_; }

 private:
  using Names = std::set<std::string>;
  /// Makes a row. Adds the members of kContextKeys that the row uses to `used`.
  ExampleRow make_row(const boost::json::object& example, const WideIntegers& wide, Names& used);
  ExampleRow make_source_row(const NormalRow& row) const;
  bool is_named_in_template(const NormalRow& row, const std::string& key);
  void record_unused(const boost::json::object& example, const Names& used);
  void note(const NormalRow& row, const RenderedRow& chat, Names& used);
  bool is_read(const NormalRow& row, std::size_t i, const std::string& key);
  void record_calls(const NormalRow& row, const boost::json::array& calls);
  void record_ending(const std::string& ending);
  const ExampleFormat& format_;
  ChatRows chats_;
  ExampleFindings findings_;
  /// Whether the template names a word: for chats without tools, then for chats with tools.
  std::array<std::map<std::string, bool>, 2> named_in_template_;
  std::array<std::map<std::string, bool>, 2> read_;  // keyed by role and key of a message
};

}  // namespace hybrid_trainer
