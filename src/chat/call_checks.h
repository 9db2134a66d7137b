#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/chat/nodes.h"
#include "src/chat/token_reader.h"

namespace hybrid_trainer::jinja {

/// Whether what a template calls exists, and takes the arguments that it is given.
class CallChecks {
 public:
  struct Call {
    std::string function;
    int line;
  };
  explicit CallChecks(const TokenReader& reader) : reader_(reader) {}
  /// Finds the call's signature. Throws DataError where there is none.
  void check_call(Expression& call);
  void check_arguments(Expression& call, const char* what, const std::string& name,
                       std::span<const Signature> table) const;
  /// Calls of what the environment does not have; they must be macros.
  const std::vector<Call>& unknown_calls() const { return unknown_calls_; }
  bool reads_date() const { return reads_date_; }

 private:
  const TokenReader& reader_;
  std::vector<Call> unknown_calls_;
  bool reads_date_ = false;
};

}  // namespace hybrid_trainer::jinja
