/* Whatever request of at most 12 bytes arrives (with a link key, and a MAC), and in whatever state a session is, the
 * server accesses only the model's memory and its own buffers, reads no byte after the request, and sends no more than
 * fits. The link is one that delivers any frame (mt_prove_link.c is about the real one), and the port's timer does
 * what its contract says. */
#include "../src/mt_server.c"

#include "mt_functions.h"
#include "mt_link.h"
#include "mt_protocol.h"
#include "mt_prove.h"
#include "mt_requests.h"
#include "mtool.h"

#define PACKET 125u /* of the smallest buffer */
#define PAYLOAD (PACKET - MT_FRAME_MIN_BYTES)
#define MAC (MT_LINK_FRAME_BYTES - MT_FRAME_MIN_BYTES) /* its bytes */

static uint8_t buffer[MT_SERVER_MIN_BUFFER], received[PAYLOAD], to_send[PAYLOAD];
static struct mt_frame next;

static uint8_t input[100], arena[64];
static uint32_t output[10];
static const struct mt_tensor inputs[] = {{input, sizeof input}};
static const struct mt_tensor outputs[] = {{output, sizeof output}};
static const struct mt_tensor pools[] = {{input, 16}};

void mt_link_open(struct mt_link *link, uint8_t *bytes, size_t count)
{
    use_bytes(bytes, count);
    link->packet = PACKET;
}

int32_t mt_link_poll(struct mt_link *link, struct mt_frame *frame)
{
    (void)link;
    *frame = next;
    return any(0, 1) ? MT_OK : (int32_t)any(0, 31);
}

uint8_t *mt_link_payload(const struct mt_link *link)
{
    (void)link;
    return to_send;
}

size_t mt_link_payload_bytes(const struct mt_link *link)
{
    return link->packet - MT_LINK_FRAME_BYTES;
}

int32_t mt_link_send(struct mt_link *link, uint8_t type, uint16_t session, uint16_t sequence, size_t count)
{
    (void)type, (void)session, (void)sequence;
    //@ assert count <= PAYLOAD - MAC;
    use_bytes(to_send, count);
    (void)link;
    return any(0, 1) ? MT_OK : (int32_t)any(0, 31);
}

#ifdef MT_LINK_KEY
void mt_link_open_session(struct mt_link *link, const uint8_t *challenges)
{
    use_bytes(challenges, 2u * MT_CHALLENGE_BYTES);
    any_bytes(link->key, sizeof link->key);
}

int32_t mt_link_check(struct mt_link *link, struct mt_frame *frame)
{
    (void)link;
    if (frame->count < MAC) {
        return MT_BAD_FRAME;
    }
    frame->count -= MAC;
    return any(0, 1) ? MT_OK : MT_BAD_FRAME;
}

static int32_t draw(struct mt_extension *extension, uint8_t *bytes)
{
    (void)extension;
    any_bytes(bytes, MT_CHALLENGE_BYTES);
    return (int32_t)any(0, 31);
}

int32_t mt_port_random(uint8_t *bytes, size_t count)
{
    any_bytes(bytes, count);
    return (int32_t)any(0, 31);
}
#endif

/* Firmware without modules, with a key. */
static int32_t refuse(struct mt_extension *extension, struct mt_requests *state, const struct mt_frame *request,
                      struct mt_reply *reply)
{
    (void)extension, (void)state, (void)request, (void)reply;
    return MT_UNKNOWN_MESSAGE;
}

static struct mt_extension extension = {
    .execute = refuse,
#ifdef MT_LINK_KEY
    .draw = draw,
#endif
};

static int32_t run(const struct mt_model *model)
{
    (void)model;
    any_bytes(input, sizeof input);
    any_bytes(output, sizeof output);
    return (int32_t)any(0, UINT32_MAX);
}

static int32_t step(const struct mt_model *model, uint16_t number)
{
    //@ assert number < 3;
    use_bytes(input, number);
    return run(model);
}

