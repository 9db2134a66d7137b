#include "src/compare/comparison.h"

#include <fcntl.h>
#include <sys/file.h>
#include <algorithm>
#include <atomic>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/interruption.h"
#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/run/training_run.h"
#include "src/compare/run_outcome.h"
#include "src/core/clock.h"
#include "src/core/messages.h"
#include "src/distributed/host_ranks.h"
#include "src/files/escaped_text.h"
#include "src/files/output_file.h"
#include "src/observability/console_sink.h"
#include "src/tasks/task_kind.h"

namespace hybrid_trainer {

namespace fs = std::filesystem;

namespace {

constexpr double kPollSeconds = 0.2, kSecondsBetweenNewLines = 10;

/// Displays progress: a line for the current run with the estimated time left, then a line per
/// finished run.
class ComparisonProgress {
 public:
  /// `out` must outlive the object. `steps` is the total of all runs.
  ComparisonProgress(std::ostream& out, std::int64_t runs, std::int64_t steps, ConsoleStyle style)
      : out_(out), runs_(runs), steps_left_(steps), style_(style) {}
  void begin(const std::string& variant, const RunPoint& point) {
    point_ = point;
    first_step_ = 0;
    run_start_ = Clock::now();
    label_ = concat("run ", ended_ + 1, "/", runs_, "  ", variant, "  ",
                    units::grouped(point.steps), " steps  seed ", point.seed);
    if (point.value) label_ += "  at " + brief(*point.value);
  }
  void step(std::int64_t step, double loss) {
    if (first_step_ == 0) first_step_ = step;
    if (style_.quiet) return;
    const double interval = style_.rewrites ? kPollSeconds : kSecondsBetweenNewLines;
    if (seconds_since(last_shown_) < interval) return;
    last_shown_ = Clock::now();
    std::string text =
        concat(label_, "  step ", step, "  loss ", units::fixed(loss, 4), left(step));
    if (!style_.rewrites) {
      out_ << text << std::endl;
      return;
    }
    text.resize(std::min<std::size_t>(text.size(), static_cast<std::size_t>(style_.columns - 1)));
    erase();
    out_ << text << std::flush;
    shown_ = text.size();
  }
  /// Ends the current run. `ran` is false if the run was already finished.
  void end(const RunOutcome& outcome, bool ran) {
    ++ended_;
    steps_left_ -= point_.steps;
    if (ran) {
      steps_done_ += first_step_ > 0 ? point_.steps - first_step_ + 1 : point_.steps;
      seconds_ += seconds_since(run_start_);
    }
    first_step_ = 0;
    if (style_.quiet) return;
    tell(concat(
        label_,
        outcome.loss ? "  validation loss " + units::fixed(*outcome.loss, 4)
                     : "  failed: " + outcome.failure,
        ran ? concat("  ", units::duration(seconds_since(run_start_))) : "  already finished",
        ended_ < runs_ ? left(0) : ""));
  }
  void skip(std::int64_t runs, std::int64_t steps) {
    ended_ += runs;
    steps_left_ -= steps;
  }
  void tell(const std::string& text) {
    erase();
    out_ << text << std::endl;
  }

 private:
  void erase() {
    if (shown_ > 0) print_trusted(out_, concat("\r", std::string(shown_, ' '), "\r"));
    shown_ = 0;
  }
  std::string left(std::int64_t done) const {
    const std::int64_t here = first_step_ > 0 ? done - first_step_ + 1 : 0;
    const std::int64_t steps = steps_done_ + here;
    const double seconds = seconds_ + (here > 0 ? seconds_since(run_start_) : 0);
    if (steps == 0) return "";
    const double each = seconds / static_cast<double>(steps);
    return concat("  ", units::duration(each * static_cast<double>(steps_left_ - done)), " left");
  }
  std::ostream& out_;
  std::int64_t runs_, steps_left_;
  ConsoleStyle style_;
  Clock::time_point began_ = Clock::now(), last_shown_ = began_;
  std::int64_t ended_ = 0, steps_done_ = 0;
  double seconds_ = 0;  // seconds of finished runs
  Clock::time_point run_start_ = began_;
  std::int64_t first_step_ = 0;  // first step of the current run in this process; 0 before that
  RunPoint point_;
  std::string label_;
  std::size_t shown_ = 0;  // columns of the current terminal line
};

constexpr std::size_t kMaxSpecBytes = std::size_t{4} << 20;  // larger when indented

bool is_empty_or_absent(const fs::path& folder) {
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(folder, absent))
    if (entry.path().filename() != ".lock") return false;
  return true;
}

/// The comparison's folder, created if missing and locked during the object's lifetime.
class ComparisonFolder {
 public:
  ComparisonFolder(const fs::path& path, bool resume, const std::string& spec) : path_(path) {
    if (!resume && !is_empty_or_absent(path_))
      throw CannotCreate(concat(path_.string(),
                                ": is not empty; continue an existing comparison with --resume, or "
                                "choose another folder for --output"));
    const fs::path file = path_ / "spec.json";
    std::error_code problem;
    if (!is_empty_or_absent(path_) && !fs::exists(file, problem))
      throw CannotCreate(
          path_.string() +
          ": does not contain a comparison (no spec.json); choose another folder for --output");
    make();
    lock();
    if (fs::exists(file)) check_same_comparison(read_file(file, kMaxSpecBytes), spec);
    replace_file(file, spec);
  }

