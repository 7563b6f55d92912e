/* The commands of EEMBC's runner for MLPerf Tiny over the port, in performance mode: each ends with %, the answers
 * are lines that begin with m- or e-, and m-ready is the last of each. The lines and their order are those of
 * benchmark/api/internally_implemented.cpp of mlcommons/tiny; where that would overflow its buffer, this reports an
 * error. */
#include "runner.h"

#include <string.h>

#include "mtool.h"

#define COMMAND_BYTES {{ "1028u" if benchmark == "sww01" else "80u" }}
#define FIRMWARE "ULPMark for tinyML Firmware V0.0.1"
#define PER_LINE 8u /* bytes that `db print` shows in a line */

static char command[COMMAND_BYTES + 1u];
static size_t command_count;
static size_t load_size;  /* bytes that `db load` announced */
static size_t load_count; /* received bytes */
static char *rest;        /* the rest of the command, from which the next word is taken */
static uint64_t time_ns;
static int timer_overflow;

void runner_print(const char *text)
{
    mt_port_write((const uint8_t *)text, strlen(text));
}

static void print_unsigned(uint32_t number, size_t least)
{
    char digits[11];
    size_t at = sizeof digits;
    digits[--at] = '\0';
    do {
        digits[--at] = (char)('0' + number % 10u);
        number /= 10u;
    } while (number > 0 || sizeof digits - 1u - at < least);
    runner_print(&digits[at]);
}

void runner_print_number(int32_t number)
{
    if (number < 0) {
        runner_print("-");
    }
    print_unsigned(number < 0 ? 0u - (uint32_t)number : (uint32_t)number, 1);
}

/* printf's %0.3f for numbers below four million: rounded to nearest, ties to even. */
void runner_print_decimal(float number)
{
    if (number != number) {
        runner_print("nan");
        return;
    }
    double left = number < 0.0f ? -(double)number : (double)number;
    if (number < 0.0f) {
        runner_print("-");
    }
    if (left >= 4.0e6) {
        runner_print("inf");
        return;
    }
    left *= 1000.0;
    uint32_t thousandths = (uint32_t)left;
    left -= (double)thousandths;
    if (left > 0.5 || (left == 0.5 && (thousandths & 1u) != 0)) {
        ++thousandths;
    }
    print_unsigned(thousandths / 1000u, 1);
    runner_print(".");
    print_unsigned(thousandths % 1000u, 3);
}

static void print_hex(uint8_t byte)
{
    static const char digits[] = "0123456789abcdef";
    const char text[3] = {digits[byte >> 4], digits[byte & 15u], '\0'};
    runner_print(text);
}

/* The port's timer measures intervals: the time is their sum. */
static uint64_t now_us(void)
{
    uint64_t elapsed_ns = 0;
    timer_overflow = mt_port_timer_stop(&elapsed_ns) == MT_TIMER_OVERFLOW;
    mt_port_timer_start();
    time_ns += elapsed_ns;
    return time_ns / 1000u;
}

static void timestamp(void)
{
    const uint64_t us = now_us();
    runner_print("m-lap-us-");
    print_unsigned((uint32_t)us, 1);
    runner_print("\r\n");
}

{% if benchmark == "sww01" %}
void runner_timestamp(void)
{
    timestamp();
}

{% endif %}
/* Return the next word of the command, or NULL: strtok, which some C libraries lack. */
static char *next_word(void)
{
    while (*rest == ' ') {
        ++rest;
    }
    if (*rest == '\0') {
        return NULL;
    }
    char *word = rest;
    while (*rest != ' ' && *rest != '\0') {
        ++rest;
    }
    if (*rest == ' ') {
        *rest++ = '\0';
    }
    return word;
}

/* Like atoi, but numbers with too many digits become a number that is too large for any command. */
static int32_t number_of(const char *text)
{
    const int is_negative = *text == '-';
    int32_t number = 0;
    for (text += *text == '-' || *text == '+'; *text >= '0' && *text <= '9'; ++text) {
        number = number > 99999999 ? 999999999 : number * 10 + (*text - '0');
    }
    return is_negative ? -number : number;
}

