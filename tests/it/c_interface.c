/* What the tests of the C interface run: `c_interface CASE MODEL [PLAN]`. Ends with 0 if everything held. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ygg.h>

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "line %d: not so: %s\nlast error: %s\n", __LINE__, #condition, ygg_last_error()); \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

#define REFUSED(expected, call, words)                           \
    do {                                                         \
        CHECK((call) == (expected));                             \
        CHECK(strstr(ygg_last_error(), (words)) != NULL);        \
    } while (0)

static const ygg_message QUESTION = {"user", "one and one and one"};

static ygg_options options_of(const char *model) {
    ygg_options options = {.size = sizeof options, .model = model, .isa = "portable", .threads = 1};
    return options;
}

static ygg_request request_of(uint32_t max_tokens) {
    ygg_request request = {
        .size = sizeof request, .messages = &QUESTION, .message_count = 1, .max_tokens = max_tokens};
    return request;
}

static ygg_engine *opened(const char *model) {
    ygg_options options = options_of(model);
    ygg_engine *engine = NULL;
    CHECK(ygg_engine_open(&options, &engine) == YGG_STATUS_OK);
    CHECK(engine != NULL);
    return engine;
}

/* Prints ids, one a line. */
static int32_t print_id(const ygg_token *token, void *user_data) {
    CHECK(user_data == &QUESTION);
    CHECK(strlen(token->text) == token->text_bytes);
    if (token->id != YGG_NO_TOKEN) {
        printf("%u\n", token->id);
    }
    return 0;
}

/* Token ids, then the drafter and why it did not draft. */
static void answer(const char *model, const char *plan) {
    ygg_options options = options_of(model);
    options.plan = plan;
    options.drafter = plan != NULL ? "layer_skip" : NULL;
    ygg_engine *engine = NULL;
    CHECK(ygg_engine_open(&options, &engine) == YGG_STATUS_OK);
    ygg_request request = request_of(40);
    ygg_report report = {.size = sizeof report};
    CHECK(ygg_generate(engine, &request, print_id, (void *)&QUESTION, &report) == YGG_STATUS_OK);
    CHECK(report.size == sizeof report);
    CHECK(report.tokens > 0 && report.prompt_tokens > 0 && report.ttft_ms > 0);
    CHECK((report.drafted > 0) == (plan != NULL));
    printf("%s, %s\n", report.drafter, report.spec_off_reason != NULL ? report.spec_off_reason : "as planned");

    /* Again, without a callback; the prompt is known by now. */
    ygg_report again = {.size = sizeof again};
    CHECK(ygg_generate(engine, &request, NULL, NULL, &again) == YGG_STATUS_OK);
    CHECK(again.tokens == report.tokens && again.reused_tokens > 0 && report.reused_tokens == 0);
    CHECK(ygg_engine_close(engine) == YGG_STATUS_OK);
}

/* Appends the text to the answer, which has room for it. */
static int32_t append(const ygg_token *token, void *user_data) {
    char *answer = user_data;
    CHECK(strlen(answer) + token->text_bytes < 256);
    strcat(answer, token->text);
    return 0;
}

/* Answers that have to have a form have it, and ends are theirs. */
static void constrained(const char *model) {
    ygg_engine *engine = opened(model);
    ygg_report report = {.size = sizeof report};
    char said[256] = "";
    ygg_request request = request_of(60);
    request.json_schema = "{\"enum\": [\"Rhine\", \"Danube\"]}";
    CHECK(ygg_generate(engine, &request, append, said, &report) == YGG_STATUS_OK);
    CHECK(strcmp(said, "\"Rhine\"") == 0 || strcmp(said, "\"Danube\"") == 0);
    CHECK(report.finish_reason == YGG_FINISH_REASON_STOP);
    said[0] = 0;
    request = request_of(60);
    request.regex = "(yes|no), 42";
    CHECK(ygg_generate(engine, &request, append, said, &report) == YGG_STATUS_OK);
    CHECK(strcmp(said, "yes, 42") == 0 || strcmp(said, "no, 42") == 0);
    said[0] = 0;
    request = request_of(60);
    request.grammar = "start: \"a\" \"b\"";
    CHECK(ygg_generate(engine, &request, append, said, &report) == YGG_STATUS_OK);
    CHECK(strcmp(said, "ab") == 0);

    request.regex = "a";
    REFUSED(YGG_STATUS_USAGE, ygg_generate(engine, &request, NULL, NULL, NULL), "at most one of");
    request.grammar = NULL;
    request.regex = "(";
    REFUSED(YGG_STATUS_INPUT, ygg_generate(engine, &request, NULL, NULL, NULL), "regular expression");
    CHECK(ygg_engine_close(engine) == YGG_STATUS_OK);
}

