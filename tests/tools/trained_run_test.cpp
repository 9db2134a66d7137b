#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_files.h"
#include "tests/tools/hybrid_process.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

TEST(TrainedRun, EvalGivesTheLossThatTheRunEndedWith) {
  const auto found = only_object(in_trained_folder({"eval", "run", "--json"}).output);
  const auto summary = only_object(read_text(trained_folder() / "run/summary.json"));
  const double loss = found.at("loss").to_number<double>();
  EXPECT_NEAR(loss, summary.at("final_validation_loss").to_number<double>(), 1e-9);
  EXPECT_NEAR(found.at("perplexity").to_number<double>(), std::exp(loss), 1e-9 * std::exp(loss));
  EXPECT_EQ(only_object(in_trained_folder({"eval", "run", "--data", "data", "--json"}).output),
            found);
}

TEST(TrainedRun, EvalOfTheMeanGivesTheLossOfThat) {
  fs::remove_all(trained_folder() / "averaged");
  in_trained_folder(tiny_training("averaged", {"--set", "training.average_weights=2"}));
  const auto summary = only_object(read_text(trained_folder() / "averaged/summary.json"));
  const auto found =
      only_object(in_trained_folder({"eval", "averaged", "--average", "--json"}).output);
  EXPECT_NEAR(found.at("loss").to_number<double>(),
              summary.at("final_average_validation_loss").to_number<double>(), 1e-9);
  EXPECT_EQ(run_hybrid(trained_folder(), {"eval", "run", "--average"}).exit_code, 66);
}

TEST(TrainedRun, TheBestCheckpointIsEvaluatedSampledAndExported) {
  fs::remove_all(trained_folder() / "best");
  const std::string told =
      in_trained_folder(
          tiny_training("best", {"--set", "checkpoint.keep_best=1", "--set", "checkpoint.keep=1",
                                 "--set", "training.evaluate_every_steps=1", "--set",
                                 "training.steps=8", "--set", "schedule.name=constant", "--set",
                                 "optimizer.learning_rate=1", "--set", "schedule.warmup_steps=0"}))
          .errors;
  const auto summary = only_object(read_text(trained_folder() / "best/summary.json"));
  const auto& best = summary.at("best").as_object();
  const std::int64_t step = best.at("step").as_int64();
  ASSERT_LT(step, 8) << "the rate is so high that the loss rises";
  EXPECT_NE(told.find(concat(" at step ", step,
                             "; hybrid export best --checkpoint best --output FOLDER\n")),
            std::string::npos)
      << told;
  const auto loss = [](const std::string& checkpoint) {
    return only_object(
               in_trained_folder({"eval", "best", "--checkpoint", checkpoint, "--json"}).output)
        .at("loss")
        .to_number<double>();
  };
  EXPECT_NEAR(loss("best"), best.at("validation_loss").to_number<double>(), 1e-9);
  EXPECT_NEAR(loss("8"), summary.at("final_validation_loss").to_number<double>(), 1e-9);
  const auto exported = [](const std::string& name, const std::vector<std::string>& more) {
    fs::remove_all(trained_folder() / name);
    std::vector<std::string> arguments{"export", "best", "--output", name};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(in_trained_folder(arguments).errors.find("warning") == std::string::npos,
              !more.empty());
    return read_text(trained_folder() / name / "model.safetensors");
  };
  const std::string of_best = exported("best_hf", {"--checkpoint", "best"});
  EXPECT_TRUE(of_best == exported("step_hf", {"--checkpoint", std::to_string(step)}));
  EXPECT_FALSE(of_best == exported("newest_hf", {}));
  in_trained_folder({"sample", "best", "--checkpoint", "best", "--prompt", "L", "--tokens", "3"});
  const auto seen = only_object(in_trained_folder({"inspect", "best", "--json"}).output);
  EXPECT_NE(seen.at("best_checkpoint").as_string().find(concat("step-000000000", step)),
            std::string_view::npos);
}

TEST(TrainedRun, ACheckpointThatIsNotThereIsRefusedByEachCommand) {
  for (const std::vector<std::string>& command : {std::vector<std::string>{"eval", "run"},
                                                  {"sample", "run", "--prompt", "L"},
                                                  {"export", "run", "--output", "none_hf"}}) {
    const auto refusal = [&](const std::string& checkpoint, int code) {
      std::vector<std::string> arguments = command;
      arguments.insert(arguments.end(), {"--checkpoint", checkpoint});
      const ProcessResult result = run_hybrid(trained_folder(), arguments);
      EXPECT_EQ(result.exit_code, code) << command.front() << ": " << result.errors;
      EXPECT_FALSE(fs::exists(trained_folder() / "none_hf"));
      return result.errors;
    };
    EXPECT_NE(refusal("best", 66).find("run has no best checkpoint"), std::string::npos);
    EXPECT_NE(refusal("5", 66).find("no checkpoint of step 5; there are those of 6, 4, 2"),
              std::string::npos);
    EXPECT_NE(refusal("last", 64).find("--checkpoint: got last, want best or a step"),
              std::string::npos);
  }
  fs::remove_all(trained_folder() / "plain_hf");
  in_trained_folder({"export", "run", "--output", "plain_hf"});
  const ProcessResult folder =
      run_hybrid(trained_folder(), {"eval", "plain_hf", "--data", "data", "--checkpoint", "best"});
  EXPECT_EQ(folder.exit_code, 64);
  EXPECT_NE(folder.errors.find("no run, which alone has checkpoints"), std::string::npos)
      << folder.errors;
}

