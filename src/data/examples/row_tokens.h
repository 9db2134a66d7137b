#pragma once

#include <boost/json.hpp>
#include <cstddef>

#include "hybrid_trainer/data/tokenizer.h"
#include "src/data/examples/example_rows.h"
#include "src/data/examples/normal_row.h"

namespace hybrid_trainer {

/// The tokens of a text as an encoder-decoder reads and writes it: between those that the tokenizer puts
/// around a document; behind it at least the end-of-text token, where there is one. It has at most
/// `longest` tokens, of which the last are those behind it.
struct EnclosedText {
  std::vector<std::int32_t> tokens;
  std::int64_t left_out = 0;
};
EnclosedText enclosed_text(std::string_view text, const Tokenizer& tokenizer, ControlText control,
                           std::int64_t longest);

/// Which tokens of a text stand for which of its bytes.
class TokenPlaces {
 public:
  /// `tokens` are those of `text` with special tokens meant; both must outlive this.
  TokenPlaces(std::string_view text, std::span<const std::int32_t> tokens,
              const Tokenizer& tokenizer);

  /// The tokens [first, last) that stand for bytes from `begin` to `end` and for none outside. None
  /// where that cannot be told.
  std::optional<std::pair<std::size_t, std::size_t>> within(std::size_t begin, std::size_t end);

 private:
  bool walk();
  std::optional<std::size_t> tokens_before(std::size_t byte);

  std::string_view text_;
  std::span<const std::int32_t> tokens_;
  const Tokenizer& tokenizer_;
  std::vector<std::pair<std::size_t, std::size_t>> bytes_;  // of each token; empty: not known
  std::size_t known_byte_ = 0, known_tokens_ = 0;           // what is before a byte asked for last
};

/// The template for chats with these variables, which say whether there are tools.
const ChatTemplate& template_of(const ExampleFormat& format, const boost::json::object& variables);
/// Throws DataError where the template refuses it.
RenderedChat rendered(const ExampleFormat& format, const boost::json::object& variables,
                      boost::json::array messages, bool add_generation_prompt);
/// The first so many messages of a row.
boost::json::array first_messages(const NormalRow& row, std::size_t count);

/// What the template writes to ask for the messages of a row.
class GenerationPrompts {
 public:
  GenerationPrompts(const ExampleFormat& format, const NormalRow& row)
      : format_(format), row_(row) {}
  /// For message i; the same for all that follow the same role. None where it cannot be told.
  std::optional<std::string> before(std::size_t i);

 private:
  std::optional<std::string> behind(const boost::json::array& messages) const;
  bool has_parts() const;

  const ExampleFormat& format_;
  const NormalRow& row_;
  std::map<std::string, std::optional<std::string>> prompts_;  // by the role before
};

/// A chat as text, with what is trained on.
struct RenderedRow {
  using Span = RenderedChat::Span;
  std::string text{};
  std::vector<Span> targets{};           // in order, apart
  std::int64_t left_out = 0;             // answers that are not found in the text
  std::optional<Span> last_answer{};     // where the chat ends with a target
  std::optional<std::string> ending{};   // what is behind what that says, where this is known
  std::vector<std::string> unwritten{};  // keys of texts that the template leaves out
};

struct FoundAnswers {
  RenderedRow row;
  bool writes_calls = false;  // whether each answer names the tools that it calls
};
/// The answers in one rendering of a row. Throws DataError where they cannot be told.
FoundAnswers find_answers(const ExampleFormat& format, const NormalRow& row, RenderedChat chat);

/// Renders chats by a model folder's template and finds the answers, what the assistant says, in
/// the text of the whole chat, in time proportional to its length.
///
/// An answer is what the template writes of its message, through the end of the turn, but for what
/// it begins with in common with the generation prompt. Where a template has `generation` blocks,
/// these are the answers. An answer is left out where the template does not write it, or its tool
/// calls, or writes it in several places.
class ChatRows {
 public:
  explicit ChatRows(const ExampleFormat& format);

  /// How the template takes messages.
  const MessageForm& form() const { return form_; }

  /// `row` is the example in this form; where the template refuses that, or does not write its
  /// tool calls so, the others are tried. Throws DataError where the template refuses all.
  RenderedRow render(const boost::json::object& example, const NormalRow& row) const;

 private:
  const ExampleFormat& format_;
  MessageForm form_;
};

/// One example as tokens, without its line.
struct MadeRow {
  RowShape shape = RowShape::kText;
  ExampleRow row;                        // of a preference with the chosen answer
  std::optional<ExampleRow> rejected{};  // of a preference
  std::string chosen_columns{};          // see ShapedRow
};

/// Makes rows of tokens of a file's examples.
class RowMaker {
 public:
  /// `format` must outlive this.
  explicit RowMaker(const ExampleFormat& format) : format_(format), chats_(format) {}

  /// Tokens and targets of one example; `wide` are integers of its line. Throws DataError that says
  /// why it is refused.
  MadeRow make(const boost::json::object& example, const WideIntegers& wide);

  const ExampleFindings& findings() const { return findings_; }

 private:
  using Names = std::set<std::string>;
  /// Adds the members of kBeside that it uses to `used`.
  ExampleRow make_row(const boost::json::object& example, const WideIntegers& wide, Names& used);
  ExampleRow make_source_row(const NormalRow& row) const;
  bool is_named_in_template(const NormalRow& row, const std::string& key);
  void note_unused(const boost::json::object& example, const Names& used);
  void note(const NormalRow& row, const RenderedRow& chat, Names& used);
  bool is_read(const NormalRow& row, std::size_t i, const std::string& key);
  void note_calls(const NormalRow& row, const boost::json::array& calls);
  void note_ending(const std::string& ending);
  const ExampleFormat& format_;
  ChatRows chats_;
  ExampleFindings findings_;
  /// By template: of chats without and with tools.
  std::array<std::map<std::string, bool>, 2> named_in_template_;
  std::array<std::map<std::string, bool>, 2> read_;  // by the role and the key of a message
};

}  // namespace hybrid_trainer
