#include "src/observability/jsonl_sink.h"
#include "src/observability/watch/run_feed.h"
#include "src/observability/watch/terminal_view.h"
#include "tests/fuzz/fuzz_target.h"

void hybrid_trainer::read_input(std::string_view input) {
  const auto parts = parts_of(input, 3);
  std::filesystem::create_directories(input_folder() / "run");
  input_file("run/config.json", parts[2].empty() ? "{}" : parts[2]);
  input_file("run/metrics.jsonl", parts[0]);
  input_file("run/summary.json", parts[1]);
  for_each_record(input_folder() / "run/metrics.jsonl",
                  [](const StepRecord& record) { json_of_record(record); });
  WatchedRun run(input_folder() / "run", "run");
  RunFeed feed(run);
  feed.refresh();
  feed.page();
  FeedPosition place;
  feed.updates(place);
  run.summary_json();
  if (const auto seconds = run.seconds_left(); seconds && run.last().seconds >= 0)
    require(!(*seconds < 0), "the remaining time is negative");
  frame_of(run, {});
}