struct heard {
    ygg_engine *engine;
    ygg_cancel *cancel;
    int tokens;
    int end_at;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int is_cancelled;
};

static int32_t end_at(const ygg_token *token, void *user_data) {
    struct heard *heard = user_data;
    CHECK(token->id != YGG_NO_TOKEN);
    heard->tokens += 1;
    return heard->tokens == heard->end_at;
}

/* At the first token, waits until the other thread has cancelled. */
static int32_t wait_for_cancel(const ygg_token *token, void *user_data) {
    struct heard *heard = user_data;
    (void)token;
    pthread_mutex_lock(&heard->lock);
    heard->tokens += 1;
    pthread_cond_broadcast(&heard->changed);
    while (!heard->is_cancelled) {
        pthread_cond_wait(&heard->changed, &heard->lock);
    }
    pthread_mutex_unlock(&heard->lock);
    return 0;
}

static void *cancel_at_first_token(void *user_data) {
    struct heard *heard = user_data;
    pthread_mutex_lock(&heard->lock);
    while (heard->tokens == 0) {
        pthread_cond_wait(&heard->changed, &heard->lock);
    }
    CHECK(ygg_cancel_now(heard->cancel) == YGG_STATUS_OK);
    /* The engine is busy here, whichever thread asks. */
    ygg_request request = request_of(1);
    REFUSED(YGG_STATUS_USAGE, ygg_generate(heard->engine, &request, NULL, NULL, NULL), "one request at a time");
    REFUSED(YGG_STATUS_USAGE, ygg_engine_close(heard->engine), "idle");
    heard->is_cancelled = 1;
    pthread_cond_broadcast(&heard->changed);
    pthread_mutex_unlock(&heard->lock);
    return NULL;
}

static void cancel(const char *model) {
    struct heard heard = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .end_at = 3};
    heard.engine = opened(model);
    ygg_request request = request_of(200);
    ygg_report report = {.size = sizeof report};

    /* The callback ends it. */
    CHECK(ygg_generate(heard.engine, &request, end_at, &heard, &report) == YGG_STATUS_OK);
    CHECK(heard.tokens == 3 && report.tokens == 3);
    CHECK(report.finish_reason == YGG_FINISH_REASON_CANCELLED);

    /* Another thread ends it. */
    heard.tokens = 0;
    heard.cancel = ygg_cancel_new();
    CHECK(heard.cancel != NULL);
    request.cancel = heard.cancel;
    pthread_t other;
    CHECK(pthread_create(&other, NULL, cancel_at_first_token, &heard) == 0);
    CHECK(ygg_generate(heard.engine, &request, wait_for_cancel, &heard, &report) == YGG_STATUS_OK);
    CHECK(pthread_join(other, NULL) == 0);
    CHECK(report.finish_reason == YGG_FINISH_REASON_CANCELLED);
    CHECK(report.tokens >= 1 && report.tokens < 100);

    /* It is cancelled for good; the engine is not. */
    CHECK(ygg_generate(heard.engine, &request, NULL, NULL, &report) == YGG_STATUS_OK);
    CHECK(report.finish_reason == YGG_FINISH_REASON_CANCELLED && report.tokens <= 1);
    ygg_cancel_free(heard.cancel);
    request.cancel = NULL;
    request.max_tokens = 5;
    CHECK(ygg_generate(heard.engine, &request, NULL, NULL, &report) == YGG_STATUS_OK);
    CHECK(report.finish_reason == YGG_FINISH_REASON_LENGTH && report.tokens == 5);
    CHECK(ygg_engine_close(heard.engine) == YGG_STATUS_OK);
}

static int32_t call_again(const ygg_token *token, void *user_data) {
    struct heard *heard = user_data;
    ygg_request request = request_of(1);
    heard->tokens += token->id != YGG_NO_TOKEN;
    REFUSED(YGG_STATUS_USAGE, ygg_generate(heard->engine, &request, NULL, NULL, NULL), "one request at a time");
    REFUSED(YGG_STATUS_USAGE, ygg_engine_close(heard->engine), "idle");
    return 0;
}