TEST(TrainedRun, AMaskedModelIsMeasuredOnMaskedTokensAndWritesNoText) {
  fs::remove_all(trained_folder() / "masked");
  in_trained_folder(
      tiny_training("masked", {"--set", "model.family=semiseparable", "--set", "model.two_way=true",
                               "--set", "model.mixers=b", "--set", "objective=masked"}));
  const auto summary = only_object(read_text(trained_folder() / "masked/summary.json"));
  EXPECT_EQ(summary.at("objective").as_string(), "masked");
  const auto found = only_object(in_trained_folder({"eval", "masked", "--json"}).output);
  EXPECT_NEAR(found.at("loss").to_number<double>(),
              summary.at("final_validation_loss").to_number<double>(), 1e-9);
  EXPECT_EQ(found.at("objective").as_string(), "masked");
  const std::string told = in_trained_folder({"eval", "masked"}).output;
  EXPECT_TRUE(told.ends_with(" masked tokens\n")) << told;
  const ProcessResult sampled = run_hybrid(trained_folder(), {"sample", "masked", "--prompt", "L"});
  EXPECT_EQ(sampled.exit_code, 65);
  EXPECT_NE(sampled.errors.find("is an encoder (model.two_way), so it cannot write text"),
            std::string::npos)
      << sampled.errors;
  const ProcessResult rows = run_hybrid(trained_folder(), {"eval", "masked", "--data", "text.txt"});
  EXPECT_NE(rows.errors.find("tells masked tokens of windows of text (objective masked)"),
            std::string::npos)
      << rows.errors;
  const ProcessResult tuned = run_hybrid(
      trained_folder(), {"finetune", "--model", "masked", "--data", "text.txt", "--run", "tuned"});
  EXPECT_EQ(tuned.exit_code, 64);
  EXPECT_NE(tuned.errors.find("its model tells masked tokens (objective masked)"),
            std::string::npos)
      << tuned.errors;
}

TEST(TrainedRun, JsonOutputIsOneObjectAndNothingElse) {
  const auto run = only_object(in_trained_folder({"inspect", "run", "--json"}).output);
  EXPECT_EQ(run.at("steps").as_int64(), 6);
  EXPECT_EQ(run.at("checkpoints").as_array().size(), 3u);
  only_object(in_trained_folder({"inspect", "data", "--json"}).output);
  const auto finished =
      only_object(in_trained_folder(tiny_training("run", {"--resume", "--json"})).output);
  EXPECT_EQ(finished, only_object(read_text(trained_folder() / "run/summary.json")));
  EXPECT_EQ(finished.at("steps").as_int64(), 6);
  EXPECT_EQ(finished.at("end").as_string(), "finished");
  const auto found =
      only_object(in_trained_folder({"inspect", "run/checkpoints", "--json"}).output);
  EXPECT_EQ(found.at("kind").as_string(), "checkpoints");
  EXPECT_EQ(found.at("checkpoints").as_array().size(), 3u);
}

TEST(TrainedRun, ResumeAloneTakesTheRunsOwnConfigurationAndData) {
  fs::remove_all(trained_folder() / "longer");
  fs::copy(trained_folder() / "run", trained_folder() / "longer", fs::copy_options::recursive);
  const auto finished =
      only_object(in_trained_folder({"train", "--resume", "--run", "longer", "--json"}).output);
  EXPECT_EQ(finished.at("steps").as_int64(), 6);
  const auto longer = only_object(in_trained_folder({"train", "--resume", "--run", "longer",
                                                     "--set", "training.steps=8", "--json"})
                                      .output);
  EXPECT_EQ(longer.at("steps").as_int64(), 8);
  const ProcessResult nowhere =
      run_hybrid(trained_folder(), {"train", "--resume", "--run", "none"});
  EXPECT_EQ(nowhere.exit_code, 66) << nowhere.errors;
  EXPECT_EQ(run_hybrid(trained_folder(), {"train", "--run", "new"}).exit_code, 64);
  const ProcessResult other = run_hybrid(
      trained_folder(), {"train", "--resume", "--run", "longer", "--set", "training.seed=5"});
  EXPECT_EQ(other.exit_code, 78);
  EXPECT_NE(other.errors.find("training.seed"), std::string::npos) << other.errors;
}

