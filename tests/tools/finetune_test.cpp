#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cstdlib>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/hugging_face/hugging_face.h"
#include "tests/tools/hybrid_process.h"
#include "tests/trainer/tiny_run.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

class Finetune : public testing::Test {
 protected:
  Finetune() {
    const fs::path root = trained_folder();
    if (!fs::exists(root / "base")) {
      run_hybrid(root, {"export", "run", "--output", "base"});
      fs::copy(root / "data/tokenizer.json", root / "base");
      write_text(root / "base/chat_template.jinja",
                 "{% for m in messages %}{{ m.content }}\n{% endfor %}");
    }
    write_text(root / "pairs.jsonl",
               "{\"prompt\": \"Line \", \"completion\": \"1\"}\n{\"text\": \"Line\"}\n"
               "{\"messages\": [{\"role\": \"user\", \"content\": \"Li\"}, "
               "{\"role\": \"assistant\", \"content\": \"ne\"}]}\n");
    fs::remove_all(root / "tuned");
  }
  ProcessResult finetune(std::vector<std::string> more) const {
    more.insert(more.begin(), "finetune");
    return run_hybrid(trained_folder(), more);
  }
  ProcessResult of_pairs(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"--model", "base", "--data", "pairs.jsonl", "--run", "tuned"});
    return finetune(more);
  }
};

