#pragma once

#include "hybrid_trainer/models/model_family.h"

namespace hybrid_trainer {

/// Entries of the registry. Attention: GPT-2 (Radford et al. 2019), Llama (Touvron et al. 2023),
/// Mistral 7B (Jiang et al. 2023), Qwen2 and 2.5 (Yang et al. 2024), Qwen3 (Yang et al. 2025),
/// Gemma 2 and the text models of Gemma 3 (Gemma Team 2024, 2025). Recurrent: Mamba-2
/// (Dao & Gu 2024), Granite 4 (IBM 2025), Bamba (IBM 2024), Qwen3-Next and the text models of
/// Qwen3.5 (Qwen Team 2025, 2026), and our own semiseparable models. Experts: Mixtral (Jiang et al.
/// 2024), Qwen1.5-MoE and Qwen2 (Qwen Team 2024), Qwen3 (Yang et al. 2025), OLMoE (Muennighoff et
/// al. 2024), Granite 3 (IBM 2024), gpt-oss (OpenAI 2025). Also dense Granite 3 (IBM 2024), OLMo 2
/// and 3 (Ai2 2024, 2025), GLM-4 (Zhipu 2025), SmolLM3 (Hugging Face 2025), Phi-3 and Phi-4-mini
/// (Microsoft 2024, 2025) and EXAONE 4 (LG 2025). Encoder-decoder: Whisper (Radford et al.
/// 2022) and BART (Lewis et al. 2020). Images: ViT (Dosovitskiy et al. 2021). Encoders of texts:
/// BERT (Devlin et al. 2019), DistilBERT (Sanh et al. 2019), RoBERTa (Liu et al. 2019), XLM-RoBERTa
/// (Conneau et al. 2020) and ModernBERT (Warner et al. 2024).
ModelFamily gpt2_family();
ModelFamily llama_family();
ModelFamily mistral_family();
ModelFamily ministral3_family();
ModelFamily qwen2_family();
ModelFamily qwen3_family();
ModelFamily gemma2_family();
ModelFamily gemma3_family();
ModelFamily gemma4_family();
ModelFamily mamba2_family();
ModelFamily granite_hybrid_family();
ModelFamily bamba_family();
ModelFamily qwen3_next_family();
ModelFamily qwen3_5_family();
ModelFamily qwen3_5_moe_family();
ModelFamily lfm2_family();
ModelFamily lfm2_moe_family();
ModelFamily semiseparable_family();
ModelFamily mixtral_family();
ModelFamily qwen2_moe_family();
ModelFamily qwen3_moe_family();
ModelFamily olmoe_family();
ModelFamily granite_moe_family();
ModelFamily gpt_oss_family();
ModelFamily granite_family();
ModelFamily olmo2_family();
ModelFamily olmo3_family();
ModelFamily glm4_family();
ModelFamily smollm3_family();
ModelFamily phi3_family();
ModelFamily exaone4_family();
ModelFamily whisper_family();
ModelFamily trident_family();
ModelFamily series_family();
ModelFamily vit_family();
ModelFamily bart_family();
ModelFamily bert_family();
ModelFamily distilbert_family();
ModelFamily roberta_family();
ModelFamily xlm_roberta_family();
ModelFamily modernbert_family();

/// Returns a network's config with this many blocks in its one stack (ModelFamily::with_depth).
ModelConfig with_layers(ModelConfig config, std::int64_t layers);

}  // namespace hybrid_trainer
