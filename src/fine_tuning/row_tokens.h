#pragma once

#include <array>
#include <boost/json.hpp>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "hybrid_trainer/fine_tuning/example_rows.h"
#include "src/fine_tuning/chat_rows.h"

namespace hybrid_trainer {

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
