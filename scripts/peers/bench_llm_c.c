// Times a training step of GPT-2 124M in llm.c's processor version. Compiled against a clone of llm.c given by the user:
//   cc -Ofast -march=native -fopenmp -DOMP -I LLM_C bench_llm_c.c -lm
//   a.out MODEL BATCH SEQUENCE STEPS
// MODEL is written with random weights where it does not exist. Prints one JSON object.
#define TESTING
#include "train_gpt2.c"

static const int kHeader[8] = {20240326, 3, 1024, 50257, 12, 12, 768, 50304};

static unsigned random_word(unsigned* state) {
    *state ^= *state << 13;
    *state ^= *state >> 17;
    return *state ^= *state << 5;
}

static void write_random_model(const char* path) {
    int header[256] = {0};
    memcpy(header, kHeader, sizeof(kHeader));
    GPT2Config config = {.max_seq_len = 1024, .vocab_size = 50257, .padded_vocab_size = 50304,
                         .num_layers = 12, .num_heads = 12, .channels = 768};
    size_t sizes[NUM_PARAMETER_TENSORS];
    fill_in_parameter_sizes(sizes, config);
    FILE* file = fopenCheck(path, "wb");
    fwrite(header, sizeof(int), 256, file);
    unsigned state = 1337;
    for (int tensor = 0; tensor < NUM_PARAMETER_TENSORS; tensor++) {
        const int is_gain = tensor == 2 || tensor == 8 || tensor == 14;
        float* values = (float*)mallocCheck(sizes[tensor] * sizeof(float));
        for (size_t i = 0; i < sizes[tensor]; i++) {
            values[i] = (is_gain ? 1.0f : 0.0f) + 0.07f * (random_word(&state) * 0x1p-32f - 0.5f);
        }
        fwrite(values, sizeof(float), sizes[tensor], file);
        free(values);
    }
    fcloseCheck(file);
}

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static int by_size(const void* a, const void* b) {
    const double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

int main(int argc, char** argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: %s MODEL BATCH SEQUENCE STEPS\n", argv[0]);
        return 64;
    }
    const int batch = atoi(argv[2]), sequence = atoi(argv[3]), steps = atoi(argv[4]);
    if (access(argv[1], F_OK) != 0) write_random_model(argv[1]);
    const int output = dup(1);  // llm.c prints its own lines, which go to standard error here
    dup2(2, 1);
    GPT2 model;
    gpt2_build_from_checkpoint(&model, argv[1]);
    int* tokens = (int*)mallocCheck((batch * sequence + 1) * sizeof(int));
    unsigned state = 7;
    for (int i = 0; i <= batch * sequence; i++) tokens[i] = random_word(&state) % 50257;
    double* seconds = (double*)mallocCheck(steps * sizeof(double));
    const int warm_up = 2;
    for (int step = -warm_up; step < steps; step++) {
        const double start = seconds_now();
        gpt2_forward(&model, tokens, tokens + 1, batch, sequence);
        gpt2_zero_grad(&model);
        gpt2_backward(&model);
        gpt2_update(&model, 1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, step + warm_up + 1);
        if (step >= 0) seconds[step] = seconds_now() - start;
    }
    qsort(seconds, steps, sizeof(double), by_size);
    dprintf(output,
            "{\"peer\": \"llm.c\", \"mode\": \"fp32\", \"precision\": \"fp32\", \"batch\": %d, \"sequence\": %d, "
            "\"tokens_per_second\": %.3f}\n",
            batch, sequence, batch * sequence / seconds[steps / 2]);
    return 0;
}