TEST(TrainedRun, ADataFolderWhoseNameIsNotUtf8LeavesAReadableRun) {
  const fs::path data = trained_folder() / "caf\xE9";
  fs::copy(trained_folder() / "data", data);
  std::vector<std::string> arguments = tiny_training("latin");
  std::replace(arguments.begin(), arguments.end(), std::string("data"), data.string());
  in_trained_folder(arguments);
  only_object(read_text(trained_folder() / "latin/data.json"));
  in_trained_folder({"eval", "latin", "--data", data.string()});
  in_trained_folder({"train", "--resume", "--run", "latin", "--data", data.string(), "--set",
                     "training.steps=7"});
}

/// The trained run as a Hugging Face folder with the data's tokenizer and a chat template.
fs::path chat_model() {
  const fs::path folder = trained_folder() / "chat";
  if (fs::exists(folder)) return folder;
  in_trained_folder({"export", "run", "--output", "chat"});
  fs::copy(trained_folder() / "data/tokenizer.json", folder);
  write_text(folder / "chat_template.jinja",
             "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %} {% "
             "endif %}");
  return folder;
}

TEST(TrainedRun, EvaluationCountsEveryTokenOfTheSplitOnce) {
  const auto tokens = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"eval", "run", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return only_object(in_trained_folder(arguments).output).at("tokens").as_int64();
  };
  const std::int64_t all = tokens({});
  EXPECT_NE(all % 16, 0) << "or nothing is tried here";
  for (const char* length : {"1", "7", "13"}) EXPECT_EQ(tokens({"--sequence-length", length}), all);
}

TEST(TrainedRun, ExportTellsOfALowerLossBefore) {
  const fs::path run = trained_folder() / "worse";
  fs::remove_all(run);
  in_trained_folder({"train",
                     "--preset",
                     "tiny",
                     "--data",
                     "data",
                     "--run",
                     "worse",
                     "--set",
                     "model.layers=1",
                     "--set",
                     "model.heads=2",
                     "--set",
                     "model.width=16",
                     "--set",
                     "model.context=16",
                     "--set",
                     "data.sequence_length=16",
                     "--set",
                     "training.steps=4",
                     "--set",
                     "training.evaluate_every_steps=2"});
  std::string metrics = read_text(run / "metrics.jsonl");
  fs::remove_all(trained_folder() / "worse_hf");
  EXPECT_EQ(in_trained_folder({"export", "worse", "--output", "worse_hf"}).errors.find("warning"),
            std::string::npos);
  const std::string key = "\"validation_loss\":";
  std::size_t at = metrics.find(key + "0");
  for (const char digit : {'1', '2', '3', '4', '5', '6', '7', '8', '9'})
    at = std::min(at, metrics.find(key + digit));
  ASSERT_NE(at, std::string::npos);
  metrics.replace(at + key.size(), 1, "0");  // the first one measured is now below 1
  write_text(run / "metrics.jsonl", metrics);
  fs::remove_all(trained_folder() / "worse_hf");
  const std::string told = in_trained_folder({"export", "worse", "--output", "worse_hf"}).errors;
  EXPECT_NE(told.find("was at step 2; the exported weights are of step 4"), std::string::npos)
      << told;
}

TEST(TrainedRun, AnExportedModelTrainsOn) {
  fs::remove_all(trained_folder() / "hf");
  in_trained_folder({"export", "run", "--output", "hf"});
  const double before = only_object(in_trained_folder({"eval", "run", "--json"}).output)
                            .at("loss")
                            .to_number<double>();
  fs::remove_all(trained_folder() / "again");
  in_trained_folder({"train", "--init-from", "hf", "--data", "data", "--run", "again", "--set",
                     "data.sequence_length=16", "--set", "training.steps=1", "--set",
                     "optimizer.learning_rate=1e-9"});
  const double after = only_object(in_trained_folder({"eval", "again", "--json"}).output)
                           .at("loss")
                           .to_number<double>();
  EXPECT_NEAR(after, before, 1e-5);
}