 private:
  void make() const {
    make_folders(path_);
    if (::access(path_.c_str(), W_OK | X_OK) == 0) return;
    throw CannotCreate(
        concat(path_.string(), ": the folder is not writable; choose another one for --output"));
  }
  void lock() {
    const fs::path file = path_ / ".lock";
    lock_ = FileDescriptor(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (lock_.number() < 0) throw CannotCreate(system_problem(file, "cannot create the lock"));
    if (::flock(lock_.number(), LOCK_EX | LOCK_NB) != 0)
      throw InUse(path_.string() + ": in use by another process; wait until it ends, or stop it");
  }
  fs::path path_;
  FileDescriptor lock_;
};

std::int64_t all_runs(const ComparisonSpec& spec) {
  std::int64_t runs = 0;
  for (const ComparisonVariant& variant : spec.variants)
    runs += std::ssize(variant.sweep) + std::ssize(spec.seeds) * std::ssize(variant.budgets);
  return spec.pace ? runs + spec.pace->rounds * std::ssize(spec.variants) : runs;
}

std::int64_t all_steps(const ComparisonSpec& spec) {
  std::int64_t steps = 0;
  for (const ComparisonVariant& variant : spec.variants) {
    steps += std::ssize(variant.sweep) * variant.budgets.back();
    for (const std::int64_t budget : variant.budgets) steps += std::ssize(spec.seeds) * budget;
  }
  return spec.pace ? steps + spec.pace->steps * spec.pace->rounds * std::ssize(spec.variants)
                   : steps;
}

class Comparison {
 public:
  Comparison(const ComparisonSettings& settings, const ComparisonSpec& spec,
             const Interruption& interruption, std::ostream& console)
      : settings_(settings),
        spec_(spec),
        output_(fs::absolute(settings.output).lexically_normal()),
        interruption_(interruption),
        runs_(spec.variants.size()),
        progress_(console, all_runs(spec), all_steps(spec),
                  ConsoleStyle::for_stderr(settings.quiet)) {}
  /// Returns false if a stop was requested.
  bool run_all() { return run_sweeps() && run_measured() && run_timing(); }
  std::vector<VariantRuns>& runs() { return runs_; }
  ComparisonProgress& progress() { return progress_; }

