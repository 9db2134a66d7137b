#pragma once

#include <boost/json.hpp>
#include <string>

#include "hybrid_trainer/fine_tuning/example_rows.h"
#include "src/fine_tuning/chat_rows.h"

namespace hybrid_trainer {

/// Makes rows of tokens of a file's examples.
class RowMaker {
 public:
  /// `format` must outlive this.
  explicit RowMaker(const ExampleFormat& format) : format_(format), chats_(format) {}

  /// Tokens and targets of one example, without its line; `wide` are integers of its line. Throws
  /// DataError that says why it is refused.
  ExampleRow make(const boost::json::object& example, const WideIntegers& wide);

  const ExampleFindings& findings() const { return findings_; }

 private:
  void note(const NormalRow& row, const RenderedRow& chat);
  void note_ending(const std::string& ending);
  const ExampleFormat& format_;
  ChatRows chats_;
  ExampleFindings findings_;
};

}  // namespace hybrid_trainer