static void errors(const char *model) {
    ygg_options options = options_of("/nowhere/model.gguf");
    ygg_engine *engine = (ygg_engine *)&options;

    CHECK(strcmp(ygg_last_error(), "") == 0);
    REFUSED(YGG_STATUS_INPUT, ygg_engine_open(&options, &engine), "/nowhere/model.gguf");
    CHECK(engine == NULL);
    REFUSED(YGG_STATUS_USAGE, ygg_engine_open(NULL, &engine), "ygg_options is NULL");
    REFUSED(YGG_STATUS_USAGE, ygg_engine_open(&options, NULL), "engine is NULL");
    options.model = NULL;
    REFUSED(YGG_STATUS_USAGE, ygg_engine_open(&options, &engine), "model is NULL");
    options = options_of(model);
    options.size = 0;
    REFUSED(YGG_STATUS_USAGE, ygg_engine_open(&options, &engine), "sizeof(ygg_options)");
    options = options_of(model);
    options.plan = model;
    REFUSED(YGG_STATUS_INPUT, ygg_engine_open(&options, &engine), "plan");
    options = options_of(model);
    options.drafter = "lookup";
    REFUSED(YGG_STATUS_INPUT, ygg_engine_open(&options, &engine), "plan");
    options = options_of(model);
    options.resident = 1;
    REFUSED(YGG_STATUS_INPUT, ygg_engine_open(&options, &engine), "`packed_folder` to a folder");
    options = options_of(model);
    options.context = 1000000;
    REFUSED(YGG_STATUS_INPUT, ygg_engine_open(&options, &engine), "context");
    CHECK(engine == NULL);

    CHECK(ygg_engine_close(NULL) == YGG_STATUS_OK);
    ygg_cancel_free(NULL);
    REFUSED(YGG_STATUS_USAGE, ygg_cancel_now(NULL), "cancel is NULL");

    engine = opened(model);
    ygg_request request = request_of(4);
    REFUSED(YGG_STATUS_USAGE, ygg_generate(NULL, &request, NULL, NULL, NULL), "engine is NULL");
    REFUSED(YGG_STATUS_USAGE, ygg_generate(engine, NULL, NULL, NULL, NULL), "ygg_request is NULL");
    ygg_report report = {.size = 1};
    REFUSED(YGG_STATUS_USAGE, ygg_generate(engine, &request, NULL, NULL, &report), "sizeof(ygg_report)");
    request.messages = NULL;
    REFUSED(YGG_STATUS_USAGE, ygg_generate(engine, &request, NULL, NULL, NULL), "messages is NULL");
    request = request_of(4);
    request.temperature = -1.0f;
    REFUSED(YGG_STATUS_USAGE, ygg_generate(engine, &request, NULL, NULL, NULL), "temperature");
    const uint32_t unknown[] = {1, 4000000000u};
    ygg_request tokens = {.size = sizeof tokens, .tokens = unknown, .token_count = 2};
    REFUSED(YGG_STATUS_INPUT, ygg_generate(engine, &tokens, NULL, NULL, NULL), "4000000000");
    char text[4096];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    ygg_request longer = {.size = sizeof longer, .prompt = text};
    REFUSED(YGG_STATUS_INPUT, ygg_generate(engine, &longer, NULL, NULL, NULL), "context");

    /* None of it did the engine any harm, nor do calls out of its own callback. */
    request = request_of(4);
    struct heard heard = {.engine = engine};
    report.size = sizeof report;
    CHECK(ygg_generate(engine, &request, call_again, &heard, &report) == YGG_STATUS_OK);
    CHECK(heard.tokens == 4 && report.tokens == 4);
    const char *stop[] = {"no answer has this"};
    ygg_request stopping = {.size = sizeof stopping, .prompt = "ab", .stop = stop, .stop_count = 1, .max_tokens = 2};
    CHECK(ygg_generate(engine, &stopping, NULL, NULL, NULL) == YGG_STATUS_OK);
    CHECK(ygg_engine_close(engine) == YGG_STATUS_OK);
}

int main(int count, char **arguments) {
    CHECK(count == 3 || count == 4);
    const char *model = arguments[2];
    if (strcmp(arguments[1], "answer") == 0) {
        answer(model, arguments[3]);
    } else if (strcmp(arguments[1], "constrained") == 0) {
        constrained(model);
    } else if (strcmp(arguments[1], "cancel") == 0) {
        cancel(model);
    } else if (strcmp(arguments[1], "errors") == 0) {
        errors(model);
    } else {
        CHECK(strcmp(arguments[1], "version") == 0);
        printf("%s\n", ygg_version());
    }
    return 0;
}