 private:
  bool run_sweeps() {
    const std::size_t trials = spec_.variants.front().sweep.size();
    for (std::size_t trial = 0; trial < trials; ++trial) {
      for (std::size_t i = 0; i < spec_.variants.size(); ++i) {
        const ComparisonVariant& variant = spec_.variants[i];
        const RunPoint point{variant.budgets.back(), spec_.sweep_seed(), variant.sweep[trial]};
        if (!run(i, point, runs_[i].trials)) return false;
      }
    }
    return true;
  }
  /// Alternates between variants, so that a slowdown of the machine affects all of them.
  bool run_measured() {
    std::size_t most = 0;
    for (const ComparisonVariant& variant : spec_.variants)
      most = std::max(most, variant.budgets.size());
    for (const std::int64_t seed : spec_.seeds) {
      for (std::size_t budget = 0; budget < most; ++budget) {
        for (std::size_t i = 0; i < spec_.variants.size(); ++i) {
          const std::vector<std::int64_t>& budgets = spec_.variants[i].budgets;
          if (budget >= budgets.size()) continue;
          if (!run_at_best(i, {budgets[budget], seed, {}}, runs_[i].runs)) return false;
        }
      }
    }
    return true;
  }
  bool run_timing() {
    for (std::int64_t round = 1; spec_.pace && round <= spec_.pace->rounds; ++round) {
      for (std::size_t i = 0; i < spec_.variants.size(); ++i) {
        const RunPoint point{spec_.pace->steps, spec_.sweep_seed(), {}, round};
        if (!run_at_best(i, point, runs_[i].pace)) return false;
      }
    }
    return true;
  }
  /// Starts a run with the best value of the variant's sweep. Skips the run if no trial finished.
  bool run_at_best(std::size_t variant, RunPoint point, std::vector<RunOutcome>& outcomes) {
    const RunOutcome* best = best_trial(runs_[variant].trials);
    if (best == nullptr && !runs_[variant].trials.empty()) {
      progress_.skip(1, point.steps);
      return true;
    }
    if (best != nullptr) point.value = best->point.value;
    return run(variant, point, outcomes);
  }
  bool run(std::size_t index, const RunPoint& point, std::vector<RunOutcome>& outcomes) {
    if (interruption_.requested()) return false;
    const ComparisonVariant& variant = spec_.variants[index];
    const std::string name = concat("runs/", variant.name, "/", point.name());
    const fs::path folder = output_ / name;
    progress_.begin(variant.name, point);
    const std::vector<std::string> command = spec_.command_of(variant, point, folder);
    const TrainingRunSettings settings = settings_of(variant, point, folder);
    const bool was_finished =
        variant.is_program() ? is_finished(folder, command) : is_finished(settings);
    RunOutcome outcome;
    const auto failed = [&](const Error& error, bool diverged) {
      outcome.point = point;
      outcome.failure = error.what();
      outcome.diverged = diverged;
    };
    try {
      const bool ended =
          was_finished ||
          (variant.is_program() ? run_program_variant(spec_, command, folder, interruption_)
                                : train(settings));
      if (!ended) return false;
      outcome = read_outcome(folder, point);
    } catch (const Diverged& error) {
      failed(error, true);
    } catch (const OutOfMemory& error) {
      failed(error, false);
    }
    outcome.folder = name;
    progress_.end(outcome, !was_finished);
    outcomes.push_back(std::move(outcome));
    return true;
  }
  TrainingRunSettings settings_of(const ComparisonVariant& variant, const RunPoint& point,
                                  const fs::path& folder) {
    TrainingRunSettings run{
        .config = spec_.config_of(variant, point),
        .data = spec_.data,
        .run = folder,
        .resume = fs::exists(folder),
        .command = settings_.command,
        .task =
            [](const TrainingRunSettings& all) {
              return task_kind(all.config.model).task(all, {});
            },
        .on_step = [this](const StepRecord& record) { progress_.step(record.step, record.loss); },
        .interruption = &interruption_};
    if (!spec_.model.empty()) run.init_from = spec_.model;
    return run;
  }
  /// Trains one run. Returns false if a stop was requested.
  bool train(TrainingRunSettings run) {
    std::ostream nowhere(nullptr);
    if (spec_.ranks == 1) return run_training(run, nowhere).end != RunEnd::kInterrupted;
    run.local_ranks = spec_.ranks;
    std::atomic<bool> ended = true;
    run_thread_ranks(spec_.ranks, [&](Communicator& rank) {
      TrainingRunSettings own = run;
      own.ranks = &rank;
      if (rank.rank() > 0) own.on_step = {};
      std::ostream console(nullptr);
      if (run_training(own, console).end == RunEnd::kInterrupted) ended = false;
    });
    return ended;
  }

  const ComparisonSettings& settings_;
  const ComparisonSpec& spec_;
  fs::path output_;
  const Interruption& interruption_;
  std::vector<VariantRuns> runs_;
  ComparisonProgress progress_;
};

}  // namespace

ComparisonOutcome run_comparison(const ComparisonSettings& settings, std::ostream& console) {
  const ComparisonSpec spec = read_comparison_spec(settings.spec);
  const ComparisonFolder folder(settings.output, settings.resume, spec.text);
  const Interruption interruption;  // created before any compute thread
  for (const char* old : {"result.json", "report.html"}) fs::remove(settings.output / old);
  Comparison comparison(settings, spec, interruption, console);
  ComparisonOutcome end;
  if (!comparison.run_all()) {
    comparison.progress().tell("stopped; --resume continues from here");
    end.interrupted = true;
    return end;
  }
  std::vector<VariantRuns>& runs = comparison.runs();
  end.result = comparison_result(spec, std::move(runs));
  end.result_json = to_json(spec, end.result);
  end.markdown = markdown_table(spec, end.result);
  write_comparison_report(settings.output, spec, end.result);
  replace_file(settings.output / "result.json", end.result_json);
  return end;
}

}  // namespace hybrid_trainer
