#include <boost/json.hpp>
#include <cstdlib>

#include "hybrid_trainer/core/error.h"
#include "src/model_files/hugging_face/hugging_face.h"
#include "tests/tools/finetune_fixture.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

/// A Llama with a tokenizer as Qwen's and its kind of chats.
class ChatModel : public Finetune {
 protected:
  ChatModel() { make_base(512); }  // more than tokens, as Qwen's
  void make_base(std::int64_t vocabulary, std::int64_t width = 16) const {
    const Stream stream(MemoryPool::create("test"));
    ModelConfig shape{.layers = 1, .heads = 2, .width = width, .context = 64};
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

TEST_F(ChatModel, OfOllamaIsTakenByItsName) {
  const fs::path home = trained_folder() / "ollama";
  fs::remove_all(home);
  fs::create_directories(home / "blobs");
  fs::create_directories(home / "manifests/registry.ollama.ai/library/base");
  write_text(
      home / "manifests/registry.ollama.ai/library/base/latest",
      R"({"layers":[{"mediaType":"application/vnd.ollama.image.model","digest":"sha256:ab"}]})");
  ASSERT_EQ(run_hybrid(trained_folder(), {"export", "chat_base", "--output",
                                          "ollama/blobs/sha256-ab", "--format", "gguf"})
                .exit_code,
            0);
  ASSERT_EQ(::setenv("OLLAMA_MODELS", home.c_str(), 1), 0);
  const ProcessResult shown = in_trained_folder({"inspect", "ollama:base"});
  EXPECT_NE(shown.output.find("llama"), std::string::npos) << shown.output;
  in_trained_folder({"rows", "chats.jsonl", "--model", "ollama:base"});
  in_trained_folder({"sample", "ollama:base", "--prompt", "say", "--tokens", "3"});
  const ProcessResult missing = run_hybrid(trained_folder(), {"inspect", "ollama:bas"});
  EXPECT_EQ(missing.exit_code, 66);
  EXPECT_NE(missing.errors.find("base:latest"), std::string::npos) << missing.errors;
  fs::remove_all(trained_folder() / "of_ollama");
  EXPECT_EQ(finetune({"--model", "ollama:base", "--data", "chats.jsonl", "--run", "of_ollama",
                      "--method", "lora"})
                .exit_code,
            0);
  ASSERT_EQ(::unsetenv("OLLAMA_MODELS"), 0);
  in_trained_folder({"sample", "of_ollama", "--prompt", "say", "--tokens", "3"});
}

TEST_F(ChatModel, AFileForLlamaCppHasTheMergedWeightsTheTokenizerAndTheTemplate) {
  ASSERT_EQ(of_chats({"--method", "lora"}).exit_code, 0);
  const fs::path file = trained_folder() / "tuned.gguf";
  fs::remove(file);
  const auto written = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments{"export",     "tuned",    "--output",
                                       "tuned.gguf", "--format", "gguf"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_hybrid(trained_folder(), arguments);
  };
  EXPECT_EQ(written({}).exit_code, 64);  // of which weights?
  EXPECT_EQ(written({"--merge", "--type", "q3_k"}).exit_code, 64);
  EXPECT_EQ(written({"--merge", "--quantize", "nf4"}).exit_code, 64);
  EXPECT_FALSE(fs::exists(file));
  const ProcessResult made = written({"--merge", "--type", "f32"});
  ASSERT_EQ(made.exit_code, 0) << made.errors;
  EXPECT_NE(made.errors.find("wrote tuned.gguf from step"), std::string::npos) << made.errors;
  EXPECT_NE(made.errors.find("logits changed by at most 0,"), std::string::npos) << made.errors;
  const auto found =
      boost::json::parse(run_hybrid(trained_folder(), {"inspect", "tuned.gguf", "--json"}).output);
  EXPECT_EQ(found.at("kind").as_string(), "gguf");
  EXPECT_TRUE(found.at("values").as_object().contains("tokenizer.chat_template"));
  EXPECT_EQ(written({"--merge"}).exit_code, 73);  // nothing is overwritten
}

TEST_F(ChatModel, AFileOfLlamaCppStandsForItsFolderFromBeginToEnd) {
  const auto call = [](const std::vector<std::string>& arguments) {
    return run_hybrid(trained_folder(), arguments);
  };
  for (const char* name : {"gguf", "from_gguf", "again.gguf"})
    fs::remove_all(trained_folder() / name);
  fs::create_directory(trained_folder() / "gguf");
  const ProcessResult made = call({"export", "chat_base", "--output", "gguf/base.gguf", "--format",
                                   "gguf", "--type", "f32", "--modelfile"});
  ASSERT_EQ(made.exit_code, 0) << made.errors;
  EXPECT_NE(made.errors.find("tokens of a text are the same"), std::string::npos) << made.errors;
  const std::string modelfile = read_text(trained_folder() / "gguf/Modelfile");
  EXPECT_TRUE(modelfile.starts_with("FROM ./base.gguf\nTEMPLATE \"\"\"")) << modelfile;
  EXPECT_NE(modelfile.find("PARAMETER stop \"<|im_end|>\""), std::string::npos) << modelfile;
  const auto second = [&] {
    return call({"export", "chat_base", "--output", "gguf/second.gguf", "--format", "gguf",
                 "--type", "f32", "--modelfile"});
  };
  ASSERT_EQ(second().exit_code, 0);
  EXPECT_EQ(read_text(trained_folder() / "gguf/Modelfile"), modelfile);
  EXPECT_TRUE(
      read_text(trained_folder() / "gguf/second.Modelfile").starts_with("FROM ./second.gguf\n"));
  fs::remove(trained_folder() / "gguf/second.gguf");
  const ProcessResult third = second();  // both names are taken
  EXPECT_EQ(third.exit_code, 73);
  EXPECT_NE(third.errors.find("gguf/second.Modelfile: both exist already"), std::string::npos)
      << third.errors;
  EXPECT_EQ(call({"rows", "chats.jsonl", "--model", "gguf/base.gguf", "--show", "1"}).output,
            call({"rows", "chats.jsonl", "--model", "chat_base", "--show", "1"}).output);
  EXPECT_EQ(call({"plan", "--model", "gguf/base.gguf", "--method", "lora"}).exit_code, 0);
  const auto loss = [&](const std::string& model) {
    const ProcessResult result = call({"eval", model, "--data", "chats.jsonl", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return boost::json::parse(result.output).at("loss").to_number<double>();
  };
  EXPECT_NEAR(loss("gguf/base.gguf"), loss("chat_base"), 1e-6);
  const ProcessResult tuned =
      call({"finetune", "--model", "gguf/base.gguf", "--data", "chats.jsonl", "--run", "from_gguf",
            "--method", "lora", "--set", "data.sequence_length=32"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.errors;
  const ProcessResult resumed =
      call({"finetune", "--resume", "--run", "from_gguf", "--set", "training.steps=70"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.errors;
  EXPECT_EQ(call({"sample", "from_gguf", "--prompt", "say", "--tokens", "3"}).exit_code, 0);
  const ProcessResult again = call({"export", "from_gguf", "--output", "again.gguf", "--merge"});
  EXPECT_EQ(again.exit_code, 0) << again.errors;
  EXPECT_EQ(call({"export", "gguf/base.gguf", "--output", "gguf/folder"}).exit_code, 0);
  EXPECT_NEAR(loss("gguf/folder"), loss("chat_base"), 1e-6);
}

TEST_F(ChatModel, QloraKeepsTheBlocksOfAFileThatHasSome) {
  const auto base_of_run = [](const std::string& type) {
    for (const char* name : {"blocks", "of_blocks"}) fs::remove_all(trained_folder() / name);
    fs::create_directory(trained_folder() / "blocks");
    in_trained_folder({"export", "chat_base", "--output", "blocks/base.gguf", "--format", "gguf",
                       "--type", type});
    in_trained_folder({"finetune", "--model", "blocks/base.gguf", "--data", "chats.jsonl", "--run",
                       "of_blocks", "--method", "qlora", "--set", "training.steps=2"});
    in_trained_folder({"export", "of_blocks", "--output", "blocks/merged", "--merge"});
    in_trained_folder({"export", "of_blocks", "--output", "blocks/adapter", "--adapter"});
    in_trained_folder({"sample", "blocks/adapter", "--prompt", "say", "--tokens", "3"});
    in_trained_folder({"export", "blocks/adapter", "--output", "blocks/again", "--merge"});
    const auto config =
        boost::json::parse(read_text(trained_folder() / "of_blocks/config.json")).as_object();
    return std::string(config.at("lora").as_object().at("base").as_string());
  };
  EXPECT_EQ(base_of_run("q8_0"), "nf4") << "rows of 16 make no blocks of 32";
  make_base(512, 32);
  EXPECT_EQ(base_of_run("q8_0"), "file");
  EXPECT_EQ(base_of_run("f16"), "nf4");
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

  const ProcessResult another = run_hybrid(
      trained_folder(), {"train", "--init-from", "base", "--adapter", "adapter", "--data",
                         "chats.jsonl", "--run", "another", "--set", "data.sequence_length=16"});
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

TEST_F(ChatModel, ATemplateThatTakesListsGetsThemInAConversationToo) {
  write_text(folder_ / "chat_template.jinja",
             "{% for m in messages %}{% if m.content is string %}{{ raise_exception('a text') }}"
             "{% endif %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}");
  write_text(trained_folder() / "asked.txt", "one\ntwo\n");
  const std::string command =
      concat("cd '", trained_folder().string(), "' && '", HT_HYBRID_TOOL, "' sample chat_base ",
             "--chat --system 'Be' --tokens 2 <asked.txt >/dev/null");
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
  EXPECT_NE(
      errors({"export", "adapter", "--merge", "--average", "--output", "x"}).find("--average"),
      std::string::npos);
  EXPECT_NE(errors({"eval", "adapter", "--data", "chats.jsonl", "--average"}).find("--average"),
            std::string::npos);
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

}  // namespace
}  // namespace hybrid_trainer
