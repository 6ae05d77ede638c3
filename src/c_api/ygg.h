/*
 * ygg.h: yggc from C. Exactly lossless speculative decoding, one request at a time.
 *
 * Threads: an engine answers one request at a time and refuses a second one; calls for different engines need no care.
 * A cancel handle may be used by any thread. Texts of errors belong to the thread that got the status.
 *
 * Versions: structs begin with their size, which the caller sets (`.size = sizeof options`), and whose other fields may be
 * left out, which makes them zero. A program goes on working with newer libraries; an older library refuses fields that it
 * does not know, unless they are zero.
 */


#ifndef YGG_H
#define YGG_H

/* Made by cbindgen of the sources beside it. To change it, change them: see header.rs. */

#include <stddef.h>
#include <stdint.h>

// In place of a token's id: text that was held back for a character or a stop string that never came. It is the last that is told.
#define YGG_NO_TOKEN UINT32_MAX

// How a call ended. The values are the exit codes of the program `yggc`.
typedef enum ygg_status {
    // Done.
    YGG_STATUS_OK = 0,
    // What should not have happened: a fault of the library. An engine that it happened in can only be closed.
    YGG_STATUS_FAILED = 1,
    // The caller's: a null pointer, a size, a name or a number out of range, or a second request at once.
    YGG_STATUS_USAGE = 2,
    // A model, plan, drafter or prompt that cannot be used.
    YGG_STATUS_INPUT = 3,
    // A device that is missing or unusable.
    YGG_STATUS_DEVICE = 4,
} ygg_status;

// Why an answer ended.
typedef enum ygg_finish_reason {
    // The model ended it.
    YGG_FINISH_REASON_STOP = 0,
    // A stop string ended it.
    YGG_FINISH_REASON_STOP_STRING = 1,
    // The token limit or the context ended it.
    YGG_FINISH_REASON_LENGTH = 2,
    // A cancel handle or the callback ended it.
    YGG_FINISH_REASON_CANCELLED = 3,
} ygg_finish_reason;

// Ends the requests that it is given to. Any thread may use it, while a request runs or before it begins.
typedef struct ygg_cancel ygg_cancel;

// A model with its plan, ready for one request at a time.
typedef struct ygg_engine ygg_engine;

// How an engine is opened: `ygg_options options = {.size = sizeof options, .model = "model.gguf"};`. Fields that are zero or `NULL` are
// as good as left out. Texts end with a NUL, are UTF-8 but for paths, and are read while `ygg_engine_open()` runs.
typedef struct ygg_options {
    // `sizeof(ygg_options)`.
    size_t size;
    // Path of a `.gguf` file, or of a folder with `config.json`, `*.safetensors` and `tokenizer.json`.
    const char *model;
    // Path of a plan of `yggc plan`; without one the engine decodes plainly.
    const char *plan;
    // What drafts: the name of a drafter that the plan measured, forced at every step, or `none`. `NULL`: what the plan chose.
    const char *drafter;
    // Path of the drafter model; `NULL`: where it was when it was profiled.
    const char *draft_model;
    // Path of the corpus store; `NULL`: where it was when it was profiled.
    const char *store;
    // `cpu` or `cuda`; `NULL`: `cpu`.
    const char *device;
    // Instruction set of the CPU's kernels: `portable`, `avx2`, `avx512` or `amx`; `NULL`: the fastest that this processor has.
    const char *isa;
    // `native` or `int8`; `NULL`: `native`.
    const char *activations;
    // Not 0: use the plan even if it was made for another machine, model or build.
    uint32_t force_plan;
    // Worker threads; 0: one per processor that this process may use.
    uint32_t threads;
    // Tokens of prompt and answer together; 0: 4096, or the model's limit if that is lower.
    uint32_t context;
    // Must be 0.
    uint32_t reserved;
    // Bytes of weights and session together at most; 0: the refusal is left to the system.
    uint64_t memory_limit;
    // Element type of the key/value cache, `f16` or `q8`; `NULL`: `f16`.
    const char *cache;
} ygg_options;

// One message of a conversation.
typedef struct ygg_message {
    // `system`, `user`, `assistant` or `tool`.
    const char *role;
    // What is said: UTF-8 that ends with a NUL. Nothing in it becomes a control token.
    const char *content;
} ygg_message;

// A request: `ygg_request request = {.size = sizeof request, .messages = &question, .message_count = 1};`. Exactly one of `messages`,
// `prompt` and `tokens` is given; other fields that are zero or `NULL` are as good as left out, and a request with none of them is greedy.
// Everything is read before `ygg_generate()` decodes, but must stay until it returns.
typedef struct ygg_request {
    // `sizeof(ygg_request)`.
    size_t size;
    // A conversation, laid out by the model's chat template.
    const struct ygg_message *messages;
    // Messages of the conversation.
    size_t message_count;
    // Text as it is, UTF-8 that ends with a NUL; control tokens in it are recognised.
    const char *prompt;
    // Token ids as they are.
    const uint32_t *tokens;
    // How many.
    size_t token_count;
    // Strings that end the answer and are no part of it, wherever tokens are cut; none is empty.
    const char *const *stop;
    // How many.
    size_t stop_count;
    // Ends the request from any thread.
    const struct ygg_cancel *cancel;
    // Same seed, same answer.
    uint64_t seed;
    // Tokens of the answer at most; 0: 256.
    uint32_t max_tokens;
    // 0: greedy.
    float temperature;
    // Keeps so many of the most probable tokens; 0: all.
    uint32_t top_k;
    // Keeps the most probable tokens until their sum reaches it; 0 and 1: all.
    float top_p;
    // Keeps tokens of at least so many times the highest probability; 0: all.
    float min_p;
    // For tokens of prompt and answer: divides logits above 0 and multiplies others; 0 and 1: unchanged.
    float repetition_penalty;
    // Subtracted from the logits of tokens that the answer has, as often as it has them.
    float frequency_penalty;
    // Subtracted once from the logits of tokens that the answer has.
    float presence_penalty;
    // Not 0: plain decoding, with the same tokens.
    uint32_t no_spec;
    // Not 0: nothing is kept of the request before, so the whole prompt is run.
    uint32_t no_reuse;
} ygg_request;