static int32_t hex_of(char digit)
{
    if (digit >= '0' && digit <= '9') {
        return digit - '0';
    }
    if (digit >= 'a' && digit <= 'f') {
        return digit - 'a' + 10;
    }
    return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

static void db_load(void)
{
    const char *word = next_word();
    if (word == NULL) {
        runner_print("e-[Command 'db load' requires the # of bytes]\r\n");
        return;
    }
    const int32_t size = number_of(word);
    load_size = 0;
    load_count = 0;
    if (size <= 0) {
        runner_print("e-[Command 'db load' must be >0 bytes]\r\n");
    } else if ((size_t)size > model_buffer_bytes) {
        runner_print("Supplied buffer size ");
        runner_print_number(size);
        runner_print(" exceeds maximum of ");
        runner_print_number((int32_t)model_buffer_bytes);
        runner_print("\n");
    } else {
        load_size = (size_t)size;
        runner_print("m-[Expecting ");
        runner_print_number(size);
        runner_print(" bytes]\r\n");
    }
}

static void db_print(void)
{
    for (size_t i = 0; i < load_size; ++i) {
        if (i % PER_LINE == 0) {
            runner_print("m-buffer-");
        }
        print_hex(model_buffer[i]);
        runner_print((i + 1u) % PER_LINE == 0 || i + 1u == load_size ? "\r\n" : "-");
    }
    if (load_size % PER_LINE != 0) {
        runner_print("\r\n");
    }
}

static void db_bytes(const char *digits)
{
    if (strlen(digits) % 2u != 0) {
        runner_print("e-[Insufficent number of hex digits]\r\n");
        return;
    }
    for (; *digits != '\0'; digits += 2) {
        const int32_t high = hex_of(digits[0]);
        const int32_t low = hex_of(digits[1]);
        if (high < 0 || low < 0) {
            const char pair[3] = {digits[0], digits[1], '\0'};
            runner_print("e-[Invalid hex digit '");
            runner_print(pair);
            runner_print("']\r\n");
            return;
        }
        if (load_count >= load_size) {
            runner_print("e-[More bytes than 'db load' announced]\r\n");
            return;
        }
        model_buffer[load_count++] = (uint8_t)(high * 16 + low);
        if (load_count == load_size) {
            runner_print("m-load-done\r\n");
            return;
        }
    }
{% if benchmark == "sww01" %}
    runner_print_number((int32_t)load_count);
    runner_print(" bytes received\r\n");
{% endif %}
}

static void db(void)
{
    const char *word = next_word();
    if (word == NULL) {
        runner_print("e-[Command 'db' requires a subcommand]\r\n");
    } else if (strcmp(word, "load") == 0) {
        db_load();
    } else if (strcmp(word, "print") == 0) {
        db_print();
{% if benchmark == "sww01" %}
    } else if (strcmp(word, "setptr") == 0) { /* a host sends bytes again */
        word = next_word();
        const int32_t place = word == NULL ? 0 : number_of(word);
        load_count = place > 0 && (size_t)place < load_size ? (size_t)place : 0;
{% endif %}
    } else {
        db_bytes(word);
    }
}

static void print_count(const char *text, int32_t count)
{
    runner_print(text);
    runner_print_number(count);
    runner_print("\r\n");
}

/* Run the model `count` times; return its status. */
static int32_t repeat(int32_t count)
{
    int32_t status = 0;
    while (count-- > 0 && status == 0) {
        status = model_infer();
    }
    return status;
}

static void infer(void)
{
    int32_t count = 1;
    int32_t warmups = 10;
    const char *word = next_word();
    if (word != NULL) {
        count = number_of(word);
        if (count <= 0) {
            runner_print("e-[Inference iterations must be >0]\r\n");
            return;
        }
        word = next_word();
        if (word != NULL) {
            warmups = number_of(word);
            if (warmups < 0) {
                runner_print("e-[Inference warmup must be >=0]\r\n");
                return;
            }
        }
    }
    model_load(load_count);
    print_count("m-warmup-start-", warmups);
    int32_t status = repeat(warmups);
    runner_print("m-warmup-done\r\n");
    print_count("m-infer-start-", count);
    now_us(); /* start a new interval: the timer may have overflowed while idle */
    timestamp();
    status = status != 0 ? status : repeat(count);
    timestamp();
    if (timer_overflow) {
        runner_print("e-[The timer ran over its range: ask for fewer inferences]\r\n");
    }
    if (status != 0) {
        runner_print("e-[The model failed with status ");
        runner_print_number(status);
        runner_print("]\r\n");
    }
    runner_print("m-infer-done\r\n");
    model_results();
}

static void help(void)
{
    runner_print(FIRMWARE "\r\n\r\n"
                 "help           this\r\n"
                 "name           the device's name\r\n"
                 "profile        the firmware and the benchmark\r\n"
                 "timestamp      the time in microseconds\r\n"
                 "db load N      expect N bytes\r\n"
                 "db HH[HH]*     some of them, in hexadecimal\r\n"
                 "db print       the bytes that have come\r\n"
                 "infer N [W=10] load the input, W inferences to warm up, then N\r\n"
                 "results        the outputs of the last one\r\n");
}

static void act(void)
{
{% if benchmark == "sww01" %}
    runner_print("Received command: ");
    runner_print(command);
    runner_print("\r\n");
{% endif %}
    rest = command;
    const char *word = next_word();
    if (word == NULL) {
        word = "";
    }
    if (strcmp(word, "name") == 0) {
        runner_print("m-name-dut-[");
        runner_print(model_vendor);
        runner_print("]\r\n");
    } else if (strcmp(word, "timestamp") == 0) {
        timestamp();
    } else if (strcmp(word, "profile") == 0) {
        runner_print("m-profile-[" FIRMWARE "]\r\nm-model-[");
        runner_print(model_id);
        runner_print("]\r\n");
    } else if (strcmp(word, "help") == 0) {
        help();
    } else if (strcmp(word, "db") == 0) {
        db();
    } else if (strcmp(word, "infer") == 0) {
        infer();
    } else if (strcmp(word, "results") == 0) {
        model_results();
{% if benchmark == "sww01" %}
    } else if (streaming_command(word)) {
        /* done */
{% endif %}
    } else {
        runner_print("e-[Unknown command: ");
        runner_print(word);
        runner_print("]\r\n");
    }
    runner_print("m-ready\r\n");
}

int32_t runner_begin(void)
{
    const int32_t status = mt_port_init();
    if (status == MT_OK) {
        mt_port_timer_start();
        runner_print("m-timestamp-mode-performance\r\n");
        timestamp();
        runner_print("m-init-done\r\nm-ready\r\n");
    }
    return status;
}

int32_t runner_poll(void)
{
    uint8_t bytes[32];
    size_t count = 0;
    const int32_t status = mt_port_read(bytes, sizeof bytes, &count);
    if (status == MT_OK && count == 0) {
        mt_port_idle();
    }
    for (size_t i = 0; i < count; ++i) {
        if (bytes[i] == '%') {
            command[command_count] = '\0';
            command_count = 0;
            act();
        } else if (bytes[i] != '\r' && bytes[i] != '\n') { /* sent by interactive terminals */
            command[command_count] = (char)bytes[i];
            command_count += command_count < COMMAND_BYTES ? 1u : 0u;
        }
    }
    return status;
}