static int32_t fill(union mt_value *arguments, int32_t *type_codes, int32_t count, union mt_value *result,
                    int32_t *result_code, void *resource)
{
    (void)resource, (void)arguments;
    for (int32_t i = 0; i < count; ++i) {
        use_bytes((const uint8_t *)(type_codes + i), sizeof *type_codes);
    }
    result->v_int64 = count;
    *result_code = MT_ARG_INT;
    return (int32_t)any(0, UINT32_MAX);
}

static const struct mt_function list[] = {{"fill", fill}, {"fill too", fill}};
static DLTensor tensors[3];
static union mt_value values[3];
static int32_t codes[3];
static int64_t dims[6];

static const struct mt_functions functions = {
    .list = list, .count = 2, .most_arguments = 3, .most_dims = 6, .tensors = tensors, .values = values,
    .codes = codes, .dims = dims, .find = mt_functions_find, .invoke = mt_functions_invoke,
};

const struct mt_model mt_model = {
    .name = "a name of more bytes than a reply to HELLO has room for", .model_hash = "0123456789abcdef01",
    .inputs = inputs, .outputs = outputs, .input_count = 1, .output_count = 1, .operator_count = 3, .arena = arena,
    .arena_bytes = sizeof arena, .run = run, .step = step, .functions = &functions, .pools = pools,
    .pool_count = 1,
};

static const struct mt_server_config config = {
    .extension = &extension, .model = &mt_model, .build_hash = "0", .buffer = buffer, .buffer_bytes = sizeof buffer,
};

/* Receive a frame with a payload of `count` bytes, after which nothing may be read. */
static void receive(uint8_t type, size_t count)
{
    uint8_t is_over;
    next.payload = received + (sizeof received - count);
    next.count = count;
    next.type = type;
    next.session = (uint16_t)any(0, 2);
    next.sequence = (uint16_t)any(0, 65535);
    (void)mt_server_poll(&is_over);
}

/* All that a session may have left. */
static void any_session(void)
{
    server.nonce = any(0, UINT32_MAX);
    server.host = any(0, UINT32_MAX);
    server.session = (uint16_t)any(0, 2);
    server.expected = (uint16_t)any(0, 65535);
    any_bytes(server.statuses, sizeof server.statuses);
#ifdef MT_LINK_KEY
    server.requests.link.next = any(0, UINT32_MAX);
    any_bytes(server.challenges, sizeof server.challenges);
#endif
    server.is_open = (uint8_t)any(0, 1);
    server.is_used = (uint8_t)any(0, 1);
    server.is_rejecting = (uint8_t)any(0, 1);
    server.is_done = (uint8_t)any(0, 1);
    any_bytes(&server.requests.last, sizeof server.requests.last);
    server.requests.work_sequence = (uint16_t)any(0, 65535);
    any_bytes(server.requests.work, sizeof server.requests.work);
    server.requests.work_count = (uint8_t)any(0, MT_REQUESTS_WORK_BYTES);
    any_bytes(codes, sizeof codes);
}

static void read(uint32_t length)
{
    any_bytes(received, sizeof received);
    received[sizeof received - 2u - MAC] = (uint8_t)length;
    received[sizeof received - 1u - MAC] = 0;
    receive(MT_READ, 8u + MAC);
}

/* Each type by itself, and one that does not exist. */
static const uint8_t types[] = {
#define TYPE(name, code, meaning) name,
    MT_MESSAGE_LIST(TYPE)
#undef TYPE
        0x7E};

#define LAST (12u + MAC)

int main(void)
{
    any_bytes(input, sizeof input);
    any_bytes(output, sizeof output);
    any_bytes(arena, sizeof arena);
    any_bytes(to_send, sizeof to_send);
    if (mt_server_start(&config) != MT_OK) {
        return 1;
    }
    any_session();
    mt_server_log("text");
    for (size_t i = 0; i < sizeof types; ++i) {
        for (size_t count = 0; types[i] != MT_READ && count <= LAST; ++count) {
            any_bytes(received, sizeof received);
            receive(types[i], count);
        }
    }
    for (uint32_t length = 0; length <= PAYLOAD; ++length) {
        read(length);
    }
    return 0;
}