// A token of an answer and the text that became sure with it.
typedef struct ygg_token {
    // Its id, or `YGG_NO_TOKEN`.
    uint32_t id;
    // Unused, 0.
    uint32_t reserved;
    // Whole characters of UTF-8, often none. A NUL stands behind them. Good until the callback returns.
    const char *text;
    // Bytes of the text.
    size_t text_bytes;
} ygg_token;

// Called for every token by the thread that called `ygg_generate()`, with its `user_data`. Returning 0 goes on, anything else ends the
// request: nothing more is told. It must not throw, nor jump out; a call for the same engine is refused.
typedef int32_t (*ygg_on_token)(const struct ygg_token *token, void *user_data);

// The numbers of a request: `ygg_report report = {.size = sizeof report};`. Times are 0 where there was nothing to measure or to
// predict. The texts are the engine's, and are good until its next request or its end.
typedef struct ygg_report {
    // `sizeof(ygg_report)`, set by the caller.
    size_t size;
    // Why the answer ended.
    enum ygg_finish_reason finish_reason;
    // Which of the request's stop strings ended it, counted from 0; 0 if none did.
    uint32_t stop_index;
    // Tokens of the prompt.
    uint64_t prompt_tokens;
    // Those of them whose keys and values were kept of the request before.
    uint64_t reused_tokens;
    // Tokens of the answer, the one that ended it included.
    uint64_t tokens;
    // Draft-verify-commit rounds.
    uint64_t steps;
    // Drafted tokens verified.
    uint64_t drafted;
    // Drafted tokens accepted.
    uint64_t accepted;
    // Milliseconds to the first token.
    double ttft_ms;
    // Milliseconds per token of the steps behind it.
    double tpot_ms;
    // The same as the plan predicts it.
    double predicted_tpot_ms;
    // Name of the drafter, `none` for plain decoding.
    const char *drafter;
    // Why nothing was drafted, or not at every step; `NULL` if everything was as planned.
    const char *spec_off_reason;
} ygg_report;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// A handle that cancels nothing yet, to be given back with `ygg_cancel_free()`; `NULL` only after a fault of the library.
struct ygg_cancel *ygg_cancel_new(void);

// Ends the requests that have this handle, for good: a running one within one step, with `YGG_FINISH_REASON_CANCELLED` and the tokens
// that it had, and those that begin later at once. Costs a store, never waits, and may be called by any thread and by a signal handler.
//
// # Safety
// `cancel` was not freed, and is not freed meanwhile.
enum ygg_status ygg_cancel_now(const struct ygg_cancel *cancel);

// Gives a handle back. A request that has it goes on, and can then not be cancelled; `NULL` is no handle, and nothing happens.
//
// # Safety
// `cancel` was not freed, and no other thread uses it.
void ygg_cancel_free(struct ygg_cancel *cancel);

// Opens a model: reads it, checks that the plan fits this machine, and allocates everything that requests will need, which takes seconds
// for large models. `*engine` is then a handle, to be given back with `ygg_engine_close()`; if the call goes wrong it is `NULL`.
//
// A process may have several engines, each with a request of its own.
//
// # Safety
// `options` points to a `ygg_options` whose texts are `NULL` or end with a NUL, and `engine` to a place for the handle.
enum ygg_status ygg_engine_open(const struct ygg_options *options,
                                struct ygg_engine **engine);

// Gives an engine back with everything it holds. `NULL` is no engine, and nothing happens. An engine that is answering is left as it is
// (`YGG_STATUS_USAGE`): cancel its request first, and wait until `ygg_generate()` returns.
//
// # Safety
// `engine` was not closed, and no other call for it begins.
enum ygg_status ygg_engine_close(struct ygg_engine *engine);

// Answers a request and returns when the answer ended. Without an error the status is `YGG_STATUS_OK`, cancelled or not. `on_token` and
// `report` may be `NULL`; the report is filled only if the call goes well.
//
// An engine answers one request at a time: while it does, other calls for it are refused with `YGG_STATUS_USAGE`, from whatever thread.
// Requests one after the other may come from any threads.
//
// # Safety
// `engine` was not closed. `request` points to a `ygg_request` whose arrays have as many elements as it says, whose texts end with a NUL,
// and whose cancel handle is `NULL` or not freed while the call begins. `report` is `NULL` or points to a `ygg_report` with its size set.
enum ygg_status ygg_generate(struct ygg_engine *engine,
                             const struct ygg_request *request,
                             ygg_on_token on_token,
                             void *user_data,
                             struct ygg_report *report);

// What went wrong in the last call of this thread that did not end with `YGG_STATUS_OK`: one paragraph of UTF-8 that says what was
// expected, what was found and what to do. Never `NULL`; empty if nothing went wrong yet. The text is the library's, and is good until
// the next call of this thread that goes wrong, or the thread's end.
const char *ygg_last_error(void);

// The version of the library, such as "0.1.0": a text that is good for ever.
const char *ygg_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* YGG_H */
