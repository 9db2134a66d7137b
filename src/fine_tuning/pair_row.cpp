#include "src/fine_tuning/pair_row.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

ExampleRow pair_row(ExampleRow chosen, const ExampleRow& rejected, const ExampleFormat& format) {
  if (chosen.tokens == rejected.tokens && chosen.learnt == rejected.learnt)
    throw DataError(
        "\"chosen\" and \"rejected\" have the same tokens, so nothing is to be preferred");
  const std::int64_t all = std::ssize(chosen.tokens) + chosen.left_out +
                           std::ssize(rejected.tokens) + rejected.left_out - 2;
  if (all > format.longest - 1)
    throw DataError(concat("its two answers with their prompts take ", all,
                           " tokens, and a sequence holds ", format.longest - 1, "; ",
                           format.context == 0 || format.longest <= format.context
                               ? "raise data.sequence_length"
                               : kContextIsFull));
  ExampleRow row = std::move(chosen);
  row.rejected_at = std::ssize(row.tokens);
  row.tokens.insert(row.tokens.end(), rejected.tokens.begin(), rejected.tokens.end());
  row.learnt.insert(row.learnt.end(), rejected.learnt.begin(), rejected.learnt.end());
  row.answers_left_out += rejected.answers_left_out;
  return row;
}

}  // namespace hybrid_trainer