TEST(TrainedRun, AHuggingFaceFolderIsEvaluatedAndSampledAsTheRun) {
  chat_model();
  const auto loss = [](const std::vector<std::string>& arguments) {
    return only_object(in_trained_folder(arguments).output).at("loss").to_number<double>();
  };
  const double of_run = loss({"eval", "run", "--json"});
  EXPECT_NEAR(loss({"eval", "chat", "--data", "data", "--sequence-length", "16", "--json"}), of_run,
              1e-6);
  EXPECT_NE(loss({"eval", "run", "--sequence-length", "8", "--json"}), of_run);
  std::set<double> losses{of_run};
  for (const char* precision : {"bf16", "int8", "fp4", "nf4"}) {
    const double changed = loss({"eval", "run", "--precision", precision, "--json"});
    EXPECT_TRUE(losses.insert(changed).second) << precision;
    EXPECT_NEAR(changed, of_run, 0.1) << precision;
    EXPECT_EQ(loss({"eval", "chat", "--data", "data", "--sequence-length", "16", "--precision",
                    precision, "--json"}),
              changed);
  }
  const auto text = [](const char* folder) {
    return in_trained_folder({"sample", folder, "--prompt", "Line", "--tokens", "20"}).output;
  };
  EXPECT_EQ(text("chat"), text("run"));
  const auto found = only_object(in_trained_folder({"inspect", "chat", "--json"}).output);
  EXPECT_TRUE(found.at("supported").as_bool());
  EXPECT_TRUE(found.at("chat_template").as_bool());
  for (const std::vector<std::string>& bad :
       {std::vector<std::string>{"eval", "chat"},
        {"eval", "chat", "--data", "data", "--average"},
        {"eval", "run", "--sequence-length", "1000000"},
        {"sample", "run"},
        {"sample", "run", "--prompt", "x", "--chat"},
        {"sample", "run", "--prompt", "x", "--system", "y"},
        {"sample", "run", "--prompt", "x", "--precision", "fp8"},
        {"eval", "run", "--precision", "nf5"}}) {
    EXPECT_EQ(run_hybrid(trained_folder(), bad).exit_code, 64) << bad.front();
  }
  EXPECT_EQ(run_hybrid(trained_folder(), {"sample", "run", "--chat"}).exit_code, 65);
}

TEST(TrainedRun, IsExportedInBitsandbytesFormsAndOpenedAgain) {
  const auto loss = [](const std::vector<std::string>& arguments) {
    return only_object(in_trained_folder(arguments).output).at("loss").to_number<double>();
  };
  for (const std::string form : {"int8", "fp4", "nf4"}) {
    fs::remove_all(trained_folder() / form);
    in_trained_folder({"export", "run", "--output", form, "--quantize", form});
    EXPECT_EQ(loss({"eval", form, "--data", "data", "--sequence-length", "16", "--precision",
                    "bf16", "--json"}),
              loss({"eval", "run", "--precision", form, "--json"}));
    const auto found = only_object(in_trained_folder({"inspect", form, "--json"}).output);
    EXPECT_EQ(found.at("quantization").as_string(), form);
    fs::copy(trained_folder() / "data/tokenizer.json", trained_folder() / form);
    write_text(trained_folder() / "line.jsonl",
               "{\"text\": \"Line\"}\n{\"text\": \"Li\"}\n{\"text\": \"ne\"}\n");
    fs::remove_all(trained_folder() / "tuned");
    in_trained_folder({"finetune", "--model", form, "--data", "line.jsonl", "--run", "tuned",
                       "--method", "qlora", "--set", "training.steps=1"});
    const auto config = boost::json::parse(read_text(trained_folder() / "tuned/config.json"));
    EXPECT_EQ(config.at("lora").at("base").as_string(), form);
  }
  for (const std::vector<std::string>& bad :
       {std::vector<std::string>{"--quantize", "bf16"}, {"--quantize", "nf4", "--merge"}}) {
    std::vector<std::string> arguments{"export", "run", "--output", "bad"};
    arguments.insert(arguments.end(), bad.begin(), bad.end());
    EXPECT_EQ(run_hybrid(trained_folder(), arguments).exit_code, 64);
    EXPECT_FALSE(fs::exists(trained_folder() / "bad"));
  }
}

TEST(TrainedRun, BeginningFromAnotherTokenizersModelIsTold) {
  const fs::path model = trained_folder() / "model";
  fs::remove_all(model);
  in_trained_folder({"export", "run", "--output", "model"});
  const auto errors = [&](const std::string& run) {
    return in_trained_folder({"train", "--init-from", "model", "--data", "data", "--run", run,
                              "--set", "data.sequence_length=16", "--set", "training.steps=1"})
        .errors;
  };
  const std::string note = "warning: the tokenizer of model is not the data's";
  EXPECT_EQ(errors("from-none").find(note), std::string::npos);
  fs::copy(trained_folder() / "data/tokenizer.json", model);
  EXPECT_EQ(errors("from-same").find(note), std::string::npos);
  write_text(model / "tokenizer.json", "{\"type\":\"bytes\"}");
  EXPECT_NE(errors("from-other").find(note), std::string::npos);
}

}  // namespace
}  // namespace hybrid_trainer
