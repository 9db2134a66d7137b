#include "src/tools/rank_loss.h"

#include <unistd.h>
#include <boost/json.hpp>

#include <filesystem>
#include <fstream>
#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/processor.h"
#include "hybrid_trainer/distributed/communicator.h"
#include "hybrid_trainer/files/output_file.h"
#include "hybrid_trainer/files/pretty_json.h"
#include "hybrid_trainer/io/checkpoint.h"
#include "hybrid_trainer/io/run_directory.h"

namespace hybrid_trainer {
namespace {

/// What a resumed run goes on from, in words. The launcher may leave no time to read checkpoints.
std::string way_on(const RunPaths& run) {
  try {
    if (const auto found = find_newest_whole_checkpoint(run.checkpoints()))
      return concat("the newest good checkpoint is ", found->path, ", from which --resume goes on");
  } catch (const Error&) {  // the folder cannot be listed
  }
  return "there is no good checkpoint, and --resume begins anew";
}

/// Of a run that cannot write its own any more.
void write_summary_of_loss(const RunPaths& run, int ranks, const std::string& line) try {
  replace_file(
      run.summary(),
      json_line({{"end", "failed"}, {"distributed", {{"ranks", ranks}, {"lost_rank", line}}}}));
} catch (const Error& error) {
  std::cerr << concat("error: ", error.what(), "\n") << std::flush;
}

}  // namespace

void tell_of_loss(const TrainingRunSettings& settings, const std::string& line, bool speaks) {
  const RunPaths run{settings.run.string()};
  const int rank = settings.ranks->rank();
  const std::string text = speaks ? concat(line, "; ", way_on(run)) : line;
  std::ofstream(rank == 0 ? run.root + "/log.txt" : concat(run.root, "/ranks/", rank, "/log.txt"),
                std::ios::app)
      << text << '\n';
  if (!speaks) return;
  std::cerr << concat("error: ", text, "\n") << std::flush;
  write_summary_of_loss(run, settings.ranks->size(), line);
}

void leave_word_in_run(const TrainingRunSettings& settings, const std::string& reason) {
  const RunPaths run{settings.run.string()};
  const int rank = settings.ranks->rank();
  const std::string own = concat(run.root, "/ranks/", rank);
  if (!std::filesystem::exists(settings.resume ? run.root : own)) return;
  const std::string line =
      concat("rank ", rank, " (", host_name(), ", process ", getpid(), ") gave up: ", reason);
  std::ofstream(run.root + "/log.txt", std::ios::app) << line << "; " << way_on(run) << '\n';
  write_summary_of_loss(run, settings.ranks->size(), line);
}

}  // namespace hybrid_trainer