TEST_F(Finetune, TrainsAndItsRunIsEvaluatedSampledAndExported) {
  const ProcessResult result =
      of_pairs({"--epochs", "8", "--set", "optimizer.learning_rate=1e-2", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const auto summary = boost::json::parse(result.output).as_object();
  EXPECT_EQ(summary.at("end"), "finished");
  const ProcessResult eval = run_hybrid(trained_folder(), {"eval", "tuned", "--json"});
  ASSERT_EQ(eval.exit_code, 0) << eval.errors;
  EXPECT_NEAR(boost::json::parse(eval.output).at("loss").to_number<double>(),
              summary.at("final_validation_loss").to_number<double>(), 1e-6);
  EXPECT_EQ(run_hybrid(trained_folder(), {"eval", "base", "--data", "pairs.jsonl"}).exit_code, 0);
  EXPECT_EQ(run_hybrid(trained_folder(), {"sample", "tuned", "--prompt", "Line"}).exit_code, 0);
  fs::remove_all(trained_folder() / "tuned_hf");
  EXPECT_EQ(run_hybrid(trained_folder(), {"export", "tuned", "--output", "tuned_hf"}).exit_code, 0);
  const ProcessResult again = finetune({"--resume", "--run", "tuned", "--json"});
  EXPECT_EQ(again.exit_code, 0) << again.errors;
  EXPECT_EQ(again.output, result.output);
  EXPECT_EQ(finetune({"--resume", "--run", "tuned", "--model", "data"}).exit_code,
            static_cast<int>(ExitCode::kUsage));
  const ProcessResult longer = finetune({"--resume", "--run", "tuned", "--epochs", "16", "--json"});
  ASSERT_EQ(longer.exit_code, 0) << longer.errors;
  EXPECT_EQ(boost::json::parse(longer.output).at("steps").as_int64(),
            2 * summary.at("steps").as_int64());
}

TEST_F(Finetune, AnotherFilesRowsAreMeasuredWholeAndWhatIsCutIsTold) {
  ASSERT_EQ(of_pairs({"--set", "data.sequence_length=4"}).exit_code, 0);
  write_text(trained_folder() / "rows.jsonl", "{\"text\": \"Line 1 Line\"}\n{\"text\": \"Li\"}\n");
  const auto eval = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"eval", "tuned", "--data", "rows.jsonl", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_hybrid(trained_folder(), arguments);
  };
  const ProcessResult whole = eval({});
  EXPECT_EQ(boost::json::parse(whole.output).at("tokens").as_int64(), 11);
  EXPECT_EQ(whole.errors, "");
  const ProcessResult cut = eval({"--sequence-length", "6"});
  EXPECT_EQ(boost::json::parse(cut.output).at("tokens").as_int64(), 7);
  EXPECT_NE(cut.errors.find("1 of 2 rows are longer than 6 tokens and lose 4 tokens"),
            std::string::npos)
      << cut.errors;
}

TEST_F(Finetune, AdaptersAreTrainedPlannedAndExported) {
  for (const char* method : {"lora", "qlora"}) {
    fs::remove_all(trained_folder() / "tuned");
    const ProcessResult result = of_pairs({"--method", method, "--epochs", "4", "--json"});
    ASSERT_EQ(result.exit_code, 0) << method << result.errors;
    fs::remove_all(trained_folder() / "adapter");
    const ProcessResult exported =
        run_hybrid(trained_folder(), {"export", "tuned", "--output", "adapter", "--adapter"});
    EXPECT_EQ(exported.exit_code, 0) << exported.errors;
    EXPECT_TRUE(fs::exists(trained_folder() / "adapter/adapter_model.safetensors"));
    EXPECT_EQ(run_hybrid(trained_folder(), {"sample", "tuned", "--prompt", "Line"}).exit_code, 0);
    EXPECT_EQ(finetune({"--resume", "--run", "tuned", "--json"}).output, result.output);
    EXPECT_EQ(run_hybrid(trained_folder(), {"export", "tuned", "--output", "adapter", "--adapter"})
                  .errors,
              concat("error: ", fs::canonical(trained_folder() / "adapter").string(),
                     " exists already and is not an empty folder; nothing was written\n"));
    fs::rename(trained_folder() / "base", trained_folder() / "moved");
    const ProcessResult gone = finetune({"--resume", "--run", "tuned"});
    EXPECT_EQ(gone.exit_code, static_cast<int>(ExitCode::kNoInput));
    EXPECT_NE(gone.errors.find("finetune --model"), std::string::npos) << gone.errors;
    const ProcessResult moved = finetune({"--resume", "--run", "tuned", "--model", "moved"});
    EXPECT_EQ(moved.exit_code, 0) << moved.errors;
    fs::rename(trained_folder() / "moved", trained_folder() / "base");
    const ProcessResult back = finetune({"--resume", "--run", "tuned", "--model", "base"});
    EXPECT_EQ(back.exit_code, 0) << back.errors;
    const ProcessResult plan =
        run_hybrid(trained_folder(), {"plan", "--model", "base", "--method", method, "--json"});
    EXPECT_EQ(plan.exit_code, 0) << plan.errors;
    const ProcessResult of_ranks =
        run_hybrid(trained_folder(), {"plan", "--model", "base", "--method", method, "--devices",
                                      "2", "--set", "gradient_accumulation.micro_batches=2"});
    EXPECT_NE(of_ranks.output.find("`hybrid finetune --ranks 2"), std::string::npos)
        << of_ranks.output << of_ranks.errors;
  }
}

TEST_F(Finetune, AFewRowsAreSeenOftenEnoughAndThatIsSaid) {
  const ProcessResult result = of_pairs({"--method", "lora", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const auto summary = boost::json::parse(result.output).as_object();
  EXPECT_GE(summary.at("steps").as_int64(), 60);
  EXPECT_LT(summary.at("steps").as_int64(), 63);
  EXPECT_NE(result.errors.find("--epochs N sets another number"), std::string::npos)
      << result.errors;
  EXPECT_EQ(summary.at("phases").at("predict").at("steps").as_int64(), 0) << "plain by default";
  EXPECT_NE(result.errors.find("lora of rank 16, alpha 32, on all-linear"), std::string::npos)
      << result.errors;
  fs::remove_all(trained_folder() / "tuned");
  const ProcessResult asked = of_pairs({"--epochs", "1", "--json"});
  EXPECT_EQ(boost::json::parse(asked.output).at("steps").as_int64(), 1);
}

TEST_F(Finetune, EpochsGiveTheSteps) {
  const auto steps = [&](const char* epochs) {
    fs::remove_all(trained_folder() / "tuned");
    const ProcessResult result = of_pairs({"--epochs", epochs, "--set", "data.batch_size=1",
                                           "--set", "data.sequence_length=8", "--json"});
    return boost::json::parse(result.output).at("steps").as_int64();
  };
  EXPECT_EQ(steps("6"), 2 * steps("3"));
}

/// What stands after `words` in what timeout lets the tool say.
std::string line_after_timeout(const char* seconds, const char* words) {
  fs::remove_all(trained_folder() / "tuned");
  const std::string command =
      concat("cd '", trained_folder().string(), "' && timeout ", seconds, " '", HT_HYBRID_TOOL,
             "' finetune --model base --data pairs.jsonl --run tuned --set training.steps=1000000",
             " >/dev/null 2>said");
  EXPECT_NE(std::system(command.c_str()), 0);
  const std::string said = read_text(trained_folder() / "said");
  const auto at = said.rfind(words);
  EXPECT_NE(at, std::string::npos) << said;
  return at == std::string::npos ? "" : said.substr(at + std::string(words).size());
}

// timeout signals its child, and then the child's group.
TEST_F(Finetune, StoppedByTimeoutItIsSavedAndSaysWhatGoesOn) {
  const std::string command = line_after_timeout("3", "which is saved; go on with: ");
  EXPECT_EQ(command, concat(HT_HYBRID_TOOL, " finetune --resume --run tuned\n"));
  EXPECT_NE(newest_checkpoint_digest(trained_folder() / "tuned"), "none");
  fs::remove_all(trained_folder() / "tuned");
}

TEST_F(Finetune, KilledAndResumedItHasTheSameBits) {
  const std::vector<std::string> settings{
      "--epochs", "400", "--set", "checkpoint.every_steps=1", "--set", "checkpoint.keep=100"};
  ASSERT_EQ(of_pairs(settings).exit_code, 0);
  const std::string wanted = newest_checkpoint_digest(trained_folder() / "tuned");
  fs::remove_all(trained_folder() / "tuned");
  std::string command = concat("cd '", trained_folder().string(), "' || exit 0; '", HT_HYBRID_TOOL,
                               "' finetune --model base --data pairs.jsonl --run tuned");
  for (const std::string& word : settings) command += " " + word;
  command +=
      " >/dev/null 2>&1 & p=$!; while kill -0 $p && ! [ -e tuned/checkpoints/step-0000000003 ]; do"
      " sleep 0.01; done; kill -9 $p; wait $p";
  ASSERT_EQ(std::system(concat("(", command, ") 2>/dev/null").c_str()) == 0, false);
  ASSERT_NE(newest_checkpoint_digest(trained_folder() / "tuned"), wanted) << "killed too late";
  fs::rename(trained_folder() / "base", trained_folder() / "elsewhere");  // all is in the run
  const ProcessResult resumed = finetune({"--resume", "--run", "tuned"});
  fs::rename(trained_folder() / "elsewhere", trained_folder() / "base");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.errors;
  EXPECT_EQ(newest_checkpoint_digest(trained_folder() / "tuned"), wanted);
  write_text(trained_folder() / "pairs.jsonl", "{\"text\": \"Line\"}\n");
  EXPECT_EQ(finetune({"--resume", "--run", "tuned", "--set", "training.steps=99"}).exit_code,
            static_cast<int>(ExitCode::kData));
  EXPECT_EQ(run_hybrid(trained_folder(), {"eval", "tuned"}).exit_code,
            static_cast<int>(ExitCode::kData));
}

/// A Llama with a tokenizer as Qwen's and its kind of chats.
class ChatModel : public Finetune {
 protected:
  ChatModel() { make_base(512); }  // more than tokens, as Qwen's
  void make_base(std::int64_t vocabulary) const {
    const Stream stream(MemoryPool::create("test"));
    ModelConfig shape{.layers = 1, .heads = 2, .width = 16, .context = 64};
    shape.family = "llama";
    shape.vocabulary = vocabulary;
    fs::remove_all(folder_);
    export_hugging_face(*make_model(shape, 5, stream), nullptr, folder_, stream);
    fs::copy(HT_TEST_DATA_DIR "/tokenizers/qwen2.json", folder_ / "tokenizer.json");
    write_text(folder_ / "tokenizer_config.json", "{\"eos_token\": \"<|im_end|>\", \"x\": 1}\n");
    write_text(folder_ / "chat_template.jinja",
               "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + "
               "'<|im_end|>\\n' }}{% endfor %}"
               "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}");
    std::string lines;
    for (const char* word : {"one", "two", "three", "four", "five", "six"}) {
      lines += concat("{\"messages\": [{\"role\": \"user\", \"content\": \"say ", word,
                      "\"}, {\"role\": \"assistant\", \"content\": \"", word, "\"}]}\n");
    }
    write_text(trained_folder() / "chats.jsonl", lines);
  }
  ProcessResult of_chats(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"--model", "chat_base", "--data", "chats.jsonl", "--run", "tuned"});
    return finetune(more);
  }
  const fs::path folder_ = trained_folder() / "chat_base";
};

TEST_F(ChatModel, KeepsTokenizerAndTemplateByteForByte) {
  const ProcessResult result = of_chats({"--epochs", "30", "--set", "optimizer.learning_rate=1e-2",
                                         "--set", "data.batch_size=1", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_LT(boost::json::parse(result.output).at("final_validation_loss").to_number<double>(),
            5);  // of 6.2
  fs::remove_all(trained_folder() / "tuned_hf");
  ASSERT_EQ(run_hybrid(trained_folder(), {"export", "tuned", "--output", "tuned_hf"}).exit_code, 0);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
    const std::string wanted = read_text(folder_ / name);
    EXPECT_EQ(read_text(trained_folder() / "tuned/tokenizer" / name), wanted) << name;
    EXPECT_EQ(read_text(trained_folder() / "tuned_hf" / name), wanted) << name;
  }
}

TEST_F(ChatModel, AnAdaptersFolderHasTheTokenizerAndTemplateOfItsBase) {
  ASSERT_EQ(of_chats({"--method", "lora"}).exit_code, 0);
  const fs::path adapter = trained_folder() / "adapter";
  fs::remove_all(adapter);
  ASSERT_EQ(run_hybrid(trained_folder(), {"export", "tuned", "--output", "adapter", "--adapter"})
                .exit_code,
            0);
  const std::vector<std::string> eval{"eval", "adapter", "--data", "chats.jsonl", "--json"};
  const ProcessResult of_base = run_hybrid(trained_folder(), eval);
  EXPECT_EQ(of_base.exit_code, 0) << of_base.errors;
  EXPECT_EQ(run_hybrid(trained_folder(), {"sample", "adapter", "--chat"}).exit_code, 0);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
    fs::copy(folder_ / name, adapter);
  write_text(adapter / "chat_template.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
  const ProcessResult of_its_own = run_hybrid(trained_folder(), eval);
  EXPECT_EQ(of_its_own.exit_code, 0) << of_its_own.errors;
  EXPECT_NE(of_its_own.output, of_base.output);

  const ProcessResult another =
      run_hybrid(trained_folder(), {"train", "--init-from", "base", "--adapter", "adapter",
                                    "--data", "chats.jsonl", "--run", "another"});
  EXPECT_EQ(another.exit_code, static_cast<int>(ExitCode::kData));
  EXPECT_NE(another.errors.find("another model than base"), std::string::npos) << another.errors;
  std::string config = read_text(adapter / "adapter_config.json");
  config.replace(config.find("\"q_proj\""), 8, "\"lm_head\"");
  write_text(adapter / "adapter_config.json", config);
  const ProcessResult refused = run_hybrid(trained_folder(), eval);
  EXPECT_EQ(refused.exit_code, static_cast<int>(ExitCode::kData));
  EXPECT_NE(refused.errors.find("belongs to no adapter of the model"), std::string::npos)
      << refused.errors;
}

TEST_F(ChatModel, WhatItsAnswersEndWithEndsTheRunAndItsExport) {
  auto config = boost::json::parse(read_text(folder_ / "config.json")).as_object();
  config["bos_token_id"] = 5;
  config["eos_token_id"] = 7;
  config["pad_token_id"] = 9;
  write_text(folder_ / "config.json", boost::json::serialize(config));
  write_text(folder_ / "tokenizer_config.json", "{\"eos_token\": \"<|endoftext|>\"}\n");
  const ProcessResult result =
      of_chats({"--epochs", "60", "--set", "optimizer.learning_rate=1e-2", "--set",
                "data.batch_size=1", "--set", "phases.max_predict_steps=0"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const std::string told = "answers end with <|im_end|>, which is no eos_token_id";
  EXPECT_NE((result.errors + result.output).find(told), std::string::npos) << result.errors;
  fs::remove_all(trained_folder() / "tuned_hf");
  ASSERT_EQ(run_hybrid(trained_folder(), {"export", "tuned", "--output", "tuned_hf"}).exit_code, 0);
  const std::int32_t end =
      load_tokenizer(folder_)->encode("<|im_end|>", ControlText::kAsTokens).front();
  const boost::json::array ends{7, end};
  const auto of = [&](const char* file) {
    return boost::json::parse(read_text(trained_folder() / file)).as_object();
  };
  EXPECT_EQ(of("tuned/tokenizer/generation_config.json").at("eos_token_id"), ends);
  EXPECT_EQ(of("tuned_hf/generation_config.json").at("eos_token_id"), ends);
  EXPECT_EQ(of("tuned_hf/config.json").at("eos_token_id"), ends);
  EXPECT_EQ(of("tuned_hf/config.json").at("bos_token_id"), 5);
  EXPECT_EQ(of("tuned_hf/config.json").at("pad_token_id"), 9);
  for (const char* model : {"tuned", "tuned_hf"}) {
    write_text(trained_folder() / "asked.txt", "say one\r\n");
    const std::string command =
        concat("cd '", trained_folder().string(), "' && '", HT_HYBRID_TOOL, "' sample ", model,
               " --chat --temperature 0 --tokens 20 <asked.txt >said.txt 2>/dev/null");
    ASSERT_EQ(std::system(command.c_str()), 0);
    const std::string said = read_text(trained_folder() / "said.txt");
    EXPECT_EQ(said.find("<|im_end|>"), std::string::npos) << said;
  }
}

TEST_F(ChatModel, AnAdapterSaysWhatItsAnswersEndWith) {
  write_text(folder_ / "tokenizer_config.json", "{\"eos_token\": \"<|endoftext|>\"}\n");
  ASSERT_EQ(of_chats({"--method", "lora"}).exit_code, 0);
  fs::remove_all(trained_folder() / "adapter");
  ASSERT_EQ(run_hybrid(trained_folder(), {"export", "tuned", "--output", "adapter", "--adapter"})
                .exit_code,
            0);
  const auto generation =
      boost::json::parse(read_text(trained_folder() / "adapter/generation_config.json"));
  EXPECT_EQ(generation.at("eos_token_id"),
            load_tokenizer(folder_)->encode("<|im_end|>", ControlText::kAsTokens).front());
  EXPECT_EQ(run_hybrid(trained_folder(), {"sample", "adapter", "--chat"}).exit_code, 0);
}

TEST_F(ChatModel, AnExportKeepsTheIdsOfItsBase) {
  auto config = boost::json::parse(read_text(folder_ / "config.json")).as_object();
  const std::int32_t end =
      load_tokenizer(folder_)->encode("<|im_end|>", ControlText::kAsTokens).front();
  config["bos_token_id"] = nullptr;
  config["eos_token_id"] = boost::json::array{end, 3};
  config["pad_token_id"] = 9;
  write_text(folder_ / "config.json", boost::json::serialize(config));
  ASSERT_EQ(of_chats().exit_code, 0);
  fs::remove_all(trained_folder() / "tuned_hf");
  ASSERT_EQ(run_hybrid(trained_folder(), {"export", "tuned", "--output", "tuned_hf"}).exit_code, 0);
  fs::remove_all(trained_folder() / "again_hf");
  ASSERT_EQ(run_hybrid(trained_folder(), {"export", "tuned_hf", "--output", "again_hf"}).exit_code,
            0);
  for (const char* file : {"tuned_hf/config.json", "again_hf/config.json"}) {
    const auto exported = boost::json::parse(read_text(trained_folder() / file)).as_object();
    for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
      EXPECT_EQ(exported.at(key), config.at(key)) << file << " " << key;
  }
}

TEST_F(ChatModel, ALineOfAConversationEndsBeforeItsCarriageReturn) {
  write_text(folder_ / "chat_template.jinja",
             "{% for m in messages %}{% if '\\r' in m.content %}{{ raise_exception('CR') }}"
             "{% endif %}{{ m.content }}{% endfor %}");
  write_text(trained_folder() / "asked.txt", "one\r\n");
  const std::string command = concat("cd '", trained_folder().string(), "' && '", HT_HYBRID_TOOL,
                                     "' sample chat_base --chat --tokens 2 <asked.txt >/dev/null");
  EXPECT_EQ(std::system(command.c_str()), 0);
}

TEST_F(ChatModel, AnAdaptersFolderIsTrainedOnAndMerged) {
  const auto made = [](const char* name) {
    fs::remove_all(trained_folder() / name);
    return std::string(name);
  };
  const auto errors = [](const std::vector<std::string>& arguments) {
    const ProcessResult result = run_hybrid(trained_folder(), arguments);
    EXPECT_NE(result.exit_code, 0);
    return result.errors;
  };
  ASSERT_EQ(of_chats({"--method", "lora"}).exit_code, 0);
  ASSERT_EQ(
      run_hybrid(trained_folder(), {"export", "tuned", "--output", made("adapter"), "--adapter"})
          .exit_code,
      0);
  EXPECT_NE(errors({"finetune", "--model", "adapter", "--data", "chats.jsonl", "--run", "x"})
                .find("is an adapter of PEFT"),
            std::string::npos);
  EXPECT_NE(errors({"export", "adapter", "--output", "x"}).find("--merge"), std::string::npos);
  EXPECT_NE(errors({"finetune", "--model", "chat_base", "--adapter", "adapter", "--method", "full",
                    "--data", "chats.jsonl", "--run", "x"})
                .find("--method full and --adapter"),
            std::string::npos);
  const ProcessResult more =
      run_hybrid(trained_folder(), {"finetune", "--model", "chat_base", "--adapter", "adapter",
                                    "--data", "chats.jsonl", "--run", made("more")});
  EXPECT_EQ(more.exit_code, 0) << more.errors;

  const std::string of_run = made("merged_run"), of_folder = made("merged_folder");
  ASSERT_EQ(
      run_hybrid(trained_folder(), {"export", "tuned", "--merge", "--output", of_run}).exit_code,
      0);
  std::string config = read_text(trained_folder() / "adapter/adapter_config.json");
  const std::size_t base = config.find("chat_base");
  ASSERT_NE(base, config.npos);
  write_text(trained_folder() / "adapter/adapter_config.json", config.replace(base, 9, "gone"));
  EXPECT_NE(errors({"export", "adapter", "--merge", "--output", of_folder}).find("--model BASE"),
            std::string::npos);
  const ProcessResult merged =
      run_hybrid(trained_folder(),
                 {"export", "adapter", "--merge", "--model", "chat_base", "--output", of_folder});
  EXPECT_EQ(merged.exit_code, 0) << merged.errors;
  for (const char* name : {"model.safetensors", "tokenizer.json"})
    EXPECT_EQ(read_text(trained_folder() / of_folder / name),
              read_text(trained_folder() / of_run / name))
        << name;
}

TEST_F(ChatModel, ATableMayLackSpecialTokensThatNoRowHas) {
  make_base(422);  // without <|im_end|> and <tool_call>, as Gemma 3's is without <image_soft_token>
  std::string tokenizer = read_text(folder_ / "tokenizer.json");
  tokenizer.replace(tokenizer.rfind("\"special\":false"), 15, "\"special\":true");
  write_text(folder_ / "tokenizer.json", tokenizer);
  const ProcessResult refused = of_chats();
  EXPECT_EQ(refused.exit_code, static_cast<int>(ExitCode::kData));
  EXPECT_NE(refused.errors.find("it has the token <|im_end|>, which is none of the model's 422"),
            std::string::npos)
      << refused.errors;
  write_text(trained_folder() / "empty_first.txt", "\none\n");  // begins with <|im_end|>
  for (const char* batch : {"1", "2"}) {
    const ProcessResult sample =
        run_hybrid(trained_folder(),
                   {"sample", "chat_base", "--prompts", "empty_first.txt", "--batch", batch});
    EXPECT_EQ(sample.exit_code, static_cast<int>(ExitCode::kData));
    EXPECT_EQ(sample.output, "");
    EXPECT_NE(sample.errors.find("empty_first.txt, line 1: the text has the token <|im_end|>"),
              std::string::npos)
        << sample.errors;
  }
  write_text(folder_ / "tokenizer_config.json", "{\"eos_token\": \"<|endoftext|>\"}\n");
  write_text(trained_folder() / "chats.jsonl", "{\"text\": \"one two\"}\n{\"text\": \"three\"}\n");
  const ProcessResult result = of_chats();
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  for (const char* model : {"tuned", "chat_base"}) {
    EXPECT_EQ(run_hybrid(trained_folder(), {"eval", model, "--data", "chats.jsonl"}).exit_code, 0);
    EXPECT_EQ(run_hybrid(trained_folder(), {"sample", model, "--prompt", "one"}).exit_code, 0);
  }
  make_base(300);  // without words
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"eval", "chat_base", "--data", "chats.jsonl"},
        std::vector<std::string>{"sample", "chat_base", "--prompt", "one"}}) {
    const ProcessResult small = run_hybrid(trained_folder(), command);
    EXPECT_EQ(small.exit_code, static_cast<int>(ExitCode::kData));
    EXPECT_EQ(small.output, "");
    EXPECT_NE(small.errors.find("chat_base: the tokenizer has"), std::string::npos) << small.errors;
  }
  fs::remove_all(trained_folder() / "tuned");
  const ProcessResult small = of_chats();
  EXPECT_EQ(small.exit_code, static_cast<int>(ExitCode::kData));
  EXPECT_NE(small.errors.find("chat_base: the tokenizer has"), std::string::npos) << small.errors;
}

TEST_F(ChatModel, WithoutATemplateOrATargetNothingIsLearnt) {
  const ProcessResult cut = of_chats({"--set", "data.sequence_length=4"});
  EXPECT_EQ(cut.exit_code, static_cast<int>(ExitCode::kData));
  EXPECT_NE(cut.errors.find("cut away"), std::string::npos) << cut.errors;
  fs::remove(folder_ / "chat_template.jinja");
  const ProcessResult bare = of_chats();
  EXPECT_EQ(bare.exit_code, static_cast<int>(ExitCode::kData));
  EXPECT_NE(bare.errors.find("no chat template"), std::string::npos) << bare.errors;
  EXPECT_FALSE(fs::exists(trained_folder() / "tuned"));
}

TEST_F(Finetune, BadInputIsNamed) {
  const auto code = [](ExitCode code) { return static_cast<int>(code); };
  EXPECT_EQ(finetune({"--run", "tuned"}).exit_code, code(ExitCode::kUsage));
  EXPECT_EQ(of_pairs({"--method", "ful"}).exit_code, code(ExitCode::kUsage));
  EXPECT_EQ(of_pairs({"--method", "qlora", "--set", "lora.rank=0"}).exit_code,
            code(ExitCode::kUsage));
  EXPECT_EQ(of_pairs({"--method", "full", "--set", "lora.rank=4"}).exit_code,
            code(ExitCode::kUsage));
  EXPECT_EQ(of_pairs({"--method", "qlora", "--set", "lora.base=bf16"}).exit_code,
            code(ExitCode::kUsage));
  EXPECT_EQ(of_pairs({"--epochs", "0"}).exit_code, code(ExitCode::kUsage));
  const ProcessResult many = of_pairs({"--epochs", "1e30"});
  EXPECT_EQ(many.exit_code, code(ExitCode::kUsage));
  EXPECT_NE(many.errors.find("at most 1000000"), std::string::npos) << many.errors;
  const ProcessResult hub =
      finetune({"--model", "an-owner/a-model", "--data", "pairs.jsonl", "--run", "tuned"});
  EXPECT_EQ(hub.exit_code, code(ExitCode::kNoInput));
  EXPECT_NE(hub.errors.find("an-owner/a-model: is no folder here"), std::string::npos)
      << hub.errors;
  const ProcessResult none = finetune({"--resume", "--run", "tuned"});
  EXPECT_EQ(none.exit_code, code(ExitCode::kNoInput));
  EXPECT_NE(none.errors.find("tuned: does not exist"), std::string::npos) << none.errors;
  EXPECT_EQ(of_pairs({"--epochs", "1", "--set", "training.steps=3"}).exit_code,
            code(ExitCode::kUsage));
  EXPECT_EQ(of_pairs({"--set", "model.width=8"}).exit_code, code(ExitCode::kUsage));
  EXPECT_EQ(finetune({"--model", "base", "--data", "none.jsonl", "--run", "tuned"}).exit_code,
            code(ExitCode::kNoInput));
  EXPECT_EQ(finetune({"--model", "data", "--data", "pairs.jsonl", "--run", "tuned"}).exit_code,
            code(ExitCode::kNoInput));
  write_text(trained_folder() / "pairs.jsonl", "\n");
  const ProcessResult empty = of_pairs();
  EXPECT_EQ(empty.exit_code, code(ExitCode::kData));
  EXPECT_NE(empty.errors.find("holds no examples"), std::string::npos) << empty.errors;
  write_text(trained_folder() / "pairs.jsonl", "{}\n");
  const ProcessResult refused = of_pairs();
  EXPECT_EQ(refused.exit_code, code(ExitCode::kData));
  EXPECT_NE(refused.errors.find("every line is refused; line 1"), std::string::npos)
      << refused.errors;
  EXPECT_FALSE(fs::exists(trained_folder() / "tuned"));
}

}  // namespace
}  // namespace hybrid_trainer
