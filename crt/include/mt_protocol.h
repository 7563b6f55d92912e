/* Internal to mtool: applications include mtool.h. */
/* Constants of the protocol; crt/PROTOCOL.md explains them, mtool/device/rpc/protocol.py is the host's side. */
#ifndef MT_PROTOCOL_H
#define MT_PROTOCOL_H

#define MT_PROTOCOL_VERSION 1

/* The lower half is sent by the host; a reply has the request's number plus MT_REPLY. The others are sent by the
 * device on its own. */
/* clang-format off */
#define MT_MESSAGE_LIST(X)                                                             \
    X(MT_HELLO,    0x01, "open a session")                                             \
    X(MT_INFO,     0x02, "describe the timer and the tensors")                         \
    X(MT_WRITE,    0x03, "write bytes into a tensor")                                  \
    X(MT_READ,     0x04, "read bytes from a tensor")                                   \
    X(MT_CALL,     0x05, "run the model once")                                         \
    X(MT_TIME,     0x06, "run the model or an operator several times, under the timer") \
    X(MT_STACK,    0x07, "report the stack that the last CALL, TIME or INVOKE used")   \
    X(MT_RESET,    0x08, "leave the server")                                           \
    X(MT_PING,     0x09, "answer, to tell that the device is there")                   \
    X(MT_BYE,      0x0A, "end the session")                                            \
    X(MT_TIMER,    0x0B, "start or stop the timer")                                    \
    X(MT_LOOKUP,   0x0C, "find a function by its name")                                \
    X(MT_INVOKE,   0x0D, "call a function")                                            \
    X(MT_SELECT,   0x0E, "choose the model that what follows is for")                  \
    X(MT_LOAD,     0x0F, "begin to load a module, or go on with it")                    \
    X(MT_DATA,     0x10, "the next bytes of the module")                               \
    X(MT_COMMIT,   0x11, "check the module that was loaded, and use it")               \
    X(MT_ROOM,     0x12, "report which modules the device takes")                      \
    X(MT_MODELS,   0x13, "list the models, those of modules too")                      \
    X(MT_FETCH,    0x14, "read bytes of a module's file")                              \
    X(MT_RESEND,   0xF0, "a frame was lost, or belongs to no session")                 \
    X(MT_RUNNING,  0xF1, "an MT_CALL, MT_TIME, MT_INVOKE or MT_WRITE of MT_ROWS has begun") \
    X(MT_LOG,      0xF2, "text for a person")                                          \
    X(MT_FAULT,    0xF3, "the processor stopped at a fault; nothing more will come")
/* clang-format on */

enum {
#define MT_MESSAGE_ENUM(name, code, meaning) name = (code),
    MT_MESSAGE_LIST(MT_MESSAGE_ENUM)
#undef MT_MESSAGE_ENUM
};

#define MT_REPLY 0x80u

/* A frame before encoding: type, session, sequence, payload, CRC-32. Offsets and sizes in bytes. */
#define MT_FRAME_SESSION 1u
#define MT_FRAME_SEQUENCE 3u
#define MT_FRAME_PAYLOAD 5u
#define MT_FRAME_CRC_BYTES 4u
#define MT_FRAME_MIN_BYTES (MT_FRAME_PAYLOAD + MT_FRAME_CRC_BYTES)

/* In a session with a link key, the bytes of each side's challenge in HELLO, and of the MAC before each CRC. */
#define MT_CHALLENGE_BYTES 8u
#define MT_MAC_BYTES 8u

/* Frames that the host may have in flight. A power of two, so that it divides 65536. */
#define MT_WINDOW_FRAMES 16u

/* In HELLO's reply: hexadecimal digits of the build hash and the model hash, and the most bytes of the model's name. */
#define MT_HASH_DIGITS 16u
#define MT_NAME_BYTES 31u

/* Flags of HELLO. */
#define MT_HELLO_TAKE_OVER 1u

/* Which tensors an index refers to; MT_ROWS: an input that is passed by rows, of which MT_INPUTS holds only one. */
#define MT_INPUTS 0u
#define MT_OUTPUTS 1u
#define MT_ARENA_BYTES 2u
#define MT_ROWS 3u

/* How a CALL runs the model: operator by operator, so that a fault names its operator, or through the model's entry
 * point. */
#define MT_CALL_STEPS 0u
#define MT_CALL_RUN 1u

/* How often a FAULT is sent: the host can't ask for it again. */
#define MT_FAULT_TIMES 3u

/* Actions of a TIMER. */
#define MT_TIMER_BEGIN 0u
#define MT_TIMER_END 1u

#endif
