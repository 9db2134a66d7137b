#include "src/data/examples/text_rows.h"

#include "tests/fuzz/targets/rows_fixture.h"

void hybrid_trainer::read_input(std::string_view input) {
  static const RowsFixture fixture;
  static constexpr TextTask kTasks[] = {TextTask::kClassify, TextTask::kEmbed, TextTask::kRank,
                                        TextTask::kReward};
  const std::size_t kind = choice_in(input, 8);
  read_text_rows(input_file("rows.jsonl", input), {.task = kTasks[kind % 4],
                                                   .tokenizer = *fixture.tokenizer,
                                                   .needs_labels = kind < 4,
                                                   .chat = &fixture.chat});
}
